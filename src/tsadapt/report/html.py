"""A page as one HTML file: no network, no framework; what it says is readable without JavaScript.

Names of files and classes come from outside: the templates escape all they are given, control characters are spelt out,
and a content security policy lets only the page's own script run.
"""

import base64
import hashlib
from dataclasses import fields, is_dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tsadapt.errors import counted, printable
from tsadapt.files import write_atomically
from tsadapt.report.charts import HEIGHT, WIDTH
from tsadapt.report.page import Page
from tsadapt.report.shown_numbers import interval, nice_number, percent
from tsadapt.report.views import comparison_table, views_of

__all__ = ["MOST_BYTES", "render", "write_page"]

MOST_BYTES = 15_000_000
"""The largest file."""

PICTURES = 10_000_000
"""Characters of thumbnails in it."""


def write_page(page: Page, path: Path) -> int:
    """Write a page; the number of its bytes."""
    data = render(page).encode()
    write_atomically(path, data)
    return len(data)


def render(page: Page, pictures: int = PICTURES) -> str:
    """The page as HTML of at most MOST_BYTES: with fewer thumbnails if it would be larger."""
    page = _spelt(page)
    style, script = (_text(f"page.{kind}") for kind in ("css", "js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    comparison = None if page.comparison is None else comparison_table(page.comparison)
    template = _environment().get_template("page.html.j2")
    while True:
        views, data = views_of(page, pictures)
        html = template.render(
            page=page, runs=views, data=data, style=Markup(style), script=Markup(script), digest=digest,
            comparison=comparison,
        )  # fmt: skip
        size = len(html.encode())
        if size <= MOST_BYTES or not pictures:
            return html
        spent = sum(map(len, data["pictures"].values()))
        pictures = max(int(0.95 * (MOST_BYTES - (size - spent))), 0)  # what the rest of the page leaves


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("tsadapt.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {"percent": percent, "interval": interval, "number": nice_number}
    made.globals |= {"counted": counted, "width": WIDTH, "height": HEIGHT}
    return made


def _text(name: str) -> str:
    return (files("tsadapt.report") / "templates" / name).read_text(encoding="utf-8")


def _spelt(value: Any) -> Any:
    """The same with every text in one line that can be shown and encoded; the config keeps its lines."""
    if isinstance(value, str):
        return "\n".join(map(printable, value.split("\n"))) if "\n" in value else printable(value)
    if isinstance(value, tuple):
        return tuple(map(_spelt, value))
    if isinstance(value, dict):
        return {_spelt(key): _spelt(inner) for key, inner in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _spelt(getattr(value, f.name)) for f in fields(value)})
    return value
