"""What NumPy makes of images is what torch makes of them, pixel by pixel."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsadapt.data import transforms
from tsadapt.data.frames import Framing, ImageShape, fit_image, frame, without_ends
from tsadapt.data.transforms import evaluation_transform, fit_images

sides = st.integers(2, 90)  # torch stops at an image of one pixel
native = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="torch resizes in float32 on this CPU"
)


def picture(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@native
@settings(max_examples=150, deadline=None)
@given(sides, sides, st.sampled_from(["bilinear", "bicubic"]), st.booleans(), st.integers(2, 40), st.integers(0, 13))
def test_photographs_are_framed_as_in_training(height, width, interpolation, keep_aspect, size, more):
    image = picture(height + 91 * width, 3, height, width)
    framing = Framing(size, size + more, keep_aspect, interpolation)
    expected = evaluation_transform(framing)(torch.from_numpy(image)).numpy()
    assert np.array_equal(frame(image, framing), expected)


@native
def test_large_photographs_too():
    image = picture(0, 3, 800, 1203)
    for framing in (Framing(), Framing(224, 236, interpolation="bicubic"), Framing(224, 256, keep_aspect=False)):
        expected = evaluation_transform(framing)(torch.from_numpy(image)).numpy()
        assert np.array_equal(frame(image, framing), expected)


@native
def test_the_whole_frame_is_what_ten_crops_are_cut_from():
    image, framing = picture(1, 3, 50, 70), Framing(32, 36, keep_aspect=False)
    corner = evaluation_transform(framing, ten_crop=True)(torch.from_numpy(image))[0].numpy()
    whole = frame(image, framing, whole=True)
    assert whole.shape == (3, 36, 36)
    assert np.array_equal(whole[:, :32, :32], corner)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("shape", [ImageShape(1, 16, (28, 20)), ImageShape(1, 28), ImageShape(3, 32)])
@pytest.mark.parametrize("side", [8, 16, 28, 32, 45])
def test_small_images_are_fitted_as_in_training(channels, shape, side):
    images = picture(side, 40, channels, side, side + side % 5)
    expected = fit_images(torch.from_numpy(images), shape).numpy()
    found = np.stack([fit_image(image, shape) for image in images])
    assert found.dtype == np.uint8
    assert np.array_equal(found, expected)


def test_thin_images_lose_the_same_ends():
    for shape in ((3, 2, 900), (3, 900, 7), (3, 20, 30)):
        image = picture(2, *shape)
        assert np.array_equal(without_ends(image), transforms.not_too_thin(torch.from_numpy(image)).numpy())
