"""What the augmentation adds to mutual information: differences run by run, with intervals over the seeds."""

import math
import statistics
from typing import Any

from scipy.stats import t as student

from paper.analyses.pseudo_labels import augmentation_table
from paper.analyses.section import Section
from paper.protocols import Protocol
from paper.published import Published
from paper.results_file import Key, Results, parts
from paper.rows import TITLES, Row

__all__ = ["augmentation_worth", "half_width", "interval"]


def augmentation_worth(
    protocol: Protocol, rows: list[Row], columns: list[str], results: Results, before: dict[str, Any],
    may_measure: bool, paper: Published | None,
) -> Section:  # fmt: skip
    """For each base method and task +TSA minus +MI, and what TSA does in these runs."""
    seeds = sorted({parts(key).seed for key in results})
    lines = [
        "What the augmentation adds to mutual information: +TSA minus +MI, points, last step. Both start from the same"
        " weights and see the same batches; mean over the seeds with a 95 % interval (Student's t), bold where it does"
        " not contain zero.",
        "",
        f"| | {' | '.join(columns)} | all tasks |",
        "|---|" + "---|" * (len(columns) + 1),
    ]
    for title in TITLES.values():
        by_task = {column: _differences(title, column, seeds, results, protocol.measure) for column in columns}
        if any(by_task.values()):
            cells = [interval([*found.values()]) for found in by_task.values()]
            whole = [seed for seed in seeds if all(seed in found for found in by_task.values())]
            means = [statistics.mean(found[seed] for found in by_task.values()) for seed in whole]
            lines.append(f"| {title} | {' | '.join(cells)} | {interval(means)} |")
    text = "\n".join(lines) if len(lines) > 4 else ""
    diagnostics, *_ = augmentation_table(protocol, rows, columns, results, before, may_measure, paper)
    return "\n\n".join(part for part in (text, diagnostics) if part), before, {}


def interval(values: list[float]) -> str:
    """A mean with its 95 % interval; alone for one value, a dash for none.

    >>> interval([1.0, 2.0, 3.0]), interval([2.0]), interval([0.9, 1.0, 1.1])
    ('+2.0 ± 2.5', '+2.0', '**+1.0 ± 0.2**')
    """
    if not values:
        return "–"
    mean = statistics.mean(values)
    if len(values) == 1:
        return f"{mean:+.1f}"
    half = half_width(values)
    text = f"{mean:+.1f} ± {half:.1f}"
    return f"**{text}**" if abs(mean) > half else text


def half_width(values: list[float]) -> float:
    """Half of the 95 % interval of a mean, by Student's t; infinite for a single value."""
    if len(values) < 2:
        return math.inf
    return float(student.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))


def _differences(title: str, column: str, seeds: list[int], results: Results, measure: str) -> dict[int, float]:
    """+TSA minus +MI by seed, where both are there."""
    found = {}
    for seed in seeds:
        tsa, mi = (results.get(str(Key(f"{title} {what}", column, seed)), {}) for what in ("+TSA", "+MI"))
        if measure in tsa and measure in mi:
            found[seed] = tsa[measure] - mi[measure]
    return found
