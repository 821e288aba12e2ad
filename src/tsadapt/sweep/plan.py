"""Which runs a sweep makes: a grid, or drawn at random."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, log
from pathlib import Path
from typing import Any

from tsadapt.config import RunConfig
from tsadapt.errors import UserError, unknown
from tsadapt.objectives.objective import all_settings, setting_named, with_settings
from tsadapt.runs.folder import RunFolder, SweepFolder
from tsadapt.training.setup import one_spelling

__all__ = [
    "PAPER_GRID",
    "SOURCE_ONLY",
    "Axes",
    "Planned",
    "Range",
    "draw",
    "grid",
    "parse_axes",
    "parse_axis",
]

SOURCE_ONLY: dict[str, Any] = {
    "method": "source-only", "source_term": "ce", "target_terms": (), "term_weight": {}, "sdat": False,
}  # fmt: skip
"""What makes a run the reference that every sweep compares with."""

PAPER_GRID = ("lambda0=0.1,0.25,0.5,0.75,1.0", "beta=0.01,0.05,0.1,0.15,0.2")
"""The paper's choices (Section 4.1)."""

NOT_SWEPT = (
    "device",
    "workers",
    "checkpoint_every",
    "candidates",
    "holdout",
    "target_share",
    "target_draw",
    "target_labels",
    "use_target_labels",
)


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, evenly or (log) by orders of magnitude; for random and optuna searches."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def draw(self, rng: random.Random) -> float:
        """One of them; four digits are enough for a setting."""
        value = exp(rng.uniform(log(self.low), log(self.high))) if self.log else rng.uniform(self.low, self.high)
        return round(value) if self.whole else float(f"{value:.4g}")


Axes = dict[str, tuple[Any, ...] | Range]


def parse_axis(text: str) -> tuple[str, tuple[Any, ...] | Range]:
    """A setting and its values: name=a,b,c, or a range name=low..high or name=low..high:log.

    >>> parse_axis("lambda0=0.1,0.5"), parse_axis("lr=0.001..0.1:log")
    (('lambda0', (0.1, 0.5)), ('lr', Range(low=0.001, high=0.1, log=True, whole=False)))
    """
    name, equals, values = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    name = {"target_term": "target_terms"}.get(name, name)
    settings = {one: setting for one, setting in all_settings().items() if one not in NOT_SWEPT}
    if not equals or not values.strip():
        raise UserError(f"--grid is {text!r}, expected NAME=VALUE,VALUE,… such as lambda0=0.1,0.25.")
    if "." not in name and name not in settings:
        raise UserError(unknown("setting", name, settings))
    setting = setting_named(name)
    if ".." in values:
        span, _, how = values.partition(":")
        ends = [setting.parse(end) for end in span.split("..")]
        numbers = [float(end) for end in ends if isinstance(end, int | float) and not isinstance(end, bool)]
        if len(ends) != 2 or len(numbers) != 2 or not numbers[0] < numbers[1] or how not in ("", "log"):
            raise UserError(f"--grid is {text!r}, expected a range NAME=LOW..HIGH, or NAME=LOW..HIGH:log.")
        if how == "log" and numbers[0] <= 0:
            raise UserError(f"--grid is {text!r}: a log range must start above zero.")
        whole = all(isinstance(end, int) for end in ends) and not isinstance(setting.parse("1"), float)
        return name, Range(numbers[0], numbers[1], how == "log", whole)
    found = tuple(setting.parse(value) for value in values.split(","))
    if len(set(found)) < len(found):
        raise UserError(f"--grid is {text!r}: contains a value twice.")
    return name, found


def parse_axes(texts: Sequence[str]) -> Axes:
    """Several settings and their values."""
    axes: Axes = {}
    for text in texts:
        name, values = parse_axis(text)
        if name in axes:
            raise UserError(f"--grid names {name} twice: give all its values at once, {name}=A,B.")
        axes[name] = values
    return axes


def grid(axes: Axes) -> list[dict[str, Any]]:
    """Every combination of the values."""
    for name, values in axes.items():
        if isinstance(values, Range):
            raise UserError(f"{name} is a range, but a grid needs values. Add --trials N to draw from ranges.")
    listed = {name: values for name, values in axes.items() if isinstance(values, tuple)}
    return [dict(zip(listed, chosen, strict=True)) for chosen in product(*listed.values())]


def draw(axes: Axes, trials: int, seed: int) -> list[dict[str, Any]]:
    """`trials` combinations at random, none twice; fewer if there are no more."""
    rng = random.Random(seed)
    if not any(isinstance(values, Range) for values in axes.values()):
        everything = grid(axes)
        return rng.sample(everything, min(trials, len(everything)))
    found: list[dict[str, Any]] = []
    for _ in range(100 * trials):  # a narrow range may have fewer
        if len(found) == trials:
            break
        one = {n: v.draw(rng) if isinstance(v, Range) else rng.choice(v) for n, v in axes.items()}
        if one not in found:
            found.append(one)
    return found


@dataclass(frozen=True)
class Planned:
    """A run of a sweep: what it changes in the base config, its config, and its folder."""

    overrides: dict[str, Any]
    config: RunConfig
    out: Path

    @classmethod
    def of(cls, base: RunConfig, overrides: dict[str, Any], folder: Path) -> "Planned":
        """A run of a sweep in `folder`; its own folder there is named by the hash of its config."""
        try:
            config = one_spelling(with_settings(base, **overrides))
        except UserError as error:
            raise UserError(f"--grid: {error}") from error
        return cls(overrides, config, SweepFolder(folder).run(config).path)

    @property
    def done(self) -> bool:
        """Whether it was trained to its end."""
        return RunFolder(self.out).done

    @property
    def judged_by(self) -> dict[str, Any]:
        """The labels that its metrics are made with."""
        found: dict[str, Any] = RunFolder(self.out).metrics["judged_by"]
        return found

    @property
    def title(self) -> str:
        """The changed settings, in words."""
        return ", ".join(f"{name}={value}" for name, value in self.overrides.items() if value not in ((), {})) or "base"
