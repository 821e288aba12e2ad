"""What a page of a report shows: a frozen dataclass for the page, one for each run. `collect` fills them, `html` draws.

Shapes: N target rows, C classes, P points of a map. Shares and probabilities are from 0 to 1.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tsadapt.data.doctor import Finding
from tsadapt.data.images import Images
from tsadapt.trust.interval import Interval

__all__ = [
    "Column",
    "Comparison",
    "Curve",
    "Interval",
    "Measured",
    "Page",
    "Plane",
    "Rows",
    "RunPage",
    "Side",
    "Trusted",
]


@dataclass(frozen=True)
class Trusted:
    """What can be said of the predictions beyond their softmax, without target labels.

    `right` (N,) is the probability that each prediction is right, `doubtful` (N,) marks those below `threshold`,
    `second` (N,) is the class that comes next. `shares` are the class shares of the target by class,
    `notes` say what is odd about them, `worth` is a sentence on how good such estimates are, and `meaning` one or two
    on what is doubtful. `truth` (N,) are target labels that were given to measure with, −1 for none.
    """

    estimate: Interval | None = None
    right: np.ndarray | None = None
    doubtful: np.ndarray | None = None
    threshold: float | None = None
    second: np.ndarray | None = None
    shares: dict[str, Interval] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    worth: str = ""
    meaning: str = ""
    truth: np.ndarray | None = None


@dataclass(frozen=True)
class Side:
    """One of the two domains: its name, its rows, and the share of each class (C,); None where it is not known."""

    name: str
    rows: int
    shares: np.ndarray | None = None


@dataclass(frozen=True)
class Rows:
    """Rows of a domain with a class each: given (source) or predicted (target), and what shows them.

    `guess` and `second` (N,) are indices of classes, `confidence` (N,) is the softmax of the guess. `truth` (N,) are
    given target labels, −1 for a class that the network does not know. `values` (N, V) belong to the named `columns`.
    """

    names: tuple[str, ...]
    guess: np.ndarray
    second: np.ndarray | None = None
    confidence: np.ndarray | None = None
    truth: np.ndarray | None = None
    pictures: Images | None = None
    columns: tuple[str, ...] = ()
    values: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Measured:
    """What given target labels say. They had no part in training or choice: an oracle.

    `confusion` (C, C) counts rows by class and predicted class; None of very many classes. `bins` are the mean
    probability, the accuracy and the rows of each bin of a reliability diagram.
    """

    accuracy: Interval
    rows: int
    mean_class_accuracy: float
    confusion: np.ndarray | None = None
    confused: tuple[tuple[str, str, int], ...] = ()
    bins: tuple[tuple[float, float, int], ...] = ()
    calibration_error: float | None = None
    where: str = ""


@dataclass(frozen=True)
class Plane:
    """Rows of both domains in a plane: `points` (P, 2) from 0 to 1, which are of the `target` (P,), and their `rows`.

    `label` (P,) is the class of a source row, and the predicted class of a target row.
    """

    title: str
    text: str
    points: np.ndarray
    target: np.ndarray
    rows: np.ndarray
    label: np.ndarray


@dataclass(frozen=True)
class Curve:
    """A quantity over the steps of a run."""

    name: str
    group: str
    steps: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Column:
    """A column of a comparison: numbers to sort by, with how they are shown; `better` is high, low or nothing."""

    name: str
    values: tuple[float | str | None, ...]
    better: str = ""
    text: str = ""
    percent: bool = False


@dataclass(frozen=True)
class Comparison:
    """Runs, or steps of a run, side by side, and which one was chosen without target labels.

    `names` and `columns` have an entry for each. `links` are the places of those among the runs of the page.
    """

    names: tuple[str, ...]
    columns: tuple[Column, ...]
    links: tuple[int | None, ...]
    chosen: int | None = None
    why: str = ""
    out: dict[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunPage:
    """Everything that the page says of one run."""

    name: str
    path: str
    objective: str
    step: int
    steps: int
    classes: tuple[str, ...]
    source: Side
    target: Side
    rows: Rows
    kind: str
    """What a row is: image or row."""
    label: str = ""
    """What the run is called among the candidates of a result, if it is one; "RESULT: NAME" beside other runs."""
    held: int = 0
    """Source rows that were held out of training."""
    source_rows: Rows | None = None
    unreadable: tuple[str, ...] = ()
    trusted: Trusted | None = None
    measured: Measured | None = None
    source_accuracy: float | None = None
    source_reference: float | None = None
    planes: tuple[Plane, ...] = ()
    curves: tuple[Curve, ...] = ()
    findings: tuple[Finding, ...] | None = None
    """The doctor's; None if the data was not there to look at."""
    notes: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    config: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """A page: its runs, the one to show first, and, of several runs or candidate steps, how they compare."""

    title: str
    runs: tuple[RunPage, ...]
    comparison: Comparison | None = None
    first: int = 0
    command: str = ""
    version: str = ""
