"""One step of training and the loop around it, for every objective. It knows no term's name, and sees no target label.

    loop      step after step to the end
    step      rates, batch, and the method's `update`: for nearly all methods forward, sum of the terms, backward, SGD
    forward   both domains through the network

Everything random is a function of (seed, step), so the state is tensors and the number of the step.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from tsadapt.config import RunConfig
from tsadapt.core import learning_rate_factor
from tsadapt.data.image_loader import ImageBatches, Views
from tsadapt.data.loader import PairedBatches, mixed, paired_streams, seeded
from tsadapt.data.types import Batch, Domain
from tsadapt.models.backbones import channels_last
from tsadapt.models.classifier import Classifier, HeadOutput
from tsadapt.models.networks import NETWORKS
from tsadapt.models.normalisation import batch_statistics, still_averages
from tsadapt.objectives.base import Context, Head, Outputs, View
from tsadapt.objectives.objective import Objective
from tsadapt.selection.density import batch_a_distance
from tsadapt.training.class_shares import estimated_class_shares
from tsadapt.training.runtime import autocast, pick_device
from tsadapt.training.source_free import StandIn

__all__ = ["NotFiniteError", "Trainer"]


class NotFiniteError(Exception):
    """A term of the objective is not finite."""

    def __init__(self, term: str, value: float, step: int) -> None:
        super().__init__(f"The term {term!r} is {value} at step {step}.")
        self.term, self.step = term, step


class Trainer:
    """A network on its way: `loop()` trains it to the end, `state()` and `load()` carry it over a restart.

    Images are read through `views`; `unreadable` names those that could not be, so far. Where there is only a stand-in
    for the source, the network sees the target alone, and its heads stay unless a source term teaches them.
    `class_shares` gives the class shares of the target to the terms that ask for them; unless given, a short
    source-only training estimates them.
    """

    def __init__(
        self,
        config: RunConfig,
        model: Classifier,
        source: Domain | StandIn,
        target: Domain,
        views: Views | None = None,
        class_shares: Callable[[], Tensor] | None = None,
    ) -> None:
        if target.y is not None:
            raise ValueError("target labels have no place in training: pass target.unlabelled()")
        if None in (config.steps, config.batch_size, config.target_batch_size, config.lr):
            raise ValueError("the config has settings that are None: fill them in before training")
        self.config, self.steps, self.at = config, config.steps or 0, 0
        self.passes = 0
        """Further passes through the network in this step."""
        self.device = pick_device(config.device)
        # With the channels last in memory, convolutional networks take a third less time; others do not notice.
        channels_last(model)
        self.model = model.to(self.device).train()
        self.source, self.target, self.views = source, target, views
        self.class_shares = class_shares or cache(lambda: estimated_class_shares(self))
        context = _context(config, model, source, target, self.class_shares)
        self.objective = Objective(config, context).to(self.device)
        self.objective.source_term.constrain(self.model.linear_layers)
        self.statistics = self.objective.statistics
        self.extractor = nn.ModuleList([model.backbone, model.bottleneck])
        self.heads = nn.ModuleList([model.branches, model.heads])
        self.with_target = self.objective.needs_target
        method = self.objective.method
        self.separate_bn = method.separate_bn if config.separate_bn is None else config.separate_bn
        batch_sizes = (config.batch_size or 1, config.target_batch_size or 1)
        self.stand_in = source if isinstance(source, StandIn) else None
        if self.stand_in is not None and not config.term_weight.get(config.source_term, 1.0):
            self.heads.requires_grad_(False)
        rows = None if isinstance(source, StandIn) else source
        streams = paired_streams(rows, target, batch_sizes, config.seed)
        self.batches: PairedBatches | ImageBatches = (
            PairedBatches(rows, target, streams, self.with_target, self.objective.needs_views > 1)
            if views is None
            else ImageBatches(rows, target, streams, self.with_target, views, self.steps)
        )
        self.unreadable: dict[str, str] = {}
        self.optimizers = {phase: self._optimizer() for phase in ("", *self.objective.method.phases)}
        self.first_rates = [float(group["lr"]) for group in self.optimizers[""].param_groups]

    def loop(self, log_every: int | None = None) -> Iterator[dict[str, Any] | None]:
        """Step to the end; after each step, what is logged of it (every `log_every` steps, the first and the last)."""
        while self.at < self.steps:
            at = self.at + 1
            log = log_every is not None and (at % log_every == 0 or at in (1, self.steps))
            values = self.step(describe=log)
            yield values if log else None

    def step(self, describe: bool = False) -> dict[str, Any]:
        """One step; the terms of its objective, by name, and with `describe` all that is logged beside them."""
        self.at, self.passes = self.at + 1, 0
        # Dropout draws from torch's own generator: make it a function of the seed and the step as well.
        seed = mixed(self.config.seed, 3, self.at)
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        factor = learning_rate_factor(self.progress, self.config.lr_gamma * self.steps)
        for optimizer in self.optimizers.values():
            for group, rate in zip(optimizer.param_groups, self.first_rates, strict=True):
                group["lr"] = rate * factor
        if not self.model.training:
            self.model.train()
        batch = self.batches.at(self.at)
        self.unreadable |= batch.unreadable
        iteration = Iteration(self, batch, describe)
        self.objective.method.update(iteration)
        self.objective.source_term.constrain(self.model.linear_layers)
        return {**iteration.values, **self._described(iteration)} if describe else iteration.values

    def forward(
        self, batch: Batch, progress: float, source_extractor: nn.Module | None = None
    ) -> tuple[Outputs, list[Tensor]]:
        """Both domains through the network: jointly, sharing batch normalisation, or one by one (`separate_bn`).

        A `source_extractor` takes the extractor's place for the source; its running averages stay. Also the features as
        they left the network, which all gradients pass through.
        """
        if self.stand_in is not None:
            return self._forward_target(batch, progress, self.stand_in)
        x = [part.to(self.device) for part in (batch.x_s, batch.x_t) if part is not None]
        joint = len(x) == 2 and not self.separate_bn and source_extractor is None
        parts = [torch.cat(x)] if joint else x
        with autocast(self.device, self.config.precision):
            if source_extractor is None:
                features = [self.model.features(part) for part in parts]
            else:
                with still_averages(source_extractor):
                    first = self.model.extracted(parts[0], *source_extractor.children())
                features = [first, *map(self.model.features, parts[1:])]
            heads = [self.model.classify(f) for f in features]
        cuts = [slice(None, len(x[0])), slice(len(x[0]), None)] if joint else [slice(None)]
        halves = [
            (f[rows], [HeadOutput(h.features[rows], h.logits[rows]) for h in every])
            for f, every in zip(features, heads, strict=True)
            for rows in cuts
        ]
        inputs = (x[0], x[1] if len(x) == 2 else None)
        return self._outputs(batch, progress, halves, inputs, features), features

    def _forward_target(self, batch: Batch, progress: float, stand_in: StandIn) -> tuple[Outputs, list[Tensor]]:
        """The target through the network, beside what stands in for the source."""
        assert batch.x_t is not None
        x_t = batch.x_t.to(self.device)
        with autocast(self.device, self.config.precision):
            features = [self.model.features(x_t)]
            halves = [stand_in.half(self.model, self.device), (features[0], self.model.classify(features[0]))]
        batch = replace(batch, y_s=stand_in.labels, i_s=torch.arange(len(stand_in.labels)))
        return self._outputs(batch, progress, halves, (batch.x_s, x_t), features), features

    def _outputs(
        self,
        batch: Batch,
        progress: float,
        halves: list[tuple[Tensor, list[HeadOutput]]],
        inputs: tuple[Tensor, Tensor | None],
        features: list[Tensor],
    ) -> Outputs:
        """What terms see of a forward pass: the features and heads of the source's half, and of the target's."""
        source = self._views(*halves[0], batch.i_s, batch.y_s.to(self.device))
        target = None if batch.i_t is None else self._views(*halves[1], batch.i_t, None)
        linear = tuple(
            Head(view, None if target is None else target[1 + i], layer.weight, layer.bias)
            for i, (view, layer) in enumerate(zip(source[1:], self.model.linear_layers, strict=True))
        )
        generator = cache(lambda: seeded(self.config.seed, 4, self.at))
        both = (source[0], None if target is None else target[0])
        second = None if batch.second_t is None else batch.second_t.to(self.device)
        return Outputs(
            *both, linear, progress, tuple(features), self._classify, self.statistics.of, generator, inputs,
            lambda x: self._network(x, features), second,
        )  # fmt: skip

    def _views(self, features: Tensor, heads: list[HeadOutput], index: Tensor, labels: Tensor | None) -> list[View]:
        """One domain's view with the combined logits, then that of each head; in float32."""
        inner = [View(h.features.float(), h.logits.float(), index, labels) for h in heads]
        return [View(features.float(), self.model.combined([v.logits for v in inner]), index, labels), *inner]

    def _classify(self, features: Tensor) -> tuple[Tensor, ...]:
        with autocast(self.device, self.config.precision):
            return tuple(head.logits for head in self.model.classify(features))

    def _network(self, x: Tensor, seen: list[Tensor]) -> tuple[Tensor, Tensor]:
        """A further pass: its dropout is its own, and the features that it gives are `seen` with the others."""
        self.passes += 1
        devices = [self.device] if self.device.type == "cuda" else []
        with (
            torch.random.fork_rng(devices),
            autocast(self.device, self.config.precision),
            still_averages(self.model),
        ):
            torch.manual_seed(mixed(self.config.seed, 12, self.at, self.passes))
            features, logits = self.model(x)
        seen.append(features)
        return features.float(), logits.float()

    def _described(self, iteration: "Iteration") -> dict[str, Any]:
        """What is logged of a step beside its terms."""
        out = iteration.out
        if out is None:
            return {}
        logged: dict[str, Any] = {
            "loss": sum(iteration.values.values()),
            "lr": self.optimizers[""].param_groups[-1]["lr"],
            **self.objective.describe(out),
        }
        if out.target is not None and self.stand_in is None:
            f_s, f_t = (view.features.detach().cpu().numpy() for view in out.both())
            logged["batch_a_distance"] = batch_a_distance(f_s, f_t)
        if len(iteration.values) > 1:
            total = sum(iteration.gradient_norms.values())
            shares = {name: norm / total if total > 0 else 0.0 for name, norm in iteration.gradient_norms.items()}
            logged["gradient_share"] = {name: round(share, 4) for name, share in shares.items()}
        return logged

    @property
    def progress(self) -> float:
        """t/T."""
        return self.at / self.steps

    @torch.no_grad()
    def fill_memory(self) -> None:
        """Write every row once, before the first step (Algorithm 1, line 1).

        Batch normalisation uses the statistics of the batch, as it will in training (fresh running averages would leave
        the features unnormalised), and its running averages are put back; dropout is off.
        """
        if self.statistics.memories:
            with batch_statistics(self.model):
                for batch in self.batches.all_rows():
                    self.unreadable |= batch.unreadable
                    self.statistics.observe(self.forward(batch, progress=0.0)[0], filling=True)

    def _optimizer(self) -> torch.optim.SGD:
        config, lr = self.config, self.config.lr or 0.0
        groups = [*self.model.parameter_groups(lr), {"params": [*self.objective.parameters()], "lr": lr}]
        return torch.optim.SGD(
            [group for group in groups if group["params"]],
            momentum=config.momentum,
            nesterov=config.momentum > 0,
            weight_decay=config.weight_decay or 0.0,
            fused=True,  # one pass over the parameters instead of five
        )

    def state(self) -> dict[str, Any]:
        """All that the next step depends on; refused if the last step left weights that are not finite."""
        terms = [item for term in self.objective for item in term.state_dict().items()]
        for name, value in (*self.model.state_dict().items(), *terms):
            if value.is_floating_point() and not _finite(value):
                raise NotFiniteError(f"weights {name}", float("nan"), self.at)
        return {
            "step": self.at,
            "model": self.model.state_dict(),
            "objective": self.objective.state_dict(),
            "optimizers": {phase: optimizer.state_dict() for phase, optimizer in self.optimizers.items()},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go back to a state."""
        self.at = state["step"]
        self.model.load_state_dict(state["model"])
        self.objective.load_state_dict(state["objective"])
        for phase, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][phase])


class Iteration:
    """One iteration as a method sees it (`objectives.base.Step`): `values` of the terms minimised, the last outputs.

    With `describe`, `gradient_norms` say how much each term pulls at the features.
    """

    def __init__(self, trainer: Trainer, batch: Batch, describe: bool) -> None:
        self._trainer, self._batch, self._describe = trainer, batch, describe
        self.extractor: nn.Module = trainer.extractor
        self.heads: nn.Module = trainer.heads
        self.linear_layers: Sequence[nn.Linear] = trainer.model.linear_layers
        self.progress = trainer.progress
        self.values: dict[str, float] = {}
        self.gradient_norms: dict[str, float] = {}
        self.out: Outputs | None = None
        self._features: list[Tensor] = []

    def forward(self, source_extractor: nn.Module | None = None) -> Outputs:
        """The batch through the network as it is now; the shared statistics take it in the first time."""
        first, trainer = self.out is None, self._trainer
        out, self._features = trainer.forward(self._batch, self.progress, source_extractor)
        if first:
            trainer.statistics.observe(out)
        self.out = trainer.objective.method.seen(out)
        return self.out

    def source(self, out: Outputs) -> dict[str, Tensor]:
        """The source term and the target terms, by name."""
        return self._trainer.objective.source_and_target_terms(out)

    def minimize(
        self, terms: dict[str, Tensor], only: Iterable[nn.Module] | None = None, phase: str | None = None
    ) -> None:
        """One optimizer step on the sum of the terms, each times its weight; with `only`, all other parameters stay."""
        trainer = self._trainer
        weights = {name: trainer.config.term_weight.get(name, 1.0) for name in terms}
        terms = {n: term if weights[n] == 1 else weights[n] * term for n, term in terms.items() if weights[n]}
        if not terms:  # all of this phase are turned off
            return
        values = {name: float(term.detach()) for name, term in terms.items()}
        for name, value in values.items():
            if not math.isfinite(value):
                raise NotFiniteError(name, value, trainer.at)
        self.values |= values
        if self._describe:
            self.gradient_norms |= _gradient_norms(terms, self._features)
        optimizer = trainer.optimizers[phase or ""]
        optimizer.zero_grad()
        inputs: Any = None
        if only is not None:  # an encoder may have parameters that stay as they are
            inputs = [p for module in only for p in module.parameters() if p.requires_grad]
        torch.stack([*terms.values()]).sum().backward(inputs=inputs)  # type: ignore[no-untyped-call]
        optimizer.step()


def _finite(values: Tensor) -> bool:
    """Whether all values are finite, by the least and the largest: `isfinite` copies a large tensor three times."""
    return not values.numel() or all(math.isfinite(float(end)) for end in values.aminmax())


def _gradient_norms(terms: dict[str, Tensor], features: list[Tensor]) -> dict[str, float]:
    """How much each term pulls at the features: the norm of its gradient there; 0 where the features are the inputs."""
    learned = [f for f in features if f.requires_grad]
    norms = {}
    for name, term in terms.items():
        grads = torch.autograd.grad(term, learned, retain_graph=True, allow_unused=True) if learned else ()
        norms[name] = math.sqrt(sum(float(g.square().sum()) for g in grads if g is not None))
    return norms


def _context(
    config: RunConfig, model: Classifier, source: Domain | StandIn, target: Domain, class_shares: Callable[[], Tensor]
) -> Context:
    """What the terms are made for."""
    if isinstance(source, StandIn):
        classes, share, rows = source.classes, source.share, len(source.labels)
    else:
        assert source.y is not None
        assert source.classes is not None
        classes, rows = source.classes, len(source)
        share = torch.bincount(source.y, minlength=len(classes)).double()
    width = 1024 if config.network is None else NETWORKS[config.network].discriminator_width
    return Context(
        dim=model.dim,
        head_dims=(model.head_dim,) * len(model.heads),
        classes=classes,
        sizes=(rows, len(target)),
        source_share=share / share.sum(),
        steps=config.steps or 0,
        batch_sizes=(config.batch_size or 0, config.target_batch_size or 0),
        discriminator_width=width,
        copy_extractor=lambda: deepcopy(nn.ModuleList([model.backbone, model.bottleneck])),
        copy_network=lambda: deepcopy(model),
        class_shares=class_shares,
    )
