"""The training loop: one for every method and source term. It knows no method's name, and sees no target label."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tsadapt.config import RunConfig
from tsadapt.core import learning_rate_factor, mutual_information_loss
from tsadapt.data.image_loader import ImageBatches, Views
from tsadapt.data.loader import PairedBatches, mixed, paired_streams, seeded
from tsadapt.data.types import Batch, Domain, Unreadable
from tsadapt.engine.runtime import autocast, pick_device
from tsadapt.methods import METHODS, Head, Outputs, View
from tsadapt.methods.source_terms import make_source_term
from tsadapt.models.classifier import Classifier

__all__ = ["NotFiniteError", "Training"]


class NotFiniteError(Exception):
    """A term of the objective is not finite."""

    def __init__(self, term: str, value: float, step: int) -> None:
        super().__init__(f"The term {term!r} is {value} at step {step}.")
        self.term, self.step = term, step


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
        self.model = model.to(self.device).train()
        self.prior = None if prior is None else prior.to(self.device)
        self.method = METHODS[config.method](model.dim, model.classes).to(self.device)
        sizes = (len(source), len(target))
        self.source_term = make_source_term(config, sizes, model.classes, (model.dim,)).to(self.device)
        self.with_target = self.method.needs_target or self.source_term.needs_target or config.mi
        batch_sizes = (config.batch_size or 1, config.target_batch_size or 1)
        streams = paired_streams(source, target, batch_sizes, config.seed)
        self.batches: PairedBatches | ImageBatches = (
            PairedBatches(source, target, streams, self.with_target)
            if views is None
            else ImageBatches(source, target, streams, self.with_target, views)
        )
        self.unreadable: Unreadable = {}
        lr = config.lr or 0.0
        groups = [*model.parameter_groups(lr), {"params": [*self.method.parameters()], "lr": lr}]
        self.optimizer = torch.optim.SGD(
            [group for group in groups if group["params"]],
            momentum=config.momentum,
            nesterov=config.momentum > 0,
            weight_decay=config.weight_decay or 0.0,
        )
        self.first_rates = [float(group["lr"]) for group in self.optimizer.param_groups]

    def step(self, describe: bool = False) -> dict[str, Any]:
        """One step; the terms of its objective, by name, and with `describe` all that is logged beside them."""
        self.at += 1
        progress = self.at / self.steps
        # Dropout draws from torch's own generator: make it a function of the seed and the step as well.
        seed = mixed(self.config.seed, 3, self.at)
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        for group, rate in zip(self.optimizer.param_groups, self.first_rates, strict=True):
            group["lr"] = rate * learning_rate_factor(progress, self.config.lr_gamma * self.steps)
        if not self.model.training:
            self.model.train()
        batch = self.batches.at(self.at)
        self.unreadable |= batch.unreadable
        out = self.forward(batch, progress)
        self.source_term.observe(out)
        terms = self.objective(out)
        values = {name: float(term.detach()) for name, term in terms.items()}
        for name, value in values.items():
            if not math.isfinite(value):
                raise NotFiniteError(name, value, self.at)
        self.optimizer.zero_grad()
        torch.stack([*terms.values()]).sum().backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        if not describe:
            return values
        rate = self.optimizer.param_groups[-1]["lr"]
        return {**values, "loss": sum(values.values()), "lr": rate, **self.source_term.describe(out)}

    def objective(self, out: Outputs) -> dict[str, Tensor]:
        """Source term + β·MI + the method's terms, by name."""
        term = self.config.source_term
        generator = seeded(self.config.seed, 4, self.at) if term == "sampled" else None
        terms: dict[str, Tensor] = {term: self.source_term(out, generator)}
        if self.config.mi and out.target is not None:
            terms["mi"] = self.config.beta * mutual_information_loss(out.target.logits, self.prior)
        return terms | self.method.losses(out)

    def forward(self, batch: Batch, progress: float) -> Outputs:
        """Both domains through the network: jointly, so that they share batch normalisation, unless told otherwise."""
        move = self.device
        x_s, y_s, i_s = batch.x_s.to(move), batch.y_s.to(move), batch.i_s
        with autocast(self.device, self.config.precision):
            if batch.x_t is None or batch.i_t is None:
                (f_s, z_s), target = self.model(x_s), None
            elif self.config.separate_bn:
                (f_s, z_s), (f_t, z_t) = self.model(x_s), self.model(batch.x_t.to(move))
                target = View(f_t, z_t, batch.i_t)
            else:
                f, z = self.model(torch.cat([x_s, batch.x_t.to(move)]))
                f_s, z_s, b = f[: len(x_s)], z[: len(x_s)], len(x_s)
                target = View(f[b:], z[b:], batch.i_t)
        source = View(f_s, z_s, i_s, y_s)
        head = Head(source, target, self.model.head.weight, self.model.head.bias)
        return Outputs(source, target, (head,), progress)

    @torch.no_grad()
    def fill_memory(self) -> None:
        """Write every row once, before the first step (Algorithm 1, line 1).

        Batch normalisation uses the statistics of the batch, as it will in training (fresh running averages would leave
        the features unnormalised), and its running averages are put back; dropout is off.
        """
        if not self.source_term.needs_statistics or self.config.estimator == "iterative":
            return
        with self._batch_statistics():
            for batch in self.batches.all_rows():
                self.unreadable |= batch.unreadable
                self.source_term.observe(self.forward(batch, progress=0.0))

    @contextmanager
    def _batch_statistics(self) -> Iterator[None]:
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
