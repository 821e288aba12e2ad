"""What to think of a run, in two sentences."""

import numpy as np

from tsadapt.errors import counted
from tsadapt.report.page import RunPage
from tsadapt.report.shown_numbers import interval, percent

__all__ = ["verdict"]

FAR_SHARES = 0.25
"""A total variation between predicted shares and the source's above which the page speaks of it."""


def verdict(run: RunPage) -> tuple[str, str]:
    """What to think of a run, in two sentences: how many predictions are right, and what to do about it."""
    n, kind = len(run.rows), "prediction"
    estimate = run.trusted.estimate if run.trusted is not None else None
    if estimate is not None:
        first = (
            f"An estimated {percent(estimate.value, 0)} of the {counted(n, kind)} are right ({interval(estimate, 0)})."
        )
    elif run.measured is not None:
        m = run.measured
        first = (
            f"Measured on {counted(m.rows, f'labelled target {run.kind}')}, {percent(m.accuracy.value)} of the"
            f" predictions are right (95 % interval: {interval(m.accuracy)})."
        )
    else:
        first = f"How many of the {counted(n, kind)} are right is not known: no target labels, and no estimate."
    return first, _advice(run)


def _advice(run: RunPage) -> str:
    accuracy, reference = run.source_accuracy, run.source_reference
    if accuracy is not None and reference is not None and accuracy < 0.7 * reference:
        return (
            f"Do not use them yet: even of the source only {percent(accuracy, 0)} are right, where a nearest class mean"
            f" reaches {percent(reference, 0)}."
        )
    if run.trusted is not None and run.trusted.doubtful is not None:
        doubtful = int(run.trusted.doubtful.sum())
        if not doubtful:
            return "None of them is doubtful by itself; a look at the least sure ones below is still worth it."
        if doubtful == 1:
            return "1 of them is doubtful: check it first, it comes first below."
        return f"{doubtful:,} of them are doubtful: check these first, they come first below."
    shares = run.source.shares, run.target.shares
    if shares[0] is not None and shares[1] is not None:
        gap = shares[1] - shares[0]
        if 0.5 * float(np.abs(gap).sum()) > FAR_SHARES:
            most = int(gap.argmax())
            return (
                f"The predicted classes are spread unlike the source's ({run.classes[most]}:"
                f" {percent(shares[1][most], 0)} instead of {percent(shares[0][most], 0)}): check that the target is"
                " really so."
            )
    return "Check the least sure ones first: they come first below."
