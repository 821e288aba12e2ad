"""What augmented features of a run look like: the real images nearest to draws from N(f + λΔμ^y, λΣ_t^y).

Training never draws an augmented feature; these are drawn only to be looked at. Shapes: N rows of K features, B labels.
"""

import math
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.config import RunConfig
from tsadapt.core import FeatureMemory
from tsadapt.data.images import Images, UnreadableImageError
from tsadapt.data.loader import seeded
from tsadapt.data.open import open_dataset
from tsadapt.data.stored import StoredRows
from tsadapt.data.types import Domain, match_labels
from tsadapt.errors import UserError
from tsadapt.models.encoders import refuse_code
from tsadapt.objectives.objective import full_settings
from tsadapt.report.figures import as_pixels, pyplot, write_figure
from tsadapt.runs.folder import RunFolder
from tsadapt.runs.kept_memory import load_memory
from tsadapt.runs.model import TrainedModel, load
from tsadapt.training.setup import Task, make_task, source_roles, target_roles

__all__ = [
    "AugmentedRun",
    "Augmenter",
    "augmented_run",
    "draw_augmented",
    "draw_strip",
    "nearest",
    "neighbours_of_run",
    "rows_of_each_class",
    "run_settings",
]

NEAR, SIDE, OF_CLASS, SHOWN = 3, 64, 8, 1


def neighbours_of_run(run: "Path | AugmentedRun", beside: Path, strength: float | None = None) -> dict[str, Any]:
    """BESIDE.png: source images, and the target images nearest to their features as they are and augmented.

    λ is the run's λ0 unless `strength` is given. The run is one of images that has kept its memory (fit --tsa
    --keep-memory), its backbone frozen, trained, or none. The share of neighbours of the right class is an oracle.
    """
    run = run if isinstance(run, AugmentedRun) else augmented_run(run)
    config, task, f_s, f_t, augmenter = run.config, run.task, run.f_s, run.f_t, run.augmenter
    source, target = run.source, run.target
    places = ((config.source, source_roles(config), source), (config.target, target_roles(config), target))
    pictures = [_Pictures(open_dataset(name, roles=roles).train, domain) for name, roles, domain in places]
    strength = run_settings(config)["lambda0"] if strength is None else strength
    assert source.y is not None
    rows, labels = rows_of_each_class(source.y, len(task.classes), OF_CLASS, config.seed)
    shift, spread = augmenter.directions(labels, seeded(config.seed, 30))
    f = f_s[rows]
    goal = augmenter.at(f, strength, shift, spread)
    (plain, d_plain), (moved, d_moved) = nearest(f, f_t, NEAR), nearest(goal, f_t, NEAR)
    same, _ = nearest(goal, f_s, 1, exclude=torch.tensor(rows))
    shown = [i for c in range(len(task.classes)) for i in (labels == c).nonzero()[:SHOWN, 0].tolist()]
    columns = {
        "source": pictures[0].of([rows[i] for i in shown]),
        "target nearest to it": pictures[1].of(plain[shown, 0].tolist()),
        **{
            f"target nearest to augmented {n + 1}": pictures[1].of(moved[shown, n].tolist())
            for n in range(moved.shape[1])
        },
    }
    if same.shape[1]:  # a source of a single image has no other
        columns["source nearest to augmented"] = pictures[0].of(same[shown, 0].tolist())
    draw_augmented(columns, [task.classes[int(labels[i])] for i in shown], beside.with_name(f"{beside.name}.png"))
    numbers: dict[str, Any] = {
        "images": len(rows),
        "distance to the nearest target image, from the source feature": round(float(d_plain[:, 0].mean()), 3),
        "distance to the nearest target image, from the augmented feature": round(float(d_moved[:, 0].mean()), 3),
    }
    if target.y is not None:
        truth = match_labels(target, task.classes)[0]
        for what, found in (("source", plain), ("augmented", moved)):
            share = float((truth[found] == labels[:, None]).double().mean())
            numbers[f"share of right classes among the {NEAR} nearest to the {what} feature (oracle)"] = round(share, 3)
    return {"numbers": numbers, "lambda": strength}


@dataclass(frozen=True)
class AugmentedRun:
    """A run, its task and model, the features of both domains (N, K) in evaluation mode, and draws from their moments.

    `source` and `target` are the rows that were trained on, without images that cannot be read. The moments are of
    their features under the labels of the memory. The memory's own features would not do: they are from training mode,
    with dropout and the statistics of a batch, and lie where no image of its own can be.
    """

    config: RunConfig
    task: Task
    model: TrainedModel
    source: Domain
    target: Domain
    f_s: Tensor
    f_t: Tensor
    augmenter: "Augmenter"


def run_settings(config: RunConfig) -> dict[str, Any]:
    """The settings of the run's source term: λ0, whether there is a shift and a covariance."""
    found = full_settings(config)[config.source_term]
    if not {"lambda0", "mean_shift", "covariance"} <= set(found):
        raise UserError(f"The source term {config.source_term} augments nothing: expected a run with --tsa.")
    return found


def augmented_run(path: Path, backbone: str | None = None) -> AugmentedRun:
    """What is needed to look at the augmented features of a run that has kept its memory.

    `backbone` is the encoder of the user's own that it was trained with, if it was.
    """
    run = RunFolder(path)
    config, memories = run.config, load_memory(run)
    model = load(path, device="cpu", backbone=backbone)
    if backbone is None:
        refuse_code(config.backbone, str(run.config_file))
    task = make_task(config if backbone is None else replace(config, backbone=backbone))
    if model.architecture.heads > 1:
        raise UserError(
            f"{config.method} has {model.architecture.heads} heads: only models with one head are supported."
        )
    for domain, memory in zip((task.source.train, task.target.train), memories, strict=True):
        if len(domain) != memory.size:
            raise UserError(
                f"{domain.name} has {len(domain)} rows, but the run was trained on {memory.size}: the data changed."
            )
    _check_data(run, task)
    (source, f_s, of_source), (target, f_t, of_target) = (
        _evaluated(model, d, m) for d, m in zip((task.source.train, task.target.train), memories, strict=True)
    )
    given = run_settings(config)
    augmenter = Augmenter(of_source, of_target, given["mean_shift"], given["covariance"] != "none", given["min_count"])
    return AugmentedRun(config, task, model, source, target, f_s, f_t, augmenter)


def _check_data(run: RunFolder, task: Task) -> None:
    """The rows are those that the run was trained on."""
    if before := run.manifest.get("data"):
        for role, domain in (("source", task.source.train), ("target", task.target.train)):
            if before[role]["train"] != domain.fingerprint():
                raise UserError(f"{domain.name} changed after training: the memory belongs to other rows.")
        if before["source"]["labels"] != task.source.train.label_fingerprint():
            raise UserError(f"{task.source.train.name} has different labels than in training.")


def _evaluated(model: TrainedModel, domain: Domain, memory: FeatureMemory) -> tuple[Domain, Tensor, FeatureMemory]:
    """The rows that can be read, their features, and a memory of these under the labels that it had."""
    predicted = model.forward(domain)
    if len(predicted.rows) < len(domain):
        domain = domain.keep(predicted.rows)
    features, labels = torch.from_numpy(predicted.features), memory.labels[torch.tensor(predicted.rows)]
    now = FeatureMemory(len(features), memory.dim, memory.classes, second_moments=False)
    known = (labels < memory.classes).nonzero()[:, 0]
    now.write(known, features[known], labels[known])
    return domain, features, now


def rows_of_each_class(y: Tensor, classes: int, of_class: int, seed: int) -> tuple[list[int], Tensor]:
    """So many rows of each class, at random, and their labels."""
    random, rows = seeded(seed, 31), list[int]()
    for c in range(classes):
        mine = (y == c).nonzero()[:, 0]
        rows += mine[torch.randperm(len(mine), generator=random)[:of_class]].tolist()
    return rows, y[rows]


@dataclass(frozen=True)
class Augmenter:
    """Draws from N(f + λΔμ^y, λΣ_t^y) with the statistics of a run's memories; K features.

    `mean_shift`, `covariance` and `min_count` are those that the run was trained with. A class of which a domain has
    fewer rows than `min_count` is left as it is.
    """

    source: FeatureMemory
    target: FeatureMemory
    mean_shift: bool = True
    covariance: bool = True
    min_count: int = 1

    def directions(self, labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Δμ^y and a draw from N(0, Σ_t^y) for each label (B,): both (B, K)."""
        (count_s, mean_s), (count_t, mean_t) = self.source.class_means(), self.target.class_means()
        shift = torch.zeros(len(labels), self.source.dim)
        spread = torch.zeros_like(shift)
        for y in sorted({*labels.tolist()}):
            if min(count_s[y], count_t[y]) < self.min_count:
                continue
            mine = labels == y
            if self.mean_shift:
                shift[mine] = (mean_t[y] - mean_s[y]).float()
            if self.covariance:
                rows = self.target.factor(y).float()  # A with AᵀA = Σ
                spread[mine] = torch.randn(int(mine.sum()), len(rows), generator=generator) @ rows
        return shift, spread

    @staticmethod
    def at(features: Tensor, strength: float, shift: Tensor, spread: Tensor) -> Tensor:
        """F + λΔμ + √λ·draw: the same draw for every strength λ, so that strengths can be compared."""
        if not strength >= 0:
            raise ValueError(f"strength is {strength}, expected zero or more: it scales a covariance.")
        return features + strength * shift + math.sqrt(strength) * spread


QUERIES_AT_ONCE = 256


def nearest(queries: Tensor, rows: Tensor, count: int, exclude: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The `count` rows (N, K) nearest to each of the queries (Q, K): their numbers and distances, (Q, M).

    `exclude` (Q,) names a row for each query that does not count, such as the image it came from.

    >>> rows = torch.tensor([[0.0], [1.0], [5.0]])
    >>> nearest(torch.tensor([[0.9]]), rows, 2)[0].tolist()
    [[1, 0]]
    >>> nearest(torch.tensor([[0.9]]), rows, 2, exclude=torch.tensor([1]))[0].tolist()
    [[0, 2]]
    """
    count = min(count, len(rows) - (exclude is not None))
    indices, distances = [], []
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        some = slice(start, start + QUERIES_AT_ONCE)
        distance = torch.cdist(queries[some], rows)
        if exclude is not None:
            distance.scatter_(1, exclude[some][:, None], torch.inf)
        least = distance.topk(count, dim=1, largest=False)
        indices.append(least.indices)
        distances.append(least.values)
    return torch.cat(indices), torch.cat(distances)


def draw_augmented(columns: dict[str, Tensor], names: list[str], path: Path) -> None:
    """Images in named columns, a row for each source image with its class beside it."""
    plt = pyplot()
    rows = len(names)
    figure, axes = plt.subplots(
        rows, len(columns), figsize=(1.1 * len(columns) + 0.8, 1.0 * rows + 0.8), layout="constrained", squeeze=False
    )
    for j, (title, images) in enumerate(columns.items()):
        for i, image in enumerate(as_pixels(images)):
            axis = axes[i, j]
            axis.imshow(image)
            axis.set(xticks=(), yticks=())
            if i == 0:
                axis.set_title("\n".join(textwrap.wrap(title, 13)), fontsize=7, va="bottom")
            if j == 0:
                axis.set_ylabel(names[i], rotation=0, ha="right", va="center")
    write_figure(figure, path)


def draw_strip(source: Tensor, by_strength: dict[float, Tensor], names: list[str], path: Path) -> None:
    """The source image, and the augmented one at each strength λ, from left to right."""
    columns = {"source": source, **{f"λ = {strength:g}": images for strength, images in by_strength.items()}}
    draw_augmented(columns, names, path)


class _Pictures:
    """The images behind the rows of a domain that was made ready, for looking at."""

    def __init__(self, raw: Domain, ready: Domain) -> None:
        if raw.kind == "vector":
            raise UserError(f"{raw.name} contains feature vectors: there are no images to show.")
        # Images in memory are shown as the network takes them; of files, those with the names of the rows.
        shown = raw.x if ready.kind in ("vector", "stored") else ready.x
        assert not isinstance(shown, StoredRows)
        self.x = shown
        self.rows = [*range(len(ready))]
        if self.x is raw.x and len(raw) != len(ready):
            numbers = {name: i for i, name in enumerate(raw.row_names or ())}
            if not numbers or ready.row_names is None:
                raise UserError(f"{raw.name}: the training rows have no names, so their images cannot be found.")
            self.rows = [numbers[name] for name in ready.row_names]

    def of(self, rows: list[int]) -> Tensor:
        """Images (N, 3, 64, 64) from −1 to 1; one that cannot be read is grey."""
        return torch.stack([self._one(self.rows[row]) for row in rows])

    def _one(self, row: int) -> Tensor:
        try:
            image = self.x.decode(row, SIDE) if isinstance(self.x, Images) else self.x[row]
        except UnreadableImageError:
            return torch.zeros(3, SIDE, SIDE)
        enlarge = max(image.shape[1:]) < SIDE
        mode: dict[str, Any] = {"mode": "nearest"} if enlarge else {"mode": "bilinear", "antialias": True}
        return F.interpolate(image.float()[None], (SIDE, SIDE), **mode)[0].expand(3, -1, -1) / 127.5 - 1
