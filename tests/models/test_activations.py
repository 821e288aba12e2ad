"""Activations before a stage: computed once, kept in float16, resumed, and not believed blindly."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.photos import FRAMING, TINY, truncate

from tsadapt.data.open import open_dataset
from tsadapt.errors import UserError
from tsadapt.models import activations
from tsadapt.models.activations import Looks, store
from tsadapt.models.backbones import make_backbone
from tsadapt.models.networks import Architecture, build

CPU = torch.device("cpu")


@pytest.fixture
def kept(frozen, monkeypatch):
    """Stores the images in `labelled`; how many were computed is in `kept.computed`."""
    monkeypatch.setattr(activations, "PART", 5)
    torch.manual_seed(0)
    backbone = replace(make_backbone(TINY, "none", 32), train_from="blocks.3")
    stem = build(Architecture("mlp", 3, backbone.dim), backbone=backbone).scaling
    made = stem.forward

    def counting(x):
        run.computed += len(x)
        return made(x)

    stem.forward = counting

    def run(views=2, quiet=True, augment="random-crop"):
        run.computed = 0
        images = open_dataset("labelled").train.x
        return store(images, backbone, stem, FRAMING, Looks(views, augment), CPU, 0, quiet, "labelled")

    run.stem, run.images = stem, lambda: open_dataset("labelled").train.x
    return run


def test_computed_once_resumed_and_shared_between_numbers_of_views(kept):
    whole = kept()
    assert (kept.computed, whole.rows, whole.unreadable) == (72, [*range(24)], {})
    assert (len(whole.x), whole.x.views, whole.x.shape[1:]) == (24, 2, kept.stem.shape)
    assert whole.x[0:24].dtype == torch.float16
    views = [whole.x.seen(torch.arange(24), [v] * 24) for v in range(2)]
    assert not torch.equal(*views)
    assert not torch.equal(views[0], whole.x[0:24])
    again = kept()
    assert kept.computed == 0
    assert torch.equal(again.x[0:24], whole.x[0:24])
    more = kept(views=3)
    assert kept.computed == 24
    assert torch.equal(more.x.seen(torch.arange(24), [1] * 24), views[1])
    kept(views=1, augment="center-crop")
    assert kept.computed == 24
    parts = sorted(Path("cache/activations").rglob("*.npy"))
    parts[0].write_bytes(parts[0].read_bytes()[:200])
    parts[1].with_suffix(".json").write_text("{")
    parts[2].with_suffix(".json").unlink()
    kept(views=3)
    kept(views=1, augment="center-crop")
    for part in parts[:3]:
        said = json.loads(part.with_suffix(".json").read_text())
        assert len(np.load(part)) == len(said["rows"])
    assert torch.equal(kept().x[0:24], whole.x[0:24])
    assert kept.computed == 0


def test_a_kill_costs_one_part(kept, monkeypatch):
    made, calls = activations._Shelf._compute, []

    def dying(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return made(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(activations._Shelf, "_compute", dying)
        with pytest.raises(KeyboardInterrupt, match="run the same command to resume"):
            kept()
    kept()
    assert kept.computed == 72 - 15


def test_unreadable_images_are_left_out_of_every_view(kept):
    truncate(Path("labelled/bee/03.png"))
    found = kept()
    assert found.rows == [row for row in range(24) if row != 10]
    assert [*found.unreadable] == [10]
    plain, seen = found.x[0:23], found.x.seen(torch.arange(23), [0] * 23)
    with torch.no_grad():
        image = activations.evaluation_transform(FRAMING)(kept.images().decode(11, 72))
        torch.testing.assert_close(plain[10].float(), kept.stem(image[None])[0], rtol=1e-2, atol=1e-3)
    assert bool(plain.flatten(1).any(1).all())
    assert bool(seen.flatten(1).any(1).all())


def test_the_budget_is_said_and_kept(kept, monkeypatch, capsys):
    kept(quiet=False)
    said = capsys.readouterr().err
    size = np.prod(kept.stem.shape) * 2
    assert "24 images × 3 views" in said
    assert f"{size * 72 / 1e3:.1f} kB to write" in said
    kept(quiet=False)
    assert "all from the cache" in capsys.readouterr().err
    disk = type("Disk", (), {"free": 10})
    monkeypatch.setattr(activations.shutil, "disk_usage", lambda path: disk)
    with pytest.raises(UserError, match=r"24 images × 4 views.*10 bytes are free.*fewer --views"):
        kept(views=3)


def test_activations_that_float16_cannot_hold(kept):
    kept.stem.forward = lambda x: torch.full((len(x), *kept.stem.shape), float("inf"))
    with pytest.raises(UserError, match="too large for float16"):
        kept()
