"""A small task of feature vectors in a folder of its own, and one of small photographs."""

import pytest
from tests.configs import changed, run_config
from tests.photos import SHORT, TINY, write_classes, write_flat
from tests.tasks import write_task


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    return tmp_path


@pytest.fixture
def config(here):
    """A short TSA run on that task, in a folder of its own."""
    return run_config(
        "source.npz", "target.npz", tsa=True, bottleneck=8, steps=24, batch_size=16, lr=0.05,
        log_every=5, checkpoint_every=7, device="cpu",
    )  # fmt: skip


@pytest.fixture
def frozen(tmp_path, monkeypatch):
    """A TSA run from class folders to a flat folder, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path / "cache"))
    write_classes(tmp_path / "labelled")
    write_flat(tmp_path / "new")
    see = {"backbone": TINY, "weights": "none", "image_size": 32, "device": "cpu", "workers": 0}
    return run_config("labelled", "new", tsa=True, **see, **SHORT)


@pytest.fixture
def trained(frozen):
    return changed(frozen, freeze_backbone=False)
