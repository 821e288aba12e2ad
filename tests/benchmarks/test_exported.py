import io

import numpy as np
import pytest
from benchmarks.exported import by_pillow, differences
from tests.photos import picture

from tsadapt.data.frames import Framing, frame


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_pillow_resizes_nearly_as_training_does(interpolation):
    image, buffer = picture(1, 5, size=(150, 90)), io.BytesIO()
    image.save(buffer, "PNG")
    framing = Framing(32, 37, interpolation=interpolation)
    ours = frame(np.asarray(image).transpose(2, 0, 1), framing).transpose(1, 2, 0).astype(int)
    theirs = by_pillow(buffer.getvalue(), framing)
    assert theirs.shape == ours.shape == (32, 32, 3)
    assert np.abs(ours - theirs).max() <= 2
    assert (ours != theirs).mean() < 0.3


def test_differences_count_what_changes():
    p, q = np.array([[0.6, 0.4], [0.3, 0.7]]), np.array([[0.4, 0.6], [0.3, 0.7]])
    assert differences(p, q) == {"largest difference of a probability": 0.2, "other predictions": 1}
