"""What augmented features are like, for any image task: the real images nearest to them."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.analysis.neighbours import nearest
from tsadapt.config import RunConfig
from tsadapt.data.images import Images, UnreadableImageError
from tsadapt.data.loader import seeded
from tsadapt.data.open import open_dataset
from tsadapt.data.types import Domain, match_labels
from tsadapt.engine.run import fit
from tsadapt.errors import UserError
from tsadapt.recipes.ledger import Kept
from tsadapt.recipes.scene import Scene, rows_of_each_class, scene_of_run
from tsadapt.report.augmented import draw_augmented

__all__ = ["neighbours_of_run", "tell_neighbours", "train_and_find_neighbours"]

NEAR, SIDE, OF_CLASS, SHOWN = 3, 64, 8, 1


def train_and_find_neighbours(config: RunConfig, work: Path, beside: Path, quick: bool) -> dict[str, Any]:
    """Train the run (or find it in `work`) with its memory kept, and look for the neighbours."""
    run, _ = fit(config, work / "runs" / config.hash(), quiet=True, keep_memory=True)
    return neighbours_of_run(run, beside)


def neighbours_of_run(run: Path | Scene, beside: Path, strength: float | None = None) -> dict[str, Any]:
    """BESIDE.png: source images, and the target images nearest to their features as they are and augmented.

    λ is the run's λ0 unless `strength` is given. The run is one of images that has kept its memory (fit --tsa
    --keep-memory), its backbone frozen, trained, or none. The share of neighbours of the right class is an oracle.
    """
    scene = run if isinstance(run, Scene) else scene_of_run(run)
    config, task, f_s, f_t, augmenter = scene.config, scene.task, scene.f_s, scene.f_t, scene.augmenter
    source, target = scene.source, scene.target
    pictures = [_Pictures(open_dataset(n).train, d) for n, d in ((config.source, source), (config.target, target))]
    strength = config.lambda0 if strength is None else strength
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


def tell_neighbours(kept: Kept) -> str:
    """The numbers beside the picture, of each run."""
    return "\n\n".join(_told(key, run) for key, run in kept.items())


def _told(key: str, run: dict[str, Any]) -> str:
    lines = [
        f"{key.split(' | ')[1]}. Rows by class: a source image, the target image nearest to its feature, the three"
        f" nearest to its augmented feature (a draw at λ = {run['lambda']}), and the source image nearest to that."
        " Images were drawn at random, not chosen; the numbers are means over more of them, in evaluation mode.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {what} | {value} |" for what, value in run["numbers"].items()),
    ]
    return "\n".join(lines)


class _Pictures:
    """The images behind the rows of a domain that was made ready, for looking at."""

    def __init__(self, raw: Domain, ready: Domain) -> None:
        if raw.kind == "vector":
            raise UserError(f"{raw.name} holds feature vectors: there are no images to show.")
        # Images in memory are shown as the network takes them; of files, those with the names of the rows.
        self.x = raw.x if ready.kind == "vector" else ready.x
        self.rows = [*range(len(ready))]
        if self.x is raw.x and len(raw) != len(ready):
            numbers = {name: i for i, name in enumerate(raw.row_names or ())}
            if not numbers or ready.row_names is None:
                raise UserError(f"{raw.name}: the rows that were trained on have no names to find their images by.")
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
