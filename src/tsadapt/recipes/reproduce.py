"""A table or figure from its recipe: run or resume what is behind it, collect, and write it beside the paper's."""

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tsadapt.engine.files import write_atomically, write_json
from tsadapt.engine.loop import NotFiniteError
from tsadapt.engine.run import versions
from tsadapt.errors import UserError, unknown
from tsadapt.recipes.catalogue import RECIPES, Recipe
from tsadapt.recipes.places import PLACES, Place, missing, place_named
from tsadapt.recipes.published import published
from tsadapt.recipes.rows import Row
from tsadapt.recipes.table import Job, Kept, cells, data_of_run, make_jobs, read_kept, rows_told, run_jobs, shortened
from tsadapt.report.paper import draw_rows, markdown_table

__all__ = ["Asked", "reproduce", "status_lines"]

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
    path = folder / f"{stem}.json"
    everything, extra = read_kept(path)
    jobs = make_jobs(place, _filtered(recipe.rows, asked.rows), columns, seeds)
    said = {"name": name, "title": recipe.what, "data": place.title, "protocol": place.protocol, "command": command}

    def save(kept: Kept) -> None:
        # Another process may have written in the meantime, and nothing that was measured is ever thrown away.
        kept.update({key: run for key, run in read_kept(path)[0].items() if key not in kept})
        write_json(path, {**said, "extra": extra, "runs": kept})

    not_run: dict[str, str] = {}
    if not asked.only_collect and recipe.alone is not None:
        not_run = _alone(
            recipe, jobs, everything, save, folder, partial(_beside, recipe, asked, place, stem), asked.quick
        )
    elif not asked.only_collect:
        not_run = run_jobs(jobs, everything, folder / "work", asked.jobs, save, recipe.measure)
    _say_not_run(not_run, everything)
    whole, all_columns = _whole(recipe, asked, place, jobs, everything)
    # What was measured under other settings than today's stays in the file, and is no part of the table.
    kept = {job.key: everything[job.key] for job in whole if _is_of(job, everything, recipe, asked.quick)}
    if not kept:
        why = next(iter(not_run.values()), "nothing is kept yet; leave out --only-collect to train.")
        raise UserError(f"nothing of {name} is here: {why}")
    at_home = asked.on in (None, recipe.home) and not asked.frozen and not asked.quick and asked.steps is None
    paper = published().get(name) if at_home else None
    sections, picture = [], folder / f"{stem}.png"
    if recipe.alone is None:
        table = cells(whole, kept, recipe.rows, all_columns, paper, place.measure)
        sections += [markdown_table(table), _selected(whole, kept, recipe.rows)]
        draw_rows(table, f"{name}, {place.title}: target accuracy, %", picture)
    if recipe.extra is not None and (extra or not asked.only_collect):
        done = [c for c in all_columns if any(f" | {c} | " in key for key in kept)]
        text, extra = recipe.extra(place, recipe.rows, done, kept, extra)
        sections.append(text)
    if recipe.draw is not None:
        recipe.draw(kept, recipe.rows, picture)
    if recipe.tell is not None:
        sections.append(recipe.tell(kept))
    save(everything)
    stems = dict.fromkeys([stem, *(_beside(recipe, asked, place, stem, job) for job in whole)])
    pictures = [p for s in stems for p in (folder / f"{s}.png", folder / f"{s}-strip.png") if p.exists()]
    page = folder / f"{stem}.md"
    judged = " Target accuracy, %, last step, mean ± deviation over seeds." if recipe.alone is None else ""
    sections = [
        f"## {name}: {recipe.what}",
        f"On {place.title}: {place.protocol}.{judged} {len(kept)} of {len(whole)} runs are there.",
        *sections,
        *(f"![{p.stem}]({p.name})" for p in pictures),
        paper.note if paper is not None else "",
        rows_told(kept),
        f"Not run here ({len(not_run)} runs): {' '.join(dict.fromkeys(not_run.values()))}" if not_run else "",
        _made_by(command, stem, kept),
    ]
    write_atomically(page, "\n\n".join(section for section in sections if section) + "\n")
    return [path, *pictures, page]


def _whole(
    recipe: Recipe, asked: Asked, place: Place, jobs: list[Job], kept: Kept
) -> tuple[list[Job], list[str]]:  # fmt: skip
    """All jobs of the table, whatever part of it was asked for, and of what is kept beyond it; and its columns."""
    there = [key.split(" | ") for key in (*(job.key for job in jobs), *kept)]
    columns = dict.fromkeys([*_columns(recipe, asked, place), *(c for _, c, _ in there if c in place.tasks)])
    seeds = {*(recipe.seeds[:1] if asked.quick else recipe.seeds), *(int(seed) for _, _, seed in there)}
    return make_jobs(place, recipe.rows, columns, sorted(seeds)), [*columns]


def _is_of(job: Job, kept: Kept, recipe: Recipe, quick: bool) -> bool:
    """Whether what is kept of a job was made with today's settings."""
    there = kept.get(job.key, {})
    settings = None if recipe.settings is None else recipe.settings(job.config, quick)
    return bool(there.get("hash") == job.config.hash() and (settings is None or there.get("settings") == settings))


def _scene(name: str, recipe: Recipe, asked: Asked) -> tuple[Place, list[str], tuple[int, ...]]:
    """The place, columns and seeds of this call."""
    on = asked.on or ("digits-small" if asked.quick and recipe.home != "moons" else recipe.home)
    place = place_named(on, asked.frozen, asked.weights)
    if recipe.only and on not in recipe.only:
        raise UserError(f"{name} cannot be made on {on}: expected --on {' or '.join(recipe.only)}.")
    if asked.quick:
        steps = asked.steps or (QUICK_EPOCH_STEPS if recipe.alone is not None else QUICK_STEPS)
        place = shortened(place, steps)
    elif asked.steps is not None:
        place = replace(
            place, settings={**place.settings, "steps": asked.steps},
            of_task={name: {**given, "steps": asked.steps} for name, given in place.of_task.items()},
            protocol=f"{place.protocol} (with {asked.steps:,} steps)",
        )  # fmt: skip
    columns = [*(asked.columns or _columns(recipe, asked, place))]
    seeds = asked.seeds or (recipe.seeds[:1] if asked.quick else recipe.seeds)
    return place, columns, seeds


def _columns(recipe: Recipe, asked: Asked, place: Place) -> list[str]:
    """The columns of the whole table at a place; a quick look has one."""
    on = asked.on or ("digits-small" if asked.quick and recipe.home != "moons" else recipe.home)
    if on == recipe.home:
        columns = [*(recipe.columns or place.tasks)]
    else:
        columns = [*recipe.elsewhere.get(on.removesuffix("-images"), ())] or [
            c for c in recipe.columns or () if c in place.tasks
        ]
    columns = columns or [*place.tasks]
    return columns[:1] if asked.quick else columns


def _filtered(rows: list[Row], titles: tuple[str, ...]) -> list[Row]:
    for title in titles:
        if title not in {row.title for row in rows}:
            raise UserError(unknown("row", title, [row.title for row in rows]))
    return [row for row in rows if not titles or row.title in titles]


def _stem(name: str, recipe: Recipe, asked: Asked) -> str:
    """The name of the files: one protocol a file."""
    where = "" if asked.on in (None, recipe.home) else f"-on-{asked.on}"
    frozen = "-frozen" if asked.frozen else ""
    steps = f"-{asked.steps}-steps" if asked.steps is not None and not asked.quick else ""
    return f"{name}{where}{frozen}{steps}"


def _beside(recipe: Recipe, asked: Asked, place: Place, stem: str, job: Job) -> str:
    """The name of a job's own pictures: the table's for its first task and seed, which is mostly the only one."""
    if (job.column, job.seed) == (_columns(recipe, asked, place)[0], recipe.seeds[0]):
        return stem
    return f"{stem}-{job.column.replace(' → ', '-')}-{job.seed}".replace(" ", "-")


def _alone(
    recipe: Recipe, jobs: list[Job], kept: Kept, save: Callable[[Kept], None], folder: Path,
    name: Callable[[Job], str], quick: bool,
) -> dict[str, str]:  # fmt: skip
    """Runs that a recipe does by itself; each has pictures of its own if it makes any."""
    not_run = {}
    assert recipe.alone is not None
    for job in jobs:
        why = missing(job.config.source) or missing(job.config.target)
        drawn = recipe.draw is not None or (folder / f"{name(job)}.png").exists()
        if not why and not (_is_of(job, kept, recipe, quick) and drawn):
            print(f"{job.key} …", file=sys.stderr, flush=True)
            try:
                found = recipe.alone(job.config, folder / "work", folder / name(job), quick)
                data = data_of_run(folder / "work" / "runs" / job.config.hash())
                kept[job.key] = {"hash": job.config.hash(), **found, **data, "versions": versions()}
                save(kept)
            except (UserError, NotFiniteError) as error:
                why = str(error)
        if why:
            not_run[job.key] = why
    return not_run


def _selected(jobs: list[Job], kept: Kept, rows: list[Row]) -> str:
    """The step that validators select without labels, and the best one by target labels, beside the last."""
    lines = ["| accuracy, mean over the runs | runs | last step | selected without labels | oracle (best by labels) |"]
    lines.append("|---|---|---|---|---|")
    for row in rows:
        runs = [kept[job.key] for job in jobs if job.row == row.title and job.key in kept]
        runs = [run for run in runs if "selected" in run]
        if runs:
            means = [
                sum(value) / len(runs)
                for value in (
                    [run["accuracy"] for run in runs],
                    [run["selected"]["accuracy"] for run in runs],
                    [run["oracle"]["accuracy"] for run in runs],
                )
            ]
            lines.append(f"| {row.title} | {len(runs)} | " + " | ".join(f"{mean:.1f}" for mean in means) + " |")
    return "\n".join(lines) if len(lines) > 2 else ""


def _say_not_run(not_run: dict[str, str], kept: Kept) -> None:
    for why in dict.fromkeys(not_run.values() if kept else ()):  # with nothing kept, the error says it
        keys = [key for key, reason in not_run.items() if reason == why]
        print(f"not run ({len(keys)}): {keys[0]}{', …' if len(keys) > 1 else ''}: {why}", file=sys.stderr)


def _made_by(command: str, stem: str, kept: Kept) -> str:
    """Where the numbers come from."""
    made = list(dict.fromkeys(_told(run["versions"]) for run in kept.values() if "versions" in run))
    return f"Made by `{command}`; settings and hashes: [{stem}.json]({stem}.json); {'; or '.join(made)}."


def _told(numbers: dict[str, str]) -> str:
    return ", ".join(f"{package} {number}" for package, number in numbers.items())


def expected_time(recipe: Recipe, place: Place, columns: Iterable[str]) -> str:
    """About how long all runs take on one core."""
    if place.seconds is None:
        return "wants a GPU, never timed"
    total = 0.0
    for column in columns:
        config = place.config(column, 0)
        slow = 6 if config.network == "dtn" else 1
        each = slow * place.seconds * (config.steps or 0) + recipe.more_seconds
        total += each * len(recipe.rows) * len(recipe.seeds)
    return f"{total / 3600:.1f} h" if total > 5400 else f"{max(total / 60, 1):.0f} min"


def status_lines() -> list[str]:
    """Each table and figure: what it is, where it can run with the data that is here, and about how long."""
    lines = ["Times are for all runs of a table, on one core; --rows, --columns and --seeds take a part.", ""]
    for name, recipe in RECIPES.items():
        lines.append(f"{name:<19} {recipe.what}")
        places = [recipe.home, *(p for p in recipe.only or PLACES if p not in (recipe.home, "moons"))]
        said = {}
        for where in places:
            place, columns = PLACES[where], _columns(recipe, Asked(on=where), PLACES[where])
            here = [c for c in columns if not any(missing(n.format(seed=0)) for n in place.tasks[c])]
            if here:
                part = "" if len(here) == len(columns) else f", {len(here)} of {len(columns)} tasks"
                said[where] = f"{expected_time(recipe, place, here)}{part}"
        home = said.pop(recipe.home, "data not here")
        lines.append(f"{'':<19} {PLACES[recipe.home].title}: {home}")
        if said:
            lines.append(f"{'':<19} " + " · ".join(f"--on {where}: {text}" for where, text in said.items()))
    if not os.environ.get("TSADAPT_DATA"):
        lines.append("TSADAPT_DATA is not set: only data that comes with the packages was looked for.")
    return lines
