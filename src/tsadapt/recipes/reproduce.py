"""A table or figure from its recipe: run or resume what is behind it, collect, and write it beside the paper's."""

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from tsadapt.engine.files import write_atomically
from tsadapt.engine.loop import NotFiniteError
from tsadapt.engine.run import versions
from tsadapt.errors import UserError, counted, unknown
from tsadapt.recipes.catalogue import RECIPES, Recipe
from tsadapt.recipes.ledger import Kept, Ledger
from tsadapt.recipes.places import PLACES, Place, missing, place_named
from tsadapt.recipes.published import published
from tsadapt.recipes.rows import Row
from tsadapt.recipes.table import Job, absent, cells, data_of_run, make_jobs, rows_told, run_jobs, with_steps
from tsadapt.report.paper import draw_rows, markdown_table, stamp

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
    said = {"name": name, "title": recipe.what, "data": place.title, "protocol": place.protocol, "command": command}
    ledger = Ledger(folder / f"{stem}.json", said)
    jobs = make_jobs(place, _filtered(recipe.rows, asked.rows), columns, seeds)
    if not asked.only_collect:
        _say_absent(jobs)
        if recipe.alone is not None:
            _alone(recipe, jobs, ledger, folder, partial(_beside, recipe, asked, place, stem), asked.quick)
        else:
            run_jobs(jobs, ledger, folder / "work", asked.jobs, recipe.measure)
    whole, all_columns = _whole(recipe, asked, place, jobs, ledger.runs)
    if not asked.only_collect:
        ledger.explain({job.key: absent(job) for job in whole if job.key not in ledger.runs and absent(job)})
    # What was measured under other settings than today's stays in the file, and is no part of the table.
    kept = {job.key: ledger.runs[job.key] for job in whole if _is_of(job, ledger.runs, recipe, asked.quick)}
    not_run = {job.key: ledger.not_run[job.key] for job in whole if job.key in ledger.not_run}
    if not kept:
        _nothing_kept(name, jobs, ledger)
    ledger.settings = _settings([job for job in whole if job.key in kept])
    sections, picture = [], folder / f"{stem}.png"
    paper = published().get(name) if _is_at_home(recipe, asked) else None
    if recipe.alone is None:
        table = cells(whole, kept, recipe.rows, all_columns, paper, lambda run: run.get(place.measure))
        sections += [markdown_table(table), _selected(whole, kept, recipe.rows, all_columns, place.measure)]
        draw_rows(table, f"{name}, {place.title}: target accuracy, %", picture)
    if recipe.extra is not None:
        done = [c for c in all_columns if any(f" | {c} | " in key for key in kept)]
        text, extra = recipe.extra(place, recipe.rows, done, kept, ledger.extra, not asked.only_collect)
        sections.append(text)
        ledger.replace_extra(extra)
    if recipe.draw is not None:
        recipe.draw(kept, recipe.rows, picture)
    if recipe.tell is not None:
        sections.append(recipe.tell(kept))
    ledger.save()
    stems = dict.fromkeys([stem, *(_beside(recipe, asked, place, stem, job) for job in whole)])
    pictures = [p for s in stems for p in (folder / f"{s}.png", folder / f"{s}-strip.png") if p.exists()]
    made_by = _made_by(command, stem, kept)
    for p in pictures:
        stamp(p, made_by)
    page = folder / f"{stem}.md"
    judged = f" {MEASURES[place.measure]}, %, last step, mean ± deviation over seeds." if recipe.alone is None else ""
    sections = [
        f"## {name}: {recipe.what}",
        f"On {place.title}: {place.protocol}.{judged} {len(kept)} of {len(whole)} runs are there.",
        *sections,
        *(f"![{p.stem}]({p.name})" for p in pictures),
        paper.note if paper is not None else "",
        rows_told(kept),
        _why_not_run(not_run),
        _other_seeds(whole, ledger.runs),
        made_by,
    ]
    write_atomically(page, "\n\n".join(section for section in sections if section) + "\n")
    return [ledger.path, *pictures, page]


MEASURES = {"accuracy": "Target accuracy", "mean_class_accuracy": "Mean of the target's class accuracies"}


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
    there = [key.split(" | ")[1] for key in (*(job.key for job in jobs), *kept)]
    columns = dict.fromkeys([*_columns(recipe, asked, place), *(c for c in there if c in place.tasks)])
    seeds = recipe.seeds[:1] if asked.quick else recipe.seeds
    if not {*asked.seeds} <= {*seeds}:
        seeds = asked.seeds
    return make_jobs(place, recipe.rows, columns, sorted(seeds)), [*columns]


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
    columns = [*(asked.columns or _columns(recipe, asked, place))]
    seeds = asked.seeds or (recipe.seeds[:1] if asked.quick else recipe.seeds)
    return place, columns, seeds


def _where(recipe: Recipe, asked: Asked) -> str:
    """The name of the place: the recipe's own unless another was asked for; a quick look needs no data of its own."""
    return asked.on or ("digits-small" if asked.quick and recipe.home != "moons" else recipe.home)


def _columns(recipe: Recipe, asked: Asked, place: Place) -> list[str]:
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
    for title in titles:
        if title not in {row.title for row in rows}:
            raise UserError(unknown("row", title, [row.title for row in rows]))
    return [row for row in rows if not titles or row.title in titles]


def _stem(name: str, recipe: Recipe, asked: Asked) -> str:
    """The name of the files: one protocol a file."""
    where = "" if asked.on in (None, recipe.home) else f"-on-{asked.on}"
    frozen = "-frozen" if asked.frozen else ""
    weights = "" if asked.weights is None else f"-weights-{Path(asked.weights).stem}"
    steps = f"-{asked.steps}-steps" if asked.steps is not None and not asked.quick else ""
    return f"{name}{where}{frozen}{weights}{steps}"


def _beside(recipe: Recipe, asked: Asked, place: Place, stem: str, job: Job) -> str:
    """The name of a job's own pictures: the table's for its first task and seed, which is mostly the only one."""
    if (job.column, job.seed) == (_columns(recipe, asked, place)[0], recipe.seeds[0]):
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


def _selected(jobs: list[Job], kept: Kept, rows: list[Row], columns: list[str], measure: str) -> str:
    """The step that validators select without labels, and the best one by target labels, beside the last."""
    judged = {key: run for key, run in kept.items() if measure in run.get("selected", {}) and measure in run["oracle"]}
    last = cells(jobs, judged, rows, columns, None, lambda run: run.get(measure))
    selected, oracle = (
        cells(jobs, judged, rows, columns, None, lambda run, which=which: run.get(which, {}).get(measure))  # type: ignore[misc]
        for which in ("selected", "oracle")
    )
    lines = []
    for title, row in last.items():
        means = [[table[title][c].mean for table in (last, selected, oracle)] for c in row]
        if any(None not in of_column for of_column in means):
            told = [
                "–" if None in of_column else " / ".join(f"{mean:.1f}" for mean in of_column) for of_column in means
            ]
            lines.append(f"| {title} | " + " | ".join(told) + " |")
    if not lines:
        return ""
    heads = [*next(iter(last.values()))]
    return "\n".join(
        [
            "Last step / the step selected without labels / the best of the same few by target labels (oracle), means:",
            "",
            "| | " + " | ".join(heads) + " |",
            "|---|" + "---|" * len(heads),
            *lines,
        ]
    )


def _settings(jobs: list[Job]) -> dict[str, Any]:
    """The settings that all runs share, and by their hashes what each has otherwise."""
    by_hash = {job.config.hash(): job.config.result_keys() for job in jobs}
    first = next(iter(by_hash.values()))
    shared = {key: value for key, value in first.items() if all(keys[key] == value for keys in by_hash.values())}
    each = {name: {k: v for k, v in keys.items() if k not in shared} for name, keys in by_hash.items()}
    return {"of_all": shared, "of_each": each}


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


def _why_not_run(not_run: dict[str, str]) -> str:
    """What is not there and why, in a paragraph."""
    reasons = Counter(not_run.values())
    return "Not run: " + "; ".join(f"{counted(n, 'run')}, {why}" for why, n in reasons.items()) + "." if reasons else ""


def _other_seeds(whole: list[Job], kept: Kept) -> str:
    seeds = {job.seed for job in whole}
    others = sorted({int(key.rsplit(" | ", 1)[1]) for key in kept} - seeds)
    return f"Kept beside this table: runs of seed {', '.join(map(str, others))}." if others else ""


def _made_by(command: str, stem: str, kept: Kept) -> str:
    """Where the numbers come from."""
    hashes = sorted({run["hash"] for run in kept.values()})
    one = hashes[0] if len(hashes) == 1 else hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:12]
    of = "" if len(hashes) == 1 else f" (of the hashes of its {len(hashes)} configs)"
    made = list(dict.fromkeys(_told(run["versions"]) for run in kept.values() if "versions" in run))
    return (
        f"Made by `{command}`; config hash {one}{of}; every run with its settings: [{stem}.json]({stem}.json);"
        f" {'; or '.join(made)}."
    )


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
