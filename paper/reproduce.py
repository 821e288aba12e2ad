"""A table, figure or study from its recipe: run or resume what is missing, store it, and write page and picture."""

import sys
from pathlib import Path
from typing import Any, NoReturn

from paper.cells import Cell, cells
from paper.jobs import Job, Workspace, absent, data_of_run, run_jobs, train_watched
from paper.listing import SMALL_DIGITS
from paper.page import (
    MEASURES,
    made_by,
    markdown_table,
    over_seeds,
    selected_table,
    settings_of,
    with_runs,
    write_page,
)
from paper.pictures import draw_curves_of_rows, draw_rows, stamp
from paper.protocols import PROTOCOLS, missing, on_this_machine, short_copy
from paper.published import Published, published
from paper.request import QUICK_DATA, Plan, Request
from paper.results_file import Results, ResultsFile, parts
from tsadapt.errors import UserError, counted
from tsadapt.models.encoders import find_backbone
from tsadapt.runs.fit import versions
from tsadapt.training.trainer import NotFiniteError

__all__ = ["reproduce"]

QUICK = "a first look: these numbers mean nothing"
SHARED = (
    "hash", "steps", "accuracy", "mean_class_accuracy", "selected", "oracle", "source_accuracy", "proxy_a_distance",
    "data", "versions",
)  # fmt: skip
"""What every table stores of a run that it trains."""


def reproduce(request: Request, out: Path) -> list[Path]:
    """Run, store and write; the files that were written: JSON, pictures, page."""
    plan = Plan(request)
    recipe, protocol = plan.recipe, plan.protocol
    folder = out / "quick" if request.quick else out
    header = {"name": request.name, "title": recipe.what, "data": protocol.title, "protocol": protocol.text}
    stored = ResultsFile(folder / f"{plan.stem}.json", header)
    stored.header["command"] = plan.command(stored.runs)
    if not request.only_collect:
        _say_quick(plan, folder)
        _run(plan, plan.jobs, stored, folder)
        tried: set[str] = set()
        while plan.is_whole and (more := [job for job in plan.more(stored.runs) if job.key not in tried]):
            _run(plan, more, stored, folder)
            tried |= {job.key for job in more}
    whole, columns = plan.whole(stored.runs)
    if not request.only_collect:
        stored.explain({job.key: absent(job) for job in whole if job.key not in stored.runs and absent(job)})
    # Runs with former settings stay in the file and are not part of the table.
    results = {job.key: stored.runs[job.key] for job in whole if plan.is_current(job, stored.runs)}
    if not results:
        _nothing_stored(plan, stored)
    stored.settings = settings_of(plan.current(stored.runs))
    stored.header["command"] = plan.command(stored.runs)
    paper = published().get(request.name) if plan.is_beside_paper else None
    text, panels = "", dict[str, dict[str, float]]()
    if recipe.section is not None:
        there = {parts(key).column for key in results}
        done = [c for c in columns if c in there]
        text, extra, panels = recipe.section(
            protocol, recipe.rows, done, results, stored.extra, not request.only_collect, paper
        )  # fmt: skip
        if extra != stored.extra:
            stored.replace_extra(extra)
    stored.save()
    picture = folder / f"{plan.stem}.png"
    if recipe.describe is not None:
        numbers = [recipe.describe(results, stored.extra)]
    else:
        numbers = _table(plan, whole, columns, results, paper, panels, picture)
    if recipe.draw is not None:
        recipe.draw(results, recipe.rows, picture)
    stems = dict.fromkeys([plan.stem, *map(plan.stem_of, whole)])
    pictures = [p for s in stems for p in (folder / f"{s}.png", folder / f"{s}-strip.png") if p.exists()]
    made = made_by(stored.header["command"], plan.stem, results, len(whole))
    for drawn in pictures:
        stamp(drawn, made, QUICK if request.quick else "")
    page = folder / f"{plan.stem}.md"
    write_page(page, plan, whole, results, stored, [*numbers, text], pictures, paper, made)
    return [stored.path, *pictures, page]


def _table(
    plan: Plan, jobs: list[Job], columns: list[str], results: Results, paper: Published | None,
    panels: dict[str, dict[str, float]], picture: Path,
) -> list[str]:  # fmt: skip
    """The sections of the page with accuracies, and the common picture of them."""
    recipe, protocol = plan.recipe, plan.protocol
    table: dict[str, dict[str, Cell]]
    table, left_out = with_runs(
        cells(jobs, results, recipe.rows, columns, paper, lambda run: run.get(protocol.measure))
    )
    measure = MEASURES[protocol.measure]
    title = f"{plan.request.name}, {protocol.title}: {measure.lower()}, %, {over_seeds(results)}"
    if recipe.curves is not None:
        draw_curves_of_rows(table, recipe.curves, title, picture)
    elif recipe.draw is None:
        draw_rows(table, title, picture, panels)
    return [markdown_table(table), left_out, selected_table(jobs, results, recipe.rows, columns, protocol.measure)]


def _take_shared(plan: Plan, jobs: list[Job], stored: ResultsFile, folder: Path) -> None:
    """Enter the runs of the same config that other tables of this folder have; each says where it is `from`.

    A table that stores more of a run than every table does needs runs of its own.
    """
    recipe = plan.recipe
    wanted = [job for job in jobs if not plan.is_current(job, stored.runs)]
    if not wanted or any(own is not None for own in (recipe.measure, recipe.watch, recipe.work)):
        return
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        for run in ResultsFile(path, {}).runs.values() if path != stored.path else ():
            if "source_accuracy" in run and "from" not in run:
                found.setdefault(run["hash"], (path.stem, run))
    taken = [job for job in wanted if job.config.hash() in found]
    for job in taken:
        stem, run = found[job.config.hash()]
        stored.add(job.key, {**{name: value for name, value in run.items() if name in SHARED}, "from": stem})
    if taken:
        stored.save()


def _run(plan: Plan, jobs: list[Job], stored: ResultsFile, folder: Path) -> None:
    """Train what is missing of these."""
    recipe, side_by_side = plan.recipe, plan.request.jobs
    _take_shared(plan, jobs, stored, folder)
    _say_absent(jobs)
    _say_short(jobs)
    left = [job for job in jobs if not absent(job) and not _is_made(plan, job, stored, folder)]
    if not left and not any(map(absent, jobs)):
        print(f"nothing to train: {plan.stem} has its {counted(len(jobs), 'run')} already.", file=sys.stderr)
    if left and left[0].config.backbone is not None:  # fail now and once, not in every run
        config = on_this_machine(left[0].config)
        find_backbone(str(config.backbone), config.weights, config.image_size)
    if recipe.work is None and recipe.watch is None:
        run_jobs(left, stored, plan.work(folder), side_by_side, recipe.measure)
        return
    if side_by_side > 1 and recipe.trainings == 1:
        print(
            f"{plan.request.name} makes its runs one after the other, --jobs {side_by_side} has no effect: start"
            " several commands with --rows or --columns instead.",
            file=sys.stderr,
        )
    for job in left:
        _one(plan, job, stored, folder)


def _is_made(plan: Plan, job: Job, stored: ResultsFile, folder: Path) -> bool:
    """Whether all of a job is there: its numbers, and its picture if it draws one itself."""
    draws = plan.recipe.work is not None and plan.recipe.draw is None
    picture = folder / f"{plan.stem_of(job)}.png"
    return plan.is_current(job, stored.runs) and (not draws or picture.exists())


def _one(plan: Plan, job: Job, stored: ResultsFile, folder: Path) -> None:
    """A run that a recipe does itself, or watches."""
    recipe = plan.recipe
    space = Workspace(plan.work(folder), folder / plan.stem_of(job), plan.request.quick, plan.request.jobs)
    print(f"{job.key} …", file=sys.stderr, flush=True)
    try:
        if recipe.work is not None:
            found = recipe.work(job, space)
        else:
            assert recipe.watch is not None
            found = train_watched(job, space, recipe.watch, recipe.measure)
    except (UserError, NotFiniteError) as error:
        print(f"not run: {job.key}: {error}", file=sys.stderr)
        stored.explain({job.key: str(error)})
    else:
        data = data_of_run(space.run_folder(job.config))
        settings = {} if recipe.settings is None else {"settings": recipe.settings(job, plan.request.quick)}
        stored.add(job.key, {"hash": job.config.hash(), **found, **settings, **data, "versions": versions()})
    stored.save()


def _say_absent(jobs: list[Job]) -> None:
    """Which runs wait for data, and how to get it; with nothing to run, the error says it."""
    if all(map(absent, jobs)):
        return
    for name in dict.fromkeys(n for job in jobs for n in (job.config.source, job.config.target) if missing(n)):
        count = sum(name in (job.config.source, job.config.target) for job in jobs)
        print(f"not run ({counted(count, 'run')}): {missing(name)}", file=sys.stderr)


def _say_short(jobs: list[Job]) -> None:
    """Which benchmarks do not have their official number of images, so that numbers on them are not the paper's."""
    for name in dict.fromkeys(n for job in jobs for n in (job.config.source, job.config.target)):
        if short := short_copy(name):
            print(f"note: {short}: the copy is incomplete or another version", file=sys.stderr)


def _nothing_stored(plan: Plan, stored: ResultsFile) -> NoReturn:
    names = (n for job in plan.jobs for n in (job.config.source, job.config.target))
    reasons = [missing(n) for n in names if missing(n)] or [stored.not_run.get(job.key, "") for job in plan.jobs]
    why = next(filter(None, reasons), "no run is stored yet; leave out --only-collect to train.")
    raise UserError(f"no results for {plan.request.name}: {why}{_instead(plan)}")


def _instead(plan: Plan) -> str:
    """With data missing, how to make the same with the digits that need none; empty where that is no way."""
    if not all(map(absent, plan.jobs)):
        return ""
    name, ways = plan.request.name, []
    for request, flags in (
        (Request(name, on=QUICK_DATA), f"--on {QUICK_DATA} ({SMALL_DIGITS})"),
        (Request(name, quick=True), "--quick (a first look at them)"),
    ):
        try:
            works = not any(map(absent, Plan(request).jobs))
        except UserError:  # a table that needs its own data
            works = False
        ways += [flags] if works else []
    return f" Without that data: python -m paper {name} {' or '.join(ways)}." if ways else ""


def _say_quick(plan: Plan, folder: Path) -> None:
    """On which data a first look is taken, and where it goes."""
    if plan.request.quick:
        small = {job.column for job in plan.jobs} <= {*PROTOCOLS[QUICK_DATA].tasks}
        data = f"{QUICK_DATA}: {SMALL_DIGITS}" if small else plan.protocol.title
        tasks = ", ".join(dict.fromkeys(job.column for job in plan.jobs))
        print(f"a first look on {data} ({tasks}), results in {folder}", file=sys.stderr, flush=True)
