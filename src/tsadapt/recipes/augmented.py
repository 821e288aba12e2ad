"""The paper's picture of augmented features: source, reconstructed, augmented and target images, with numbers."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tsadapt.analysis.neighbours import nearest
from tsadapt.analysis.reverse_mapping import Extractor, Search, reconstruct, search_feature
from tsadapt.analysis.wgan_gp import GanConfig, images_for_gan, train_gan
from tsadapt.config import RunConfig
from tsadapt.data.loader import seeded
from tsadapt.engine.run import fit
from tsadapt.errors import UserError
from tsadapt.recipes.scene import Scene, rows_of_each_class, scene_of_run
from tsadapt.recipes.table import Kept
from tsadapt.report.augmented import draw_augmented, draw_strip
from tsadapt.report.figures import write_sheet

__all__ = ["AugmentedSettings", "augmented_images", "augmented_images_of_run", "tell_augmented"]

GAN, FIRST, SECOND = GanConfig(), Search(steps=1500, lr=0.05), Search(steps=800, lr=0.05)
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class AugmentedSettings:
    """How the picture is made; λ of the picture is the run's own λ0."""

    gan: GanConfig = GAN
    first: Search = FIRST
    second: Search = SECOND
    alpha: float = 5e-3
    restarts: int = 4
    of_class: int = 4
    shown: int = 2


STANDARD = AugmentedSettings()
QUICK = AugmentedSettings(
    GanConfig(width=4, steps=3, batch_size=8),
    Search(steps=8, lr=0.05),
    Search(steps=8, lr=0.05),
    restarts=2,
    of_class=2,
)


def augmented_images(config: RunConfig, work: Path, beside: Path, quick: bool) -> dict[str, Any]:
    """Train the run (or find it in `work`) with its memory kept, and make its picture."""
    run, _ = fit(config, work / "runs" / config.hash(), quiet=True, keep_memory=True)
    return augmented_images_of_run(run, work / "generators", beside, QUICK if quick else STANDARD)


def augmented_images_of_run(
    run: Path, generators: Path, beside: Path, settings: AugmentedSettings | None = None
) -> dict[str, Any]:
    """BESIDE.png and BESIDE-strip.png of a run of small images that has kept its memory; the numbers beside them.

    The generator of its source images is trained in a folder of `generators`, or found there. The numbers are over
    `of_class` source images of each class, drawn at random and not chosen.
    """
    settings, scene = settings or STANDARD, scene_of_run(run)
    config, task, augmenter = scene.config, scene.task, scene.augmenter
    if scene.saved.eyes is not None or task.source.train.kind != "image":
        raise UserError("augmented images are drawn for small images such as digits; for others see their neighbours.")
    pixels = task.source.train.tensor
    gan = replace(settings.gan, seed=config.seed)
    generator = train_gan(pixels, gan, generators / _name(config.source, pixels, gan), sheet=write_sheet)
    extractor = Extractor(scene.saved.model, pixels.shape[-1])

    assert task.source.train.y is not None
    rows, labels = rows_of_each_class(task.source.train.y, len(task.classes), settings.of_class, config.seed)
    images = images_for_gan(pixels[rows])
    with torch.no_grad():
        f = extractor.features(images)
    shift, spread = augmenter.directions(labels, seeded(config.seed, 30))
    first = reconstruct(
        generator, extractor, images, settings.alpha, settings.first, settings.restarts, seed=config.seed
    )
    goals = {s: augmenter.at(f, s, shift, spread) for s in sorted({*STRENGTHS, config.lambda0})}
    made = {s: search_feature(generator, extractor, goal, first.z, settings.second) for s, goal in goals.items()}
    goal, second = goals[config.lambda0], made[config.lambda0]
    shown = [i for c in range(len(task.classes)) for i in (labels == c).nonzero()[: settings.shown, 0].tolist()]
    target = task.target.train.tensor
    near_t, near_s = nearest(goal, scene.f_t, 3)[0], nearest(goal, scene.f_s, 1, exclude=torch.tensor(rows))[0]
    names = [task.classes[int(labels[i])] for i in shown]
    columns = {
        "source": images[shown],
        "reconstructed": first.images[shown],
        "augmented": second.images[shown],
        "nearest source": images_for_gan(pixels[near_s[shown, 0]]),
        **{f"nearest target {n + 1}": images_for_gan(target[near_t[shown, n]]) for n in range(near_t.shape[1])},
    }
    draw_augmented(columns, names, beside.with_name(f"{beside.name}.png"))
    strip = {strength: made[strength].images[shown] for strength in STRENGTHS}
    draw_strip(images[shown], strip, names, beside.with_name(f"{beside.name}-strip.png"))
    numbers = _numbers(scene, extractor, images, labels, first.images, {s: m.images for s, m in made.items()})
    return {
        "numbers": {"images": len(images), **numbers},
        "distance_to_the_augmented_point": {
            when: {
                str(s): _distance(m.images if when == "after" else first.images, extractor, goals[s])
                for s, m in made.items()
            }
            for when in ("before", "after")
        },
        "losses": {"stage 1": _thinned(first.history), "stage 2": _thinned(second.history)},
        "settings": json.loads(json.dumps(asdict(settings))),
        "lambda": config.lambda0,
    }


def tell_augmented(kept: Kept) -> str:
    """The numbers beside the picture, of each run."""
    return "\n\n".join(_told(key, run) for key, run in kept.items())


def _told(key: str, run: dict[str, Any]) -> str:
    distance, settings = run["distance_to_the_augmented_point"], run["settings"]
    strengths = [*distance["before"]]
    lines = [
        f"{key.split(' | ')[1]}. Rows by class: a source image, its reconstruction G(z′), the image G(z*) of its"
        f" augmented feature (a draw at λ = {run['lambda']}), and the real images nearest to that feature. Then the"
        " same draw over λ from 0 to 1. Images were drawn at random, not chosen.",
        f"A generator of width {settings['gan']['width']}, {settings['gan']['steps']:,} steps; {settings['restarts']}"
        f" restarts of at most {settings['first']['steps']:,} steps, α = {settings['alpha']}, then at most"
        f" {settings['second']['steps']:,} steps, {settings['first']['optimizer'].upper()}. Features and moments are of"
        " evaluation mode. Means over the images:",
        "| | |\n|---|---|\n" + "\n".join(f"| {what} | {value} |" for what, value in run["numbers"].items()),
        "Distance between features and the augmented point, before stage 2 (from the reconstruction) and after it (from"
        " the augmented image); λ = 0 is the control, where only the reconstruction gets better:",
        "| λ | "
        + " | ".join(map(str, strengths))
        + " |\n|---|"
        + "---|" * len(strengths)
        + "\n"
        + "\n".join(
            f"| {when} | " + " | ".join(str(distance[when][s]) for s in strengths) + " |"
            for when in ("before", "after")
        ),
    ]
    return "\n\n".join(lines)


@torch.no_grad()
def _distance(images: Tensor, extractor: Extractor, goal: Tensor) -> float:
    return round(float((extractor.features(images) - goal).norm(dim=1).mean()), 3)


@torch.no_grad()
def _numbers(
    scene: Scene, extractor: Extractor, images: Tensor, labels: Tensor, reconstructed: Tensor, made: dict[float, Tensor]
) -> dict[str, Any]:
    """What the picture cannot show; classes without pseudo-labels have no mean, and are left out of distances to it."""
    count, mean = scene.augmenter.target.class_means()
    there = (count > 0)[labels]
    mean_t = mean.float().index_select(0, labels)[there]
    augmented = made[scene.config.lambda0]
    return {
        "features, source image to its reconstruction": _distance(images, extractor, extractor.features(reconstructed)),
        "features to the target's class mean: source image": _distance(images[there], extractor, mean_t),
        "features to the target's class mean: reconstruction": _distance(reconstructed[there], extractor, mean_t),
        "features to the target's class mean: augmented image": _distance(augmented[there], extractor, mean_t),
        "features to the target's class mean: augmented image at λ = 1": _distance(made[1.0][there], extractor, mean_t),
        "share of source images that the classifier gets right": _share(extractor.classes(images), labels),
        "share of reconstructions that keep their class": _share(extractor.classes(reconstructed), labels),
        "share of augmented images that keep their class": _share(extractor.classes(augmented), labels),
        "share of augmented images at λ = 1 that keep their class": _share(extractor.classes(made[1.0]), labels),
    }


def _share(guess: Tensor, labels: Tensor) -> float:
    return round(float((guess == labels).double().mean()), 3)


def _thinned(values: list[float], most: int = 60) -> list[float]:
    step = max(len(values) // most, 1)
    return [round(value, 4) for value in values[::step]]


def _name(source: str, pixels: Tensor, gan: GanConfig) -> str:
    """A folder for a generator: by the images and the settings."""
    what = json.dumps([source, [*pixels.shape], int(pixels.sum()), asdict(gan)])
    return hashlib.sha256(what.encode()).hexdigest()[:12]
