"""A table or figure from its recipe: run or resume what is behind it, collect, and write it beside the paper's."""

import sys
from collections import Counter
from pathlib import Path
from typing import NoReturn

from paper.drawing import draw_curves_of_rows, draw_rows, markdown_table, stamp
from paper.protocols import missing
from paper.published import Published, published
from paper.request import Asked, Request
from paper.results_file import Kept, Ledger, parts
from paper.sections import (
    MEASURES,
    made_by,
    not_run_told,
    others_told,
    selected_table,
    settings_of,
    with_runs,
)
from paper.tables import Job, absent, cells, data_of_run, rows_told, run_jobs
from tsadapt.errors import UserError, counted
from tsadapt.files import write_atomically
from tsadapt.models.backbones import make_backbone
from tsadapt.runs.fit import versions
from tsadapt.training.trainer import NotFiniteError

__all__ = ["reproduce"]

QUICK = "a first look: these numbers mean nothing"


def reproduce(name: str, asked: Asked, out: Path) -> list[Path]:
    """Run, collect and write; the files that were written."""
    request = Request(name, asked)
    recipe, place = request.recipe, request.place
    folder = out / "quick" if asked.quick else out
    said = {"name": name, "title": recipe.what, "data": place.title, "protocol": place.protocol}
    ledger = Ledger(folder / f"{request.stem}.json", said)
    ledger.said["command"] = request.command(ledger.runs)
    if not asked.only_collect:
        _run(request, ledger, folder)
    whole, columns = request.whole(ledger.runs)
    if not asked.only_collect:
        ledger.explain({job.key: absent(job) for job in whole if job.key not in ledger.runs and absent(job)})
    # What was measured under other settings than today's stays in the file, and is no part of the table.
    kept = {job.key: ledger.runs[job.key] for job in whole if request.is_kept(job, ledger.runs)}
    if not kept:
        _nothing_kept(request, ledger)
    ledger.settings = settings_of(request.of_today(ledger.runs))
    ledger.said["command"] = request.command(ledger.runs)
    paper = published().get(name) if request.is_at_home else None
    picture = folder / f"{request.stem}.png"
    text, beside = "", dict[str, dict[str, float]]()
    if recipe.extra is not None:
        there = {parts(key).column for key in kept}
        done = [c for c in columns if c in there]
        text, extra, beside = recipe.extra(
            place, recipe.rows, done, kept, ledger.extra, not asked.only_collect, paper
        )  # fmt: skip
        if extra != ledger.extra:
            ledger.replace_extra(extra)
    numbers = [*_numbers(request, whole, columns, kept, paper, beside, picture), text]
    ledger.save()
    if recipe.draw is not None:
        recipe.draw(kept, recipe.rows, picture)
    stems = dict.fromkeys([request.stem, *map(request.stem_of, whole)])
    pictures = [p for s in stems for p in (folder / f"{s}.png", folder / f"{s}-strip.png") if p.exists()]
    made = made_by(ledger.said["command"], request.stem, kept, len(whole))
    for drawn in pictures:
        stamp(drawn, made, QUICK if asked.quick else "")
    page = folder / f"{request.stem}.md"
    write_atomically(page, _page(request, whole, kept, ledger, numbers, pictures, paper, made))
    return [ledger.path, *pictures, page]


def _page(
    request: Request, whole: list[Job], kept: Kept, ledger: Ledger, numbers: list[str], pictures: list[Path],
    paper: Published | None, made: str,
) -> str:  # fmt: skip
    """All sections, one below the other."""
    recipe, place = request.recipe, request.place
    judged = f" {MEASURES[place.measure]}, %, last step, {_over(kept)}." if recipe.alone is None else ""
    legend = f" ({place.legend})" if place.legend else ""
    sections = [
        f"## {request.name} ({place.title}): {recipe.what}",
        f"On {place.title}{legend}: {place.protocol}.{judged} {len(kept)} of {len(whole)} runs are there.",
        recipe.note,
        *numbers,
        *(f"![{drawn.stem}]({drawn.name})" for drawn in pictures),
        paper.note if paper is not None else "",
        rows_told(kept),
        not_run_told({job.key: ledger.not_run[job.key] for job in whole if job.key in ledger.not_run}),
        others_told(whole, ledger.runs),
        made,
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _over(kept: Kept) -> str:
    """Over how many seeds the numbers are."""
    runs = Counter(parts(key)[:2] for key in kept).values()
    most, up_to = max(runs), "up to " if min(runs) < max(runs) else ""
    return f"mean ± deviation over {up_to}{most} seeds" if most > 1 else "one seed"


def _numbers(
    request: Request, jobs: list[Job], columns: list[str], kept: Kept, paper: Published | None,
    beside: dict[str, dict[str, float]], picture: Path,
) -> list[str]:  # fmt: skip
    """The sections of the page that are made of the runs alone, and the common picture."""
    recipe, place = request.recipe, request.place
    if recipe.alone is not None:
        return [recipe.tell(kept)] if recipe.tell is not None else []
    table, left_out = with_runs(cells(jobs, kept, recipe.rows, columns, paper, lambda run: run.get(place.measure)))
    title = f"{request.name}, {place.title}: {MEASURES[place.measure].lower()}, %, {_over(kept)}"
    if recipe.curves is not None:
        draw_curves_of_rows(table, recipe.curves, title, picture)
    elif recipe.draw is None:
        draw_rows(table, title, picture, beside)
    return [markdown_table(table), left_out, selected_table(jobs, kept, recipe.rows, columns, place.measure)]


def _run(request: Request, ledger: Ledger, folder: Path) -> None:
    """Train what was asked for and is not there."""
    recipe, jobs, side_by_side = request.recipe, request.jobs, request.asked.jobs
    _say_absent(jobs)
    left = [job for job in jobs if not absent(job) and not _is_made(request, job, ledger, folder)]
    if not left and not any(map(absent, jobs)):
        are = "is" if len(jobs) == 1 else "are"
        print(f"nothing to train: {counted(len(jobs), 'run')} of {request.stem} {are} kept already.", file=sys.stderr)
    if left and (backbone := left[0].config.backbone) is not None:  # what is wrong with it is said now, and once
        make_backbone(backbone, left[0].config.weights, left[0].config.image_size)
    if recipe.alone is None:
        run_jobs(left, ledger, request.work(folder), side_by_side, recipe.measure)
        return
    if side_by_side > 1:
        print(f"{request.name} makes its runs one after the other: --jobs {side_by_side} is not used.", file=sys.stderr)
    for job in left:
        _alone(request, job, ledger, folder)


def _is_made(request: Request, job: Job, ledger: Ledger, folder: Path) -> bool:
    """Whether what is kept of a job is all that it makes: one that draws for itself has pictures, too."""
    draws = request.recipe.alone is not None and request.recipe.draw is None
    picture = folder / f"{request.stem_of(job)}.png"
    return request.is_kept(job, ledger.runs) and (not draws or picture.exists())


def _alone(request: Request, job: Job, ledger: Ledger, folder: Path) -> None:
    """A run that a recipe does by itself."""
    assert request.recipe.alone is not None
    work = request.work(folder)
    print(f"{job.key} …", file=sys.stderr, flush=True)
    try:
        found = request.recipe.alone(job.config, work, folder / request.stem_of(job), request.asked.quick)
    except (UserError, NotFiniteError) as error:
        print(f"not run: {job.key}: {error}", file=sys.stderr)
        ledger.explain({job.key: str(error)})
    else:
        data = data_of_run(work / "runs" / job.config.hash())
        ledger.add(job.key, {"hash": job.config.hash(), **found, **data, "versions": versions()})
    ledger.save()


def _say_absent(jobs: list[Job]) -> None:
    """Which runs wait for data, and how to get it; with nothing to run, the error says it."""
    if all(map(absent, jobs)):
        return
    for name in dict.fromkeys(n for job in jobs for n in (job.config.source, job.config.target) if missing(n)):
        count = sum(name in (job.config.source, job.config.target) for job in jobs)
        print(f"not run ({counted(count, 'run')}): {missing(name)}", file=sys.stderr)


def _nothing_kept(request: Request, ledger: Ledger) -> NoReturn:
    jobs = request.jobs
    names = (n for job in jobs for n in (job.config.source, job.config.target))
    reasons = [missing(n) for n in names if missing(n)] or [ledger.not_run.get(job.key, "") for job in jobs]
    why = next(filter(None, reasons), "nothing is kept yet; leave out --only-collect to train.")
    raise UserError(f"nothing of {request.name} is there: {why}")
