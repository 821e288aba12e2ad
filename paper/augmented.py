"""The paper's picture of augmented features: source, reconstructed, augmented and target images, with numbers."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paper.results_file import Kept
from paper.reverse_mapping import Extractor, Search, reconstruct, search_feature
from paper.wgan_gp import GanConfig, images_for_gan, train_gan
from tsadapt.config import RunConfig
from tsadapt.data.loader import seeded
from tsadapt.errors import UserError
from tsadapt.report.augmented import (
    AugmentedRun,
    augmented_run,
    draw_augmented,
    draw_strip,
    nearest,
    rows_of_each_class,
)
from tsadapt.report.figures import write_sheet
from tsadapt.runs.fit import fit

__all__ = [
    "AugmentedSettings",
    "augmented_images",
    "augmented_images_of_run",
    "check_small_images",
    "settings_of_picture",
    "tell_augmented",
]

GAN, FIRST, SECOND = GanConfig(), Search(steps=800), Search(steps=400)
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
    Search(steps=8),
    Search(steps=8),
    restarts=2,
    of_class=2,
)


def augmented_images(config: RunConfig, work: Path, beside: Path, quick: bool) -> dict[str, Any]:
    """Train the run (or find it in `work`) with its memory kept, and make its picture."""
    run, _ = fit(config, work / "runs" / config.hash(), quiet=True, keep_memory=True)
    return augmented_images_of_run(run, work / "generators", beside, QUICK if quick else STANDARD)


def settings_of_picture(config: RunConfig, quick: bool) -> dict[str, Any]:
    """All that the picture depends on beside the run, as it is kept."""
    return _kept(_of_run(QUICK if quick else STANDARD, config))


def augmented_images_of_run(
    run: Path | AugmentedRun, generators: Path, beside: Path, settings: AugmentedSettings | None = None
) -> dict[str, Any]:
    """BESIDE.png and BESIDE-strip.png of a run of small images that has kept its memory; the numbers beside them.

    The generator of its source images is trained in a folder of `generators`, or found there; its seed is the run's.
    The numbers are over `of_class` source images of each class, drawn at random and not chosen.
    """
    scene = run if isinstance(run, AugmentedRun) else augmented_run(run)
    config, task, augmenter = scene.config, scene.task, scene.augmenter
    check_small_images(scene)
    settings = _of_run(settings or STANDARD, config)
    pixels, labels_s = scene.source.tensor, scene.source.y
    where = generators / _name(scene.source.fingerprint(), settings.gan)
    generator = train_gan(pixels, settings.gan, where, sheet=write_sheet)
    extractor = Extractor(scene.saved.model, pixels.shape[-1])

    assert labels_s is not None
    rows, labels = rows_of_each_class(labels_s, len(task.classes), settings.of_class, config.seed)
    images, f = images_for_gan(pixels[rows]), scene.f_s[rows]
    shift, spread = augmenter.directions(labels, seeded(config.seed, 30))
    first = reconstruct(
        generator, extractor, images, settings.alpha, settings.first, settings.restarts, config.seed, goal=f
    )
    goals = {s: augmenter.at(f, s, shift, spread) for s in sorted({*STRENGTHS, config.lambda0})}
    made = {s: search_feature(generator, extractor, goal, first.z, settings.second) for s, goal in goals.items()}
    goal, second = goals[config.lambda0], made[config.lambda0]
    shown = [i for c in range(len(task.classes)) for i in (labels == c).nonzero()[: settings.shown, 0].tolist()]
    target = scene.target.tensor
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
    numbers = _numbers(scene, extractor, f, labels, first.images, {s: m.images for s, m in made.items()})
    return {
        "numbers": {"images": len(images), **numbers},
        "distance_to_the_augmented_point": {
            when: {
                str(s): _apart(extractor.features(m.images if when == "after" else first.images), goals[s])
                for s, m in made.items()
            }
            for when in ("before", "after")
        },
        "losses": {"stage 1": _thinned(first.history), "stage 2": _thinned(second.history)},
        "settings": _kept(settings),
        "lambda": config.lambda0,
    }


def check_small_images(scene: AugmentedRun) -> None:
    """A generator is for small images that are in memory."""
    if scene.saved.eyes is not None or scene.source.kind != "image":
        raise UserError("augmented images are drawn for small images such as digits; for others see their neighbours.")


def _of_run(settings: AugmentedSettings, config: RunConfig) -> AugmentedSettings:
    return replace(settings, gan=replace(settings.gan, seed=config.seed))


def _kept(settings: AugmentedSettings) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(json.dumps(asdict(settings)))
    return kept


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
        f" {settings['second']['steps']:,} steps, both by {settings['first']['optimizer'].upper()}. Features and"
        " moments are of evaluation mode. Means over the images:",
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


def _apart(a: Tensor, b: Tensor) -> float:
    """The mean distance between rows."""
    return round(float((a - b).detach().norm(dim=1).mean()), 3)


@torch.no_grad()
def _numbers(
    scene: AugmentedRun,
    extractor: Extractor,
    f: Tensor,
    labels: Tensor,
    reconstructed: Tensor,
    made: dict[float, Tensor],
) -> dict[str, Any]:
    """What the picture cannot show; classes without pseudo-labels have no mean, and are left out of distances to it."""
    count, mean = scene.augmenter.target.class_means()
    there = (count > 0)[labels]
    mean_t = mean.float().index_select(0, labels)[there]
    features = {
        "source image": f,
        "reconstruction": extractor.features(reconstructed),
        "augmented image": extractor.features(made[scene.config.lambda0]),
        "augmented image at λ = 1": extractor.features(made[1.0]),
    }
    return {
        "features, source image to its reconstruction": _apart(f, features["reconstruction"]),
        **{f"features to the target's class mean: {what}": _apart(g[there], mean_t) for what, g in features.items()},
        **{
            f"share that keeps its class under the classifier: {what}": round(
                float((extractor.classes(g) == labels).double().mean()), 3
            )
            for what, g in features.items()
        },
    }


def _thinned(history: Tensor, most: int = 60) -> list[float]:
    """The mean loss of all rows, at some of the steps."""
    values = history.mean(1).tolist()
    return [round(value, 4) for value in values[:: max(len(values) // most, 1)]]


def _name(images: str, gan: GanConfig) -> str:
    """A folder for a generator: by the images and the settings."""
    return hashlib.sha256(json.dumps([images, asdict(gan)]).encode()).hexdigest()[:12]
