"""The table of a choice: candidates by rank, and, where target labels are known, how each validator did (oracle)."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tsadapt.errors import counted, printable
from tsadapt.objectives.base import METHODS
from tsadapt.selection.select import CONSENSUS, VOTERS, Choice, oracle_judgement
from tsadapt.sweep.choice import Candidate, oracle_accuracies, setting_of, varying

__all__ = ["candidate_names", "print_choice"]

OBJECTIVE = ("source_term", "target_terms", "method", "term_weight")

MOST_ROWS = 40
"""Candidates that are printed; scores.csv has all."""

FEW = 20
"""Held-out rows (in effect) below which an estimate by importance weights is a guess."""

LIGHT = 0.2
"""The mean weight below which it is one, too: the rows of the source look nothing like the target."""


def print_choice(
    candidates: Sequence[Candidate], choice: Choice, console: Console | None = None, folders: bool = False
) -> None:
    """Print the candidates from best to worst, those excluded, and the oracle's view if there is one.

    With `folders`, each stands beside its run's folder, as the user typed it.
    """
    if console is None:
        console = Console()
        room = 160 + max(len(str(c.run)) for c in candidates)
        console = console if console.is_terminal else Console(width=room)  # in a pipe, no path is broken
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    accuracies = oracle_accuracies(candidates)
    names = candidate_names(candidates)
    typed = [printable(c.run) for c in candidates] if folders else None
    console.print(_candidates(names, choice, accuracies, typed))
    for i, why in choice.out.items():
        say(f"excluded: {names[i] if typed is None else f'{names[i]} ({typed[i]})'}: {why}")
    if accuracies is not None:
        console.print(_validators(choice, accuracies))
    rests_on = choice.weighting[choice.chosen]
    if rests_on.effective_sample_size < FEW or rests_on.mean < LIGHT:
        say(
            f"note: the domains hardly overlap: dev and iwcv of the choice rest on {rests_on.effective_sample_size:.1f}"
            f" rows in effect, of mean weight {rests_on.mean:.2g} (1 is expected)."
        )
    guesses = {c.predictions.guess_t.tobytes() for i, c in enumerate(candidates) if i not in choice.out}
    if len(guesses) == 1 < len(names):
        say("note: all candidates predict the same class for every row: the choice hardly matters.")
    say(f"chosen: {names[choice.chosen]} ({choice.why})")
    say(printable(f"run: {candidates[choice.chosen].run}"))


def candidate_names(candidates: Sequence[Candidate]) -> list[str]:
    """What each candidate is called: its objective in full, and the settings in which the candidates differ."""
    others = [name for name in varying(candidates) if name not in OBJECTIVE]
    several = len({c.step for c in candidates}) > 1
    names = []
    for c in candidates:
        values = {name: setting_of(c.config, name) for name in others if not _follows(name, c)}
        words = [_objective(c), *(f"{name} {_shown(value)}" for name, value in values.items() if value is not None)]
        names.append(", ".join([*words, *([f"step {c.step}"] if several else [])]))
    pairs = zip(names, candidates, strict=True)
    return [printable(f"{name} ({c.run})" if names.count(name) > 1 else name) for name, c in pairs]


def _follows(name: str, candidate: Candidate) -> bool:
    """Whether a setting is what the candidate's method has by itself."""
    method = METHODS[candidate.config.method]
    return name == "separate_bn" and candidate.config.separate_bn in (None, method.separate_bn)


def _objective(candidate: Candidate) -> str:
    """What is minimised beside plain source-only: ce + mi is not ce."""
    weights = [f"{name}×{weight:g}" for name, weight in candidate.config.term_weight.items()]
    return " ".join([candidate.config.objective, *weights])


def _shown(value: object) -> str:
    return " + ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)


def _candidates(names: list[str], choice: Choice, accuracies: np.ndarray | None, folders: list[str] | None) -> Table:
    shown = [*VOTERS] if choice.by == CONSENSUS else [choice.by]
    shown = [name for name in shown if not np.isnan(choice.scores[name]).all()]
    table = Table(title=f"{counted(len(names), 'candidate')} by {choice.by}")
    table.add_column("candidate", overflow="fold")
    if folders is not None:
        table.add_column("run", overflow="fold")
    last = "mean rank" if choice.by == CONSENSUS else "rank"
    for name in (*shown, last, *([] if accuracies is None else ["oracle accuracy"])):
        table.add_column(name, justify="right", overflow="fold")
    rank = choice.ranks[choice.by]
    mean = choice.scores[CONSENSUS] if choice.by == CONSENSUS else rank
    order = sorted((i for i in range(len(names)) if i not in choice.out), key=lambda i: (i != choice.chosen, rank[i]))
    for i in order[:MOST_ROWS]:
        cells = [f"{choice.scores[name][i]:.4g}" for name in shown] + [f"{mean[i]:.3g}"]
        cells += [] if accuracies is None else [f"{accuracies[i]:.1%}"]
        place = [] if folders is None else [escape(folders[i])]
        table.add_row(escape(names[i]), *place, *cells, style="bold" if i == choice.chosen else None)
    if len(order) > MOST_ROWS:
        table.caption = f"and {len(order) - MOST_ROWS} more, in the file of scores"
    return table


def _validators(choice: Choice, accuracies: np.ndarray) -> Table:
    table = Table(title=f"what target labels say of each validator (oracle; best candidate {accuracies.max():.1%})")
    for name in ("validator", "oracle accuracy of its choice", "regret", "rank correlation"):
        table.add_column(name, justify="left" if name == "validator" else "right")
    for name, said in sorted(oracle_judgement(choice, accuracies).items(), key=lambda item: item[1]["regret"]):
        cells = (f"{said['accuracy']:.1%}", f"{100 * said['regret']:.1f}", f"{said['rank_correlation']:.2f}")
        table.add_row(name, *cells)
    return table
