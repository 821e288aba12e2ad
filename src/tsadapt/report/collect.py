"""From folders of runs to what a page shows of them. Nothing is trained, and no label is used but to measure.

Shapes: N target rows, C classes.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tsadapt.config import RunConfig, to_toml
from tsadapt.data.doctor import Finding, examine, quick_findings
from tsadapt.data.images import Images
from tsadapt.data.types import Dataset, match_labels
from tsadapt.data.types import Domain as DataDomain
from tsadapt.errors import UserError, counted
from tsadapt.report.comparison import MOST_SECTIONS, compared, named
from tsadapt.report.maps import Maps
from tsadapt.report.page import (
    Curve,
    Measured,
    Page,
    Rows,
    RunPage,
    Side,
    Trusted,
)
from tsadapt.report.result import Result, read_result
from tsadapt.report.trained_rows import TrainedRows, source_rows, target_rows
from tsadapt.runs.folder import RunFolder, SweepFolder
from tsadapt.runs.model import Which
from tsadapt.runs.records import read_records
from tsadapt.selection.predictions import Predictions
from tsadapt.sweep.choice import unfolded
from tsadapt.trust.interval import wilson

__all__ = ["collect", "collect_run"]

MOST_CONFUSED = 12
"""Pairs of classes that are named as confused."""

MOST_TABLE = 40
"""Classes up to which the confusion matrix is shown as a table."""

MOST_VALUES = 8
"""Columns of a table up to which its values are shown beside its predictions."""

BINS = 10
"""Of the reliability diagram."""

EXAMINED_ROWS = 20_000
"""Rows in memory up to which the doctor looks at all of them; image files are looked at by name alone."""

Data = tuple[Dataset, Dataset]


def collect(
    paths: Sequence[Path],
    use: Which = "last",
    *,
    tell: Callable[[str], object] = str,
    results: Mapping[Path, Result] | None = None,
    data: Data | None = None,
    findings: tuple[Finding, ...] | None = None,
) -> Page:
    """The page of some runs; the folder of a sweep or result stands for its chosen run, beside all its others.

    `results` has, by the path of a result, what is known of its predictions beyond the softmax; where it is not given
    it is read. `data` are the two datasets where they are in memory. `findings` are the doctor's, if it has been asked.
    """
    if not paths:
        raise UserError("report needs runs, for example: tsadapt report runs/photos")
    shown: list[tuple[RunFolder, int]] = []
    for path in paths:
        shown += [at for at in _asked(path, use, tell) if at not in shown]
    if results is None:
        results = {path: found for path in paths if (found := read_result(path)) is not None}
    trusted = {result.chosen: result.trusted for result in results.values()}
    several = len(paths) > 1
    names = {
        run: f"{path.name}: {name}" if several else name
        for path, result in results.items()
        for run, name in result.names.items()
    }
    made_by = {result.chosen: (path, result.command) for path, result in results.items() if result.command}
    estimates = {path: found.estimate.value for path, found in trusted.items() if found.estimate is not None}
    comparison, best = compared(paths, shown, tell, names, estimates)
    if len(shown) > MOST_SECTIONS:
        tell(f"note: the first {MOST_SECTIONS} of {len(shown)} runs get a part of their own; the others are compared.")
        shown = shown[:MOST_SECTIONS]
    references = {key: run for run, key in _references(shown)}
    maps, runs = Maps(), []
    for run, step in shown:
        tell(f"{run.path}, step {step} …")
        before = references.get(_task_key(run))
        runs.append(
            collect_run(
                run, step, trusted=trusted.get(run.path), data=data, findings=findings,
                before=before if before is not None and before.path != run.path else None, maps=maps,
                label=names.get(run.path, ""), made_by=made_by.get(run.path),
            )
        )  # fmt: skip
    title = f"{runs[0].source.name} → {runs[0].target.name}"
    again = " ".join(["tsadapt report", *(shlex.quote(str(path)) for path in paths)])
    commands = [command for _, command in made_by.values()]
    command = commands[0] if len(paths) == len(commands) == 1 else again
    return Page(title, tuple(runs), comparison, best, command, version("tsadapt"))


def _asked(path: Path, use: Which, tell: Callable[[str], object]) -> list[tuple[RunFolder, int]]:
    """The runs and steps that a path stands for."""
    if (chosen := SweepFolder(path).chosen) is not None:
        return [chosen]
    found = []
    for run in unfolded([path], tell):
        metrics = run.metrics
        if use == "selected" and "selected" not in metrics:
            raise UserError(f"{run.path} has one candidate, its last step: leave out --use selected.")
        found.append((run, metrics["selected" if use == "selected" else "last"]["step"]))
    return found


def _task_key(run: RunFolder) -> tuple[object, ...]:
    manifest = run.manifest
    return (*manifest.get("classes", ()), *(manifest["data"][role]["train"] for role in ("source", "target")))


def _references(shown: Sequence[tuple[RunFolder, int]]) -> list[tuple[RunFolder, tuple[object, ...]]]:
    """Source-only runs among those shown, by their task: the network before adaptation."""
    plain = [run for run, _ in shown if run.manifest and run.config.objective == "source-only"]
    return [(run, _task_key(run)) for run in plain]


def collect_run(
    run: RunFolder,
    step: int | None = None,
    *,
    trusted: Trusted | None = None,
    data: Data | None = None,
    findings: tuple[Finding, ...] | None = None,
    before: RunFolder | None = None,
    maps: Maps | None = None,
    label: str = "",
    made_by: tuple[Path, str] | None = None,
) -> RunPage:
    """What is said of one run at a step (the last); `before` is source-only on the same task, for the map.

    `maps` are those of the page so far, none of which is made twice. `label` is what the run is called in a result, and
    `made_by` the folder of that result with the command that made it.
    """
    config, manifest, metrics = run.config, run.manifest, run.metrics
    step = metrics["last"]["step"] if step is None else step
    last = step == metrics["last"]["step"]
    path = run.predictions_file(step)
    if not path.is_file():
        raise UserError(f"{run.path} has no predictions of step {step}: train it again.")
    predictions = Predictions.read(path)
    classes = tuple(manifest["classes"])
    source, target, notes = _found_again(run, len(predictions.logits_t), data)
    truth = _truth(target.domain, classes) if target is not None and not config.use_target_labels else None
    given = trusted is not None and trusted.truth is not None
    if trusted is not None and trusted.truth is not None:
        truth = np.where(trusted.truth < 0, UNLABELLED, trusted.truth)
    rows = _rows(predictions, target, truth, trusted)
    measured = (
        _measured_here(rows, classes, trusted, given) if truth is not None else _measured_there(run, step, classes)
    )
    if config.use_target_labels:
        few = metrics["last"]["target_labels"]["rows"]
        notes.append(
            f"Trained on the labels of {counted(few, 'target row')} (--use-target-labels): this is no unsupervised"
            " result, and these rows measure nothing."
        )
    if measured is None and trusted is None:
        notes.append("No target labels were found, so nothing is measured on this page.")
    if last and "selected" in metrics and metrics["selected"]["step"] != step:
        chosen = metrics["selected"]
        notes.append(
            f"This is step {step}, the last one. Without labels, {chosen['by']} chose step {chosen['step']}: --use"
            " selected shows that."
        )
    scored = metrics["last"]["source"]
    if scored.get("far_below_reference"):
        notes.append(
            f"The source accuracy is {scored['accuracy']:.1%}, far below the {scored['reference_accuracy']:.1%} that"
            " the nearest class mean reaches: training failed."
        )
    inside = source.domain if source is not None else None
    return RunPage(
        name=_title(run, step, last, label),
        path=str(run.path),
        objective=config.objective,
        step=step,
        steps=config.steps or step,
        classes=classes,
        source=Side(_short(config.source), manifest["data"]["source"]["rows"], _source_shares(inside, scored, classes)),
        target=Side(
            _short(config.target), len(rows), np.bincount(rows.guess, minlength=len(classes)) / max(len(rows), 1)
        ),
        rows=rows,
        kind="row" if target is None or target.pictures is None else "image",
        label=label,
        held=len(predictions.labels_v) if config.holdout else 0,
        source_rows=None if source is None else _given(source, classes),
        unreadable=() if target is None else target.unreadable,
        trusted=trusted,
        measured=measured,
        source_accuracy=scored.get("accuracy") if last else None,
        source_reference=scored.get("reference_accuracy") if last else None,
        planes=(maps or Maps()).of(run, step, predictions, source, target, before),
        curves=_curves(read_records(run.records_file), len(classes)),
        findings=_findings(source, target) if findings is None else findings,
        notes=tuple(notes),
        command=_again(run, config, made_by),
        versions=dict(manifest.get("versions", {})),
        config=to_toml(config),
        facts=_facts(config),
    )


def _title(run: RunFolder, step: int, last: bool, label: str) -> str:
    name = named(label, run.config.objective) if label else f"{run.path.name}, {run.config.objective}"
    return f"{name}{'' if last else f', step {step}'}"


def _found_again(
    run: RunFolder, rows: int, data: Data | None
) -> tuple[TrainedRows | None, TrainedRows | None, list[str]]:
    """The rows of both domains, if the data is still there and the same; else a note on what is missing."""
    notes = list[str]()
    source: TrainedRows | None = None
    target: TrainedRows | None = None
    try:
        source = source_rows(run, dataset=data and data[0])
    except UserError as error:
        notes.append(f"The source data cannot be shown: {error}")
    try:
        target = target_rows(run, rows, data and data[1])
    except UserError as error:
        notes.append(f"The target data cannot be shown: {error}")
    return source, target, notes


UNKNOWN, UNLABELLED = -1, -2


def _truth(domain: DataDomain, classes: tuple[str, ...]) -> np.ndarray | None:
    """Given labels (N,) as the network's classes, or UNKNOWN for another, UNLABELLED for none; None without any."""
    if domain.y is None or not set(domain.classes or ()) & set(classes):
        return None
    labels: np.ndarray = match_labels(domain, classes)[0].numpy().copy()
    labels[domain.y.numpy() < 0] = UNLABELLED
    return labels if (labels != UNLABELLED).any() else None


def _rows(
    predictions: Predictions, found: TrainedRows | None, truth: np.ndarray | None, trusted: Trusted | None
) -> Rows:
    guess, second, confidence = _two_best(predictions)
    names = tuple(f"row {row}" for row in range(len(guess)))
    if trusted is not None and trusted.second is not None:
        second = trusted.second
    if found is None:
        return Rows(names, guess, second, confidence, truth)
    domain = found.domain
    columns: tuple[str, ...] = ()
    values: np.ndarray | None = None
    if domain.kind == "vector" and domain.columns and len(domain.columns) <= MOST_VALUES:
        columns, values = domain.columns, domain.tensor.numpy()
    return Rows(_names(found), guess, second, confidence, truth, found.pictures, columns, values)


def _names(found: TrainedRows) -> tuple[str, ...]:
    """What rows are called: by their names, else by their numbers in the data."""
    domain, word = found.domain, "row" if found.pictures is None else "image"
    return tuple(
        name if domain.row_names else f"{word} {number}"
        for number, name in zip(found.numbers, domain.row_names or found.numbers.astype(str), strict=True)
    )


def _two_best(predictions: Predictions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The two likeliest classes of each row, and the softmax of the first: (N,) each."""
    guess, second, confidence = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for p in predictions.probability_blocks():
        best = p.argmax(1)
        rows = np.arange(len(p))
        guess.append(best)
        confidence.append(p[rows, best])
        rest = p.copy()
        rest[rows, best] = -1
        second.append(rest.argmax(1))
    return np.concatenate(guess), np.concatenate(second), np.concatenate(confidence)


def _given(found: TrainedRows, classes: tuple[str, ...]) -> Rows:
    """Source rows with the classes they were given."""
    return Rows(_names(found), match_labels(found.domain, classes)[0].numpy(), pictures=found.pictures)


def _source_shares(domain: DataDomain | None, scored: dict[str, Any], classes: tuple[str, ...]) -> np.ndarray | None:
    if domain is not None:
        labels = match_labels(domain, classes)[0].numpy()
        counts = np.bincount(labels[labels >= 0], minlength=len(classes))
    elif isinstance(table := scored.get("confusion"), list):
        counts = np.array(table).sum(1)
    else:
        return None
    shares: np.ndarray = counts / max(counts.sum(), 1)
    return shares


def _short(name: str) -> str:
    """A dataset's name for headings: of an absolute path the last two parts; the page's config has all of it.

    >>> _short("/home/ada/photos/labelled"), _short("digits:uci")
    ('photos/labelled', 'digits:uci')
    """
    path = Path(name)
    return "/".join(path.parts[-2:]) if path.is_absolute() and len(path.parts) > 2 else name


def _measured_here(rows: Rows, classes: tuple[str, ...], trusted: Trusted | None, given: bool) -> Measured:
    """Accuracy of the rows that have a label, and how it goes with their probabilities.

    `given` says that the labels were given beside the data.
    """
    assert rows.truth is not None
    assert rows.confidence is not None
    labelled = rows.truth != UNLABELLED
    y, guess = rows.truth[labelled], rows.guess[labelled]
    probability = rows.confidence if trusted is None or trusted.right is None else trusted.right
    right, probability = y == guess, probability[labelled]
    known = y >= 0
    pairs, counts = np.unique(y[known] * len(classes) + guess[known], return_counts=True)
    table = np.zeros((len(classes),) * 2, dtype=np.int64) if len(classes) <= MOST_TABLE else None
    if table is not None:
        table.flat[pairs] = counts
    totals = np.bincount(y[known], minlength=len(classes))
    share = np.bincount(y[right], minlength=len(classes))[totals > 0] / totals[totals > 0]
    bin_of = np.minimum((probability * BINS).astype(int), BINS - 1)
    bins = tuple(
        (float(probability[mine].mean()), float(right[mine].mean()), int(mine.sum()))
        for mine in (bin_of == b for b in range(BINS))
        if mine.any()
    )
    return Measured(
        wilson(int(right.sum()), len(y)),
        len(y),
        float(share.mean()) if len(share) else 0.0,
        table,
        _confused(pairs // len(classes), pairs % len(classes), counts, classes),
        bins,
        sum(abs(p - a) * n for p, a, n in bins) / max(len(y), 1),
        "labels that were given to measure with" if given else "the labels of the target's data",
    )


def _measured_there(run: RunFolder, step: int, classes: tuple[str, ...]) -> Measured | None:
    """What the metrics say, where the data is not there any more."""
    metrics = run.metrics
    part = next((m for m in (metrics["last"], metrics.get("selected")) if m is not None and m["step"] == step), None)
    scored = {} if part is None else part["target"]
    if "accuracy" not in scored:
        return None
    found, rows = run.confusion(scored), scored["rows"]
    true, guess, counts = found.astype(np.int64).T
    table = np.zeros((len(classes),) * 2, dtype=np.int64) if len(classes) <= MOST_TABLE else None
    if table is not None:
        table[true, guess] = counts
    return Measured(
        wilson(round(scored["accuracy"] * rows), rows), rows, scored["mean_class_accuracy"], table,
        _confused(true, guess, counts, classes), (), scored.get("calibration_error"),
        f"metrics.json, {scored['data']} ({scored['split']})",
    )  # fmt: skip


def _confused(
    true: np.ndarray, guess: np.ndarray, counts: np.ndarray, classes: tuple[str, ...]
) -> tuple[tuple[str, str, int], ...]:
    order = [i for i in np.argsort(-counts, kind="stable") if true[i] != guess[i]]
    return tuple((classes[true[i]], classes[guess[i]], int(counts[i])) for i in order[:MOST_CONFUSED])


SCHEDULES = {"lambda": "λ, the strength of the augmentation", "alpha": "α, the strength of the reversal",
             "lr": "learning rate"}  # fmt: skip
COVERAGE = ("pseudo", "coverage", "accepted")


def _curves(records: Sequence[dict[str, Any]], classes: int) -> tuple[Curve, ...]:
    """The terms of the loss, schedules, pseudo-labels, and everything else that was logged as a number."""
    found: dict[str, list[tuple[int, float]]] = {}
    terms = set[str]()
    for record in records:
        names = [*record]
        terms |= set(names[: names.index("loss")]) if "loss" in names else set()
        for name, value in record.items():
            if isinstance(value, int | float) and name != "step" and np.isfinite(value):
                found.setdefault(name, []).append((record["step"], float(value)))
    if len(terms & found.keys()) == 1:  # of which the loss is the sum
        found.pop("loss", None)
    curves = []
    for name, pairs in found.items():
        steps, values = zip(*pairs, strict=True)
        group, title = "more", name.replace("_", " ")
        if name in terms or name == "loss":
            group, title = "terms", "all terms together" if name == "loss" else name
        elif name in SCHEDULES:
            group, title = "schedules", SCHEDULES[name]
        elif name == "classes_without_pseudo_labels":
            group, title = "pseudo-labels", "classes with pseudo-labels"
            values = tuple(classes - value for value in values)
        elif name.startswith(COVERAGE) or name.endswith(COVERAGE):
            group, title = "pseudo-labels", "share of target rows with a pseudo-label" if "labelled" in name else title
        curves.append(Curve(title, group, steps, values))
    order = ("terms", "schedules", "pseudo-labels", "more")
    return tuple(sorted(curves, key=lambda curve: order.index(curve.group)))


def _findings(source: TrainedRows | None, target: TrainedRows | None) -> tuple[Finding, ...] | None:
    if source is None or target is None:
        return None
    ours, theirs = source.whole, target.whole
    in_memory = not isinstance(ours.x, Images) and not isinstance(theirs.x, Images)
    if in_memory and len(ours) + len(theirs) <= EXAMINED_ROWS:
        return tuple(examine(ours, theirs, 0).findings)
    return tuple(quick_findings(ours, theirs))


def _facts(config: RunConfig) -> dict[str, Any]:
    how = "" if config.backbone is None else "trained"
    how = "frozen" if config.freeze_backbone else f"trained from {config.train_from}" if config.train_from else how
    facts = {
        "objective": config.objective,
        "backbone": None if config.backbone is None else f"{config.backbone} ({how})",
        "network": config.network,
        "training": f"{config.steps:,} steps of {config.batch_size} + {config.target_batch_size} rows",
        "learning rate": config.lr,
        "held out": f"{config.holdout:.0%} of each source class" if config.holdout else None,
        "seed": config.seed,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _again(run: RunFolder, config: RunConfig, made_by: tuple[Path, str] | None) -> tuple[str, ...]:
    """Commands that make the run, its predictions and this page again; of a result, all of it."""
    alone = "tsadapt fit --config config.toml --out again"
    if made_by is not None:
        folder, command = made_by
        quoted = shlex.quote(str(folder))
        return command, f"tsadapt predict {quoted} NEW --out predictions.csv", f"{alone}  # this candidate by itself"
    quoted = shlex.quote(str(run.path))
    return (
        alone,
        f"tsadapt predict {quoted} {shlex.quote(config.target)} --out predictions.csv",
        f"tsadapt report {quoted}",
    )
