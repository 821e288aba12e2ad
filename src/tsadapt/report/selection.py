"""The table of a choice: candidates by rank, and, where target labels are known, how each validator did (oracle)."""

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from tsadapt.selection.select import CONSENSUS, VOTERS, Choice, oracle_judgement
from tsadapt.sweep.choice import Candidate, oracle_accuracies, varying

__all__ = ["print_choice"]

MOST_ROWS = 40
"""Candidates that are printed; scores.csv has all."""

FEW = 20
"""Held-out rows (in effect) below which an estimate by importance weights is a guess."""


def print_choice(candidates: Sequence[Candidate], choice: Choice, console: Console | None = None) -> None:
    """Print the candidates from best to worst, those out of the race, and the oracle's view if there is one."""
    console = console or Console()
    accuracies = oracle_accuracies(candidates)
    console.print(_candidates(candidates, choice, accuracies))
    for i, why in choice.out.items():
        console.print(f"out of the race: {_settings(candidates, i)}: {why}", highlight=False)
    if accuracies is not None:
        console.print(_validators(choice, accuracies))
    chosen = candidates[choice.chosen]
    rests_on = choice.notes[choice.chosen].get("effective_sample_size", float("nan"))
    if rests_on < FEW:
        console.print(
            f"note: the domains hardly overlap: dev and iwcv of the choice rest on {rests_on:.1f} rows in effect.",
            highlight=False,
        )
    console.print(f"chosen: {_settings(candidates, choice.chosen)} ({choice.why})", highlight=False)
    console.print(f"run: {chosen.run}", highlight=False, soft_wrap=True)


def _settings(candidates: Sequence[Candidate], i: int) -> str:
    words = [f"{name}={getattr(candidates[i].config, name)}" for name in varying(candidates)]
    if len({c.step for c in candidates}) > 1:
        words.append(f"step {candidates[i].step}")
    return ", ".join(words) or str(candidates[i].run)


def _candidates(candidates: Sequence[Candidate], choice: Choice, accuracies: np.ndarray | None) -> Table:
    shown = [*VOTERS] if choice.by == CONSENSUS else [choice.by]
    shown = [name for name in shown if not np.isnan(choice.scores[name]).all()]
    settings, several = varying(candidates), len({c.step for c in candidates}) > 1
    table = Table(title=f"{len(candidates)} candidates by {choice.by}")
    for name in (*settings, *(["step"] if several else []), *shown, "mean rank" if choice.by == CONSENSUS else "rank"):
        table.add_column(name, justify="right")
    if accuracies is not None:
        table.add_column("oracle accuracy", justify="right")
    rank = choice.ranks[choice.by]
    order = sorted(
        (i for i in range(len(candidates)) if i not in choice.out), key=lambda i: (i != choice.chosen, rank[i])
    )
    for i in order[:MOST_ROWS]:
        c = candidates[i]
        cells = [str(getattr(c.config, name)) for name in settings] + ([str(c.step)] if several else [])
        cells += [f"{choice.scores[name][i]:.4g}" for name in shown] + [f"{rank[i]:.3g}"]
        cells += [] if accuracies is None else [f"{accuracies[i]:.1%}"]
        table.add_row(*cells, style="bold" if i == choice.chosen else None)
    if len(order) > MOST_ROWS:
        table.caption = f"and {len(order) - MOST_ROWS} more, in scores.csv"
    return table


def _validators(choice: Choice, accuracies: np.ndarray) -> Table:
    table = Table(title=f"what target labels say of each validator (oracle; best candidate {accuracies.max():.1%})")
    for name in ("validator", "oracle accuracy of its choice", "regret", "rank correlation"):
        table.add_column(name, justify="left" if name == "validator" else "right")
    for name, said in sorted(oracle_judgement(choice, accuracies).items(), key=lambda item: item[1]["regret"]):
        cells = (f"{said['accuracy']:.1%}", f"{100 * said['regret']:.1f}", f"{said['rank_correlation']:.2f}")
        table.add_row(name, *cells)
    return table
