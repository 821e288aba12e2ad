"""One step of training and the loop around it, for every objective. It knows no term's name.

It sees no target label but those that were given to train on.

    loop      step after step to the end
    step      rates, batch, and the method's `update`: for nearly all methods forward, sum of the terms, backward, SGD
    forward   both domains through the network

Everything random is a function of (seed, step), so the state is tensors and the number of the step.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from tsadapt.config import RunConfig
from tsadapt.core import learning_rate_factor, uphill
from tsadapt.core.precision import computing_dtype
from tsadapt.core.processes import Processes
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
from tsadapt.training.compiled import compiled
from tsadapt.training.runtime import autocast, pick_device
from tsadapt.training.shards import load_objective
from tsadapt.training.shared_batch import WholeInputs, gathered_batch, through, through_whole
from tsadapt.training.source_free import StandIn
from tsadapt.training.storage import check_memory, row_storage

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
    source-only training estimates them. `known_labels` (n,) has the labels of target rows that are trained on with
    them, −1 for all others; None where there are none.

    With `processes` each of them has a trainer of its own, which makes the same steps: it sends its block of every
    batch through the extractor, and all else sees the whole batch.
    """

    def __init__(
        self,
        config: RunConfig,
        model: Classifier,
        source: Domain | StandIn,
        target: Domain,
        views: Views | None = None,
        class_shares: Callable[[], Tensor] | None = None,
        processes: Processes | None = None,
        known_labels: Tensor | None = None,
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
        self.source, self.target, self.views, self.processes = source, target, views, processes
        self.class_shares = class_shares or cache(lambda: estimated_class_shares(self))
        context = _context(config, model, source, target, self.class_shares, processes, known_labels)
        labelled = None if known_labels is None else _labelled(target, known_labels, context.classes)
        self.needs = check_memory(config, context, model, self.device)
        """What it takes of memory, in words."""
        self.objective = Objective(config, context).to(self.device)
        self.objective.source_term.constrain(self.model.linear_layers)
        self.statistics = self.objective.statistics
        self.extractor = nn.ModuleList([model.backbone, model.bottleneck])
        self._compiled = compiled(model.features) if config.compile else None
        self.heads = nn.ModuleList([model.branches, model.heads])
        self.with_target = self.objective.needs_target
        method = self.objective.method
        self.separate_bn = method.separate_bn if config.separate_bn is None else config.separate_bn
        batch_sizes = (config.batch_size or 1, config.target_batch_size or 1)
        self.batch_sizes = batch_sizes
        """Rows of both domains in a batch, in all processes."""
        self.stand_in = source if isinstance(source, StandIn) else None
        if self.stand_in is not None and not config.term_weight.get(config.source_term, 1.0):
            self.heads.requires_grad_(False)
        rows = None if isinstance(source, StandIn) else source
        streams = paired_streams(rows, target, batch_sizes, config.seed)
        own = None if processes is None else processes.block
        self.batches: PairedBatches | ImageBatches = (
            PairedBatches(rows, target, streams, self.with_target, self.objective.needs_views > 1, own, labelled)
            if views is None
            else ImageBatches(rows, target, streams, self.with_target, views, self.steps, own, labelled)
        )
        self.unreadable: dict[str, str] = {}
        if processes is not None:  # whatever machine each of them is on
            processes.same([*model.parameters(), *model.buffers(), *self.objective.parameters()])
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
        for phase, optimizer in self.optimizers.items():
            beside = factor * self.objective.method.rate(phase)
            for group, rate in zip(optimizer.param_groups, self.first_rates, strict=True):
                group["lr"] = rate * beside
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

        A `source_extractor` takes the extractor's place for the source; its running averages stay. Target rows that are
        trained on with their labels go with the target, or where it is left out with the source. Also the features as
        they left the network, which all gradients pass through.
        """
        if self.processes is not None:
            b_s, b_t = self.batch_sizes
            batch = gathered_batch(self.processes, batch, (0 if self.stand_in is not None else b_s, b_t))
        if self.stand_in is not None:
            return self._forward_target(batch, progress, self.stand_in)
        x = [part.to(self.device) for part in (batch.x_s, batch.x_t) if part is not None]
        joint = len(x) == 2 and not self.separate_bn and source_extractor is None
        sizes = [len(index) for index in (batch.i_s, batch.i_t) if index is not None]
        extract, few = self._extract, self._labelled_rows(batch)

        def part(i: int) -> tuple[list[Tensor], list[int]]:
            """A domain's rows, and after the last domain's the target's labelled ones."""
            more = few if i == len(x) - 1 else []
            return [x[i], *more], [sizes[i], *map(len, more)]

        with autocast(self.device, self.config.precision):
            if joint:
                features = [through(self.processes, extract, [*x, *few], [*sizes, *map(len, few)])]
            elif source_extractor is None:
                features = [through(self.processes, extract, *part(i)) for i in range(len(x))]
            else:
                backbone, bottleneck = source_extractor.children()
                own = partial(self.model.extracted, backbone=backbone, bottleneck=bottleneck)
                with still_averages(source_extractor):
                    first = through(self.processes, own, x[:1], sizes[:1])
                features = [first, *(through(self.processes, extract, *part(i)) for i in range(1, len(x)))]
            heads = [self.model.classify(f) for f in features]
        cuts = [[slice(0, sizes[0]), slice(sizes[0], sum(sizes))]] if joint else [[slice(0, size)] for size in sizes]
        halves = [
            (f[rows], [HeadOutput(h.features[rows], h.logits[rows]) for h in every])
            for f, every, mine in zip(features, heads, cuts, strict=True)
            for rows in mine
        ]
        inputs = self._inputs(x[0], x[1] if len(x) == 2 else None, batch)
        return self._outputs(batch, progress, halves, inputs, features, heads[-1]), features

    def _extract(self, x: Tensor) -> Tensor:
        """The features of a batch, in training by the compiled pass: there all batches have the same shape."""
        if self._compiled is not None and self.model.training and torch.is_grad_enabled():
            return self._compiled(x)
        return self.model.features(x)

    def _labelled_rows(self, batch: Batch) -> list[Tensor]:
        """The target rows that are trained on with their labels, if there are any."""
        return [] if batch.x_l is None else [batch.x_l.to(self.device)]

    def _forward_target(self, batch: Batch, progress: float, stand_in: StandIn) -> tuple[Outputs, list[Tensor]]:
        """The target through the network, beside what stands in for the source."""
        assert batch.x_t is not None
        x_t = batch.x_t.to(self.device)
        with autocast(self.device, self.config.precision):
            assert batch.i_t is not None
            few, b_t = self._labelled_rows(batch), len(batch.i_t)
            features = [through(self.processes, self._extract, [x_t, *few], [b_t, *map(len, few)])]
            heads = self.model.classify(features[0])
            mine = [HeadOutput(h.features[:b_t], h.logits[:b_t]) for h in heads]
            halves = [stand_in.half(self.model, self.device), (features[0][:b_t], mine)]
        batch = replace(batch, y_s=stand_in.labels, i_s=torch.arange(len(stand_in.labels)))
        return self._outputs(batch, progress, halves, self._inputs(batch.x_s, x_t, batch), features, heads), features

    def _inputs(self, x_s: Tensor, x_t: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """What came into the network, of all processes."""
        if self.processes is None:
            return x_s, x_t
        sizes = [0 if index is None else len(index) for index in (batch.i_s, batch.i_t)]
        return cast("tuple[Tensor, Tensor | None]", WholeInputs(self.processes, (x_s, x_t), sizes))

    def _outputs(
        self,
        batch: Batch,
        progress: float,
        halves: list[tuple[Tensor, list[HeadOutput]]],
        inputs: tuple[Tensor, Tensor | None],
        features: list[Tensor],
        last: list[HeadOutput],
    ) -> Outputs:
        """What terms see of a forward pass: the features and heads of the source's half, and of the target's.

        `last` are the heads of its last part, which ends with the target's labelled rows.
        """
        source = self._views(*halves[0], batch.i_s, batch.y_s.to(self.device))
        target = None if batch.i_t is None else self._views(*halves[1], batch.i_t, None)
        linear = tuple(
            Head(view, None if target is None else target[1 + i], layer.weight, layer.bias)
            for i, (view, layer) in enumerate(zip(source[1:], self.model.linear_layers, strict=True))
        )
        generator = cache(lambda: seeded(self.config.seed, 4, self.at))
        both = (source[0], None if target is None else target[0])
        second = None if batch.second_t is None else batch.second_t.to(self.device)
        if second is not None and self.processes is not None:
            second = self.processes.gather_rows(second, self.batch_sizes[1])
        return Outputs(
            *both, linear, progress, tuple(features), self._classify, self.statistics.of, generator, inputs,
            lambda x: self._network(x, features), second, labelled=self._labelled_views(last, batch),
        )  # fmt: skip

    def _labelled_views(self, last: list[HeadOutput], batch: Batch) -> tuple[View, ...]:
        """The labelled target rows as each head sees them."""
        if batch.y_l is None:
            return ()
        n, labels = len(batch.y_l), batch.y_l.to(self.device)
        return tuple(
            View(_at_least_float(h.features[-n:]), _at_least_float(h.logits[-n:]), torch.arange(n), labels)
            for h in last
        )

    def _views(self, features: Tensor, heads: list[HeadOutput], index: Tensor, labels: Tensor | None) -> list[View]:
        """One domain's view with the combined logits, then that of each head; in float32 or wider."""
        inner = [View(_at_least_float(h.features), _at_least_float(h.logits), index, labels) for h in heads]
        return [View(_at_least_float(features), self.model.combined([v.logits for v in inner]), index, labels), *inner]

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
            features = through_whole(self.processes, self.model.features, x)
            logits = self.model.combined([head.logits for head in self.model.classify(features)])
        seen.append(features)
        return _at_least_float(features), _at_least_float(logits)

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

    def load(self, state: dict[str, Any], parts: Sequence[dict[str, Any]] = ()) -> None:
        """Go back to a state; `parts` has what each process of several kept of the objective's."""
        self.at = state["step"]
        self.model.load_state_dict(state["model"])
        number, rank = (1, 0) if self.processes is None else (self.processes.number, self.processes.rank)
        load_objective(self.objective, state["objective"], parts, rank if len(parts) == number else None)
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
        self._before: list[tuple[nn.Parameter, Tensor]] = []
        """Parameters that were moved, with what they were."""

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

    def descend(
        self,
        more: Callable[[Outputs], dict[str, Tensor]] | None = None,
        only: Sequence[nn.Module] | None = None,
        phase: str | None = None,
        out: Outputs | None = None,
    ) -> Outputs:
        """One optimizer step on source term, target terms and `more`; with `sdat` by the gradient at moved weights."""
        first = self.forward() if out is None else out
        try:
            out = self._moved(first, only) if self._trainer.config.sdat else first
            self.minimize({**self.source(out), **({} if more is None else more(out))}, only, phase)
        finally:
            self._put_back()
        return first

    def _moved(self, out: Outputs, only: Sequence[nn.Module] | None) -> Outputs:
        """The batch at weights that have moved up the slope of source term and target terms (SDAT).

        Moved are the parameters that these terms reach, so no discriminator; what is remembered of a batch stays.
        """
        trainer = self._trainer
        modules = [trainer.model, trainer.objective] if only is None else only
        parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
        task = [term for term in self._weighted(self.source(out)).values() if term.requires_grad]
        if not task or not parameters:
            return out
        slopes = torch.autograd.grad(torch.stack(task).sum(), parameters, allow_unused=True)
        reached = [(p, slope) for p, slope in zip(parameters, slopes, strict=True) if slope is not None]
        if trainer.processes is not None:
            means = trainer.processes.means([slope for _, slope in reached])
            reached = [(p, mean) for (p, _), mean in zip(reached, means, strict=True)]
        self._before = [(p, p.detach().clone()) for p, _ in reached]
        with torch.no_grad():
            for (p, _), move in zip(
                reached, uphill([slope for _, slope in reached], trainer.config.sdat_rho), strict=True
            ):
                p.add_(move)
        with still_averages(trainer.model):
            return replace(self.forward(), again=True)

    def _put_back(self) -> None:
        """Moved parameters as they were, to the bit."""
        with torch.no_grad():
            for p, value in self._before:
                p.copy_(value)
        self._before = []

    def _weighted(self, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """Terms times their weights, those of weight zero left out; refused if one is not finite."""
        weights = {name: self._trainer.config.term_weight.get(name, 1.0) for name in terms}
        terms = {n: term if weights[n] == 1 else weights[n] * term for n, term in terms.items() if weights[n]}
        for name, term in terms.items():
            if not math.isfinite(value := float(term.detach())):
                raise NotFiniteError(name, value, self._trainer.at)
        return terms

    def minimize(
        self, terms: dict[str, Tensor], only: Iterable[nn.Module] | None = None, phase: str | None = None
    ) -> None:
        """One optimizer step on the sum of the terms, each times its weight; with `only`, all other parameters stay."""
        trainer = self._trainer
        terms = self._weighted(terms)
        if not terms:  # all of this phase are turned off
            return
        self.values |= {name: float(term.detach()) for name, term in terms.items()}
        if self._describe:
            self.gradient_norms |= _gradient_norms(terms, self._features)
        optimizer = trainer.optimizers[phase or ""]
        optimizer.zero_grad()
        inputs: Any = None
        if only is not None:  # an encoder may have parameters that stay as they are
            inputs = [p for module in only for p in module.parameters() if p.requires_grad]
        torch.stack([*terms.values()]).sum().backward(inputs=inputs)  # type: ignore[no-untyped-call]
        self._put_back()
        if trainer.processes is not None:
            trainer.processes.mean_gradients(p for group in optimizer.param_groups for p in group["params"])
        optimizer.step()


def _at_least_float(x: Tensor) -> Tensor:
    return x.to(computing_dtype(x))


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


def _labelled(target: Domain, known: Tensor, classes: tuple[str, ...]) -> Domain:
    """The target rows whose labels are known."""
    rows = (known >= 0).nonzero()[:, 0].tolist()
    if not rows:
        raise ValueError("no target row has a known label")
    return replace(target.keep(rows), y=known[rows], classes=classes)


def _context(
    config: RunConfig, model: Classifier, source: Domain | StandIn, target: Domain, class_shares: Callable[[], Tensor],
    processes: Processes | None, known_labels: Tensor | None,
) -> Context:  # fmt: skip
    """What the terms are made for."""
    if isinstance(source, StandIn):
        classes, share, rows = source.classes, source.share, len(source.labels)
    else:
        assert source.y is not None
        assert source.classes is not None
        classes, rows = source.classes, len(source)
        share = torch.bincount(source.y, minlength=len(classes)).double()
    dtype, make_rows = row_storage(config.memory_storage)
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
        network=lambda: model,
        class_shares=class_shares,
        processes=processes,
        memory_dtype=dtype,
        memory_rows=make_rows,
        known_labels=known_labels,
    )
