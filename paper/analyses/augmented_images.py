"""The paper's picture of augmented features: source, reconstructed, augmented and target images, with numbers."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paper.analyses.reverse_mapping import Extractor, Search, reconstruct, search_feature
from paper.analyses.wgan_gp import GanConfig, images_for_gan, train_gan
from paper.jobs import Job, Workspace
from paper.protocols import on_this_machine
from paper.results_file import Results, parts
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
    run_settings,
)
from tsadapt.report.figures import write_sheet
from tsadapt.runs.fit import train_run

__all__ = [
    "AugmentedSettings",
    "augmented_images_of_job",
    "augmented_images_of_run",
    "check_small_images",
    "describe_augmented_images",
    "settings_of_picture",
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


def augmented_images_of_job(job: Job, space: Workspace) -> dict[str, Any]:
    """Train the run (or find it) with its memory saved, and make its pictures."""
    run, _ = train_run(on_this_machine(job.config), space.run_folder(job.config), quiet=True, keep_memory=True)
    settings = QUICK if space.quick else STANDARD
    return augmented_images_of_run(run, space.folder / "generators", space.pictures, settings)


def settings_of_picture(job: Job, quick: bool) -> dict[str, Any]:
    """All that the picture depends on beside the run, as it is stored."""
    return _as_json(_of_run(QUICK if quick else STANDARD, job.config))


def augmented_images_of_run(
    run: Path | AugmentedRun,
    generators: Path,
    pictures: Path,
    settings: AugmentedSettings | None = None,
    strength: float | None = None,
) -> dict[str, Any]:
    """PICTURES.png and PICTURES-strip.png of a run of small images that saved its memory; the numbers beside them.

    λ is the run's λ0 unless `strength` is given. The generator of its source images is trained in a folder of
    `generators`, or found there; its seed is the run's.
    The numbers are over `of_class` source images of each class, drawn at random and not chosen.
    """
    augmented = run if isinstance(run, AugmentedRun) else augmented_run(run)
    config, task, augmenter = augmented.config, augmented.task, augmented.augmenter
    strength = run_settings(config)["lambda0"] if strength is None else strength
    check_small_images(augmented)
    settings = _of_run(settings or STANDARD, config)
    pixels, labels_s = augmented.source.tensor, augmented.source.y
    where = generators / _name(augmented.source.fingerprint(), settings.gan)
    generator = train_gan(pixels, settings.gan, where, sheet=write_sheet)
    extractor = Extractor(augmented.model.network, pixels.shape[-1])

    assert labels_s is not None
    rows, labels = rows_of_each_class(labels_s, len(task.classes), settings.of_class, config.seed)
    images, f = images_for_gan(pixels[rows]), augmented.f_s[rows]
    shift, spread = augmenter.directions(labels, seeded(config.seed, 30))
    first = reconstruct(
        generator, extractor, images, settings.alpha, settings.first, settings.restarts, config.seed, goal=f
    )
    goals = {s: augmenter.at(f, s, shift, spread) for s in sorted({*STRENGTHS, strength})}
    made = {s: search_feature(generator, extractor, goal, first.z, settings.second) for s, goal in goals.items()}
    goal, second = goals[strength], made[strength]
    shown = [i for c in range(len(task.classes)) for i in (labels == c).nonzero()[: settings.shown, 0].tolist()]
    target = augmented.target.tensor
    near_t, near_s = nearest(goal, augmented.f_t, 3)[0], nearest(goal, augmented.f_s, 1, exclude=torch.tensor(rows))[0]
    names = [task.classes[int(labels[i])] for i in shown]
    columns = {
        "source": images[shown],
        "reconstructed": first.images[shown],
        "augmented": second.images[shown],
        "nearest source": images_for_gan(pixels[near_s[shown, 0]]),
        **{f"nearest target {n + 1}": images_for_gan(target[near_t[shown, n]]) for n in range(near_t.shape[1])},
    }
    draw_augmented(columns, names, pictures.with_name(f"{pictures.name}.png"))
    strip = {s: made[s].images[shown] for s in STRENGTHS}
    draw_strip(images[shown], strip, names, pictures.with_name(f"{pictures.name}-strip.png"))
    numbers = _numbers(augmented, extractor, f, labels, first.images, second.images, made[1.0].images)
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
        "settings": _as_json(settings),
        "lambda": strength,
    }


def check_small_images(augmented: AugmentedRun) -> None:
    """A generator is for small images that are in memory."""
    if augmented.model.preprocessing is not None or augmented.source.kind != "image":
        raise UserError("augmented images are drawn for small images such as digits; for others see their neighbours.")


def _of_run(settings: AugmentedSettings, config: RunConfig) -> AugmentedSettings:
    return replace(settings, gan=replace(settings.gan, seed=config.seed))


def _as_json(settings: AugmentedSettings) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(json.dumps(asdict(settings)))
    return stored


def describe_augmented_images(results: Results, extra: dict[str, Any]) -> str:
    """The numbers beside the picture, of each run."""
    return "\n\n".join(_text(parts(key).column, run) for key, run in results.items())


def _text(task: str, run: dict[str, Any]) -> str:
    distance, settings = run["distance_to_the_augmented_point"], run["settings"]
    strengths = [*distance["before"]]
    lines = [
        f"{task}. From left to right: a source image, its reconstruction G(z′), the image G(z*) of its augmented"
        f" feature (a draw at λ = {run['lambda']}), and the real images nearest to that feature. Rows are ordered by"
        " class. The second picture shows the same draw with λ from 0 to 1. Images were drawn at random, not chosen.",
        f"The generator has width {settings['gan']['width']} and {settings['gan']['steps']:,} steps. Stage 1:"
        f" {settings['restarts']} restarts of at most {settings['first']['steps']:,} steps, α = {settings['alpha']};"
        f" stage 2: at most {settings['second']['steps']:,} steps; both by {settings['first']['optimizer'].upper()}."
        " Features and moments are those of evaluation mode. Means over the images:",
        "| | |\n|---|---|\n" + "\n".join(f"| {what} | {value} |" for what, value in run["numbers"].items()),
        "Distance of the image's feature to the augmented feature, before stage 2 (the reconstruction) and after it"
        " (the augmented image). λ = 0 is the control, where only the reconstruction improves:",
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
    augmented: AugmentedRun,
    extractor: Extractor,
    f: Tensor,
    labels: Tensor,
    reconstructed: Tensor,
    drawn: Tensor,
    drawn_at_one: Tensor,
) -> dict[str, Any]:
    """What the picture cannot show; classes without pseudo-labels have no mean, and are left out of distances to it."""
    count, mean = augmented.augmenter.target.class_means()
    there = (count > 0)[labels]
    mean_t = mean.float().index_select(0, labels)[there]
    features = {
        "source image": f,
        "reconstruction": extractor.features(reconstructed),
        "augmented image": extractor.features(drawn),
        "augmented image at λ = 1": extractor.features(drawn_at_one),
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
