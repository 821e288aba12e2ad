"""What was asked for, and what that takes: which runs, the whole table, the names of its files."""

import hashlib
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from paper.catalogue import RECIPES
from paper.jobs import Job, make_jobs
from paper.protocols import Protocol, protocol_named, with_steps
from paper.recipe import Recipe
from paper.results_file import Results, parts
from tsadapt.errors import UserError, unknown

__all__ = ["Plan", "Request", "columns_of"]

QUICK_STEPS, QUICK_EPOCH_STEPS = 30, 160
QUICK_DATA = "digits-small"


@dataclass(frozen=True)
class Request:
    """A table, figure or study by its name, and the options; None and empty mean what the recipe says."""

    name: str
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
class Plan:
    """What a request takes. Names that the recipe or the protocol does not know are refused."""

    request: Request

    def __post_init__(self) -> None:
        _ = self.jobs  # which looks up every name

    @property
    def recipe(self) -> Recipe:
        """How it is made."""
        if self.request.name not in RECIPES:
            raise UserError(unknown("table, figure or study", self.request.name, RECIPES))
        return RECIPES[self.request.name]

    @cached_property
    def protocol(self) -> Protocol:
        """The data and settings, with the requested number of steps."""
        recipe, request, on = self.recipe, self.request, _where(self.recipe, self.request)
        protocol = protocol_named(on, request.frozen, request.weights)
        if (recipe.only and on not in recipe.only) or not (protocol.general or on == recipe.home):
            expected = f": expected --on {' or '.join(recipe.only)}" if recipe.only else ""
            raise UserError(f"{request.name} cannot be made on {on}{expected}.")
        if request.quick:
            steps = request.steps or (QUICK_EPOCH_STEPS if recipe.work is not None else QUICK_STEPS)
            text = f"a first look of {steps} steps, whose numbers mean nothing; the full protocol: {protocol.text}"
            protocol = with_steps(protocol, steps, text, candidates=2)
        elif request.steps is not None:
            steps = request.steps
            protocol = with_steps(protocol, steps, re.sub(r"[\d,]+ steps", f"{steps:,} steps", protocol.text))
        return protocol

    @cached_property
    def jobs(self) -> list[Job]:
        """The requested runs."""
        request, titles = self.request, _named("row", self.request.rows, [row.title for row in self.recipe.rows])
        rows = [row for row in self.recipe.rows if not titles or row.title in titles]
        columns = _named("column", request.columns, self.protocol.tasks) or self._columns
        return make_jobs(self.protocol, rows, dict.fromkeys(columns), dict.fromkeys(request.seeds or self._seeds))

    def whole(self, results: Results) -> tuple[list[Job], list[str]]:
        """All jobs of the table, whatever part of it was requested, and its columns, with those stored beyond it.

        Its seeds are the recipe's, unless others were requested.
        """
        more = self.more(results)
        further = {job.key for job in more}
        there = [*(job.column for job in self.jobs), *(parts(key).column for key in results if key not in further)]
        columns = dict.fromkeys([*self._columns, *(c for c in there if c in self.protocol.tasks)])
        seeds = self._seeds if {*self.request.seeds} <= {*self._seeds} else self.request.seeds
        jobs = make_jobs(self.protocol, self.recipe.rows, columns, sorted({*seeds}))
        keys = {job.key for job in jobs}
        return [*jobs, *(job for job in more if job.key not in keys)], [*columns]

    def more(self, results: Results) -> list[Job]:
        """Further runs of the whole table, which depend on those that are there."""
        recipe = self.recipe
        if recipe.more is None or self.request.quick:
            return []
        first = make_jobs(self.protocol, recipe.rows, self._columns, self._seeds)
        jobs = {job.key: job for job in first}
        while True:  # what runs next may depend on what ran after the first
            now = {key: results[key] for key, job in jobs.items() if self.is_current(job, results)}
            new = {job.key: job for job in recipe.more(self.protocol, recipe.rows, now) if job.key not in jobs}
            if not new:
                break
            jobs |= new
        return [*jobs.values()][len({job.key for job in first}) :]

    @property
    def is_whole(self) -> bool:
        """Whether no part of the table was requested."""
        return not (self.request.rows or self.request.columns or self.request.seeds)

    def current(self, results: Results) -> list[Job]:
        """The jobs of everything stored with the current settings, also of seeds that the table does not have."""
        whole, columns = self.whole(results)
        seeds = {job.seed for job in whole} | {parts(key).seed for key in results}
        jobs = make_jobs(self.protocol, self.recipe.rows, columns, sorted(seeds))
        every = {job.key: job for job in [*jobs, *whole]}
        return [job for job in every.values() if self.is_current(job, results)]

    def is_current(self, job: Job, results: Results) -> bool:
        """Whether the stored numbers of a job were measured with the current settings."""
        stored, settings = results.get(job.key, {}), self.recipe.settings
        expected = None if settings is None else settings(job, self.request.quick)
        return stored.get("hash") == job.config.hash() and expected in (None, stored.get("settings"))

    def command(self, results: Results) -> str:
        """The command that makes the whole table, with the seeds and tasks that it would not have by itself."""
        request, (whole, columns) = self.request, self.whole(results)
        words = ["python", "-m", "paper", request.name]
        words += ["--on", request.on] if request.on is not None else []
        words += ["--frozen"] if request.frozen else []
        words += ["--weights", request.weights] if request.weights is not None else []
        words += ["--quick"] if request.quick else []
        words += ["--steps", str(request.steps)] if request.steps is not None else []
        seeds = sorted({job.seed for job in whole} - {job.seed for job in self.more(results)})
        words += ["--seeds", *map(str, seeds)] if not {*seeds} <= {*self._seeds} else []
        words += ["--columns", *columns] if not {*columns} <= {*self._columns} else []
        return shlex.join(words)

    @property
    def is_beside_paper(self) -> bool:
        """Whether the paper's numbers stand beside ours: data and protocol are the paper's, or say how they differ."""
        request = self.request
        elsewhere = request.on not in (None, self.recipe.home) and self.protocol.beside != self.recipe.home
        return not (
            elsewhere or request.quick or request.frozen or request.steps is not None or request.weights == "none"
        )

    @property
    def stem(self) -> str:
        """The name of the files: one protocol a file."""
        request = self.request
        where = "" if request.on in (None, self.recipe.home) else f"-on-{request.on}"
        frozen = "-frozen" if request.frozen else ""
        weights = f"-{self._weights_name}" if self._weights_name else ""
        steps = f"-{request.steps}-steps" if request.steps is not None and not request.quick else ""
        return f"{request.name}{where}{frozen}{weights}{steps}"

    def work(self, folder: Path) -> Path:
        """Where the runs lie: with other weights elsewhere, since a run's name has their path and not their content."""
        return folder / "work" / self._weights_name

    @cached_property
    def _weights_name(self) -> str:
        """A name for the backbone's weights and the content of their file; empty if none were given."""
        given = self.request.weights
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
        return columns_of(self.recipe, self.request, self.protocol)

    @property
    def _seeds(self) -> tuple[int, ...]:
        return self.recipe.seeds[:1] if self.request.quick else self.recipe.seeds


def columns_of(recipe: Recipe, request: Request, protocol: Protocol) -> list[str]:
    """The columns of the whole table under a protocol; a quick look has one."""
    on = _where(recipe, request)
    if on == recipe.home:
        columns = [*(recipe.columns or protocol.tasks)]
    else:
        columns = [*recipe.elsewhere.get(on.removesuffix("-images"), ())] or [
            c for c in recipe.columns or () if c in protocol.tasks
        ]
    columns = columns or [*protocol.tasks]
    return columns[:1] if request.quick else columns


def _where(recipe: Recipe, request: Request) -> str:
    """The name of the protocol: the recipe's own unless --on names another; a quick look takes embedded data."""
    can_move = QUICK_DATA in (recipe.only or (QUICK_DATA,))
    return request.on or (QUICK_DATA if request.quick and can_move else recipe.home)


def _named(what: str, given: Iterable[str], known: Iterable[str]) -> list[str]:
    """The titles that are meant, however they are typed: in small letters, with -> for →."""

    def plain(title: str) -> str:
        return title.replace("->", "→").replace(" ", "").lower()

    meant = {plain(title): title for title in known}
    for title in given:
        if plain(title) not in meant:
            raise UserError(unknown(what, title, meant.values()))
    return [meant[plain(title)] for title in given]
