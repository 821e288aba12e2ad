"""The run that a source-free run goes on from, read from its folder."""

import hashlib
from pathlib import Path

import torch
from torch import Tensor, nn

from tsadapt.errors import UserError
from tsadapt.runs.folder import RunFolder, SweepFolder
from tsadapt.runs.kept_memory import source_means
from tsadapt.runs.model import TrainedModel, load
from tsadapt.training.source_free import StandIn, Start

__all__ = ["start_from"]


def start_from(path: str | Path, encoder: str | nn.Module | None = None) -> Start:
    """The trained model of a run's or sweep's folder, and what its memory has kept of the source.

    `encoder` is the backbone of the user's own that it was trained with, if it was.
    """
    model = load(path, device="cpu", backbone=encoder)
    run = model.run
    if run is None or not run.exists:
        raise UserError(f"{path} holds a model without its run: --source-free needs the folder that fit wrote.")
    if not run.done:
        raise UserError(f"{path} is not done yet: run its fit command again, then go on from it.")
    chosen = SweepFolder(Path(path)).chosen
    last = chosen is None or chosen[1] == run.metrics["last"]["step"]  # the memory is of the last step
    stand_in = _stand_in(model, run, last)
    return Start(
        str(path), run.config, model.network, model.architecture, model.columns, model.preprocessing, stand_in,
        _fingerprint(model, stand_in),
    )  # fmt: skip


def _stand_in(model: TrainedModel, run: RunFolder, last: bool) -> StandIn:
    heads, dim, classes = len(model.network.heads), model.network.head_dim, len(model.classes)
    found = [source_means(run, head) for head in range(heads)] if last else []
    kept = [one for one in found if one is not None]
    if not kept:
        nothing = tuple(torch.zeros(0, dim) for _ in range(heads))
        return StandIn(model.classes, _share(run, classes), nothing, torch.zeros(0, dtype=torch.int64))
    count = kept[0][0]
    present = (count > 0).nonzero()[:, 0]
    means = tuple(mean[present].float() for _, mean in kept)
    return StandIn(model.classes, count.double() / count.sum(), means, present)


def _share(run: RunFolder, classes: int) -> Tensor:
    """The share of each class (C,) among the source's rows that a run was tested on; a source-free run was told."""
    if "source_share" in run.manifest:
        return torch.tensor(run.manifest["source_share"], dtype=torch.float64)
    count = torch.zeros(classes, dtype=torch.float64)
    for label, _, rows in run.confusion(run.metrics["last"]["source"]).tolist():
        count[label] += rows
    return count / count.sum()


def _fingerprint(model: TrainedModel, stand_in: StandIn) -> str:
    whole = hashlib.sha256(repr(model.classes).encode())
    if model.preprocessing is not None and model.preprocessing.frozen:
        whole.update(model.preprocessing.backbone.fingerprint().encode())
    tensors = [*model.network.state_dict().values(), stand_in.share, *stand_in.means, stand_in.labels]
    for tensor in tensors:
        whole.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return whole.hexdigest()[:16]
