"""A run: trained, resumed or found done in its folder, and evaluated at its end."""

import platform
import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tsadapt.config import RunConfig
from tsadapt.core.processes import Processes
from tsadapt.data.in_memory import as_dataset, dataset_name
from tsadapt.data.target_labels import labels_in_memory, name_in_memory
from tsadapt.data.types import Dataset, Domain
from tsadapt.errors import UserError, printable
from tsadapt.models.classifier import Classifier
from tsadapt.models.encoders import file_origin, in_memory, is_own, names_file
from tsadapt.objectives.objective import full_settings, requested_statistics, with_settings
from tsadapt.progress import StepProgress
from tsadapt.runs import checkpoint
from tsadapt.runs.candidates import Candidates, trained_model
from tsadapt.runs.folder import RunFolder
from tsadapt.runs.kept_memory import NONE, keep_memory_of, save_memory
from tsadapt.runs.measured import compared, measured, predicted_shares
from tsadapt.runs.model import Predicted, TrainedModel, load
from tsadapt.runs.records import Records
from tsadapt.runs.source_free import start_from
from tsadapt.training.head_first import train_head_first
from tsadapt.training.launch import in_turn, speaks
from tsadapt.training.runtime import Stop, keep_freed_memory, stop_signals
from tsadapt.training.setup import (
    Task,
    check_processes,
    make_task,
    make_trainer,
    one_spelling,
    reading_config,
    source_roles,
    target_roles,
)
from tsadapt.training.shards import sharded_keys
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
    target_labels: Any = None,
    **settings: Any,
) -> TrainedModel:
    """Train on a labelled source and an unlabelled target, as `tsadapt fit` does; the trained model.

    `source` and `target` are what the command takes (paths and names), or arrays, DataFrames, (X, y). `settings` are
    the command's: tsa=True, method="cdan+e", lambda0=0.5, steps=1000, seed=0, … `backbone` is for images: a name, or an
    encoder of your own as FILE.py:FUNCTION or as a module, which stays as it is. The run is a folder, `out` (runs/HASH
    unless given): the same call resumes it, or finds it done. `model.metrics` has what came out.

    `source_free` is the folder of a trained run that takes the source's place: its network is adapted to the target.

    `target_labels` are a few labelled target rows: a file as the command takes it, or one label for each target row, −1
    for none. They measure; with use_target_labels=True they are trained on, and measure nothing.
    """
    if target is None or (source is None) == (source_free is None):
        raise UserError("fit needs a source and a target, or source_free (a trained run's folder) and a target.")
    if backbone is not None and not isinstance(backbone, str | nn.Module):
        raise UserError(f"backbone is {backbone!r}, expected a name, FILE.py:FUNCTION or a torch.nn.Module.")
    encoder = backbone if isinstance(backbone, nn.Module) else None
    name = in_memory(backbone) if isinstance(backbone, nn.Module) else backbone
    read = reading_config(settings)
    start, labelled = None, None
    if source_free is not None:
        start = start_from(source_free, backbone)
        named, columns = start.config.source, start.columns
        settings["source_free"] = str(source_free)
    else:
        labelled = as_dataset(source, name="the source", roles=source_roles(read))
        named, columns = dataset_name(labelled), labelled.train.columns
    data = labelled, as_dataset(target, columns, name="the target", roles=target_roles(read))
    config = RunConfig(named, dataset_name(data[1], with_labels=False), backbone=name)
    few = None
    if target_labels is not None and not isinstance(target_labels, str | Path):
        known = start.stand_in.classes if start is not None else labelled.train.classes if labelled is not None else ()
        few = labels_in_memory(target_labels, len(data[1].train), known or ())
        target_labels = name_in_memory(few)
    config = with_settings(
        config, _say, **settings, target_labels=None if target_labels is None else str(target_labels)
    )
    folder, _ = train_run(
        config, None if out is None else Path(out), overwrite=overwrite, quiet=quiet, tensorboard=tensorboard,
        keep_memory=keep_memory, data=data, encoder=encoder, start=start, target_labels=few,
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
    target_labels: np.ndarray | None = None,
    notes: bool = True,
) -> tuple[Path, dict[str, Any]]:
    """Train what the config says into the folder `out` (runs/HASH unless given); the folder, and its metrics.

    A folder with the same config is resumed, or found done; one with another config is refused unless `overwrite`.
    `watch` is called with the trainer after every logged step, and must leave it as it is. `keep_memory` writes the
    memory of both domains into the folder, also of a run that is done. `data` are datasets in memory, `encoder` is a
    backbone in memory, which the config names by `in_memory`. `start` is the run that a source-free one goes on from;
    it is read where it is not given. `target_labels` are labels of target rows in memory, −1 for none. `notes` says
    whether to tell what is worth knowing of the data and settings before training.

    Where a process group of several is up, all of them train, and the first one speaks, writes and evaluates.
    """
    processes = Processes.here()
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
        config = _as_begun(config, RunFolder(out), overwrite)
    if out is not None and speaks():
        RunFolder(out).check(config, overwrite)
        if not overwrite:
            _check_encoder(RunFolder(out), config)
    quiet = quiet or not speaks()
    with in_turn(processes):
        task = make_task(config, _say if notes else str, quiet, data, encoder, start, target_labels)
    config = task.config
    check_processes(config, processes)
    run = RunFolder(out or Path("runs") / config.hash())
    manifest = _manifest(task)
    _check_same_data(processes, manifest)
    with run.lock() if speaks() else nullcontext():
        metrics = _begin(task, run, manifest, overwrite, quiet, keep_memory) if speaks() else None
        if processes is not None:
            metrics = processes.objects(metrics)[0]
        if metrics is not None:
            return run.path, metrics
        return run.path, _train_and_finish(task, run, quiet, tensorboard, keep_memory, watch, processes)


def _begin(
    task: Task, run: RunFolder, manifest: dict[str, Any], overwrite: bool, quiet: bool, keep_memory: bool
) -> dict[str, Any] | None:
    """Make the folder this run's; the metrics if it is done already."""
    run.claim(task.config, manifest, overwrite)
    if not quiet:
        _say(_headline(task))
    if run.done:
        metrics = _metrics_there(run)
        if metrics is not None and metrics["judged_by"] == _judged_by(task):
            if keep_memory:
                keep_memory_of(run)
            _say(f"already done: {run.path}")
            return metrics
        # Trained, but the evaluation labels changed, or the metrics are damaged: only evaluate again.
        run.metrics_file.unlink()
    run.write_manifest(manifest)
    return None


def _check_same_data(processes: Processes | None, manifest: dict[str, Any]) -> None:
    """Refuse processes that do not see the same files."""
    if processes is None:
        return
    every = processes.objects((manifest["hash"], manifest["data"]))
    other = next((rank for rank, one in enumerate(every) if one != every[0]), None)
    if other is not None:
        raise UserError(
            f"Process {other} sees other data than process 0: expected the same files and packages on every machine."
        )


def _as_begun(config: RunConfig, run: RunFolder, overwrite: bool) -> RunConfig:
    """The config with the precision of features that the run in the folder has, whatever is the default here."""
    if overwrite or not run.exists or config.feature_precision is not None:
        return config
    return replace(config, feature_precision=run.config.feature_precision)


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
    watch: Callable[[Trainer], None] | None, processes: Processes | None,
) -> dict[str, Any]:  # fmt: skip
    """Train from the last checkpoint, or from the beginning, to the end; the metrics."""
    keep_freed_memory()
    trainer = make_trainer(task, processes)
    if not quiet and trainer.needs:
        _say(trainer.needs)
    if not quiet and task.config.compile:
        _say("compiling the network in the first step, which takes longer …")
    for note in dict.fromkeys(note for term in trainer.objective for note in term.notes()):
        _say(f"note: {note}")
    trainer, resumed = _resume(task, trainer, run)
    log = _Log(task, trainer, run, quiet, tensorboard) if speaks() else None
    try:
        if not resumed and task.config.head_steps:
            _train_head_first(task, trainer, run, quiet)
        if not resumed and trainer.statistics.memories:
            if not quiet:
                _say(f"filling the memory: one pass over {'both domains' if task.start is None else 'the target'} …")
            trainer.fill_memory()  # a Ctrl-C in here stops at once: there is nothing to save yet
        patient = processes is not None
        with stop_signals(patient) as stop, StepProgress(trainer.steps, trainer.at, quiet) as progress:
            _train(trainer, run, log, progress, stop, watch)
        if keep_memory:
            save_memory(run, trainer.objective)
        if log is not None:
            _evaluate(task, trainer, log.candidates, run)
        if processes is not None:
            processes.wait()
        return run.metrics
    finally:
        if log is not None:
            log.close()


def _evaluate(task: Task, trainer: Trainer, candidates: Candidates, run: RunFolder) -> None:
    """Take the last candidate, and write model and metrics."""
    as_trained = None if task.start is not None else candidates.as_trained(task.source.test)
    with candidates.finished():
        if not run.predictions_file(trainer.at).exists():  # stopped between its last step and its predictions
            candidates.take()
        _finish(task, trainer, candidates, run, as_trained)


class _Log:
    """What is written of a run on the way, by the one process that writes."""

    def __init__(self, task: Task, trainer: Trainer, run: RunFolder, quiet: bool, tensorboard: bool) -> None:
        run.check_there()
        self.records = Records(run.records_file, upto=trainer.at)
        self.tracker = _tracker(run, trainer.at) if tensorboard else None
        self.candidates = Candidates(task, trainer, run, quiet)

    def append(self, at: int, logged: dict[str, Any]) -> None:
        """Write what was logged of a step."""
        self.records.append({"step": at, **logged})
        if self.tracker is not None:
            for name, value in logged.items():
                if isinstance(value, int | float):
                    self.tracker.add_scalar(name, value, at)

    def close(self) -> None:
        """Close the files."""
        self.records.close()
        self.candidates.close()
        if self.tracker is not None:
            self.tracker.close()


def _train_head_first(task: Task, trainer: Trainer, run: RunFolder, quiet: bool) -> None:
    """Bottleneck and head, before the backbone is trained; a stop in here begins again."""
    if not quiet:
        _say("head first: features of the backbone as it is …")

    def extract(network: Classifier, domain: Domain) -> Domain:
        found = replace(trained_model(task, trainer, run, quiet), network=network.eval()).forward(domain)
        kept = domain if len(found.rows) == len(domain) else domain.keep(found.rows)
        return replace(kept, x=torch.from_numpy(found.features))

    with StepProgress(task.config.head_steps, 0, quiet, "head step") as progress:
        train_head_first(task, trainer, extract, progress.advance)


def _train(
    trainer: Trainer,
    run: RunFolder,
    log: _Log | None,
    progress: StepProgress,
    stop: Stop,
    watch: Callable[[Trainer], None] | None,
) -> None:
    """Step until the end; log and save on the way."""
    config, processes, named = trainer.config, trainer.processes, set[str]()
    loop = trainer.loop(config.log_every)
    while trainer.at < trainer.steps:
        try:
            logged = next(loop)
            at, stopping = trainer.at, stop.asked  # looked at once, so that what is said is what was saved
            if processes is not None:
                stopping = processes.any(stopping)
            save = stopping or at % config.checkpoint_every == 0 or at == trainer.steps
            state = trainer.state() if save else None
        except NotFiniteError as error:
            raise UserError(
                f"{error} The run is stopped; the last good checkpoint, if any, is in {run.checkpoints}. A smaller --lr"
                " or --lambda0 usually helps."
            ) from error
        if logged is not None:
            if log is not None:
                log.append(at, logged)
            if watch is not None:
                watch(trainer)
            if processes is not None:
                trainer.unreadable |= {
                    k: v for found in processes.objects(trainer.unreadable) for k, v in found.items()
                }
        progress.advance(at, logged)
        _say_new(trainer.unreadable, named)
        if log is not None and at in log.candidates.steps:
            with log.candidates.finished():
                log.candidates.take()
        if state is not None:
            if log is not None:
                run.check_there()
            checkpoint.save(run.checkpoints, at, state, processes, sharded_keys(trainer.objective))
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
    if trainer.processes is not None and not trainer.processes.first:
        trainer.processes.wait()  # the first removes what is damaged
    before = _frozen_options(trainer)

    def use(state: dict[str, Any]) -> None:
        trainer.load(state, checkpoint.parts_of(run.checkpoints, state))
        if _frozen_options(trainer) != before or not 0 < trainer.at <= trainer.steps or not _momenta_fit(trainer):
            raise ValueError("the state of another training")

    found, damaged = checkpoint.latest(run.checkpoints, use)
    for path in damaged:
        _say(f"damaged checkpoint skipped: {path}")
        if speaks():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if found is None and damaged:
        trainer = make_trainer(task, trainer.processes)  # a state may have been loaded in part
    if trainer.processes is not None:
        if trainer.processes.first:
            trainer.processes.wait()
        if len({*trainer.processes.objects(trainer.at)}) > 1:
            raise UserError(
                f"The processes do not find the same checkpoints in {run.path}: expected a folder that all of them see."
            )
    if found is not None:
        _say(f"resumed at step {found[0]}")
    return trainer, found is not None


def _frozen_options(trainer: Trainer) -> list[dict[str, Any]]:
    """What optimizers keep from step to step; the learning rate follows from the step."""
    groups = [group for optimizer in trainer.optimizers.values() for group in optimizer.param_groups]
    return [{k: v for k, v in group.items() if k not in ("params", "lr")} for group in groups]


def _momenta_fit(trainer: Trainer) -> bool:
    """Whether what optimizers keep of each weight has the weight's shape."""
    states = [item for optimizer in trainer.optimizers.values() for item in optimizer.state.items()]
    kept = [(weight, value) for weight, held in states for value in held.values() if value is not None]
    return all(isinstance(value, torch.Tensor) and value.shape == weight.shape for weight, value in kept)


def _finish(task: Task, trainer: Trainer, candidates: Candidates, run: RunFolder, as_trained: Predicted | None) -> None:
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
    last = {"step": trainer.at, **measured(task, candidates, made, as_trained, _say)}
    for remark in dict.fromkeys(r for term in trainer.objective for r in term.remarks(predicted_shares(on_target))):
        _say(f"note: {remark}")
    metrics = {"hash": task.config.hash(), "judged_by": _judged_by(task), "last": last}
    if len(candidates.steps) > 1:
        try:
            metrics |= compared(candidates, on_target, task)
        except UserError as error:  # damaged meanwhile
            raise UserError(f"{error} Remove {run.path}, and run the same command again.") from error
    run.write_metrics(metrics)
    run.check_there()
    checkpoint.keep(run.checkpoints, trainer.at)


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
    if task.known is not None and task.known.used:
        data["target_labels"] = {"rows": len(task.known.rows), "labels": task.known.fingerprint()}
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
    found = {"source": source, "target": task.target.test.label_fingerprint()}
    if task.known is not None and not task.known.used:
        found["target_labels"] = task.known.fingerprint()
    return found


def _tracker(run: RunFolder, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError("TensorBoard is not installed: pip install 'tsadapt[track]'.") from error
    return SummaryWriter(str(run.tensorboard), purge_step=step + 1)


def _say_new(unreadable: dict[str, str], named: set[str]) -> None:
    """Say which images cannot be read, each once."""
    for name in [name for name in unreadable if name not in named]:
        named.add(name)
        _say_unreadable(name, unreadable[name])


def _say_unreadable(name: str, why: str) -> None:
    _say(f"skipped unreadable image: {name} ({why})")


def _say(text: str) -> None:
    if speaks():
        print(printable(text), file=sys.stderr, flush=True)
