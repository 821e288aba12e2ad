"""The model card: which data, which method, what to expect, and what not to."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from tsadapt.adapt.folder import ResultFolder
from tsadapt.config import RunConfig
from tsadapt.errors import counted, few, printable
from tsadapt.export.exported import FILES, Recipe
from tsadapt.export.script import SCRIPTS
from tsadapt.runs.folder import RunFolder, read_json
from tsadapt.runs.model import TrainedModel

__all__ = ["CARD", "Facts", "Parity", "card", "facts_of"]

CARD = "README.md"
"""The card's file, where model hubs look for it."""

SHOWN_CLASSES = 20


@dataclass(frozen=True)
class Parity:
    """How the exported model and PyTorch compare on `rows` rows of some data.

    `graph` is the largest difference of a probability or a logit (relative to the largest logit, if that is above 1) on
    the same inputs, in float32; `run` that of a probability from what the run says of the same files.
    """

    rows: int
    data: str
    graph: float
    run: float


@dataclass(frozen=True)
class Facts:
    """What is known of a trained model beside itself: its run's config, metrics and manifest, and adapt's summary."""

    config: RunConfig | None = None
    manifest: dict[str, Any] | None = None
    scored: dict[str, Any] | None = None
    summary: dict[str, Any] | None = None


def facts_of(path: Path, model: TrainedModel, selected: bool) -> Facts:
    """What stands in the folders of the run, of the result of `adapt`, or beside a model that lies in one."""
    result = next((r for r in map(ResultFolder, (path, path.parent)) if r.summary.is_file() and r.sweep.exists), None)
    summary = None if result is None else read_json(result.summary, ("chosen", "estimated_accuracy"))
    run = model.run
    if run is None and result is not None and summary is not None:
        run = RunFolder(result.path / summary["chosen"]["run"])
    if run is None and RunFolder(path.parent).exists:
        run = RunFolder(path.parent)
    if run is None or not run.exists:
        return Facts(summary=summary)
    metrics = run.metrics if run.done else {}
    scored = metrics.get("selected" if selected else "last")
    return Facts(run.config, run.manifest, scored, summary)


def card(model: TrainedModel, recipe: Recipe, facts: Facts, parity: Parity, kinds: list[str], limit: float) -> str:
    """The card of the formats that are there; the last of `kinds` is the one that was compared."""
    from huggingface_hub import ModelCard, ModelCardData

    tabular = recipe.takes == "vectors"
    data = ModelCardData(
        library_name="onnx" if "onnx" in kinds else "pytorch",
        pipeline_tag="tabular-classification" if tabular else "image-classification",
        tags=["domain-adaptation", "tsadapt", *kinds],
    )
    template = files("tsadapt.export").joinpath("templates/card.md.j2").read_text(encoding="utf-8")
    target = "a target" if facts.config is None else _shown(facts.config.target)
    described = ModelCard.from_template(
        data, template_str=template, recipe=recipe, classes=recipe.classes, parity=parity, compared=_shown(parity.data),
        limit=limit,
        file=FILES[kinds[-1]], title=f"Classifier adapted to {target}", counted=counted, files=_files(kinds),
        inside=_inside(recipe), shown_classes=_cell(few(recipe.classes, SHOWN_CLASSES)),
        data=[*map(_cell, _data(facts))], method=[*map(_cell, _method(model, facts))],
        estimate=[*map(_cell, _estimate(recipe, facts))], limits=[*map(_cell, _limits(recipe, facts))],
    )  # fmt: skip
    return f"{str(described).rstrip()}\n"


def _files(kinds: list[str]) -> list[tuple[str, str]]:
    found = []
    for kind in sorted(kinds):
        with_what = "ONNX Runtime: the whole computation" if kind == "onnx" else "`torch.export.load`: the same"
        found += [(FILES[kind], with_what), (SCRIPTS[kind], f"an example: `python {SCRIPTS[kind]} …`")]
    return found


def _inside(recipe: Recipe) -> str:
    calibrated = "" if recipe.temperature == 1 else f", and a temperature of {recipe.temperature:.3g} that calibrates"
    if recipe.takes == "vectors":
        named = f" The columns, in this order: {_cell(few(recipe.columns, 50))}." if recipe.columns else ""
        return f"Standardising is part of the model{calibrated}: pass raw numbers.{named}"
    how = "as the example does it"
    if recipe.framing is not None and not recipe.ten_crop:
        side = f"{'the short side' if recipe.framing.keep_aspect else 'both sides'} to {recipe.framing.resize} pixels"
        how = f"{side} ({recipe.framing.interpolation}), then the central {recipe.framing.size}"
    return f"Decode and resize before ({how}); normalising pixels is part of the model{calibrated}."


def _data(facts: Facts) -> list[str]:
    if facts.config is None:
        return ["Nothing is known of the data: the model was exported from a folder without its run."]
    rows = (facts.manifest or {}).get("data", {})
    found = []
    for role, what in (("source", "labelled"), ("target", "without labels")):
        if role in rows:
            name = _shown(getattr(facts.config, role))
            found.append(f"{role.capitalize()}, {what}: {name}, {counted(rows[role]['rows'], 'row')}.")
    return found


def _method(model: TrainedModel, facts: Facts) -> list[str]:
    network = f"network `{model.architecture.network}`"
    if model.preprocessing is not None:
        backbone = model.preprocessing.backbone
        how = "frozen" if model.preprocessing.frozen else f"trained from {backbone.train_from or 'its first layer'} on"
        network = f"backbone {_shown(backbone.name)} ({how}), then {network}"
    if facts.config is None:
        return [f"{network[0].upper()}{network[1:]}."]
    config, found = facts.config, []
    found.append(f"Objective: {config.objective}; {config.steps} steps, seed {config.seed}; {network}.")
    if facts.summary is not None:
        chosen = facts.summary["chosen"]
        others = len(facts.summary["candidates"])
        found.append(f"Chosen among {counted(others, 'candidate')} without target labels: {chosen['why']}.")
    if versions := (facts.manifest or {}).get("versions"):
        found.append(f"Trained with {', '.join(f'{name} {versions[name]}' for name in ('tsadapt', 'torch', 'timm'))}.")
    return found


def _estimate(recipe: Recipe, facts: Facts) -> list[str]:
    found = []
    if facts.summary is not None:
        estimate = facts.summary["estimated_accuracy"]
        found.append(
            f"Accuracy on the target: about {estimate['value']:.0%} ({estimate['low']:.0%} to {estimate['high']:.0%}),"
            " estimated without target labels from how far networks agree."
        )
        if (measured := facts.summary.get("measured_accuracy")) is not None:
            found.append(
                f"Measured on {counted(measured['rows'], 'labelled target row')}: {measured['value']:.1%}"
                f" ({measured['low']:.1%} to {measured['high']:.1%})."
            )
    held = facts.config is not None and facts.config.holdout > 0
    source = "on rows held out of training" if held else "on the rows it was trained on"
    for role, whose in (("target", "on labels that only judge"), ("source", source)):
        scored = ((facts.scored or {}).get(role)) or {}
        if "accuracy" in scored:
            found.append(f"{role.capitalize()} accuracy, {whose}: {scored['accuracy']:.1%} of {scored['rows']:,} rows.")
    return found or ["Nothing was measured or estimated. `tsadapt adapt` estimates without labels."]


def _limits(recipe: Recipe, facts: Facts) -> list[str]:
    found = [
        f"It knows {counted(len(recipe.classes), 'class')} and nothing else: anything you pass gets one of them.",
        "It is made for data like its target. On other data its accuracy is unknown; train again for another target.",
    ]
    if recipe.temperature == 1:
        found.append("Its probabilities are not calibrated. Adapted networks are overconfident: use them to sort.")
    else:
        found.append("Its probabilities are calibrated on source rows, counted by how target-like they are.")
    if facts.summary is not None:
        found += [str(note) for note in facts.summary["notes"]]
        found.append("The estimate rests on agreement: networks that are wrong together are not noticed.")
    elif "accuracy" not in (facts.scored or {}).get("target", {}):
        found.append("Nobody measured its accuracy on the target.")
    found.append(
        "Licences of the data and of pretrained weights hold for the model, too. Check them before you share it."
    )
    return found


def _shown(name: str) -> str:
    """The name of a dataset, or the last part of a path: where it lies on a disk is nobody's business."""
    plain = ":" in name and "/" not in name
    return f"`{printable(name if plain else Path(name).name)}`"


def _cell(text: str) -> str:
    """Text from outside in one line of Markdown, in which nothing is a tag or a link."""
    return printable(text).replace("<", "&lt;").replace("[", "\\[")
