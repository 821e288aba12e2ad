"""The tables of a benchmark: for reading (Markdown), for programs (JSON, CSV), for a paper (LaTeX)."""

import csv
import io
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tsadapt.benchmark.standings import (
    FEW,
    Difference,
    Scores,
    certain_best,
    over_seeds,
    over_tasks,
    standings,
)
from tsadapt.benchmark.tasks import Task
from tsadapt.files import csv_cells, number

__all__ = ["as_json", "describe", "grid", "latex", "long_csv"]

ALL = "all tasks"

Cell = Callable[[float, float | None, bool], str]
"""From a mean in percent, its deviation over the seeds, and whether it is best for certain, to what a table shows."""


def plain(mean: float, deviation: float | None, best: bool) -> str:
    """A cell as it is printed on a terminal: a star in place of bold.

    >>> plain(71.25, 1.5, True), plain(71.25, None, False)
    ('71.2 ± 1.5 *', '71.2')
    """
    return f"{mean:.1f}{'' if deviation is None else f' ± {deviation:.1f}'}{' *' if best else ''}"


def markdown(mean: float, deviation: float | None, best: bool) -> str:
    """A cell of a page."""
    text = plain(mean, deviation, False)
    return f"**{text}**" if best else text


def tex(mean: float, deviation: float | None, best: bool) -> str:
    r"""A cell of a paper.

    >>> print(tex(71.25, 1.5, True))
    $\mathbf{71.2} \pm 1.5$
    """
    shown = rf"\mathbf{{{mean:.1f}}}" if best else f"{mean:.1f}"
    spread = "" if deviation is None else rf" \pm {deviation:.1f}"
    return f"${shown}{spread}$"


def grid(
    scores: Scores, tasks: Sequence[str], baseline: str | None = None, cell: Cell = plain
) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the table, the best rank first; a method that lacks a task stands below, without one.

    With a `baseline` the last two columns are the difference to it, over seeds and over tasks.
    """
    several = len(tasks) > 1
    columns = {**{task: [task] for task in tasks}, **({ALL: [*tasks]} if several else {})}
    best = {name: certain_best(scores, group) for name, group in columns.items()}
    ranks = {one.title: f"{one.rank:.1f}" for one in standings(scores, tasks)}
    head = ["method", "rank", *columns]
    if baseline is not None:
        head += [f"over {baseline}, seeds", *([f"over {baseline}, tasks"] if several else [])]
    rows = []
    for method in [*ranks, *(name for name in scores if name not in ranks)]:
        row = [method, ranks.get(method, "–")]
        for name, group in columns.items():
            mean, deviation = _over(scores[method], group)
            row.append("–" if mean is None else cell(100 * mean, _percent(deviation), best[name] == method))
        if baseline is not None:
            pair = scores[method], scores[baseline]
            found = [over_seeds(*pair, tasks), *([over_tasks(*pair, tasks)] if several else [])]
            row += ["–" if method == baseline else _shown(one) for one in found]
        rows.append(row)
    return head, rows


def _over(scores: Mapping[str, Mapping[int, float]], tasks: Sequence[str]) -> tuple[float | None, float | None]:
    """Mean over tasks and seeds, and the deviation over the seeds that all tasks have; None where there is none."""
    if not all(scores.get(task) for task in tasks):
        return None, None
    shared = set.intersection(*({*scores[task]} for task in tasks))
    by_seed = [statistics.fmean(scores[task][seed] for task in tasks) for seed in sorted(shared)]
    mean = statistics.fmean(statistics.fmean(scores[task].values()) for task in tasks)
    return mean, statistics.stdev(by_seed) if len(by_seed) > 1 else None


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _shown(one: Difference | None) -> str:
    if one is None:
        return "–"
    interval = "" if math.isinf(one.low) else f" [{100 * one.low:+.1f}, {100 * one.high:+.1f}]"
    return f"{100 * one.mean:+.1f}{interval}"


def describe(
    scores: Scores, tasks: Sequence[Task], seeds: Sequence[int], baseline: str, metric: str,
    failed: Mapping[str, str], command: str,
) -> str:  # fmt: skip
    """The page: the table, how to read it, what failed, and the command."""
    names = [task.name for task in tasks]
    head, rows = grid(scores, names, baseline, markdown)
    shown = [[_cell(text) for text in row] for row in (head, *rows)]
    what = "mean of the classes' accuracies" if metric != "accuracy" else "accuracy"
    wanted = len(tasks) * len(seeds)
    lacking = [
        f"{method} ({found} of {wanted} runs)"
        for method, by_task in scores.items()
        if (found := sum(len(by_task.get(name, ())) for name in names)) < wanted
    ]
    lines = [
        "# Benchmark",
        "",
        f"Target {what} in %, last step, mean ± standard deviation over {_number_of(seeds)}. Rank: mean over the tasks,"
        " ties shared. **Bold**: best, and above every other method with a 95 % interval over seeds that leaves out"
        f" zero. The difference to {baseline} is paired, with its 95 % interval: over seeds, for these tasks; over"
        f" tasks, for others like them (Student's t below {FEW} values, else a bootstrap).",
        "",
        *(f"| {' | '.join(row)} |{_rule(row) if i == 0 else ''}" for i, row in enumerate(shown)),
        "",
    ]
    if lacking:
        lines += [f"Not complete: {', '.join(lacking)}.", ""]
    if failed:
        lines += ["Failed:", "", *(f"- {_cell(what)}: {_cell(why)}" for what, why in failed.items()), ""]
    lines += ["Tasks:", "", *(f"- {_cell(t.name)}: `{t.source}` → `{t.target}`" for t in tasks), ""]
    lines += ["Made by:", "", f"    {command}", ""] if command else []
    return "\n".join(lines)


def _rule(row: Sequence[str]) -> str:
    return "\n|" + "---|" * len(row)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _number_of(seeds: Sequence[int]) -> str:
    return "one seed" if len(seeds) == 1 else f"{len(seeds)} seeds"


def latex(scores: Scores, tasks: Sequence[str], metric: str) -> str:
    r"""A tabular of means ± deviations in percent, without differences; it needs \usepackage{booktabs}."""
    head, rows = grid(scores, tasks, None, tex)
    lines = [
        f"% {metric} of the target in percent, mean and standard deviation over seeds; bold: best for certain",
        rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
        r"\toprule",
        " & ".join(["", *map(_escaped, head[1:])]) + r" \\",
        r"\midrule",
        *(" & ".join([_escaped(row[0]), *(c.replace("–", "--") for c in row[1:])]) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    r"""Text as LaTeX takes it.

    >>> print(_escaped("a_b & 5%"))
    a\_b \& 5\%
    """
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "→": r"$\to$"}
    special |= {c: f"\\{c}" for c in "_&%$#{}"}
    return "".join(special.get(c, c) for c in text)


def as_json(scores: Scores, tasks: Sequence[str], baseline: str) -> list[dict[str, Any]]:
    """What programs read of the standings, in fractions."""
    found = []
    for one in standings(scores, tasks):
        pair = scores[one.title], scores[baseline]
        mean, deviation = _over(scores[one.title], tasks)
        found.append(
            {
                "method": one.title, "rank": one.rank, "seeds": one.seeds, "mean": mean, "deviation": deviation,
                "by_task": dict(zip(tasks, one.accuracies, strict=True)),
                "over_baseline": {"seeds": _plain(over_seeds(*pair, tasks)), "tasks": _plain(over_tasks(*pair, tasks))},
                "best_for_certain_on": [task for task in tasks if certain_best(scores, [task]) == one.title],
            }
        )  # fmt: skip
    return found


def _plain(one: Difference | None) -> dict[str, float | None] | None:
    return None if one is None else {"mean": one.mean, "low": number(one.low), "high": number(one.high)}


def long_csv(runs: Sequence[Mapping[str, Any]]) -> str:
    """A line for every run."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    head = [*dict.fromkeys(key for run in runs for key in run)]
    out.writerow(head)
    for run in runs:
        out.writerow(csv_cells([_number(run.get(key)) for key in head]))
    return text.getvalue()


def _number(value: Any) -> Any:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else value
