"""Which tables, figures and studies can be made with the data at hand, and about how long each takes."""

from collections.abc import Iterable

from paper.catalogue import RECIPES
from paper.jobs import make_jobs
from paper.protocols import PROTOCOLS, Protocol, missing
from paper.recipe import Recipe
from paper.request import QUICK_DATA, Request, columns_of
from tsadapt.data.open import data_root
from tsadapt.errors import UserError, unknown

__all__ = ["SMALL_DIGITS", "expected_time", "status_lines"]

SMALL_DIGITS = "digits included in the packages"

STARRED = (
    "* needs a backbone's weights: they are downloaded, or read from the file that --weights names. With --frozen,"
    " Office-31, Office-Home and VisDA-2017 are trained on features of the backbone, computed once: a separate"
    " protocol, much faster."
)


def expected_time(recipe: Recipe, protocol: Protocol, columns: Iterable[str]) -> str:
    """About how long all runs take on one core."""
    if protocol.seconds is None:
        return "needs a GPU, never timed"
    total = 0.0
    for job in make_jobs(protocol, recipe.rows, columns, recipe.seeds):
        seconds = protocol.seconds_of_task.get(job.column, protocol.seconds)
        total += recipe.trainings * seconds * (job.config.steps or 0) + recipe.more_seconds
    return f"{total / 3600:.1f} h" if total > 5400 else f"{max(total / 60, 1):.0f} min"


def status_lines(only: str | None = None) -> list[str]:
    """One entry or each: what it is, on which data it can run here, and about how long that takes."""
    if only is not None and only not in RECIPES:
        raise UserError(unknown("table, figure or study", only, RECIPES))
    lines = ["Times are for all runs of a table on one core; --rows, --columns and --seeds run a part.", ""]
    for name, recipe in RECIPES.items() if only is None else [(only, RECIPES[only])]:
        lines.append(f"{name:<19} {recipe.what}")
        general = [on for on, protocol in PROTOCOLS.items() if protocol.general]
        there = {on: _here(recipe, on) for on in dict.fromkeys([recipe.home, *(recipe.only or general)])}
        lines.append(f"{'':<19} {PROTOCOLS[recipe.home].title}: {there.pop(recipe.home) or 'data missing'}")
        if others := [f"--on {on}: {text}" for on, text in there.items() if text]:
            lines.append(f"{'':<19} " + " · ".join(others))
    lines.append("")
    if any(line.endswith("*") or "* · " in line for line in lines):
        lines.append(STARRED)
    lines += [
        f"{QUICK_DATA}: {SMALL_DIGITS}.",
        "Where data is missing, python -m paper NAME says what to put where.",
    ]
    try:
        root = data_root()
    except UserError as error:
        lines.append(f"{error} Only data included in the packages was found.")
    else:
        if root is None:
            lines.append("TSADAPT_DATA is not set: only data included in the packages was found.")
    return lines


def _here(recipe: Recipe, on: str) -> str:
    """About how long it takes with the data at hand, and how much of the data that is; empty if there is none."""
    protocol = PROTOCOLS[on]
    columns = columns_of(recipe, Request("", on=on), protocol)
    here = [c for c in columns if not any(missing(name.format(seed=0)) for name in protocol.tasks[c])]
    if not here:
        return ""
    part = "" if len(here) == len(columns) else f", {len(here)} of {len(columns)} tasks"
    return f"{expected_time(recipe, protocol, here)}{part}{'*' * ('backbone' in protocol.settings)}"
