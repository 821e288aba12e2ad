"""Features of images by several processes: each computes its part, and all have the whole."""

import os

import torch
from tests.photos import FRAMING, TINY, write_classes

from tsadapt.core.processes import Processes
from tsadapt.data.open import open_dataset
from tsadapt.models import features
from tsadapt.models.backbones import make_backbone


def extracted(folder, cache):
    os.environ["TSADAPT_CACHE"] = str(cache)
    usual, features.PART = features.PART, 5
    try:
        torch.manual_seed(0)
        backbone, images = make_backbone(TINY, "none", 32), open_dataset(str(folder)).train.x
        found = features.extract(images, backbone, FRAMING, torch.device("cpu"), 0, True, Processes.here())
    finally:
        features.PART = usual
        del os.environ["TSADAPT_CACHE"]
    return found.x, found.rows, found.computed


def test_each_computes_a_part_and_has_the_whole(pool, tmp_path):
    write_classes(tmp_path / "images")
    x, rows, computed = extracted(tmp_path / "images", tmp_path / "alone")
    made = pool(2).run(extracted, tmp_path / "images", tmp_path / "shared")
    for theirs, of, _ in made:
        torch.testing.assert_close(theirs, x, rtol=1e-4, atol=1e-5)
        assert of == rows
    assert sum(part for _, _, part in made) == computed
    assert min(part for _, _, part in made) > 0
    assert [part for _, _, part in pool(2).run(extracted, tmp_path / "images", tmp_path / "shared")] == [0, 0]
