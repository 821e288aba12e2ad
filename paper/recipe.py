"""A recipe: how a table, figure or study is made from runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paper.analyses.section import Section
from paper.jobs import Job, Measure, Watch, Workspace
from paper.pictures import Curves
from paper.protocols import Protocol
from paper.results_file import Results
from paper.rows import Row

__all__ = ["Recipe"]


@dataclass(frozen=True)
class Recipe:
    """A table, figure or study: its rows, the protocol it belongs to, and what is made of the runs.

    - `measure` adds to the stored numbers of a run, from its folder; `watch` observes the training of a run. Without
      either, and without `work`, the same runs of other tables serve this one too.
    - `work` replaces training: it does everything for one job and returns the numbers to store. `settings` returns
      what these depend on beside the config.
    - `section` makes a section of the page with numbers of its own; `describe` makes the page's numbers where they are
      not a table of accuracies.
    - `draw` makes the picture where it is not the common one; `curves` draws rows as curves.
    - `columns` are the tasks (None: all of the protocol's), `elsewhere` those on other data, `only` the protocols where
      it can be made at all (empty: all).
    - `more` names further runs, once the requested ones are there: by the protocol, the rows and the results; it is
      asked again when those are there too. They may have rows that are not in `rows`.
    - `more_seconds` is about what a run takes beside its training, `trainings` how many trainings a job has, and
      `note` what a reader of the page must know.
    """

    what: str
    home: str
    rows: list[Row]
    columns: tuple[str, ...] | None = None
    seeds: tuple[int, ...] = (0, 1, 2)
    measure: Measure | None = None
    watch: Watch | None = None
    work: Callable[[Job, Workspace], dict[str, Any]] | None = None
    settings: Callable[[Job, bool], dict[str, Any]] | None = None
    section: Callable[..., Section] | None = None
    describe: Callable[[Results, dict[str, Any]], str] | None = None
    draw: Callable[[Results, list[Row], Path], None] | None = None
    curves: Curves | None = None
    elsewhere: dict[str, tuple[str, ...]] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    more: Callable[[Protocol, list[Row], Results], list[Job]] | None = None
    more_seconds: float = 0.0
    trainings: int = 1
    note: str = ""
