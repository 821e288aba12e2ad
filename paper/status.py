"""Which tables and figures can be made with the data that is here, and about how long each takes."""

from collections.abc import Iterable

from paper.catalogue import RECIPES, Recipe
from paper.protocols import PLACES, Place, missing
from paper.request import Asked, columns_of
from tsadapt.data.open import data_root
from tsadapt.errors import UserError, unknown

__all__ = ["expected_time", "status_lines"]


def expected_time(recipe: Recipe, place: Place, columns: Iterable[str]) -> str:
    """About how long all runs take on one core."""
    if place.seconds is None:
        return "wants a GPU, never timed"
    total = 0.0
    for column in columns:
        seconds = place.seconds_of_task.get(column, place.seconds)
        each = seconds * (place.config(column, 0).steps or 0) + recipe.more_seconds
        total += each * len(recipe.rows) * len(recipe.seeds)
    return f"{total / 3600:.1f} h" if total > 5400 else f"{max(total / 60, 1):.0f} min"


def status_lines(only: str | None = None) -> list[str]:
    """A table or figure, or each: what it is, where it can run with the data that is here, and about how long."""
    if only is not None and only not in RECIPES:
        raise UserError(unknown("table or figure", only, RECIPES))
    lines = ["Times are for all runs of a table, on one core; --rows, --columns and --seeds take a part.", ""]
    for name, recipe in RECIPES.items() if only is None else [(only, RECIPES[only])]:
        lines.append(f"{name:<19} {recipe.what}")
        places = [recipe.home, *(p for p in recipe.only or PLACES if p not in (recipe.home, "moons"))]
        told = {where: _there(recipe, where) for where in places}
        home = told.pop(recipe.home) or "data not here"
        lines.append(f"{'':<19} {PLACES[recipe.home].title}: {home}")
        there = [f"--on {where}: {text}" for where, text in told.items() if text]
        if there:
            lines.append(f"{'':<19} " + " · ".join(there))
    lines += [
        "",
        "* needs a backbone's weights, which are downloaded unless --weights names their file. With --frozen,"
        " Office-31, Office-Home and VisDA-2017 are trained on features of the backbone, computed once: another"
        " protocol, much faster.",
        "Where data is not here, tsadapt reproduce NAME says what to put where.",
    ]
    try:
        root = data_root()
    except UserError as error:
        lines.append(f"{error} Only data that comes with the packages was looked for.")
    else:
        if root is None:
            lines.append("TSADAPT_DATA is not set: only data that comes with the packages was looked for.")
    return lines


def _there(recipe: Recipe, where: str) -> str:
    """About how long it takes with the data that is here, and how much of it that is; empty if none is."""
    place, columns = PLACES[where], columns_of(recipe, Asked(on=where), PLACES[where])
    here = [c for c in columns if not any(missing(n.format(seed=0)) for n in place.tasks[c])]
    if not here:
        return ""
    part = "" if len(here) == len(columns) else f", {len(here)} of {len(columns)} tasks"
    return f"{expected_time(recipe, place, here)}{part}{'*' * ('backbone' in place.settings)}"
