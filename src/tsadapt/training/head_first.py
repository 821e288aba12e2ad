"""Bottleneck and head first: trained on features of the backbone as it is, before the backbone is trained too.

A backbone that is trained from the first step on is bent by a head that knows nothing yet (Kumar et al., ICLR 2022:
linear probing, then fine-tuning). On features that are computed once, a thousand steps take seconds.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from tsadapt.data.types import Domain
from tsadapt.models.classifier import Classifier
from tsadapt.models.networks import NETWORKS, build
from tsadapt.training.setup import Task
from tsadapt.training.trainer import Trainer

__all__ = ["backbone_network", "train_head_first"]

Extract = Callable[[Classifier, Domain], Domain]
"""From a network and a domain to the domain's features by it, labels kept."""


def train_head_first(task: Task, trainer: Trainer, extract: Extract, advance: Callable[[int], object]) -> None:
    """Train the bottleneck, the heads and the method's own networks for `head_steps`; the backbone stays as it is.

    The objective is the run's. `advance` hears of every step. All of it is a function of the config.
    """
    config, model = task.config, trainer.model
    bare = backbone_network(model, task.architecture.inputs)
    source, target = (extract(bare, domain) for domain in (task.source.train, task.target.train.unlabelled()))
    model.train()
    batch = max(int(NETWORKS[str(config.network)].defaults["batch_size"]), config.batch_size or 0)
    ratio = (config.target_batch_size or 1) / (config.batch_size or 1)
    short = replace(
        config, steps=config.head_steps, head_steps=0, batch_size=batch, target_batch_size=max(round(batch * ratio), 2),
        precision="fp32", train_from=None, views=1,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        head = build(task.architecture)  # takes features as they are
    for mine, theirs in _shared(head, model):
        mine.load_state_dict(theirs.state_dict())
    first = Trainer(short, head, source, target, class_shares=trainer.class_shares, processes=trainer.processes)
    first.objective.method.load_state_dict(trainer.objective.method.state_dict())
    first.fill_memory()
    for _ in first.loop():
        advance(first.at)
    for mine, theirs in _shared(head, model):
        theirs.load_state_dict(mine.state_dict())
    trainer.objective.method.load_state_dict(first.objective.method.state_dict())


def backbone_network(model: Classifier, dim: int) -> Classifier:
    """The backbone of a network alone: what comes out of it (B, dim) are its features."""
    return Classifier(model.scaling, model.backbone, nn.Identity(), dim, model.classes).to(model.head.weight.device)


def _shared(a: Classifier, b: Classifier) -> list[tuple[nn.Module, nn.Module]]:
    """The parts that two networks on the same features have in common."""
    return [(a.bottleneck, b.bottleneck), (a.branches, b.branches), (a.heads, b.heads)]
