"""The class shares of the target, estimated before training by a short source-only training of their own.

A source-only network is looked at twice: with the source's batch normalisation, with which a foreign domain often falls
into one class, and with the target's, which makes uneven classes look even. Where both say the same, neither mistake
was made.
"""

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tsadapt.core import class_shares_by_em
from tsadapt.data.loader import mixed
from tsadapt.data.types import Domain
from tsadapt.models.classifier import Classifier
from tsadapt.models.networks import NETWORKS, STAGE_LENGTH, TRAINED_LENGTH, Length
from tsadapt.models.normalisation import normalise_by
from tsadapt.training.runtime import autocast
from tsadapt.training.source_free import StandIn

if TYPE_CHECKING:
    from tsadapt.training.trainer import Trainer

__all__ = ["estimated_class_shares", "shares_by_two_views"]

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
    then judged with the source's and with the target's normalisation. Without a source it is judged as it is: it has
    learned already. A function of the config and the data; the trainer stays as it is.
    """
    model = deepcopy(trainer.model)
    devices = [trainer.device] if trainer.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        source = trainer.source
        share = source.share if isinstance(source, StandIn) else _trained_on(source, model, trainer)
        p = _target_predictions(trainer, model.eval())
        normalise_by(model, lambda: _target_predictions(trainer, model))
        q = _target_predictions(trainer, model.eval())
    seen = (p.sum(1) > 0) & (q.sum(1) > 0)
    return shares_by_two_views(p[seen], q[seen], share)


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
        seed=mixed(config.seed, 10), head_steps=0,
    )  # fmt: skip
    first = type(trainer)(plain, model, source, trainer.target, trainer.views)
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
def _target_predictions(trainer: "Trainer", model: nn.Module) -> Tensor:
    """Probabilities of every target row (n, C); zeros for a row that was replaced because it cannot be read."""
    found = torch.zeros(len(trainer.target), trainer.model.classes)
    for batch in trainer.batches.all_rows():
        assert batch.x_t is not None
        assert batch.i_t is not None
        with autocast(trainer.device, "fp32"):
            found[batch.i_t] = model(batch.x_t.to(trainer.device))[1].float().softmax(1).cpu()
    return found
