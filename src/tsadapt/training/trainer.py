"""The training loop: one for every method and source term. It knows no method's name, and sees no target label."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tsadapt.config import RunConfig
from tsadapt.core import learning_rate_factor, mutual_information_loss
from tsadapt.data.image_loader import ImageBatches, Views
from tsadapt.data.loader import PairedBatches, mixed, paired_streams, seeded
from tsadapt.data.types import Batch, Domain
from tsadapt.models.classifier import Classifier, HeadOutput
from tsadapt.models.digits import DIGIT_NETWORKS
from tsadapt.objectives.methods import METHODS, Head, Outputs, Setting, View
from tsadapt.objectives.source_terms.transferable import make_source_term
from tsadapt.selection.density import batch_a_distance
from tsadapt.training.iteration import Iteration, NotFiniteError
from tsadapt.training.runtime import autocast, pick_device

__all__ = ["NotFiniteError", "Training"]


WIDTH, DIGIT_WIDTH = 1024, 500
"""Hidden features of a discriminator (CDAN), of photographs and vectors, and of digits."""


@dataclass(frozen=True)
class _Passed:
    """Rows that went through the network: their features, what the heads made of them, and the features at that time.

    `seen` is the tensor that gradients pass through, of which `features` may be a part.
    """

    seen: Tensor
    features: Tensor
    heads: list[HeadOutput]

    def split(self, rows: int) -> "list[_Passed]":
        """The first rows, and the others."""
        parts = (slice(None, rows), slice(rows, None))
        return [
            _Passed(self.seen, self.features[p], [HeadOutput(h.features[p], h.logits[p]) for h in self.heads])
            for p in parts
        ]

    def views(self, model: Classifier, index: Tensor, labels: Tensor | None) -> list[View]:
        """The view with the combined logits, then that of each head; in float32."""
        inner = [View(h.features.float(), h.logits.float(), index, labels) for h in self.heads]
        return [View(self.features.float(), model.combined([v.logits for v in inner]), index, labels), *inner]


class Training:
    """A network on its way: `step()` makes one step of it, `state()` and `load()` carry it over a restart.

    Everything random is a function of (seed, step), so the state is tensors and the number of the step. Images are read
    through `views`; `unreadable` names those that could not be, so far.
    """

    def __init__(
        self,
        config: RunConfig,
        model: Classifier,
        source: Domain,
        target: Domain,
        prior: Tensor | None = None,
        views: Views | None = None,
    ) -> None:
        if target.y is not None:
            raise ValueError("target labels have no place in training: pass target.unlabelled()")
        if None in (config.steps, config.batch_size, config.target_batch_size, config.lr):
            raise ValueError("the config has settings that are None: fill them in before training")
        self.config, self.steps, self.at = config, config.steps or 0, 0
        self.device = pick_device(config.device)
        # With the channels last in memory, convolutional networks take a third less time; others do not notice.
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.model = model.to(self.device).train()
        self.prior = None if prior is None else prior.to(self.device)
        hidden = DIGIT_WIDTH if config.network in DIGIT_NETWORKS else WIDTH
        self.method = METHODS[config.method](Setting(model.dim, model.classes, hidden, config)).to(self.device)
        sizes, dims = (len(source), len(target)), (model.head_dim,) * len(model.heads)
        self.source_term = make_source_term(config, sizes, model.classes, dims).to(self.device)
        self.extractor = nn.ModuleList([model.backbone, model.bottleneck])
        self.heads = nn.ModuleList([model.branches, model.heads])
        self.term_weights = config.term_weights()
        self.seen: list[Tensor] = []
        self.with_target = self.method.needs_target or self.source_term.needs_target or config.mi
        batch_sizes = (config.batch_size or 1, config.target_batch_size or 1)
        streams = paired_streams(source, target, batch_sizes, config.seed)
        self.batches: PairedBatches | ImageBatches = (
            PairedBatches(source, target, streams, self.with_target)
            if views is None
            else ImageBatches(source, target, streams, self.with_target, views, self.steps)
        )
        self.unreadable: dict[str, str] = {}
        lr = config.lr or 0.0
        groups = [*model.parameter_groups(lr), {"params": [*self.method.parameters()], "lr": lr}]
        self.optimizer = torch.optim.SGD(
            [group for group in groups if group["params"]],
            momentum=config.momentum,
            nesterov=config.momentum > 0,
            weight_decay=config.weight_decay or 0.0,
            fused=True,  # one pass over the parameters instead of five
        )
        self.first_rates = [float(group["lr"]) for group in self.optimizer.param_groups]

    @property
    def progress(self) -> float:
        """t/T."""
        return self.at / self.steps

    def step(self, describe: bool = False) -> dict[str, Any]:
        """One step; the terms of its objective, by name, and with `describe` all that is logged beside them."""
        self.at += 1
        # Dropout draws from torch's own generator: make it a function of the seed and the step as well.
        seed = mixed(self.config.seed, 3, self.at)
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        for group, rate in zip(self.optimizer.param_groups, self.first_rates, strict=True):
            group["lr"] = rate * learning_rate_factor(self.progress, self.config.lr_gamma * self.steps)
        if not self.model.training:
            self.model.train()
        batch = self.batches.at(self.at)
        self.unreadable |= batch.unreadable
        iteration = Iteration(self, batch, describe)
        self.method.update(iteration)
        if not describe or iteration.out is None:
            return dict(iteration.values)
        said: dict[str, Any] = {"loss": sum(iteration.values.values()), "lr": self.optimizer.param_groups[-1]["lr"]}
        said |= self.source_term.describe(iteration.out) | self.method.describe(iteration.out)
        if iteration.out.target is not None:
            f_s, f_t = iteration.out.source.features, iteration.out.target.features
            said["batch_a_distance"] = batch_a_distance(f_s.detach().cpu().numpy(), f_t.detach().cpu().numpy())
        if len(iteration.values) > 1:
            said["gradient_share"] = iteration.gradient_share
        return {**iteration.values, **said}

    def source(self, out: Outputs) -> dict[str, Tensor]:
        """Source term and β·MI, by name."""
        term = self.config.source_term
        generator = seeded(self.config.seed, 4, self.at) if term == "sampled" else None
        terms: dict[str, Tensor] = {term: self.source_term(out, generator)}
        if self.config.mi and out.target is not None:
            terms["mi"] = self.config.beta * mutual_information_loss(_averaged_logits(out), self.prior)
        return terms

    def weight(self, name: str) -> float:
        """The factor of a term that the config asks for; 0 leaves it out."""
        return self.term_weights.get(name, 1.0)

    def weighted(self, name: str, term: Tensor) -> Tensor:
        """The term times its factor."""
        weight = self.weight(name)
        return term if weight == 1 else weight * term

    def forward(self, batch: Batch, progress: float) -> Outputs:
        """Both domains through the network: jointly, so that they share batch normalisation, unless told otherwise."""
        x_s, x_t = batch.x_s.to(self.device), None if batch.x_t is None else batch.x_t.to(self.device)
        with autocast(self.device, self.config.precision):
            if x_t is None or self.config.separate_bn:
                passed = [self._through(x) for x in (x_s, x_t) if x is not None]
            else:
                passed = self._through(torch.cat([x_s, x_t])).split(len(x_s))
        self.seen = [*{id(p.seen): p.seen for p in passed}.values()]
        source = passed[0].views(self.model, batch.i_s, batch.y_s.to(self.device))
        target = None if batch.i_t is None else passed[1].views(self.model, batch.i_t, None)
        heads = tuple(
            Head(view, None if target is None else target[1 + i], linear.weight, linear.bias)
            for i, (view, linear) in enumerate(zip(source[1:], self.model.linear_layers, strict=True))
        )
        return Outputs(source[0], None if target is None else target[0], heads, progress, self._classify)

    def _through(self, x: Tensor) -> "_Passed":
        f = self.model.features(x)
        return _Passed(f, f, self.model.classify(f))

    def _classify(self, features: Tensor) -> tuple[Tensor, ...]:
        with autocast(self.device, self.config.precision):
            return tuple(head.logits for head in self.model.classify(features))

    @torch.no_grad()
    def fill_memory(self) -> None:
        """Write every row once, before the first step (Algorithm 1, line 1).

        Batch normalisation uses the statistics of the batch, as it will in training (fresh running averages would leave
        the features unnormalised), and its running averages are put back; dropout is off.
        """
        if not self.source_term.needs_statistics or self.config.estimator == "iterative":
            return
        with self.batch_statistics():
            for batch in self.batches.all_rows():
                self.unreadable |= batch.unreadable
                self.source_term.observe(self.forward(batch, progress=0.0))

    @contextmanager
    def batch_statistics(self) -> Iterator[None]:
        """Dropout off, batch normalisation by the batch; its running averages are put back at the end."""
        self.model.eval()
        normalisations = [m for m in self.model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        before = [{k: v.clone() for k, v in m.state_dict().items()} for m in normalisations]
        for m in normalisations:
            m.train()
        try:
            yield
        finally:
            for m, state in zip(normalisations, before, strict=True):
                m.load_state_dict(state)

    def state(self) -> dict[str, Any]:
        """All that the next step depends on; refused if the last step left weights that are not finite."""
        for name, value in (*self.model.state_dict().items(), *self.method.state_dict().items()):
            if value.is_floating_point() and not bool(value.isfinite().all()):
                raise NotFiniteError(f"weights {name}", float("nan"), self.at)
        return {
            "step": self.at,
            "model": self.model.state_dict(),
            "method": self.method.state_dict(),
            "source_term": self.source_term.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go back to a state."""
        self.at = state["step"]
        self.model.load_state_dict(state["model"])
        self.method.load_state_dict(state["method"])
        self.source_term.load_state_dict(state["source_term"])
        self.optimizer.load_state_dict(state["optimizer"])


def _averaged_logits(out: Outputs) -> Tensor:
    """Logits of the target whose softmax is the average of the heads' probabilities."""
    assert out.target is not None
    if len(out.heads) == 1:
        return out.target.logits
    log_p = torch.stack([head.target.logits.log_softmax(1) for head in out.heads if head.target is not None])
    return log_p.logsumexp(0) - math.log(len(log_p))
