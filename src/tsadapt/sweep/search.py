"""A search by optuna: it proposes settings by what came out so far, and its storage can be shared by machines."""

import contextlib
import hashlib
import json
import platform
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tsadapt.config import RunConfig
from tsadapt.errors import UserError, without_password
from tsadapt.runs.folder import SweepFolder
from tsadapt.sweep.plan import Axes, Planned, Range
from tsadapt.sweep.runner import How, run_all

__all__ = ["Search"]

Scorer = Callable[[Path], float]
"""From the folder of a trained run to a number; lower is better."""


class Search:
    """A study of optuna's, opened (or made) before anything is trained, so that what is wrong with it is known."""

    def __init__(self, base: RunConfig, axes: Axes, folder: Path, storage: str | None) -> None:
        try:
            import optuna
            from sqlalchemy.exc import SQLAlchemyError
        except ImportError as error:
            raise UserError("optuna is not installed: pip install 'tsadapt[sweep]'.") from error
        self.base, self.axes, self.folder = base, axes, folder
        self.states = optuna.trial.TrialState
        self.here = f"{platform.node()}:{folder.resolve()}"
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        folder.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(json.dumps([base.hash(), sorted(map(str, axes.items()))]).encode()).hexdigest()[:12]
        place = storage or f"sqlite:///{SweepFolder(folder).storage}"
        with _storage_errors(f"--storage {place} cannot be opened: ", place, Exception):  # of a driver, all kinds
            self.study = optuna.create_study(storage=place, study_name=f"tsadapt-{name}", load_if_exists=True)
        self._errors = partial(
            _storage_errors, f"--storage {place} failed; run the same command to go on: ", place,
            (optuna.exceptions.OptunaError, SQLAlchemyError),
        )  # fmt: skip
        with self._errors():
            self._prepare(storage, base)

    def _prepare(self, storage: str | None, base: RunConfig) -> None:
        import optuna

        if storage is None:  # alone, and so a function of the seed; machines that share must not propose the same
            seed = (base.seed + len(self._trials())) % 2**32
            self.study.sampler = optuna.samplers.TPESampler(seed=seed)
        self._take_up()

    def run(
        self, trials: int, score: Scorer, jobs: int, quiet: bool, judged_by: dict[str, Any], how: How
    ) -> tuple[list[Planned], dict[Path, str]]:
        """Train what optuna proposes until `trials` have ended, those of other machines included; runs and failures."""
        with self._errors():
            return self._run(trials, score, jobs, quiet, judged_by, how)

    def _run(
        self, trials: int, score: Scorer, jobs: int, quiet: bool, judged_by: dict[str, Any], how: How
    ) -> tuple[list[Planned], dict[Path, str]]:
        failed: dict[Path, str] = {}
        while (room := trials - len(self._ended())) > 0:
            asked = [self.study.ask() for _ in range(min(jobs, room))]
            runs = []
            for trial in asked:
                trial.set_user_attr("where", self.here)
                runs.append(self._planned({name: _suggest(trial, name, values) for name, values in self.axes.items()}))
            if not quiet:
                ended = trials - room
                print(f"trial {ended + 1} to {ended + len(asked)} of {trials} …", file=sys.stderr, flush=True)
            failed |= run_all([*{one.out: one for one in runs}.values()], jobs, quiet, judged_by, how)
            for trial, one in zip(asked, runs, strict=True):
                if one.out in failed:
                    self.study.tell(trial, state=self.states.FAIL)
                else:
                    self.study.tell(trial, score(one.out))
        every = {one.out: one for trial in self._ended() for one in [self._planned(trial.params)]}
        failed |= run_all([one for one in every.values() if one.done], jobs, quiet, judged_by, how)  # labels may be new
        return [*every.values()], failed

    def _take_up(self) -> None:
        """Propose again what was stopped here in the middle; its runs go on from their checkpoints."""
        for trial in self._trials():
            if trial.state == self.states.RUNNING and trial.user_attrs.get("where") == self.here:
                self.study.enqueue_trial(trial.params)
                self.study._storage.set_trial_user_attr(trial._trial_id, "stopped", True)
                self.study.tell(trial.number, state=self.states.FAIL)

    def _trials(self) -> list[Any]:
        found: list[Any] = self.study.get_trials(deepcopy=False)
        return found

    def _ended(self) -> list[Any]:
        ends = (self.states.COMPLETE, self.states.FAIL)
        return [trial for trial in self._trials() if trial.state in ends and not trial.user_attrs.get("stopped")]

    def _planned(self, settings: dict[str, Any]) -> Planned:
        rounded = {n: float(f"{v:.4g}") if isinstance(v, float) else v for n, v in settings.items()}
        return Planned.of(self.base, {name: rounded[name] for name in self.axes}, self.folder)


@contextlib.contextmanager
def _storage_errors(what: str, place: str, kinds: type[Exception] | tuple[type[Exception], ...]) -> Iterator[None]:
    """Say what is wrong with a storage in one line, without its password."""
    try:
        yield
    except kinds as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(without_password(what + said, place)) from error


def _suggest(trial: Any, name: str, values: tuple[Any, ...] | Range) -> Any:
    if not isinstance(values, Range):
        return trial.suggest_categorical(name, values)
    if values.whole:
        return trial.suggest_int(name, int(values.low), int(values.high), log=values.log)
    return trial.suggest_float(name, values.low, values.high, log=values.log)
