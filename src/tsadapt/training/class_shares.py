"""The class shares of the target, estimated before training by a short source-only training of their own.

A source-only network is looked at twice. With the source's batch normalisation EM finds uneven classes, but where the
target looks different it finds one class that takes all. With the target's normalisation classes look even, and one
that is missing gets rows. What supports each class decides (`tsadapt.trust.evidence`).
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from tsadapt.core import class_shares_by_em
from tsadapt.data.holdout import hold_out
from tsadapt.data.loader import mixed
from tsadapt.data.types import Batch, Domain
from tsadapt.models.classifier import Classifier
from tsadapt.models.networks import NETWORKS, STAGE_LENGTH, TRAINED_LENGTH, Length
from tsadapt.models.normalisation import normalise_by
from tsadapt.training.runtime import autocast
from tsadapt.training.shared_batch import gathered_batch, through
from tsadapt.training.source_free import StandIn
from tsadapt.trust.evidence import MOST_ROWS, evidence, linear_head, prototype_shares
from tsadapt.trust.shares import em_shares

if TYPE_CHECKING:
    from tsadapt.training.trainer import Trainer

__all__ = ["estimated_class_shares", "shares_by_two_views"]

HELD_OUT = 0.1
"""Share of each source class that the short training leaves out: these rows calibrate it for EM."""

EVEN_PART = 0.1
"""The estimate is mixed with so much of equal shares: a class may be rare, but no share is zero."""


def shares_by_two_views(p: Tensor, q: Tensor, source_share: Tensor) -> Tensor:
    """π (C,): class shares from predictions normalised by the source, p (n, C), and by the target, q (n, C).

        a_c ∝ |{j: argmax p_j = argmax q_j = c}|,    e = EM(p, source_share)
        π = 0.9 · (a + e)/2 + 0.1/C  if e and mean_j q_j are largest for the same class,  else 0.9 · a + 0.1/C

    EM alone trusts a network that puts a whole foreign domain into one class; what both views say does not.

    >>> sure = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    >>> p, q = sure[[0, 0, 0, 1, 1]], sure[[0, 0, 0, 1, 0]]
    >>> shares_by_two_views(p, q, torch.tensor([0.5, 0.5]))  # a = (3/4, 1/4), e = (5/8, 3/8)
    tensor([0.6687, 0.3313])
    """
    classes = p.shape[1]
    guess = p.argmax(1)
    count = torch.bincount(guess[guess == q.argmax(1)], minlength=classes).double()
    share = count / count.sum() if count.any() else torch.full_like(count, 1 / classes)
    em = class_shares_by_em(p, source_share)
    if int(em.argmax()) == int(q.mean(0).argmax()):
        share = (share + em) / 2
    return ((1 - EVEN_PART) * share + EVEN_PART / classes).float()


def estimated_class_shares(trainer: "Trainer") -> Tensor:
    """The class shares (C,) of a trainer's target, by a copy of its network that learns from the source alone.

    The copy is trained for as many steps as a source-only run would have, at most as many as the trainer itself, and
    then judged with the source's and with the target's normalisation:

        π = 0.9 · ((1 − λ) · (prototypes + u)/2 + λ · e) + 0.1/C

    u are equal shares of the classes that are there; under a hard shift prototypes err as much as these do, so that
    they meet halfway. Which classes are there, λ and e are `evidence`.

    Without a source the network is judged as it is, by `shares_by_two_views`: it has learned already. A function of the
    config and the data; the trainer stays as it is.
    """
    model, source = deepcopy(trainer.model), trainer.source
    devices = [trainer.device] if trainer.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        if isinstance(source, StandIn):
            return _without_source(trainer, model, source.share)
        kept, held = _split(source, trainer.config.seed)
        share = _trained_on(source.keep(kept.tolist()), model, trainer).double().numpy()
        f_t, z_t = _target(trainer, model.eval())
        f_s, z_s, y_s, rows = _source(trainer, source, model)
        normalise_by(model, lambda: _target(trainer, model))
        by_target, _ = _target(trainer, model.eval())
    apart = np.isin(rows, held.numpy())
    em = em_shares(z_s[apart], y_s[apart], z_t, share)
    says = evidence(f_s[~apart], y_s[~apart], f_t, linear_head(f_t, z_t), em)
    present = says.present & (share > 0)
    nearest = prototype_shares(f_s[~apart], y_s[~apart], by_target, model.classes, present)
    found = torch.from_numpy(says.combined((nearest + present / present.sum()) / 2))
    return ((1 - EVEN_PART) * found + EVEN_PART / model.classes).float()


def _without_source(trainer: "Trainer", model: Classifier, share: Tensor) -> Tensor:
    """By both views of the network as it is."""
    first = _target(trainer, model.eval())[1]
    normalise_by(model, lambda: _target(trainer, model))
    second = _target(trainer, model.eval())[1]
    return shares_by_two_views(torch.from_numpy(first).softmax(1), torch.from_numpy(second).softmax(1), share)


def _split(source: Domain, seed: int) -> tuple[Tensor, Tensor]:
    """The numbers of the rows to train on, and of those that calibrate; none if every class has one row."""
    numbers = torch.arange(len(source))
    assert source.y is not None
    if int(torch.bincount(source.y).max()) < 2:
        return numbers, numbers[:0]
    kept, held = hold_out(Domain(source.name, numbers[:, None], source.y, source.classes), HELD_OUT, mixed(seed, 12))
    return kept.tensor[:, 0], held.tensor[:, 0]


def _trained_on(source: Domain, model: Classifier, trainer: "Trainer") -> Tensor:
    """Train a network anew on the source alone; the share of each class (C,) there."""
    config = trainer.config
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats:
            module.reset_running_stats()
    rows, classes, batch = len(source), model.classes, config.batch_size or 1
    steps = min(_length(trainer).steps(rows, classes, batch, adapts=False), trainer.steps)
    plain = replace(
        config, method="source-only", source_term="ce", target_terms=(), term_weight={}, settings={}, steps=steps,
        seed=mixed(config.seed, 10), head_steps=0, sdat=False,
    )  # fmt: skip
    first = type(trainer)(plain, model, source, trainer.target, trainer.views, processes=trainer.processes)
    for _ in first.loop():
        pass
    return first.objective.method.context.source_share


def _length(trainer: "Trainer") -> Length:
    if trainer.config.train_from is not None:
        return STAGE_LENGTH
    if trainer.views is not None:
        return TRAINED_LENGTH
    return NETWORKS[str(trainer.config.network)].length


@torch.no_grad()
def _target(trainer: "Trainer", model: Classifier) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, K) and logits (n, C) of every target row that can be read."""
    features, logits = (torch.zeros(len(trainer.target), size) for size in (model.dim, model.classes))
    seen = torch.zeros(len(trainer.target), dtype=torch.bool)
    for batch, whole in _batches(trainer):
        assert batch.x_t is not None
        assert whole.i_t is not None
        f, z = _through(trainer, model, batch.x_t, trainer.batch_sizes[1])
        features[whole.i_t], logits[whole.i_t], seen[whole.i_t] = f, z, True
    return features[seen].numpy(), logits[seen].numpy()


@torch.no_grad()
def _source(
    trainer: "Trainer", source: Domain, model: Classifier
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features (n, K), logits (n, C), labels and numbers (n,) of the source's rows, or of some thousands of them."""
    parts = list[tuple[Tensor, ...]]()
    for batch, whole in _batches(trainer):
        parts.append((*_through(trainer, model, batch.x_s, trainer.batch_sizes[0]), whole.y_s.cpu(), whole.i_s.cpu()))
        if sum(len(part[0]) for part in parts) >= min(len(source), MOST_ROWS):
            break
    f, z, y, rows = (torch.cat(part).numpy() for part in zip(*parts, strict=True))
    return f, z, y, rows


def _batches(trainer: "Trainer") -> Iterator[tuple[Batch, Batch]]:
    """Batches with every row once, and the same with the indices and labels of all processes."""
    processes = trainer.processes
    for batch in trainer.batches.all_rows():
        yield batch, batch if processes is None else gathered_batch(processes, batch, trainer.batch_sizes)


def _through(trainer: "Trainer", model: Classifier, x: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Features and logits of a batch of `rows` rows in all processes, of which `x` is here."""
    with autocast(trainer.device, "fp32"):
        features = through(trainer.processes, model.features, [x.to(trainer.device)], [rows])
        logits = model.combined([head.logits for head in model.classify(features)])
    return features.float().cpu(), logits.float().cpu()
