"""The page and the picture of the study of trust: what the estimates are worth, task by task and by suite."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from paper.results_file import Key, Results, parts
from paper.rows import Row
from paper.studies.trust_runs import AS_IT_IS, LACKING, PRIOR_OF
from tsadapt.report.figures import pyplot, write_figure

__all__ = ["describe_trust", "draw_trust"]

SUITES: dict[str, Callable[[str], bool]] = {
    "PACS and embedded digits (constants fixed here)": lambda column: not column.startswith(("Office", "Caltech")),
    "Office-31": lambda column: column.startswith("Office"),
    "Office-Caltech-10": lambda column: column.startswith("Caltech"),
}
MOST_WRONG, LEAST_GAIN = 5.0, 0.08
"""The bars: mean error of the estimate, points, and gain of AUROC, on Office-31 and Office-Caltech-10 together."""

Run = Mapping[str, Any]


def describe_trust(results: Results, extra: Mapping[str, Any]) -> str:
    """The bars, the suites, every task, single estimates, and the targets of other class shares."""
    plain = {parts(key).column: run for key, run in results.items() if parts(key).row == AS_IT_IS}
    changed = [(parts(key), run) for key, run in results.items() if parts(key).row != AS_IT_IS]
    sections = [_bars(plain), _suites(plain), _tasks(plain), _singles(plain), _changed(changed)]
    return "\n\n".join(section for section in sections if section)


def _error(run: Run) -> float:
    return abs(float(run["estimate"]["value"]) - float(run["accuracy"]))


def _gain(run: Run) -> float | None:
    a, b = run["auroc"], run["auroc_softmax"]
    return None if a is None or b is None else float(a - b)


def _known(values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _bars(plain: Mapping[str, Run]) -> str:
    """Whether the bars are met, in two sentences."""
    judged = [run for column, run in plain.items() if column.startswith(("Office", "Caltech"))]
    if not judged:
        return ""
    error, gains = mean(map(_error, judged)), _known([_gain(run) for run in judged])
    met = "met" if error <= MOST_WRONG else "missed: read the estimate as a rough guess"
    text = (
        f"On the {len(judged)} tasks that took no part in choosing, the estimate is wrong by {error:.1f} points on"
        f" average and by {max(map(_error, judged)):.1f} at worst (the bar of {MOST_WRONG:g} on average is {met})."
    )
    if not gains:
        return text
    met = "met" if mean(gains) >= LEAST_GAIN else "missed: the order of rows is hardly better than the softmax's"
    return (
        f"{text} AUROC of finding errors is {mean(gains):+.3f} against the chosen model's own softmax (the bar of"
        f" {LEAST_GAIN:+.2f} is {met})."
    )


def _suites(plain: Mapping[str, Run]) -> str:
    lines = [
        "Error: of the estimated accuracy, points. Holds: how often the 90 % interval contains the accuracy. AUROC: of"
        " finding errors by the rows' probability, beside the chosen model's softmax. Calibration error: of these"
        " probabilities, points. Share distance: half the sum of differences between estimated and true class shares,"
        " points, beside that of the plain predictions. Shares hold: how often a class's interval contains its share."
        " All of these need target labels (oracle).",
        "",
        "| | tasks | error, mean | worst | bias | holds | AUROC | softmax | calibration error | softmax"
        " | share distance | predictions | shares hold |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for suite, belongs in SUITES.items():
        runs = [run for column, run in plain.items() if belongs(column)]
        if runs:
            lines.append(f"| {suite} | {len(runs)} | {' | '.join(_numbers(runs))} |")
    return "\n".join(lines)


def _numbers(runs: list[Run]) -> list[str]:
    bias = mean(run["estimate"]["value"] - run["accuracy"] for run in runs)
    aurocs = [_known([run[name] for run in runs]) for name in ("auroc", "auroc_softmax")]
    return [
        f"{mean(map(_error, runs)):.1f}", f"{max(map(_error, runs)):.1f}", f"{bias:+.1f}",
        f"{sum(run['holds'] for run in runs)} of {len(runs)}",
        *(f"{mean(values):.3f}" if values else "–" for values in aurocs),
        *(f"{mean(run[name] for run in runs):.1f}" for name in ("calibration_error", "calibration_error_softmax")),
        *(f"{mean(run['shares'][name] for run in runs):.1f}" for name in ("distance", "distance_of_predictions")),
        f"{mean(run['shares']['hold'] for run in runs):.0f} %",
    ]  # fmt: skip


def _tasks(plain: Mapping[str, Run]) -> str:
    lines = [
        "Every task, %. Doubtful: the share of rows, and how many of these and of the others are wrong.",
        "",
        "| | chosen | accuracy (oracle) | estimate | interval | AUROC | softmax | doubtful | wrong | others wrong |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for column, run in plain.items():
        e, doubtful = run["estimate"], run["doubtful"]
        interval = f"{e['low']:.0f} to {e['high']:.0f}"
        cells = [
            run["chosen"], f"{run['accuracy']:.1f}", f"{e['value']:.1f}",
            interval if run["holds"] else f"**{interval}**",
            *(f"{run[name]:.3f}" if run[name] is not None else "–" for name in ("auroc", "auroc_softmax")),
            *(f"{value:.0f}" if value is not None else "–" for value in doubtful.values()),
        ]  # fmt: skip
        lines.append(f"| {column} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _singles(plain: Mapping[str, Run]) -> str:
    """Single methods beside ours: the mean error of each."""
    suites = {suite: [run for c, run in plain.items() if belongs(c)] for suite, belongs in SUITES.items()}
    suites = {suite: runs for suite, runs in suites.items() if runs}
    names = dict.fromkeys(name for run in plain.values() for name in run["parts"])
    lines = [
        "Mean error of other estimates, points:", "", f"| | {' | '.join(suites)} |", "|---|" + "---|" * len(suites),
        f"| **ours** | {' | '.join(f'{mean(map(_error, runs)):.1f}' for runs in suites.values())} |",
    ]  # fmt: skip
    for name in names:
        cells = []
        for runs in suites.values():
            errors = [abs(run["parts"][name] - run["accuracy"]) for run in runs if name in run["parts"]]
            cells.append(f"{mean(errors):.1f}" if errors else "–")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _changed(changed: Sequence[tuple[Key, Run]]) -> str:
    """Targets with other class shares: what is recognised, and what class priors are worth."""
    if not changed:
        return ""
    lines = [
        "Targets whose rows were chosen by their labels (oracle): a class is taken out, or has 82 % of the rows."
        " Largest share: true and estimated, %. Recognised: the page says so. Accuracy of the preset"
        f" {' and '.join(PRIOR_OF)} with `--class-prior`: uniform, estimated, and the true shares (oracle). Recovered:"
        " the part of the difference between uniform and true shares that estimated ones bring; none where true shares"
        " bring less than a point.",
        "",
        "| | | largest share | recognised | uniform | estimated | true (oracle) | recovered |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for key, run in changed:
        largest, accuracies = run["shares"]["largest"], next(iter(run["priors"].values()))
        part = recovered(accuracies)
        cells = [
            key.column, key.row, f"{largest['true']:.0f}, {largest['estimated']:.0f}",
            "yes" if recognised(key.row, run) else "no", *(f"{value:.1f}" for value in accuracies.values()),
            "–" if part is None else f"{100 * part:.0f} %",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_means(changed)])


def _means(changed: Sequence[tuple[Key, Run]]) -> list[str]:
    """The recovered part of the mean differences, for each kind of target."""
    found = []
    for kind in dict.fromkeys(key.row for key, _ in changed):
        tables = [next(iter(run["priors"].values())) for key, run in changed if key.row == kind]
        part = recovered({name: mean(table[name] for table in tables) for name in tables[0]})
        if part is not None:
            found.append(f"{kind.capitalize()}: {100 * part:.0f} % of the mean difference are recovered.")
    return found


def recovered(accuracies: Mapping[str, float]) -> float | None:
    """The part of the gain by true shares that estimated shares bring; None if true shares gain less than a point.

    >>> recovered({"uniform": 30.0, "estimated": 70.0, "oracle": 80.0})
    0.8
    """
    gain = accuracies["oracle"] - accuracies["uniform"]
    return None if gain < 1 else (accuracies["estimated"] - accuracies["uniform"]) / gain


def recognised(kind: str, run: Run) -> bool:
    """Whether a note names what is odd: the class that dominates, or one that is missing."""
    notes = " ".join(run["shares"]["notes"])
    if kind == LACKING:
        named = notes.partition("hardly any rows of ")[2].partition(".")[0]
        return any(name in named for name in run["shares"]["missing"])
    return f"seem to be {run['shares']['largest']['class']}" in notes


def draw_trust(results: Results, rows: list[Row], path: Path) -> None:
    """Estimates with their intervals over accuracies, and the AUROC of ours over that of the softmax."""
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(10, 4.8), layout="constrained")
    for (suite, belongs), colour in zip(SUITES.items(), ("#616161", "#1565c0", "#e65100"), strict=True):
        runs = [run for key, run in results.items() if parts(key).row == AS_IT_IS and belongs(parts(key).column)]
        if not runs:
            continue
        x, y = [run["accuracy"] for run in runs], [run["estimate"]["value"] for run in runs]
        sides = [
            [run["estimate"]["value"] - run["estimate"]["low"] for run in runs],
            [run["estimate"]["high"] - run["estimate"]["value"] for run in runs],
        ]
        left.errorbar(x, y, yerr=sides, fmt="o", color=colour, label=suite, markersize=5, elinewidth=1, alpha=0.8)
        both = [run for run in runs if _gain(run) is not None]
        right.plot([r["auroc_softmax"] for r in both], [r["auroc"] for r in both], "o", color=colour, markersize=5)
    for axis in (left, right):
        low = min(axis.get_xlim()[0], axis.get_ylim()[0])
        high = max(axis.get_xlim()[1], axis.get_ylim()[1])
        axis.plot([low, high], [low, high], color="#9e9e9e", linewidth=0.8, zorder=0)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    left.set(xlabel="accuracy (oracle), %", ylabel="estimate without labels, %")
    right.set(xlabel="AUROC of finding errors: the chosen model's softmax", ylabel="ours")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    write_figure(figure, path)
