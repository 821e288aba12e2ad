"""A table or figure from its recipe: run or resume what is behind it, collect, and write it beside the paper's."""

import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from tsadapt.engine.files import write_atomically
from tsadapt.engine.loop import NotFiniteError
from tsadapt.engine.run import versions
from tsadapt.errors import UserError, counted, unknown
from tsadapt.recipes.catalogue import RECIPES, Recipe
from tsadapt.recipes.ledger import Kept, Ledger, parts
from tsadapt.recipes.places import Place, missing, place_named
from tsadapt.recipes.published import Published, published
from tsadapt.recipes.rows import Row
from tsadapt.recipes.sections import (
    MEASURES,
    made_by,
    not_run_told,
    others_told,
    selected_table,
    settings_of,
    with_runs,
)
from tsadapt.recipes.table import Job, absent, cells, data_of_run, make_jobs, rows_told, run_jobs, with_steps
from tsadapt.report.paper import draw_rows, markdown_table, stamp

__all__ = ["Asked", "columns_of", "reproduce"]

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


def reproduce(name: str, asked: Asked, out: Path, command: str) -> list[Path]:
    """Run, collect and write; the files that were written."""
    if name not in RECIPES:
        raise UserError(unknown("table or figure", name, RECIPES))
    recipe = RECIPES[name]
    place, columns, seeds = _scene(name, recipe, asked)
    folder, stem = out / "quick" if asked.quick else out, _stem(name, recipe, asked)
    said = {"name": name, "title": recipe.what, "data": place.title, "protocol": place.protocol, "command": command}
    ledger = Ledger(folder / f"{stem}.json", said)
    jobs = make_jobs(place, _filtered(recipe.rows, asked.rows), columns, seeds)
    if not asked.only_collect:
        _say_absent(jobs)
        if recipe.alone is not None:
            if asked.jobs > 1:
                print(f"{name} makes its runs one after the other: --jobs {asked.jobs} is not used.", file=sys.stderr)
            _alone(recipe, jobs, ledger, folder, partial(_beside, recipe, asked, place, stem), asked.quick)
        else:
            run_jobs(jobs, ledger, folder / "work", asked.jobs, recipe.measure)
    whole, all_columns = _whole(recipe, asked, place, jobs, ledger.runs)
    if not asked.only_collect:
        ledger.explain({job.key: absent(job) for job in whole if job.key not in ledger.runs and absent(job)})
    # What was measured under other settings than today's stays in the file, and is no part of the table.
    kept = {job.key: ledger.runs[job.key] for job in whole if _is_of(job, ledger.runs, recipe, asked.quick)}
    if not kept:
        _nothing_kept(name, jobs, ledger)
    ledger.settings = settings_of(_with_other_seeds(recipe, asked, place, all_columns, whole, ledger.runs))
    ledger.said["command"] = command = _beyond(command, recipe, asked, place, whole, all_columns)
    paper = published().get(name) if _is_at_home(recipe, asked) else None
    picture = folder / f"{stem}.png"
    sections = _numbers(name, recipe, place, whole, all_columns, kept, paper, picture)
    if recipe.extra is not None:
        there = {parts(key).column for key in kept}
        done = [c for c in all_columns if c in there]
        text, extra = recipe.extra(place, recipe.rows, done, kept, ledger.extra, not asked.only_collect, paper)
        sections.append(text)
        if extra != ledger.extra:
            ledger.replace_extra(extra)
    ledger.save()
    if recipe.draw is not None:
        recipe.draw(kept, recipe.rows, picture)
    stems = dict.fromkeys([stem, *(_beside(recipe, asked, place, stem, job) for job in whole)])
    pictures = [p for s in stems for p in (folder / f"{s}.png", folder / f"{s}-strip.png") if p.exists()]
    made = made_by(command, stem, kept, len(whole))
    for drawn in pictures:
        stamp(drawn, made)
    many = len({job.seed for job in whole})
    over = f"mean ± deviation over {many} seeds" if many > 1 else "one seed"
    judged = f" {MEASURES[place.measure]}, %, last step, {over}." if recipe.alone is None else ""
    legend = f" ({place.legend})" if place.legend else ""
    sections = [
        f"## {name}: {recipe.what}",
        f"On {place.title}{legend}: {place.protocol}.{judged} {len(kept)} of {len(whole)} runs are there.",
        recipe.note,
        *sections,
        *(f"![{drawn.stem}]({drawn.name})" for drawn in pictures),
        paper.note if paper is not None else "",
        rows_told(kept),
        not_run_told({job.key: ledger.not_run[job.key] for job in whole if job.key in ledger.not_run}),
        others_told(whole, ledger.runs),
        made,
    ]
    page = folder / f"{stem}.md"
    write_atomically(page, "\n\n".join(section for section in sections if section) + "\n")
    return [ledger.path, *pictures, page]


def _numbers(
    name: str, recipe: Recipe, place: Place, jobs: list[Job], columns: list[str], kept: Kept, paper: Published | None,
    picture: Path,
) -> list[str]:  # fmt: skip
    """The sections of the page that are made of the runs alone, and the common picture."""
    if recipe.alone is not None:
        return [recipe.tell(kept)] if recipe.tell is not None else []
    table, left_out = with_runs(cells(jobs, kept, recipe.rows, columns, paper, lambda run: run.get(place.measure)))
    if recipe.draw is None:
        draw_rows(table, f"{name}, {place.title}: {MEASURES[place.measure].lower()}, %", picture)
    return [markdown_table(table), left_out, selected_table(jobs, kept, recipe.rows, columns, place.measure)]


def _is_at_home(recipe: Recipe, asked: Asked) -> bool:
    """Whether data and protocol are the paper's, as far as they can be had."""
    elsewhere = asked.on not in (None, recipe.home) or asked.quick
    return not (elsewhere or asked.frozen or asked.steps is not None or asked.weights == "none")


def _whole(
    recipe: Recipe, asked: Asked, place: Place, jobs: list[Job], kept: Kept
) -> tuple[list[Job], list[str]]:  # fmt: skip
    """All jobs of the table, whatever part of it was asked for, and its columns, with those kept beyond it.

    Its seeds are the recipe's, unless others were asked for.
    """
    there = [*(job.column for job in jobs), *(parts(key).column for key in kept)]
    columns = dict.fromkeys([*columns_of(recipe, asked, place), *(c for c in there if c in place.tasks)])
    seeds = recipe.seeds[:1] if asked.quick else recipe.seeds
    if not {*asked.seeds} <= {*seeds}:
        seeds = asked.seeds
    return make_jobs(place, recipe.rows, columns, sorted(seeds)), [*columns]


def _with_other_seeds(
    recipe: Recipe, asked: Asked, place: Place, columns: list[str], whole: list[Job], kept: Kept
) -> list[Job]:
    """The jobs of all that is kept with today's settings, also of seeds that the table does not have."""
    seeds = {job.seed for job in whole} | {parts(key).seed for key in kept}
    return [
        job for job in make_jobs(place, recipe.rows, columns, sorted(seeds)) if _is_of(job, kept, recipe, asked.quick)
    ]


def _beyond(
    command: str, recipe: Recipe, asked: Asked, place: Place, whole: list[Job], columns: list[str]
) -> str:  # fmt: skip
    """The command with the seeds and tasks that it would not have by itself."""
    seeds = sorted({job.seed for job in whole})
    if not {*seeds} <= {*recipe.seeds}:
        command += f" --seeds {' '.join(map(str, seeds))}"
    if not {*columns} <= {*columns_of(recipe, asked, place)}:
        command += f" --columns {shlex.join(columns)}"
    return command


def _is_of(job: Job, kept: Kept, recipe: Recipe, quick: bool) -> bool:
    """Whether what is kept of a job was made with today's settings."""
    there = kept.get(job.key, {})
    settings = None if recipe.settings is None else recipe.settings(job.config, quick)
    return bool(there.get("hash") == job.config.hash() and (settings is None or there.get("settings") == settings))


def _scene(name: str, recipe: Recipe, asked: Asked) -> tuple[Place, list[str], tuple[int, ...]]:
    """The place, columns and seeds of this call."""
    on = _where(recipe, asked)
    place = place_named(on, asked.frozen, asked.weights)
    if recipe.only and on not in recipe.only:
        raise UserError(f"{name} cannot be made on {on}: expected --on {' or '.join(recipe.only)}.")
    if asked.quick:
        steps = asked.steps or (QUICK_EPOCH_STEPS if recipe.alone is not None else QUICK_STEPS)
        told = f"a first look of {steps} steps, whose numbers mean nothing; the whole has: {place.protocol}"
        place = with_steps(place, steps, told, candidates=2)
    elif asked.steps is not None:
        place = with_steps(place, asked.steps, f"{place.protocol} (with {asked.steps:,} steps)")
    columns = _named("column", asked.columns, place.tasks) or columns_of(recipe, asked, place)
    seeds = asked.seeds or (recipe.seeds[:1] if asked.quick else recipe.seeds)
    return place, columns, seeds


def _where(recipe: Recipe, asked: Asked) -> str:
    """The name of the place: the recipe's own unless another was asked for; a quick look needs no data of its own."""
    return asked.on or ("digits-small" if asked.quick and recipe.home != "moons" else recipe.home)


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


def _filtered(rows: list[Row], titles: tuple[str, ...]) -> list[Row]:
    chosen = _named("row", titles, [row.title for row in rows])
    return [row for row in rows if not titles or row.title in chosen]


def _named(what: str, given: Iterable[str], known: Iterable[str]) -> list[str]:
    """The titles that are meant, however they are typed: in small letters, with -> for →."""

    def plain(title: str) -> str:
        return title.replace("->", "→").replace(" ", "").lower()

    meant = {plain(title): title for title in known}
    for title in given:
        if plain(title) not in meant:
            raise UserError(unknown(what, title, meant.values()))
    return [meant[plain(title)] for title in given]


def _stem(name: str, recipe: Recipe, asked: Asked) -> str:
    """The name of the files: one protocol a file."""
    where = "" if asked.on in (None, recipe.home) else f"-on-{asked.on}"
    frozen = "-frozen" if asked.frozen else ""
    weights = "" if asked.weights is None else f"-weights-{Path(asked.weights).stem}"
    steps = f"-{asked.steps}-steps" if asked.steps is not None and not asked.quick else ""
    return f"{name}{where}{frozen}{weights}{steps}"


def _beside(recipe: Recipe, asked: Asked, place: Place, stem: str, job: Job) -> str:
    """The name of a job's own pictures: the table's for its first task and seed, which is mostly the only one."""
    if (job.column, job.seed) == (columns_of(recipe, asked, place)[0], recipe.seeds[0]):
        return stem
    return f"{stem}-{job.column.replace(' → ', '-')}-{job.seed}".replace(" ", "-")


def _alone(
    recipe: Recipe, jobs: list[Job], ledger: Ledger, folder: Path, name: Callable[[Job], str], quick: bool
) -> None:  # fmt: skip
    """Runs that a recipe does by itself; each has pictures of its own if it makes any."""
    assert recipe.alone is not None
    for job in jobs:
        drawn = recipe.draw is not None or (folder / f"{name(job)}.png").exists()
        if not absent(job) and not (_is_of(job, ledger.runs, recipe, quick) and drawn):
            print(f"{job.key} …", file=sys.stderr, flush=True)
            try:
                found = recipe.alone(job.config, folder / "work", folder / name(job), quick)
            except (UserError, NotFiniteError) as error:
                print(f"not run: {job.key}: {error}", file=sys.stderr)
                ledger.explain({job.key: str(error)})
            else:
                data = data_of_run(folder / "work" / "runs" / job.config.hash())
                ledger.add(job.key, {"hash": job.config.hash(), **found, **data, "versions": versions()})
            ledger.save()


def _say_absent(jobs: list[Job]) -> None:
    """Which runs wait for data, and how to get it; with nothing to run, the error says it."""
    if all(map(absent, jobs)):
        return
    for name in dict.fromkeys(n for job in jobs for n in (job.config.source, job.config.target) if missing(n)):
        count = sum(name in (job.config.source, job.config.target) for job in jobs)
        print(f"not run ({counted(count, 'run')}): {missing(name)}", file=sys.stderr)


def _nothing_kept(name: str, jobs: list[Job], ledger: Ledger) -> NoReturn:
    names = (n for job in jobs for n in (job.config.source, job.config.target))
    reasons = [missing(n) for n in names if missing(n)] or [ledger.not_run.get(job.key, "") for job in jobs]
    why = next(filter(None, reasons), "nothing is kept yet; leave out --only-collect to train.")
    raise UserError(f"nothing of {name} is here: {why}")
