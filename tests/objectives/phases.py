"""What each step of a method's optimizers moves: the extractor, the heads, and the method's own networks."""

import io

import torch

from tsadapt.training.setup import make_task, make_trainer
from tsadapt.training.trainer import Iteration, Trainer

__all__ = ["parts", "recorded", "resumed", "same", "trainer_of"]


def trainer_of(config, steps=0) -> Trainer:
    made = make_trainer(make_task(config))
    made.fill_memory()
    for _ in range(steps):
        made.step()
    return made


def resumed(trainer) -> Trainer:
    """Another trainer at the same step, by way of a file's bytes."""
    file = io.BytesIO()
    torch.save(trainer.state(), file)
    again = make_trainer(make_task(trainer.config))
    again.load(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    return again


def same(module, state) -> bool:
    """Whether a module has the tensors of a state, bit for bit."""
    own = module.state_dict()
    return own.keys() == state.keys() and all(torch.equal(value, state[name]) for name, value in own.items())


def parts(trainer) -> dict[str, list[torch.nn.Parameter]]:
    """The parameters of each part by its name."""
    modules = {
        "extractor": trainer.extractor,
        "heads": trainer.heads,
        **dict(trainer.objective.method.named_children()),
    }
    return {name: [*module.parameters()] for name, module in modules.items()}


def recorded(trainer, monkeypatch) -> list[tuple[tuple[str, ...], str, set[str]]]:
    """Filled step by step: the terms of each call of `minimize`, its phase, and the parts of which something moved."""
    seen = []
    minimize = Iteration.minimize

    def watched(self, terms, only=None, phase=None):
        before = {name: [p.detach().clone() for p in some] for name, some in parts(trainer).items()}
        minimize(self, terms, only, phase)
        moved = {
            name
            for name, some in parts(trainer).items()
            if any(not torch.equal(a, b) for a, b in zip(before[name], some, strict=True))
        }
        seen.append((tuple(terms), phase or "", moved))

    monkeypatch.setattr(Iteration, "minimize", watched)
    return seen
