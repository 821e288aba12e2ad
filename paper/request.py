"""What was asked for: which runs that takes, what the whole table is, and the names of its files."""

import hashlib
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from paper.catalogue import RECIPES, Recipe
from paper.protocols import Place, place_named
from paper.results_file import Kept, parts
from paper.tables import Job, make_jobs, with_steps
from tsadapt.errors import UserError, unknown

__all__ = ["Asked", "Request", "columns_of"]

QUICK_STEPS, QUICK_EPOCH_STEPS = 30, 160


@dataclass(frozen=True)
class Asked:
    """What the user asked for; None and empty mean what the recipe says."""

    on: str | None = None
    frozen: bool = False
    weights: str | None = None
    seeds: tuple[int, ...] = ()
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    steps: int | None = None
    quick: bool = False
    jobs: int = 1
    only_collect: bool = False


@dataclass(frozen=True)
class Request:
    """A table or figure by its name, and what was asked for of it. Words that it does not know are refused."""

    name: str
    asked: Asked

    def __post_init__(self) -> None:
        _ = self.jobs  # which asks for all that may be unknown

    @property
    def recipe(self) -> Recipe:
        """How it is made."""
        if self.name not in RECIPES:
            raise UserError(unknown("table or figure", self.name, RECIPES))
        return RECIPES[self.name]

    @cached_property
    def place(self) -> Place:
        """Where it is made, with the number of steps that was asked for."""
        recipe, asked, on = self.recipe, self.asked, _where(self.recipe, self.asked)
        place = place_named(on, asked.frozen, asked.weights)
        if recipe.only and on not in recipe.only:
            raise UserError(f"{self.name} cannot be made on {on}: expected --on {' or '.join(recipe.only)}.")
        if asked.quick:
            steps = asked.steps or (QUICK_EPOCH_STEPS if recipe.alone is not None else QUICK_STEPS)
            told = f"a first look of {steps} steps, whose numbers mean nothing; the whole has: {place.protocol}"
            place = with_steps(place, steps, told, candidates=2)
        elif asked.steps is not None:
            place = with_steps(place, asked.steps, re.sub(r"[\d,]+ steps", f"{asked.steps:,} steps", place.protocol))
        return place

    @cached_property
    def jobs(self) -> list[Job]:
        """The runs of this call."""
        asked, titles = self.asked, _named("row", self.asked.rows, [row.title for row in self.recipe.rows])
        rows = [row for row in self.recipe.rows if not titles or row.title in titles]
        columns = _named("column", asked.columns, self.place.tasks) or self._columns
        return make_jobs(self.place, rows, dict.fromkeys(columns), dict.fromkeys(asked.seeds or self._seeds))

    def whole(self, kept: Kept) -> tuple[list[Job], list[str]]:
        """All jobs of the table, whatever part of it was asked for, and its columns, with those kept beyond it.

        Its seeds are the recipe's, unless others were asked for.
        """
        there = [*(job.column for job in self.jobs), *(parts(key).column for key in kept)]
        columns = dict.fromkeys([*self._columns, *(c for c in there if c in self.place.tasks)])
        seeds = self._seeds if {*self.asked.seeds} <= {*self._seeds} else self.asked.seeds
        return make_jobs(self.place, self.recipe.rows, columns, sorted({*seeds})), [*columns]

    def of_today(self, kept: Kept) -> list[Job]:
        """The jobs of all that is kept with today's settings, also of seeds that the table does not have."""
        whole, columns = self.whole(kept)
        seeds = {job.seed for job in whole} | {parts(key).seed for key in kept}
        jobs = make_jobs(self.place, self.recipe.rows, columns, sorted(seeds))
        return [job for job in jobs if self.is_kept(job, kept)]

    def is_kept(self, job: Job, kept: Kept) -> bool:
        """Whether what is kept of a job was made with today's settings."""
        there, settings = kept.get(job.key, {}), self.recipe.settings
        wanted = None if settings is None else settings(job.config, self.asked.quick)
        return bool(there.get("hash") == job.config.hash() and (wanted is None or there.get("settings") == wanted))

    def command(self, kept: Kept) -> str:
        """The command that makes all of the table, with the seeds and tasks that it would not have by itself."""
        asked, (whole, columns) = self.asked, self.whole(kept)
        words = ["tsadapt", "reproduce", self.name]
        words += ["--on", asked.on] if asked.on is not None else []
        words += ["--frozen"] if asked.frozen else []
        words += ["--weights", asked.weights] if asked.weights is not None else []
        words += ["--quick"] if asked.quick else []
        words += ["--steps", str(asked.steps)] if asked.steps is not None else []
        seeds = sorted({job.seed for job in whole})
        words += ["--seeds", *map(str, seeds)] if not {*seeds} <= {*self._seeds} else []
        words += ["--columns", *columns] if not {*columns} <= {*self._columns} else []
        return shlex.join(words)

    @property
    def is_at_home(self) -> bool:
        """Whether data and protocol are the paper's, as far as they can be had."""
        asked = self.asked
        elsewhere = asked.on not in (None, self.recipe.home) or asked.quick
        return not (elsewhere or asked.frozen or asked.steps is not None or asked.weights == "none")

    @property
    def stem(self) -> str:
        """The name of the files: one protocol a file."""
        asked = self.asked
        where = "" if asked.on in (None, self.recipe.home) else f"-on-{asked.on}"
        frozen = "-frozen" if asked.frozen else ""
        weights = f"-{self._weights_name}" if self._weights_name else ""
        steps = f"-{asked.steps}-steps" if asked.steps is not None and not asked.quick else ""
        return f"{self.name}{where}{frozen}{weights}{steps}"

    def work(self, folder: Path) -> Path:
        """Where the runs lie: with other weights elsewhere, since a run's name has their path and not what they are."""
        return folder / "work" / self._weights_name

    @cached_property
    def _weights_name(self) -> str:
        """A name for the backbone's weights, and for what is in their file; empty if none were given."""
        given = self.asked.weights
        if given in (None, "none"):
            return "" if given is None else "weights-none"
        path = Path(given).expanduser()
        with path.open("rb") as file:
            return f"weights-{path.stem}-{hashlib.file_digest(file, 'sha256').hexdigest()[:8]}"

    def stem_of(self, job: Job) -> str:
        """The name of a job's own pictures: the table's for its first task and seed, which is mostly the only one."""
        if (job.column, job.seed) == (self._columns[0], self.recipe.seeds[0]):
            return self.stem
        return f"{self.stem}-{job.column.replace(' → ', '-')}-{job.seed}".replace(" ", "-")

    @property
    def _columns(self) -> list[str]:
        return columns_of(self.recipe, self.asked, self.place)

    @property
    def _seeds(self) -> tuple[int, ...]:
        return self.recipe.seeds[:1] if self.asked.quick else self.recipe.seeds


def columns_of(recipe: Recipe, asked: Asked, place: Place) -> list[str]:
    """The columns of the whole table at a place; a quick look has one."""
    on = _where(recipe, asked)
    if on == recipe.home:
        columns = [*(recipe.columns or place.tasks)]
    else:
        columns = [*recipe.elsewhere.get(on.removesuffix("-images"), ())] or [
            c for c in recipe.columns or () if c in place.tasks
        ]
    columns = columns or [*place.tasks]
    return columns[:1] if asked.quick else columns


def _where(recipe: Recipe, asked: Asked) -> str:
    """The name of the place: the recipe's own unless another was asked for; a quick look needs no data of its own."""
    return asked.on or ("digits-small" if asked.quick and recipe.home != "moons" else recipe.home)


def _named(what: str, given: Iterable[str], known: Iterable[str]) -> list[str]:
    """The titles that are meant, however they are typed: in small letters, with -> for →."""

    def plain(title: str) -> str:
        return title.replace("->", "→").replace(" ", "").lower()

    meant = {plain(title): title for title in known}
    for title in given:
        if plain(title) not in meant:
            raise UserError(unknown(what, title, meant.values()))
    return [meant[plain(title)] for title in given]
