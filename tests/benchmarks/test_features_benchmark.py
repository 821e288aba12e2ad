"""What the benchmark calls before is what float32 gives now, to the bit; and what it compares is counted right."""

import numpy as np
import torch
from benchmarks import features
from tests.photos import FRAMING, TINY

from tsadapt.data.open import open_dataset
from tsadapt.models.backbones import for_inference, make_backbone
from tsadapt.models.inference import FrozenNetwork


def test_before_is_float32_now(frozen):
    images, backbone = open_dataset("labelled").train.x, make_backbone(TINY, "none", 32)
    before = features.before(images, FRAMING, backbone, for_inference(backbone.module, 32))
    assert torch.equal(before, features.now(images, FRAMING, FrozenNetwork(backbone, torch.device("cpu"), "fp32")))


def test_ways_take_turns():
    order = []
    found = features.in_turns({name: (lambda name=name: order.append(name), 1) for name in "ab"}, rounds=3)
    assert order == [*"ababab"]
    assert set(found) == {"a", "b"}
    assert all(value >= 0 for one in found.values() for value in one.values())


def test_predictions_are_compared_row_by_row():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = rng.normal(size=(40, 3)) + 4 * y[:, None]
    other = x.copy()
    other[7] = x[8]
    plain, fast = features.predictions(x, y, x, other)
    assert (plain == fast).tolist() == [row != 7 for row in range(40)]
    np.testing.assert_allclose(features._cosines(x, 3 * x), 1)
