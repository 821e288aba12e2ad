"""A run: trained, resumed or found done in its folder, and evaluated at its end."""

import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tsadapt.config import RunConfig
from tsadapt.data.in_memory import as_dataset, dataset_name
from tsadapt.data.types import Dataset, Domain
from tsadapt.errors import UserError, printable
from tsadapt.files import number
from tsadapt.models.classifier import Classifier
from tsadapt.models.encoders import file_origin, in_memory, is_own, names_file
from tsadapt.objectives.objective import full_settings, requested_statistics, with_settings
from tsadapt.progress import StepProgress
from tsadapt.runs import checkpoint
from tsadapt.runs.candidates import Candidates
from tsadapt.runs.evaluate import score
from tsadapt.runs.folder import RunFolder
from tsadapt.runs.kept_memory import NONE, keep_memory_of, save_memory
from tsadapt.runs.model import Predicted, TrainedModel, load
from tsadapt.runs.records import Records
from tsadapt.runs.reference import Reference, source_reference
from tsadapt.runs.source_free import start_from
from tsadapt.selection.density import proxy_a_distance
from tsadapt.selection.select import CONSENSUS
from tsadapt.training.head_first import train_head_first
from tsadapt.training.runtime import Stop, keep_freed_memory, stop_signals
from tsadapt.training.setup import Task, make_task, make_trainer, one_spelling
from tsadapt.training.source_free import Start, continued
from tsadapt.training.trainer import NotFiniteError, Trainer

__all__ = ["Interrupted", "fit", "has_memory", "train_run", "versions"]


class Interrupted(Exception):  # noqa: N818 (nothing went wrong)
    """The user stopped the run; its checkpoint is written."""

    def __init__(self, step: int, out: Path) -> None:
        super().__init__(f"stopped at step {step}; the same command resumes ({out})")
        self.step = step


def fit(
    source: Any = None,
    target: Any = None,
    *,
    source_free: str | Path | None = None,
    backbone: str | nn.Module | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    quiet: bool = True,
    tensorboard: bool = False,
    keep_memory: bool = False,
    **settings: Any,
) -> TrainedModel:
    """Train on a labelled source and an unlabelled target, as `tsadapt fit` does; the trained model.

    `source` and `target` are what the command takes (paths and names), or arrays, DataFrames, (X, y). `settings` are
    the command's: tsa=True, method="cdan+e", lambda0=0.5, steps=1000, seed=0, … `backbone` is for images: a name, or an
    encoder of your own as FILE.py:FUNCTION or as a module, which stays as it is. The run is a folder, `out` (runs/HASH
    unless given): the same call resumes it, or finds it done. `model.metrics` has what came out.

    `source_free` is the folder of a trained run that takes the source's place: its network is adapted to the target.
    """
    if target is None or (source is None) == (source_free is None):
        raise UserError("fit needs a source and a target, or source_free (a trained run's folder) and a target.")
    if backbone is not None and not isinstance(backbone, str | nn.Module):
        raise UserError(f"backbone is {backbone!r}, expected a name, FILE.py:FUNCTION or a torch.nn.Module.")
    encoder = backbone if isinstance(backbone, nn.Module) else None
    name = in_memory(backbone) if isinstance(backbone, nn.Module) else backbone
    start, labelled = None, None
    if source_free is not None:
        start = start_from(source_free, backbone)
        named, columns = start.config.source, start.columns
        settings["source_free"] = str(source_free)
    else:
        labelled = as_dataset(source, name="the source")
        named, columns = dataset_name(labelled), labelled.train.columns
    data = labelled, as_dataset(target, columns, name="the target")
    config = RunConfig(named, dataset_name(data[1], with_labels=False), backbone=name)
    config = with_settings(config, _say, **settings)
    folder, _ = train_run(
        config, None if out is None else Path(out), overwrite=overwrite, quiet=quiet, tensorboard=tensorboard,
        keep_memory=keep_memory, data=data, encoder=encoder, start=start,
    )  # fmt: skip
    own = backbone if backbone is not None and is_own(backbone) else None
    return load(folder, device=config.device, quiet=quiet, backbone=own)


def train_run(
    config: RunConfig,
    out: Path | None = None,
    *,
    overwrite: bool = False,
    quiet: bool = False,
    tensorboard: bool = False,
    keep_memory: bool = False,
    watch: Callable[[Trainer], None] | None = None,
    data: tuple[Dataset | None, Dataset] | None = None,
    encoder: nn.Module | None = None,
    start: Start | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Train what the config says into the folder `out` (runs/HASH unless given); the folder, and its metrics.

    A folder with the same config is resumed, or found done; one with another config is refused unless `overwrite`.
    `watch` is called with the trainer after every logged step, and must leave it as it is. `keep_memory` writes the
    memory of both domains into the folder, also of a run that is done. `data` are datasets in memory, `encoder` is a
    backbone in memory, which the config names by `in_memory`. `start` is the run that a source-free one goes on from;
    it is read where it is not given.
    """
    config = one_spelling(config)
    if config.source_free is not None:
        if out is not None and Path(config.source_free).resolve() == out.resolve():
            raise UserError(f"--out {out} is the run that is to be adapted, which stays: choose another folder.")
        own = config.backbone if config.backbone is not None and is_own(config.backbone) else None
        start = start or start_from(config.source_free, encoder or own)
        config = continued(config, start)
    if keep_memory and not has_memory(config):
        raise UserError(NONE)
    if out is not None:
        RunFolder(out).check(config, overwrite)
        if not overwrite:
            _check_encoder(RunFolder(out), config)
    task = make_task(config, _say, quiet, data, encoder, start)
    config = task.config
    run = RunFolder(out or Path("runs") / config.hash())
    manifest = _manifest(task)
    with run.lock():
        run.claim(config, manifest, overwrite)
        if not quiet:
            _say(_headline(task))
        if run.done:
            metrics = _metrics_there(run)
            if metrics is not None and metrics["judged_by"] == _judged_by(task):
                if keep_memory:
                    keep_memory_of(run)
                _say(f"already done: {run.path}")
                return run.path, metrics
            # Trained, but the evaluation labels changed, or the metrics are damaged: only evaluate again.
            run.metrics_file.unlink()
        run.write_manifest(manifest)
        return run.path, _train_and_finish(task, run, quiet, tensorboard, keep_memory, watch)


def _check_encoder(run: RunFolder, config: RunConfig) -> None:
    """Refuse an encoder's file that changed since the run began, before it is imported and images pass through it."""
    if config.backbone is None or not names_file(config.backbone):
        return
    before = run.manifest.get("data", {}).get("backbone")
    if isinstance(before, dict):
        now = file_origin(config.backbone)
        if before != {**before, **asdict(now)}:
            raise UserError(
                f"{run.path} holds a run with another encoder: {config.backbone} changed since it began. Choose another"
                " --out, or --overwrite it."
            )


def _metrics_there(run: RunFolder) -> dict[str, Any] | None:
    """The metrics of a run that is done; None, and a note, if they are damaged."""
    try:
        return run.metrics
    except UserError as error:
        _say(f"note: {error} The run is evaluated again.")
        return None


def _train_and_finish(
    task: Task, run: RunFolder, quiet: bool, tensorboard: bool, keep_memory: bool,
    watch: Callable[[Trainer], None] | None,
) -> dict[str, Any]:  # fmt: skip
    """Train from the last checkpoint, or from the beginning, to the end; the metrics."""
    keep_freed_memory()
    trainer = make_trainer(task)
    for note in dict.fromkeys(note for term in trainer.objective for note in term.notes()):
        _say(f"note: {note}")
    trainer, resumed = _resume(task, trainer, run)
    run.check_there()
    records = Records(run.records_file, upto=trainer.at)
    tracker = _tracker(run, trainer.at) if tensorboard else None
    candidates = Candidates(task, trainer, run, quiet)
    try:
        if not resumed and task.config.head_steps:
            _train_head_first(task, trainer, candidates, quiet)
        if not resumed and trainer.statistics.memories:
            if not quiet:
                _say(f"filling the memory: one pass over {'both domains' if task.start is None else 'the target'} …")
            trainer.fill_memory()  # a Ctrl-C in here stops at once: there is nothing to save yet
        with stop_signals() as stop, StepProgress(trainer.steps, trainer.at, quiet) as progress:
            _train(trainer, run, records, candidates, progress, stop, tracker, watch)
        if keep_memory:
            save_memory(run, trainer.objective)
        as_trained = None if task.start is not None else candidates.as_trained(task.source.test)
        with candidates.finished():
            if not run.predictions_file(trainer.at).exists():  # stopped between its last step and its predictions
                candidates.take()
            return _finish(task, trainer, candidates, run, as_trained)
    finally:
        records.close()
        candidates.close()
        if tracker is not None:
            tracker.close()


def _train_head_first(task: Task, trainer: Trainer, candidates: Candidates, quiet: bool) -> None:
    """Bottleneck and head, before the backbone is trained; a stop in here begins again."""
    if not quiet:
        _say("head first: features of the backbone as it is …")

    def extract(network: Classifier, domain: Domain) -> Domain:
        found = replace(candidates.model, network=network.eval()).forward(domain)
        kept = domain if len(found.rows) == len(domain) else domain.keep(found.rows)
        return replace(kept, x=torch.from_numpy(found.features))

    with StepProgress(task.config.head_steps, 0, quiet, "head step") as progress:
        train_head_first(task, trainer, extract, progress.advance)


def _train(
    trainer: Trainer,
    run: RunFolder,
    records: Records,
    candidates: Candidates,
    progress: StepProgress,
    stop: Stop,
    tracker: Any,
    watch: Callable[[Trainer], None] | None,
) -> None:
    """Step until the end; log and save on the way."""
    config, named = trainer.config, set[str]()
    loop = trainer.loop(config.log_every)
    while trainer.at < trainer.steps:
        try:
            logged = next(loop)
            at, stopping = trainer.at, stop.asked  # looked at once, so that what is said is what was saved
            save = stopping or at % config.checkpoint_every == 0 or at == trainer.steps
            state = trainer.state() if save else None
        except NotFiniteError as error:
            raise UserError(
                f"{error} The run is stopped; the last good checkpoint, if any, is in {run.checkpoints}. A smaller --lr"
                " or --lambda0 usually helps."
            ) from error
        if logged is not None:
            records.append({"step": at, **logged})
            if watch is not None:
                watch(trainer)
            if tracker is not None:
                for name, value in logged.items():
                    if isinstance(value, int | float):
                        tracker.add_scalar(name, value, at)
        progress.advance(at, logged)
        for name in [name for name in trainer.unreadable if name not in named]:
            named.add(name)
            _say_unreadable(name, trainer.unreadable[name])
        if at in candidates.steps:
            with candidates.finished():
                candidates.take()
        if state is not None:
            run.check_there()
            checkpoint.save(run.checkpoints, at, state)
        if stopping and at < trainer.steps:
            raise Interrupted(at, run.path)


def _headline(task: Task) -> str:
    """One line on what is about to happen."""
    config, preprocessing = task.config, task.preprocessing
    network = str(config.network)
    if preprocessing is not None:
        backbone = preprocessing.backbone
        how = "frozen" if preprocessing.frozen else "trained"
        how = how if backbone.train_from is None else f"trained from {backbone.train_from}"
        network = f"{backbone.name} ({how}) + {network}"
    rows = f"{config.target} ({len(task.target.train)} rows)"
    if task.start is None:
        rows = f"{config.source} ({len(task.source.train)} rows) → {rows}"
    else:
        rows = f"{task.start.name}, without its source → {rows}"
    return f"{rows}, {len(task.classes)} classes, network {network}, {config.objective}, {config.steps} steps"


def has_memory(config: RunConfig) -> bool:
    """Whether a run has a memory that can be kept."""
    return any(request.estimator == "memory" for request in requested_statistics(config))


def _resume(task: Task, trainer: Trainer, run: RunFolder) -> tuple[Trainer, bool]:
    """Go back to the newest whole checkpoint, if there is one; the trainer, and whether it goes on from one."""
    before = _frozen_options(trainer)

    def use(state: dict[str, Any]) -> None:
        trainer.load(state)
        if _frozen_options(trainer) != before or not 0 < trainer.at <= trainer.steps or not _momenta_fit(trainer):
            raise ValueError("the state of another training")

    found, damaged = checkpoint.latest(run.checkpoints, use)
    for path in damaged:
        _say(f"damaged checkpoint skipped: {path}")
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if found is None:
        return make_trainer(task) if damaged else trainer, False  # a state may have been loaded in part
    _say(f"resumed at step {found[0]}")
    return trainer, True


def _frozen_options(trainer: Trainer) -> list[dict[str, Any]]:
    """What optimizers keep from step to step; the learning rate follows from the step."""
    groups = [group for optimizer in trainer.optimizers.values() for group in optimizer.param_groups]
    return [{k: v for k, v in group.items() if k not in ("params", "lr")} for group in groups]


def _momenta_fit(trainer: Trainer) -> bool:
    """Whether what optimizers keep of each weight has the weight's shape."""
    states = [item for optimizer in trainer.optimizers.values() for item in optimizer.state.items()]
    kept = [(weight, value) for weight, held in states for value in held.values() if value is not None]
    return all(isinstance(value, torch.Tensor) and value.shape == weight.shape for weight, value in kept)


def _finish(
    task: Task, trainer: Trainer, candidates: Candidates, run: RunFolder, as_trained: Predicted | None
) -> dict[str, Any]:
    """Save the model, evaluate it on both domains, and write the metrics last: their presence says the run is done.

    `as_trained` is what the network made of the source before a method normalised it by the target; None without one.
    """
    run.check_there()
    target = task.target.test
    domains = [*([] if task.start is not None else [task.source.test]), target]
    made = [candidates.predict(domain) for domain in domains]
    on_target = made[-1]
    for domain, predicted in zip(domains, made, strict=True):
        for row, why in predicted.unreadable.items():
            name = f"{domain.name}: {domain.row_name(row)}"
            if name not in trainer.unreadable:
                _say_unreadable(name, why)
    if not all(predicted.finite_rows().all() for predicted in made):
        raise UserError("The trained network gives values that are not finite, and is not saved. Try a smaller --lr.")
    candidates.model.save(run.model)
    last: dict[str, Any] = {"step": trainer.at, "target": score(on_target, target, task.classes)}
    if as_trained is not None:
        last |= _on_source(task, made[0], on_target, as_trained)
    for remark in dict.fromkeys(r for term in trainer.objective for r in term.remarks(_shares(on_target))):
        _say(f"note: {remark}")
    metrics = {"hash": task.config.hash(), "judged_by": _judged_by(task), "last": last}
    if len(candidates.steps) > 1:
        try:
            metrics |= _compared(candidates, on_target, target, task.classes)
        except UserError as error:  # damaged meanwhile
            raise UserError(f"{error} Remove {run.path}, and run the same command again.") from error
    metrics = run.write_metrics(metrics)
    run.check_there()
    checkpoint.keep(run.checkpoints, trainer.at)
    return metrics


def _on_source(task: Task, on_source: Predicted, on_target: Predicted, as_trained: Predicted) -> dict[str, Any]:
    """What the metrics say of the source: how it is predicted, and how far it is from the target."""
    source = task.source.test
    distance = proxy_a_distance(on_source.features, on_target.features, task.config.seed)
    scored = score(on_source, source, task.classes)
    if as_trained is not on_source and "accuracy" in scored:
        scored["accuracy_as_trained"] = score(as_trained, source, task.classes)["accuracy"]
    _judge_source(scored, source_reference(task.source.train, source, as_trained, task.classes))
    return {"source": scored, "proxy_a_distance": number(distance)}


def _judge_source(scored: dict[str, Any], reference: Reference | None) -> None:
    """Note in the metrics of the source what is easily reached there, and say so if the network is far below."""
    if reference is None or "accuracy" not in scored:
        return
    accuracy = scored.get("accuracy_as_trained", scored["accuracy"])
    scored["reference_accuracy"] = reference.accuracy
    scored["far_below_reference"] = reference.far_above(accuracy)
    if scored["far_below_reference"]:
        _say(
            f"note: the source accuracy is {accuracy:.0%}, far below the {reference.accuracy:.0%} that the nearest"
            f" class mean of the {reference.of} reaches: training failed. Try a smaller --lambda0 or --lr, or more"
            " --steps."
        )


def _compared(candidates: Candidates, on_target: Predicted, target: Domain, classes: tuple[str, ...]) -> dict[str, Any]:
    """The candidate that validators select, and, if the target has labels, the best by those: the oracle."""
    step, why = candidates.choose()
    selected = score(candidates.on_test(step, on_target), target, classes)
    found: dict[str, Any] = {"selected": {"step": step, "by": CONSENSUS, "why": why, "target": selected}}
    if target.y is not None:
        scores = {s: score(candidates.on_test(s, on_target), target, classes) for s in candidates.steps}
        by_step = {s: metrics["accuracy"] for s, metrics in scores.items()}
        best = max(by_step, key=lambda s: by_step[s])
        found["oracle"] = {
            "step": best, "accuracy": by_step[best], "by_step": {str(s): a for s, a in by_step.items()},
            "best_mean_class_accuracy": max(metrics["mean_class_accuracy"] for metrics in scores.values()),
        }  # fmt: skip
    return found


def _shares(predicted: Predicted) -> torch.Tensor:
    """The share of each class (C,) among the predictions."""
    counts = torch.bincount(torch.from_numpy(predicted.guess), minlength=predicted.logits.shape[1]).double()
    return counts / counts.sum()


def _manifest(task: Task) -> dict[str, Any]:
    """What the run depends on. Its `data` must not change while it lasts; the target's labels are no part of it."""
    data: dict[str, Any] = {}
    for role, dataset in (("source", task.labelled), ("target", task.target)):
        if dataset is None:
            continue
        train, test = dataset.train, dataset.test
        rows = {"split": train.split, "rows": len(train)}  # the name is the config's, here it varies with the folder
        data[role] = {**rows, "train": train.fingerprint(), "test": test.fingerprint()}
    more: dict[str, Any] = {}
    if task.start is None:
        data["source"]["labels"] = task.source.train.label_fingerprint()
    else:
        data["run"] = task.start.fingerprint
        more["source_share"] = task.start.stand_in.share.tolist()
    if task.preprocessing is not None:
        backbone = task.preprocessing.backbone
        data["backbone"] = backbone.fingerprint()
        if backbone.origin is not None:
            data["backbone"] = {"weights": backbone.fingerprint(), **asdict(backbone.origin)}
    return {
        "hash": task.config.hash(),
        "seed": task.config.seed,
        "versions": versions(),
        "threads": torch.get_num_threads(),
        "data": data,
        "classes": list(task.classes),
        "terms": full_settings(task.config),
        **more,
    }


def versions() -> dict[str, str]:
    """What a result depends on beside the code."""
    packages = ("torch", "torchvision", "timm", "numpy", "scikit-learn", "tsadapt")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def _judged_by(task: Task) -> dict[str, str | None]:
    """The labels that the metrics are made with."""
    source = None if task.labelled is None else task.labelled.test.label_fingerprint()
    return {"source": source, "target": task.target.test.label_fingerprint()}


def _tracker(run: RunFolder, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError("TensorBoard is not installed: pip install 'tsadapt[track]'.") from error
    return SummaryWriter(str(run.tensorboard), purge_step=step + 1)


def _say_unreadable(name: str, why: str) -> None:
    _say(f"skipped unreadable image: {name} ({why})")


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)
