"""The paper's picture of augmented features: source, reconstructed, augmented and target images, with numbers."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tsadapt.analysis.augment import Augmenter
from tsadapt.analysis.neighbours import nearest
from tsadapt.analysis.reverse_mapping import Extractor, Search, reconstruct, search_feature
from tsadapt.analysis.wgan_gp import GanConfig, images_for_gan, train_gan
from tsadapt.config import RunConfig, read_config
from tsadapt.data.loader import seeded
from tsadapt.engine.kept_memory import load_memory
from tsadapt.engine.run import fit
from tsadapt.engine.saved import load_model
from tsadapt.engine.task import make_task
from tsadapt.errors import UserError
from tsadapt.recipes.neighbours import rows_of_each_class
from tsadapt.recipes.table import Kept
from tsadapt.report.augmented import draw_augmented, draw_strip
from tsadapt.report.figures import write_sheet

__all__ = ["AugmentedSettings", "augmented_images", "augmented_images_of_run", "tell_augmented"]

GAN, FIRST, SECOND = GanConfig(steps=1200), Search(steps=1500, lr=0.05), Search(steps=800, lr=0.05)
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class AugmentedSettings:
    """How the picture is made; λ of the picture is the run's own λ0."""

    gan: GanConfig = GAN
    first: Search = FIRST
    second: Search = SECOND
    alpha: float = 5e-3
    restarts: int = 4
    of_class: int = 8
    shown: int = 2


STANDARD = AugmentedSettings()
QUICK = AugmentedSettings(
    GanConfig(width=4, steps=3, batch_size=8),
    Search(steps=8, lr=0.05),
    Search(steps=8, lr=0.05),
    restarts=2,
    of_class=2,
)


def augmented_images(config: RunConfig, work: Path, beside: Path) -> dict[str, Any]:
    """Train the run (or find it in `work`) with its memory kept, and make its picture."""
    run, _ = fit(config, work / "runs" / config.hash(), quiet=True, keep_memory=True)
    quick = (config.steps or 0) < 500
    return augmented_images_of_run(run, work / "generators", beside, QUICK if quick else STANDARD)


def augmented_images_of_run(
    run: Path, generators: Path, beside: Path, settings: AugmentedSettings | None = None
) -> dict[str, Any]:
    """BESIDE.png and BESIDE-strip.png of a run of small images that has kept its memory; the numbers beside them.

    The generator of its source images is trained in a folder of `generators`, or found there. The numbers are over
    `of_class` source images of each class, drawn at random and not chosen.
    """
    settings = settings or STANDARD
    config = read_config(run / "config.toml")
    task, saved = make_task(config), load_model(run, torch.device("cpu"))
    if saved.eyes is not None or task.source.train.kind != "image":
        raise UserError("augmented images are drawn for small images such as digits; for others see their neighbours.")
    pixels = task.source.train.tensor
    gan = replace(settings.gan, seed=config.seed)
    generator = train_gan(pixels, gan, generators / _name(config.source, pixels, gan), sheet=write_sheet)
    extractor, augmenter = Extractor(saved.model, pixels.shape[-1]), Augmenter(*load_memory(run))

    assert task.source.train.y is not None
    rows, labels = rows_of_each_class(task.source.train.y, len(task.classes), settings.of_class, config.seed)
    images = images_for_gan(pixels[rows])
    with torch.no_grad():
        f = extractor.features(images)
    shift, spread = augmenter.directions(labels, seeded(config.seed, 30))
    goal = augmenter.at(f, config.lambda0, shift, spread)
    first = reconstruct(
        generator, extractor, images, settings.alpha, settings.first, settings.restarts, seed=config.seed
    )
    second = search_feature(generator, extractor, goal, first.z, settings.second)
    shown = [i for c in range(len(task.classes)) for i in (labels == c).nonzero()[: settings.shown, 0].tolist()]
    target = images_for_gan(task.target.train.tensor)
    f_t = _features(extractor, target)
    near_t = nearest(goal, f_t, 3)[0]
    near_s = nearest(goal, _features(extractor, images_for_gan(pixels)), 1, exclude=torch.tensor(rows))[0]
    names = [task.classes[int(labels[i])] for i in shown]
    columns = {
        "source": images[shown],
        "reconstructed": first.images[shown],
        "augmented": second.images[shown],
        "nearest source": images_for_gan(pixels[near_s[shown, 0]]),
        **{f"nearest target {n + 1}": target[near_t[shown, n]] for n in range(near_t.shape[1])},
    }
    draw_augmented(columns, names, beside.with_name(f"{beside.name}.png"))
    strip = {}
    for strength in STRENGTHS:
        moved = augmenter.at(f, strength, shift, spread)[shown]
        strip[strength] = search_feature(generator, extractor, moved, first.z[shown], settings.second).images
    draw_strip(images[shown], strip, names, beside.with_name(f"{beside.name}-strip.png"))
    return _numbers(extractor, augmenter, images, labels, f, goal, first.images, second.images) | {
        "losses": {"stage 1": _thinned(first.history), "stage 2": _thinned(second.history)},
        "settings": json.loads(json.dumps(asdict(settings))),
        "lambda": config.lambda0,
    }


def tell_augmented(kept: Kept) -> str:
    """The numbers beside the picture."""
    (run,) = kept.values()
    lines = [
        f"Rows by class: a source image, its reconstruction G(z′), the image G(z*) of its augmented feature (a draw at"
        f" λ = {run['lambda']}), and the real images nearest to that feature. Below, the same draw over λ from 0 to 1."
        " Images were drawn at random, not chosen. Distances are between features, means over the images:",
        "",
        "| | |",
        "|---|---|",
        *(f"| {what} | {value} |" for what, value in run["numbers"].items()),
    ]
    return "\n".join(lines)


@torch.no_grad()
def _features(extractor: Extractor, images: Tensor) -> Tensor:
    return torch.cat([extractor.features(some) for some in torch.split(images, 512)])


@torch.no_grad()
def _numbers(
    extractor: Extractor, augmenter: Augmenter, images: Tensor, labels: Tensor, f: Tensor, goal: Tensor,
    reconstructed: Tensor, augmented: Tensor,
) -> dict[str, Any]:  # fmt: skip
    """What the picture cannot show: distances in the space of features, means over the images."""
    f_1, f_2 = extractor.features(reconstructed), extractor.features(augmented)
    mean_t = augmenter.target.class_means()[1].float().index_select(0, labels)

    def distance(a: Tensor, b: Tensor) -> float:
        return round(float((a - b).norm(dim=1).mean()), 3)

    return {
        "numbers": {
            "images": len(images),
            "from the source image to its reconstruction": distance(f, f_1),
            "to the augmented point, before (from the reconstruction)": distance(f_1, goal),
            "to the augmented point, after (from the augmented image)": distance(f_2, goal),
            "to the target's class mean, from the source image": distance(f, mean_t),
            "to the target's class mean, from the augmented image": distance(f_2, mean_t),
            "share of source images that the classifier gets right": _share(extractor.classes(images), labels),
            "share of reconstructions that keep their class": _share(extractor.classes(reconstructed), labels),
            "share of augmented images that keep their class": _share(extractor.classes(augmented), labels),
        }
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
