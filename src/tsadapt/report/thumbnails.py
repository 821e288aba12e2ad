"""Small images as data URIs, within a budget of characters."""

import base64
import io

from PIL import Image

from tsadapt.data.images import Images, UnreadableImageError

__all__ = ["SMALL", "Album", "data_uri"]

SMALL = 64
"""Images whose sides are not longer are kept as they are, without loss."""

QUALITY = 62


def data_uri(images: Images, row: int, side: int) -> str | None:
    """An image of at most `side` × `side` pixels as a data URI; None if it cannot be read."""
    try:
        pixels = images.decode(row, side)
    except UnreadableImageError:
        return None
    image = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
    buffer, kind = io.BytesIO(), "webp"
    if max(image.size) <= SMALL:
        grey = image.convert("L")
        image = grey if grey.convert("RGB").tobytes() == image.tobytes() else image
        image.save(buffer, "PNG", optimize=True)
        kind = "png"
    else:
        image.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
        image.save(buffer, "WEBP", quality=QUALITY, method=4)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


class Album:
    """The thumbnails of a page, each once, until `characters` are spent; `pictures` maps a key to a data URI."""

    def __init__(self, characters: int) -> None:
        self.left = characters
        self.pictures: dict[str, str] = {}
        self._marks: dict[str, int] = {}

    def add(self, domain: str, images: Images, row: int, side: int) -> str | None:
        """The key of a row's thumbnail in its domain; None if it cannot be read, or does not fit."""
        key = f"{self._marks.setdefault(domain, len(self._marks))}-{row}"
        if key in self.pictures:
            return key
        uri = data_uri(images, row, side) if self.left > 0 else None
        if uri is None or len(uri) > self.left:
            return None
        self.left -= len(uri)
        self.pictures[key] = uri
        return key
