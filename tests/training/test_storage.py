"""Where rows of memories are kept, with the same results; a run that cannot fit hears of the option that would."""

import pytest
import torch
from tests.configs import changed

from tsadapt.errors import UserError
from tsadapt.runs.fit import train_run
from tsadapt.training import storage
from tsadapt.training.setup import make_task, make_trainer

TOLERANCE = {"float32": 0.0, "float16": 2e-3, "bfloat16": 2e-2}
"""How far the terms of a run may be from those with rows in float32, after eight steps."""


def losses(config, steps=8):
    trainer = make_trainer(make_task(config))
    trainer.fill_memory()
    found = [trainer.step() for _ in range(steps)]
    return torch.tensor([[*terms.values()] for terms in found]), trainer.statistics.of("target", "memory", 0)


@pytest.mark.parametrize("place", ["", "-cpu", "-disk"])
@pytest.mark.parametrize("dtype", [*TOLERANCE])
def test_terms_are_those_of_float32(config, dtype, place, monkeypatch, tmp_path):
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path / "cache"))
    expected, _ = losses(config)
    found, memory = losses(changed(config, memory_storage=dtype + place))
    assert memory.features.dtype == getattr(torch, dtype)
    assert float((found - expected).abs().max()) <= TOLERANCE[dtype]
    if place == "-disk":
        assert [*(tmp_path / "cache" / "memory").iterdir()] == []  # gone with the process, though it ends by a kill
        memory.half()
        memory.to("meta")
        assert memory.features.dtype == getattr(torch, dtype)
        assert memory.features.device.type == "cpu"


def test_a_run_on_the_disk_resumes(config, here, monkeypatch):
    monkeypatch.setenv("TSADAPT_CACHE", str(here / "cache"))
    kept = changed(config, memory_storage="float32-disk")
    train_run(kept, here / "disk", quiet=True)
    train_run(config, here / "memory", quiet=True)
    ends = [(here / run / "model" / "model.safetensors").read_bytes() for run in ("disk", "memory")]
    assert ends[0] == ends[1]


def needed(config, monkeypatch):
    found = []
    monkeypatch.setattr(storage, "available", lambda device: found.append(device) or 1 << 60)
    trainer = make_trainer(make_task(config))
    state = [*trainer.model.state_dict().values(), *trainer.objective.state_dict().values()]
    assert found
    return trainer, sum(t.numel() * t.element_size() for t in state if isinstance(t, torch.Tensor))


def test_what_a_run_needs_is_said(config, monkeypatch, capsys):
    trainer, least = needed(changed(config, bottleneck=64), monkeypatch)
    assert "needs about 1 MB of memory" in trainer.needs
    count = storage.memory_needed(trainer.config, trainer.objective.method.context, trainer.model)
    assert least < count < 4 * least
    train_run(config)
    assert "needs about 1 MB of memory beside the data" in capsys.readouterr().err


def test_what_cannot_fit_is_refused_with_the_option_that_would(config, monkeypatch):
    task = make_task(changed(config, bottleneck=512))
    sizes = {}
    monkeypatch.setattr(storage, "available", lambda device: 1 << 60)
    context = make_trainer(task).objective.method.context
    network = make_trainer(task).model
    for one in ("float32", "float16", "float16-disk"):
        sizes[one] = storage.memory_needed(changed(task.config, memory_storage=one), context, network)
    assert sizes["float32"] > sizes["float16"] > sizes["float16-disk"]
    for one in ("float16", "float16-disk"):
        monkeypatch.setattr(storage, "available", lambda device, free=sizes[one]: free)
        with pytest.raises(UserError, match=f"--memory-storage {one} "):
            make_trainer(task)
    monkeypatch.setattr(storage, "available", lambda device: 1000)
    with pytest.raises(UserError, match="--target-share"):
        make_trainer(task)
