"""The job: doctor → features → portfolio → choice without labels → estimate → predictions, page, model.

Every part is a run in the result's folder, so the same call continues where the last one stopped.
"""

import csv
import io
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from torch import nn

from tsadapt.adapt.folder import ResultFolder
from tsadapt.adapt.portfolio import PORTFOLIO, PREFERRED, REFERENCE, members
from tsadapt.config import RunConfig
from tsadapt.data.doctor import Finding, examine, quick_findings
from tsadapt.data.in_memory import as_dataset, dataset_name
from tsadapt.data.target_labels import labels_in_memory, name_in_memory, read_target_labels
from tsadapt.data.types import Dataset, Domain
from tsadapt.errors import UserError, counted, printable
from tsadapt.files import csv_cells, write_atomically, write_json
from tsadapt.models.encoders import in_memory, is_own
from tsadapt.objectives.objective import with_settings
from tsadapt.progress import StepProgress
from tsadapt.report.collect import collect
from tsadapt.report.html import write_page
from tsadapt.report.page import Trusted
from tsadapt.report.result import Result, write_trust
from tsadapt.runs.fit import Interrupted, train_run, versions
from tsadapt.runs.model import Predicted, TrainedModel, load
from tsadapt.selection.predictions import Predictions
from tsadapt.selection.select import Choice, choose
from tsadapt.sweep.choice import Candidate, read_candidates, reference_among, write_choice
from tsadapt.sweep.plan import Planned
from tsadapt.training.setup import make_task, make_trainer, one_spelling, reading_config, source_roles, target_roles
from tsadapt.training.trainer import Trainer
from tsadapt.trust import WORTH, Trust, assess, explain_doubtful, label_shares
from tsadapt.trust.interval import wilson
from tsadapt.trust.rows import DOUBTFUL

__all__ = ["Adapted", "adapt"]

HOLDOUT = 0.1
"""Share of each source class that no candidate trains on: validators, temperatures and the estimate need it."""

TIMED_STEPS = 3
"""Steps of each candidate that are timed to say how long everything takes."""

EXAMINED_ROWS = 20_000
"""Rows up to which the doctor looks at each; of more, at names and counts."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Adapted:
    """What `adapt` made: its folder, the summary that is written there, and the chosen model."""

    folder: ResultFolder
    summary: dict[str, Any]
    model: TrainedModel


@dataclass(frozen=True)
class _Job:
    """What was asked for, with the data open; `configs` are the candidates by name."""

    data: tuple[Dataset, Dataset]
    encoder: nn.Module | None
    backbone: str | nn.Module | None
    configs: dict[str, RunConfig]
    folder: ResultFolder
    quiet: bool
    tell: Tell
    known: np.ndarray | None = None
    """Labels of the target's rows (N,), −1 for none."""
    learned: np.ndarray | None = None
    """The same if they are trained on."""

    @property
    def truth(self) -> np.ndarray | None:
        """The labels to measure with: those that are not trained on."""
        return self.known if self.learned is None else None

    def planned(self, name: str) -> Planned:
        """A candidate's run."""
        return Planned({"candidate": name}, self.configs[name], self.folder.sweep.run(self.configs[name]).path)

    def train(self, config: RunConfig, out: Path, watch: Callable[[Trainer], None] | None = None) -> None:
        """Train a run to its end, or find it done."""
        try:
            train_run(
                config, out, quiet=True, watch=watch, data=self.data, encoder=self.encoder, target_labels=self.learned,
                notes=False,
            )  # fmt: skip
        except Interrupted as stopped:
            raise KeyboardInterrupt("the same command resumes") from stopped


def adapt(
    source: Any,
    target: Any,
    *,
    out: str | Path = "result",
    portfolio: Sequence[str] = PORTFOLIO,
    target_labels: Any = None,
    use_target_labels: bool = False,
    backbone: str | nn.Module | None = None,
    quiet: bool = True,
    command: str = "",
    **settings: Any,
) -> Adapted:
    """Adapt to an unlabelled target and say how good the result is: everything into the folder `out`.

    `source` and `target` are what `fit` takes, and `settings` are its settings; they hold for every candidate of the
    `portfolio`. An objective among them (method="dann", tsa=True, …) is one more candidate. `target_labels` are a few
    labelled target rows, a file or one label for each row (−1 for none): they measure, or with `use_target_labels`
    every candidate trains on them, and they measure nothing. `command` is what the page says to run again.
    """
    said = set[str]()

    def tell(text: str) -> None:
        what = text.removeprefix("warning: ").removeprefix("note: ")  # the doctor's warnings are notes of training
        if not quiet and what not in said:
            said.add(what)
            print(printable(text), file=sys.stderr, flush=True)

    began = time.monotonic()
    job = _job(source, target, ResultFolder(Path(out)), portfolio, backbone, quiet, tell, settings)
    job = _with_target_labels(job, target_labels, use_target_labels)
    _check_folder(job)
    with job.folder.sweep.lock():
        tell("checking the data …")
        findings = _examined(job)
        failed = _train(job)
        done = [name for name in job.configs if name not in failed]
        runs = [job.planned(name).out for name in done]
        tell("choosing without target labels …")
        candidates = read_candidates(runs)
        names = {job.planned(name).out: name for name in done}
        preferred = next((i for i, one in enumerate(candidates) if names[one.run] == PREFERRED), None)
        pool = [one.predictions for one in candidates]
        choice = choose(pool, reference=reference_among(candidates), preferred=preferred)
        chosen = candidates[choice.chosen]
        write_choice(job.folder.path, candidates, choice, {"candidate": names[chosen.run]}, failed)
        twin = _twin(job, chosen)
        tell("estimating …")
        trust = _trusted(job, candidates, choice, twin)
        model = load(chosen.run, quiet=True, backbone=backbone if is_own_backbone(backbone) else None)
        model = replace(model, temperature=trust.temperature)
        predicted = model.outputs(job.data[1].train)
        summary = _summary(job, candidates, choice, names, trust, predicted, findings, failed, command)
        summary["seconds"] = round(time.monotonic() - began, 1)
        model.save(job.folder.model)
        write_atomically(job.folder.predictions, _csv(job.data[1].train, predicted, model.classes, trust))
        tell("writing the page …")
        _write_page(job, Result(chosen.run, _shown(job, trust, predicted), names, command), findings)
        write_json(job.folder.summary, summary)
    return Adapted(job.folder, summary, model)


def is_own_backbone(backbone: str | nn.Module | None) -> bool:
    """Whether a backbone is code of the user's, which a saved run asks for again."""
    return backbone is not None and is_own(backbone)


OBJECTIVE = ("source_term", "target_terms", "method", "tsa", "mi", "preset", "term_weight")
GIVEN = "given"
"""What a candidate is called whose objective was given by settings."""


def _job(
    source: Any, target: Any, folder: ResultFolder, portfolio: Sequence[str], backbone: str | nn.Module | None,
    quiet: bool, tell: Tell, settings: Mapping[str, Any],
) -> _Job:  # fmt: skip
    """Open the data, and settle what is trained."""
    if backbone is not None and not isinstance(backbone, str | nn.Module):
        raise UserError(f"backbone is {backbone!r}, expected a name, FILE.py:FUNCTION or a torch.nn.Module.")
    if settings.get("target_share", 1.0) != 1.0:
        raise UserError("target_share is for experiments: adapt trains on all target rows, and predicts all of them.")
    encoder = backbone if isinstance(backbone, nn.Module) else None
    read = reading_config(settings)
    labelled = as_dataset(source, name="the source", roles=source_roles(read))
    data = labelled, as_dataset(target, labelled.train.columns, name="the target", roles=target_roles(read))
    base = RunConfig(
        dataset_name(data[0]), dataset_name(data[1], with_labels=False),
        backbone=in_memory(backbone) if isinstance(backbone, nn.Module) else backbone,
    )  # fmt: skip
    objective = {name: value for name, value in settings.items() if name in OBJECTIVE and value}
    others = {"holdout": HOLDOUT, **{name: value for name, value in settings.items() if name not in OBJECTIVE}}
    wanted = members(portfolio) | ({GIVEN: objective} if objective else {})
    configs: dict[str, RunConfig] = {}
    for name, own in wanted.items():
        config = one_spelling(with_settings(base, **{**own, **others}))
        if config not in configs.values():
            configs[name] = config
    if not next(iter(configs.values())).holdout:
        raise UserError("adapt needs held-out source rows to choose and to estimate with: leave out --holdout 0.")
    return _Job(data, encoder, backbone, configs, folder, quiet, tell)


def _with_target_labels(job: _Job, given: Any, use: bool) -> _Job:
    """The job with what is known of the target's labels; with `use`, every candidate trains on them."""
    if use and given is None:
        raise UserError("--use-target-labels needs them: add --target-labels FILE, a CSV with lines name,label.")
    if given is None:
        return job
    classes, target = job.data[0].train.classes or (), job.data[1].train
    path = given if isinstance(given, str | Path) else None
    known = labels_in_memory(given, len(target), classes) if path is None else read_target_labels(path, target, classes)
    if not use:
        return replace(job, known=known)
    name = name_in_memory(known) if path is None else str(path)
    configs = {
        one: one_spelling(with_settings(config, target_labels=name, use_target_labels=True))
        for one, config in job.configs.items()
    }
    return replace(job, configs=configs, known=known, learned=known)


def _check_folder(job: _Job) -> None:
    """Refuse a folder that holds something else before any work is done."""
    path, sweep = job.folder.path, job.folder.sweep
    if path.exists() and not path.is_dir():
        raise UserError(f"--out {path} is a file, expected a folder.")
    if path.exists() and any(path.iterdir()) and not sweep.exists:
        raise UserError(f"{path} is not empty and holds no result: choose another --out.")
    base = job.configs[REFERENCE]
    for run in sweep.runs():
        there = run.config
        if (there.source, there.target) != (base.source, base.target):
            raise UserError(f"{path} holds a result of {there.source} → {there.target}: choose another --out.")


def _examined(job: _Job) -> tuple[Finding, ...]:
    """What the doctor says; an error of his ends the job."""
    source, target = (dataset.train for dataset in job.data)
    found = quick_findings(source, target)
    if not any(one.level == "error" for one in found) and len(source) + len(target) <= EXAMINED_ROWS:
        with StepProgress(len(source) + len(target), 0, job.quiet, "row") as progress:
            found = examine(source, target, None, progress.advance).findings
    for one in found:
        if one.level == "error":
            raise UserError(f"{one.text} tsadapt doctor says more.")
        job.tell(f"{one.level}: {one.text}")
    return tuple(found)


def _train(job: _Job) -> dict[str, str]:
    """Train all candidates; why those failed that did, by name. Source-only must not."""
    left = [name for name in job.configs if not job.planned(name).done]
    steps, seconds, failed = _foreseen(job, left)
    if left:
        job.tell(
            f"{counted(len(job.configs), 'candidate')}: {', '.join(job.configs)}; the chosen one a second time. About"
            f" {_minutes(seconds)}; the same command resumes."
        )
    total, at = sum(steps.values()) + max(steps.values(), default=0), 0
    with StepProgress(total, 0, job.quiet or not left) as progress:
        for name in [name for name in left if name not in failed]:
            planned, before = job.planned(name), at

            def watch(trainer: Trainer, before: int = before, name: str = name) -> None:
                progress.advance(before + trainer.at, {})
                progress.text = name

            try:
                job.train(planned.config, planned.out, watch)
            except UserError as error:
                if name == REFERENCE:
                    raise
                failed[name] = str(error)
                job.tell(f"note: {name} is left out: {error}")
            at += steps[name]
    return failed


def _foreseen(job: _Job, left: Sequence[str]) -> tuple[dict[str, int], float, dict[str, str]]:
    """The steps of each candidate that is left, how many seconds all take, and which cannot be trained at all.

    A few steps of each are timed. On the way, the features of a frozen backbone are computed and kept.
    """
    steps, seconds, failed = dict[str, int](), 0.0, dict[str, str]()
    longest = 0.0
    for name in left:
        try:
            tell, quiet = (str, True) if steps else (job.tell, job.quiet)  # the data and the network are those of all
            task = make_task(job.configs[name], tell, quiet, job.data, job.encoder, target_labels=job.learned)
            trainer = make_trainer(task)
        except UserError as error:
            if name == REFERENCE:
                raise
            failed[name] = str(error)
            job.tell(f"note: {name} is left out: {error}")
            continue
        steps[name] = task.config.steps or 0
        trainer.step()
        taken: list[float] = []
        while len(taken) < TIMED_STEPS and sum(taken) < 1:
            began = time.monotonic()
            trainer.step()
            taken.append(time.monotonic() - began)
        mine = median(taken) * steps[name]
        seconds, longest = seconds + mine, max(longest, mine)
    return steps, seconds + longest, failed


def _minutes(seconds: float) -> str:
    return f"{max(round(seconds), 1)} seconds" if seconds < 90 else f"{round(seconds / 60)} minutes"


def _twin(job: _Job, chosen: Candidate) -> Predictions:
    """The chosen candidate with another seed: where the two disagree, one is wrong."""
    config = replace(chosen.config, seed=chosen.config.seed + 1)
    run = job.folder.twins.run(config)
    if not run.done:
        job.tell("the chosen candidate with another seed …")
        with StepProgress(chosen.step, 0, job.quiet) as progress:
            job.train(config, run.path, lambda trainer: progress.advance(trainer.at, {}))
    return read_candidates([run.path])[-1].predictions


def _trusted(job: _Job, candidates: Sequence[Candidate], choice: Choice, twin: Predictions) -> Trust:
    """The estimate, the probabilities and the class shares; collapsed candidates have no say."""
    source = job.data[0].train
    classes = source.classes or ()
    assert source.y is not None
    reference = reference_among(candidates)
    members = [i for i in range(len(candidates)) if i not in choice.out]
    return assess(
        [candidates[i].predictions for i in members],
        members.index(choice.chosen),
        classes,
        again=[twin],
        reference=None if reference not in members else members.index(reference),
        source_shares=label_shares(source.y[source.y >= 0].numpy(), len(classes)),
    )


def _summary(
    job: _Job, candidates: Sequence[Candidate], choice: Choice, names: Mapping[Path, str], trust: Trust,
    predicted: Predicted, findings: Sequence[Finding], failed: Mapping[str, str],
    command: str,
) -> dict[str, Any]:  # fmt: skip
    """What programs read."""
    source, target = (dataset.train for dataset in job.data)
    chosen, classes = candidates[choice.chosen], source.classes or ()
    guess = np.bincount(predicted.guess, minlength=len(classes)) / max(len(predicted.rows), 1)
    found: dict[str, Any] = {
        "source": {"name": chosen.config.source, "rows": len(source)},
        "target": {"name": chosen.config.target, "rows": len(target), "unreadable": len(predicted.unreadable)},
        "chosen": {
            "candidate": names[chosen.run], "objective": chosen.config.objective, "by": choice.by, "why": choice.why,
            "run": str(chosen.run.relative_to(job.folder.path)), "step": chosen.step,
        },
        "candidates": [
            {
                "candidate": names[one.run], "objective": one.config.objective, "excluded": choice.out.get(i),
                "mean_rank": None if i in choice.out else round(float(choice.scores[choice.by][i]), 3),
                "run": str(one.run.relative_to(job.folder.path)),
            }
            for i, one in enumerate(candidates)
        ],
        "failed": dict(failed),
        "estimated_accuracy": vars(trust.estimate),
        "estimates_by_others": trust.parts,
        "temperature": trust.temperature,
        "class_shares": {name: vars(share) for name, share in trust.class_shares.items()},
        "source_shares": trust.source_shares,
        "predicted_shares": dict(zip(classes, guess.tolist(), strict=True)),
        "doubtful": {"rows": int(trust.doubtful.sum()), "threshold": DOUBTFUL, "meaning": explain_doubtful(trust)},
        "measured_accuracy": None if job.truth is None else _measured(predicted, job.truth),
        "target_labels": None if job.known is None
        else {"rows": int((job.known >= 0).sum()), "used_in_training": job.learned is not None},
        "notes": [*trust.notes],
        "findings": [{"level": one.level, "text": one.text} for one in findings],
        "versions": versions(),
        "system": platform.platform(),
        "command": command,
    }  # fmt: skip
    return found


def _measured(predicted: Predicted, truth: np.ndarray) -> dict[str, Any]:
    """The accuracy on the target rows whose labels were given, with Wilson's interval."""
    y = truth[predicted.rows]
    known = y >= 0
    right = int((predicted.guess[known] == y[known]).sum())
    return {"rows": int(known.sum()), **vars(wilson(right, int(known.sum())))}


def _csv(target: Domain, predicted: Predicted, classes: tuple[str, ...], trust: Trust) -> str:
    """A line for every target row, in its order."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    images = target.kind == "file"
    out.writerow(
        [target.id_column or ("file" if images else "row"), "class", "probability", "doubtful", "second class"]
        + ["error"] * images
    )
    place = {row: i for i, row in enumerate(predicted.rows)}
    for row in range(len(target)):
        name = target.row_name(row)
        if row not in place:
            out.writerow(csv_cells([name, "", "", "", "", predicted.unreadable.get(row, "")]))
            continue
        i = place[row]
        doubtful = "yes" if trust.doubtful[i] else "no"
        cells = [name, classes[predicted.guess[i]], f"{trust.probability[i]:.4f}", doubtful, classes[trust.second[i]]]
        out.writerow(csv_cells([*cells, *[""] * images]))
    return text.getvalue()


def _shown(job: _Job, trust: Trust, predicted: Predicted) -> Trusted:
    """What the page says of the chosen run's predictions."""
    given = None if job.truth is None else job.truth[predicted.rows]
    return Trusted(
        trust.estimate, trust.probability, trust.doubtful, DOUBTFUL, trust.second, trust.class_shares, trust.notes,
        WORTH, explain_doubtful(trust), given,
    )  # fmt: skip


def _write_page(job: _Job, result: Result, findings: tuple[Finding, ...]) -> None:
    """The page of the chosen run beside the other candidates."""
    write_trust(job.folder.trust, result.trusted)
    page = collect([job.folder.path], results={job.folder.path: result}, data=job.data, findings=findings)
    write_page(page, job.folder.report)
