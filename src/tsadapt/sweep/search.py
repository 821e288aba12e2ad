"""A search by optuna: it proposes settings by what came out so far, and its storage can be shared by machines."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tsadapt.config import RunConfig
from tsadapt.errors import UserError
from tsadapt.sweep.plan import Axes, Planned, Range
from tsadapt.sweep.runner import run_all

__all__ = ["run_optuna"]

Scorer = Callable[[Path], float]
"""From the folder of a trained run to a number; lower is better."""


def run_optuna(
    base: RunConfig,
    axes: Axes,
    trials: int,
    folder: Path,
    score: Scorer,
    storage: str | None = None,
    jobs: int = 1,
    quiet: bool = False,
) -> tuple[list[Planned], dict[Path, str]]:
    """Let optuna propose settings until `trials` are done, counting those of other machines that share the storage."""
    try:
        import optuna
    except ImportError as error:
        raise UserError("optuna is not installed: pip install 'tsadapt[sweep]'.") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        storage=storage or f"sqlite:///{folder / 'optuna.db'}",
        study_name=f"tsadapt-{base.hash()}",
        load_if_exists=True,
    )
    if storage is None:  # alone, and so a function of the seed; machines that share a study must not propose the same
        seed = (base.seed + len(study.get_trials(deepcopy=False))) % 2**32
        study.sampler = optuna.samplers.TPESampler(seed=seed)
    complete, failed_state = optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.FAIL
    failed: dict[Path, str] = {}

    def proposed(trial: Any) -> Planned:
        return Planned.of(base, {name: _suggest(trial, name, values) for name, values in axes.items()}, folder)

    def ended() -> int:
        return sum(trial.state in (complete, failed_state) for trial in study.get_trials(deepcopy=False))

    while (room := trials - ended()) > 0:
        asked = [study.ask() for _ in range(min(jobs, room))]
        runs = [proposed(trial) for trial in asked]
        failed |= run_all([*{one.out: one for one in runs}.values()], jobs, quiet)
        for trial, one in zip(asked, runs, strict=True):
            if one.out in failed:
                study.tell(trial, state=failed_state)
            else:
                study.tell(trial, score(one.out))
    past = [trial.params for trial in study.get_trials(deepcopy=False) if trial.state in (complete, failed_state)]
    every = {one.out: one for params in past for one in [Planned.of(base, _listed(params, axes), folder)]}
    return [*every.values()], failed


def _suggest(trial: Any, name: str, values: tuple[Any, ...] | Range) -> Any:
    if isinstance(values, Range):
        return trial.suggest_float(name, values.low, values.high, log=values.log)
    return trial.suggest_categorical(name, values)


def _listed(params: dict[str, Any], axes: Axes) -> dict[str, Any]:
    """A trial's settings in the order of the axes."""
    return {name: params[name] for name in axes}
