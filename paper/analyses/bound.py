"""The ingredients of the paper's bound on the target error (Section 3.4), measured on a finished run.

ε_t(h) ≤ ε_s(h) + ½ d(S, T) + λ*,    λ* = min_h ε_s(h) + ε_t(h)
"""

import statistics
from pathlib import Path
from typing import Any

import numpy as np

from paper.analyses.run_features import RunFeatures, features_of_run
from paper.analyses.section import Section, common_runs
from paper.protocols import Protocol
from paper.published import Published
from paper.results_file import Results
from paper.rows import Row
from tsadapt.errors import counted

__all__ = ["bound_ingredients", "bound_table", "joint_error"]

MOST_ROWS = 4000


def bound_ingredients(run: Path) -> dict[str, Any]:
    """λ* of the run's features, in percent, under a name that says that target labels made it."""
    return {"oracle_joint_error": round(100 * joint_error(features_of_run(run, MOST_ROWS)), 2)}


def joint_error(features: RunFeatures, seed: int = 0) -> float:
    """ε_s(h*) + ε_t(h*) of a linear classifier h* on the features, fitted with the labels of both domains.

    It learns from half of each domain, which count alike however many rows they have, and errs on the other half.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(200) % 2
    >>> f = 4 * y[:, None] + rng.normal(size=(200, 1))
    >>> joint_error(RunFeatures(f, y, f, y)) < 0.2
    True
    >>> joint_error(RunFeatures(f, y, f, 1 - y)) > 0.8  # labels that contradict
    True
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng, learn, judge = np.random.default_rng(seed), [], []
    for f, y in ((features.f_s, features.y_s), (features.f_t, features.y_t)):
        known = np.flatnonzero(y >= 0)
        order = rng.permutation(known)
        half = len(order) // 2
        learn.append((f[order[:half]], y[order[:half]]))
        judge.append((f[order[half:]], y[order[half:]]))
    weights = np.concatenate([np.full(len(y), 0.5 / len(y)) for _, y in learn])
    weights *= len(weights)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    x, y = (np.concatenate(parts) for parts in zip(*learn, strict=True))
    model.fit(x, y, logisticregression__sample_weight=weights)
    return float(sum(1 - model.score(f, y) for f, y in judge))


def bound_table(
    protocol: Protocol, rows: list[Row], columns: list[str], results: Results, before: dict[str, Any],
    may_measure: bool, paper: Published | None,
) -> Section:  # fmt: skip
    """Source error, proxy A-distance, joint error and target error, mean over tasks and seeds."""
    found: dict[str, Any] = {}
    common, by_row = common_runs(rows, results)
    for title, those in by_row.items():
        runs = [those[task] for task in common]
        found[title] = {
            "source_error": round(100 - statistics.mean(run["source_accuracy"] for run in runs), 2),
            "proxy_a_distance": round(statistics.mean(run["proxy_a_distance"] for run in runs), 3),
            "oracle_joint_error": round(statistics.mean(run["oracle_joint_error"] for run in runs), 2),
            "target_error": round(100 - statistics.mean(run["accuracy"] for run in runs), 2),
        }
    lines = [
        "The terms of the bound ε_t ≤ ε_s + ½ d + λ*, in percent, mean over the tasks and seeds that all rows have"
        f" ({counted(len(common), 'run')} of each). ε_s is the error on the source's test split, or on its training"
        " rows where it has no test split, which says little. d_A, the proxy A-distance of the features, replaces d"
        " without bounding it: ½ d_A is 0 for domains that look alike and 100 for domains that are separable. λ* is an"
        " oracle: a linear classifier of the features learns from half of each domain with the labels of both, and its"
        " errors on the other halves are added.",
        "",
        "| | ε_s | ½ d_A | λ* (oracle) | their sum | ε_t |",
        "|---|---|---|---|---|---|",
    ]
    for title, errors in found.items():
        terms = errors["source_error"], 50 * errors["proxy_a_distance"], errors["oracle_joint_error"]
        numbers = (*terms, sum(terms), errors["target_error"])
        lines.append(f"| {title} | " + " | ".join(f"{number:.1f}" for number in numbers) + " |")
    if len({errors["target_error"] for errors in found.values()}) > 2:
        from scipy.stats import spearmanr

        sums = [v["source_error"] + 50 * v["proxy_a_distance"] + v["oracle_joint_error"] for v in found.values()]
        target = [v["target_error"] for v in found.values()]
        correlation = float(spearmanr(sums, target).statistic)
        least = "A sum above 100 bounds nothing. " if max(sums) > 100 else ""
        lines += ["", f"{least}Over the rows, the rank correlation between their sum and ε_t is {correlation:+.2f}."]
    panels = {
        "½ d_A, %": {title: 50 * errors["proxy_a_distance"] for title, errors in found.items()},
        "λ* (oracle), %": {title: errors["oracle_joint_error"] for title, errors in found.items()},
    }
    return "\n".join(lines), found, panels
