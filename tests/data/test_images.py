import io
import os
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from tests.photos import picture, truncate, write_classes

from tsadapt.data import images
from tsadapt.data.folders import load_folder
from tsadapt.data.images import ImageFiles, ImageRows, UnreadableImageError, decode

WHOLE = 1 << 30


def encoded(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def test_every_mode_becomes_three_channels_of_bytes():
    image = picture(1, 0)
    for mode in ("RGB", "L", "RGBA", "P", "LA", "1"):
        pixels = decode(encoded(image.convert(mode)), WHOLE)
        assert (pixels.shape, pixels.dtype) == ((3, 30, 40), torch.uint8), mode
    assert torch.equal(decode(encoded(image), WHOLE), torch.from_numpy(np.array(image)).permute(2, 0, 1))
    assert decode(encoded(image.convert("CMYK"), "JPEG"), WHOLE).shape == (3, 30, 40)


def test_sixteen_bits_are_scaled_and_not_cut_off():
    grey = np.full((4, 5), 128 * 256, dtype=np.uint16)
    assert (decode(encoded(Image.fromarray(grey)), WHOLE) == 128).all()


def test_a_photograph_taken_sideways_is_turned_upright():
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90°
    assert decode(encoded(picture(0, 0), "JPEG", exif=exif), WHOLE).shape == (3, 40, 30)


def test_a_large_jpeg_is_decoded_at_less_but_never_below_what_is_needed():
    large = encoded(picture(0, 0).resize((1600, 1200)), "JPEG")
    assert decode(large, WHOLE).shape == (3, 1200, 1600)
    assert decode(large, 256).shape == (3, 300, 400)


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", "empty"), (b"hello", "not a readable image"), (encoded(picture(0, 0))[:200], "truncated")],
)
def test_what_cannot_be_read_says_why(data, reason, tmp_path):
    with pytest.raises(UnreadableImageError, match=reason):
        decode(data, WHOLE)
    (tmp_path / "a.png").write_bytes(data)
    with pytest.raises(UnreadableImageError, match=reason):
        ImageFiles([tmp_path / "a.png"]).decode(0, WHOLE)
    with pytest.raises(UnreadableImageError, match="No such file"):
        ImageFiles([tmp_path / "b.png"]).decode(0, WHOLE)


def test_a_fingerprint_is_of_contents_in_their_order(tmp_path):
    a = load_folder(write_classes(tmp_path / "a")).x
    b = load_folder(write_classes(tmp_path / "b", classes=("x", "y", "z"))).x
    assert a.fingerprint == b.fingerprint  # names say nothing of the pixels
    assert a.keep([1, 0]).fingerprint != a.keep([0, 1]).fingerprint
    truncate(tmp_path / "b" / "y" / "03.png")
    assert a.fingerprint != load_folder(tmp_path / "b").x.fingerprint


def test_rows_of_an_array_are_images_too():
    x = torch.randint(256, (5, 1, 8, 9), dtype=torch.uint8)
    rows = ImageRows(x)
    assert torch.equal(rows.decode(3, WHOLE), x[3].expand(3, -1, -1))
    assert rows.keep([3]).fingerprint == ImageRows(x[3:4]).fingerprint != rows.keep([2]).fingerprint


def bomb(width, height):
    """A PNG of a few bytes whose header claims a size."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(10_001, 10_000), (13_300, 13_300), (40_000, 40_000)])
def test_an_image_beyond_the_pixel_budget_is_refused_by_its_header(size, monkeypatch):
    def load(image):
        raise AssertionError("decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)
    with pytest.raises(UnreadableImageError, match="more than the limit of 100 megapixels"):
        decode(bomb(*size), 32)


def test_a_jpeg_beyond_the_budget_is_refused_though_it_could_be_decoded_at_less(monkeypatch):
    monkeypatch.setattr(images, "MOST_PIXELS", 1000)
    with pytest.raises(UnreadableImageError, match="40 × 30 pixels"):
        decode(encoded(picture(0, 0), "JPEG"), 8)


def test_only_regular_files_of_a_sensible_size_are_opened(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "circle.png").symlink_to("circle.png")
    (tmp_path / "folder.png").mkdir()
    with (tmp_path / "sparse.png").open("wb") as file:
        file.truncate(1 << 40)
    for name, why in (
        ("pipe.png", "it is a pipe"),
        ("circle.png", "it is a link in a circle"),
        ("folder.png", "it is a folder"),
        ("a\0b.png", "not a valid path"),
        ("sparse.png", "more than the limit"),
        ("x" * 300, "File name too long"),
    ):
        one = ImageFiles([tmp_path / name])
        with pytest.raises(UnreadableImageError, match=why):
            one.decode(0, WHOLE)
        assert one.digest(0) == b""
