"""The cases of the fuzzer: a sound folder, what can be wrong in it, and the commands that meet it.

Every case is a function of (seed, number) alone. Options come from the verbs' own dataclasses and from the settings of
runs and terms, so that a new option is tried without a line here.
"""

import dataclasses
import gzip
import io
import json
import os
import random
import shutil
import socket
import struct
import tarfile
import typing
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

__all__ = ["KINDS", "Case", "make_case", "make_stage"]

KINDS = ("files", "flags", "runs")
Damage = Callable[[Path], None]
SEE = ["--backbone", "test_efficientnet", "--weights", "none", "--image-size", "32", "--workers", "0"]
TINY = ["--steps", "3", "--batch-size", "8", "--bottleneck", "4", "--quiet", "--device", "cpu"]
TASK, PHOTOS = ["features:source", "features:target"], ["office-caltech:amazon", "office-caltech:webcam"]
FIT = ["fit", *TASK, "--tsa", "--keep-memory", "--candidates", "3", "--holdout", "0.2", *TINY, "--out", "run"]
PHOTO_FIT = ["fit", *PHOTOS, "--tsa", "--keep-memory", *SEE, *TINY, "--out", "photo-run"]
SWEEP = ["sweep", *TASK, "--grid", "lambda0=0.1,0.5", *TINY, "--out", "sweep"]


def nothing(here: Path) -> None:
    """No damage."""


@dataclass(frozen=True)
class Case:
    """A command in a copy of the sound folder after `damage`, which `wrong` says in words.

    `results` are files that it writes, and `may_write` all places where it may write. `noticeable` says that the
    damage, if it changes the result, is not other valid data.
    """

    number: int
    kind: str
    words: list[str]
    wrong: str
    damage: Damage = nothing
    results: tuple[str, ...] = ()
    may_write: tuple[str, ...] = ()
    noticeable: bool = False


def make_case(seed: int, number: int, stage: Path) -> Case:
    """The case of that number."""
    rng, kind = random.Random(f"{seed} {number}"), KINDS[number % len(KINDS)]
    return {"files": _files_case, "flags": _flags_case, "runs": _runs_case}[kind](rng, number, stage)


# --- the sound folder


def make_stage(here: Path) -> list[list[str]]:
    """Write sound data of every format; the commands that make sound runs of it."""
    import pandas
    from PIL import Image
    from scipy.io import savemat

    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    names = np.array(["ant", "bee", "cow"])
    (here / "features").mkdir()
    for name, shift in (("source", 0.0), ("target", 0.8)):
        x = 3 * np.eye(3, 5)[y] + rng.normal(size=(30, 5)) + shift
        np.savez(here / "features" / f"{name}.npz", x=x, y=y, classes=names)
        np.save(here / f"{name}.npy", x)
        frame = pandas.DataFrame(x, columns=[*"abcde"]).assign(label=names[y])
        frame.to_csv(here / f"{name}.csv", index=False)
        frame.to_parquet(here / f"{name}.parquet")
    pixels = rng.integers(0, 255, (20, 8, 8), dtype=np.uint8)
    np.savez(here / "images.npz", x=pixels, y=np.arange(20) % 2)
    for part in ("train", "test"):
        colours = rng.integers(0, 255, (32, 32, 3, 12), dtype=np.uint8)
        savemat(here / f"{part}_32x32.mat", {"X": colours, "y": np.arange(12)[:, None] % 3 + 1}, do_compression=True)
    for split in ("train", "t10k"):
        head = struct.pack(">IIII", 0x803, 12, 28, 28)
        (here / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + rng.bytes(12 * 784), mtime=0))
        labels = bytes(i % 3 for i in range(12))
        (here / f"{split}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(struct.pack(">II", 0x801, 12) + labels))
    for domain in ("amazon", "webcam"):
        for label in range(2):
            folder = here / "photos" / domain / f"class{label}"
            folder.mkdir(parents=True)
            for i in range(4):
                picture = rng.integers(0, 90, (36, 40, 3), dtype=np.uint8)
                picture[:, 20 * label : 20 * label + 20, label] += 120
                Image.fromarray(picture).save(folder / f"{i}.png")
    rows = [f"photos/amazon/class{label}/{i}.png {label}\n" for label in range(2) for i in range(4)]
    (here / "list.txt").write_text("".join(rows))
    with tarfile.open(here / "office-caltech-10.tar", "w") as tar:
        for path in sorted((here / "photos").rglob("*.png")):
            tar.add(path, path.relative_to(here / "photos").as_posix(), filter=_timeless)
    plain = ["fit", *TASK, "--candidates", "3", "--holdout", "0.2", *TINY, "--out", "plain"]
    return [FIT, plain, PHOTO_FIT, SWEEP]


def _timeless(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = member.uid = member.gid = 0
    return member


# --- damage to bytes, whatever they mean


def _flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _span(rng: random.Random, data: bytes, filling: Callable[[int], bytes]) -> bytes:
    start = rng.randrange(len(data))
    length = rng.randrange(1, min(64, len(data) - start) + 1)
    return data[:start] + filling(length) + data[start + length :]


BYTES: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "bits flipped": _flip,
    "cut": lambda rng, data: data[: rng.randrange(len(data))],
    "cut at the head": lambda rng, data: data[: rng.randrange(min(len(data), 200))],
    "emptied": lambda rng, data: b"",
    "bytes behind its end": lambda rng, data: data + rng.randbytes(rng.choice((1, 100, 5000))),
    "zeros in the middle": lambda rng, data: _span(rng, data, bytes),
    "noise in the middle": lambda rng, data: _span(rng, data, rng.randbytes),
    "a part left out": lambda rng, data: _span(rng, data, lambda n: b""),
    "bytes that are no UTF-8": lambda rng, data: _span(rng, data, lambda n: b"\xff\xfe\xc0"),
    "NUL bytes": lambda rng, data: _span(rng, data, lambda n: b"\0\0"),
    "noise alone": lambda rng, data: rng.randbytes(rng.choice((1, 100, 10000))),
}
SHORTER = ("cut", "cut at the head", "emptied")
"""What a declared length or the format's own end tells."""


def _spoil(path: Path, how: str, seed: int) -> None:
    data = path.read_bytes()
    if data:
        path.write_bytes(BYTES[how](random.Random(seed), data))


# --- damage to a place: something else than a file


def _fifo(path: Path) -> None:
    _gone(path)
    os.mkfifo(path)


def _socket(path: Path) -> None:
    _gone(path)
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def _loop(path: Path) -> None:
    _gone(path)
    path.symlink_to(path.name)


def _dangling(path: Path) -> None:
    _gone(path)
    path.symlink_to("nowhere")


def _endless(path: Path) -> None:
    _gone(path)
    path.symlink_to("/dev/zero")


def _folder(path: Path) -> None:
    _gone(path)
    path.mkdir()


def _gone(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


PLACES: dict[str, Damage] = {
    "a pipe in its place": _fifo,
    "a socket in its place": _socket,
    "a link to itself in its place": _loop,
    "a link to nowhere in its place": _dangling,
    "a link to /dev/zero in its place": _endless,
    "a folder in its place": _folder,
    "removed": _gone,
}


# --- data that says something odd, or lies

ODD_X: dict[str, Callable[[], Any]] = {
    "no rows": lambda: np.zeros((0, 5)),
    "no columns": lambda: np.zeros((30, 0)),
    "one number": lambda: np.float64(3),
    "one dimension": lambda: np.zeros(30),
    "five dimensions": lambda: np.zeros((3, 2, 2, 2, 2)),
    "complex numbers": lambda: np.ones((30, 5), complex),
    "text": lambda: np.full((30, 5), "a"),
    "dates": lambda: np.zeros((30, 5), "datetime64[s]"),
    "records": lambda: np.zeros(30, [("a", "f4"), ("b", "f4")]),
    "objects": lambda: np.full((30, 5), None),
    "float16": lambda: np.ones((30, 5), np.float16),
    "longdouble": lambda: np.ones((30, 5), np.longdouble),
    "huge whole numbers": lambda: np.full((30, 5), 2**64 - 1, np.uint64),
    "1e308": lambda: np.full((30, 5), 1e308),
    "infinite": lambda: np.full((30, 5), np.inf),
    "NaN": lambda: np.full((30, 5), np.nan),
    "some NaN": lambda: np.where(np.eye(30, 5) > 0, np.nan, 1.0),
    "booleans": lambda: np.ones((30, 5), bool),
    "big-endian": lambda: np.arange(150, dtype=">f8").reshape(30, 5),
    "Fortran order": lambda: np.asfortranarray(np.arange(150.0).reshape(30, 5)),
    "another width": lambda: np.ones((30, 4)),
    "one row": lambda: np.ones((1, 5)),
    "images of no height": lambda: np.zeros((30, 0, 5)),
    "images of 7 channels": lambda: np.zeros((30, 4, 4, 7)),
}
ODD_Y: dict[str, Callable[[], Any]] = {
    "fractions": lambda: np.arange(30) / 7,
    "infinite": lambda: np.full(30, np.inf),
    "NaN": lambda: np.full(30, np.nan),
    "huge": lambda: np.arange(30) + 2**62,
    "beyond int64": lambda: np.full(30, 2**64 - 1, np.uint64),
    "negative": lambda: np.arange(30) % 3 - 2,
    "too many": lambda: np.arange(31) % 3,
    "none": lambda: np.zeros(0, int),
    "two columns": lambda: np.zeros((30, 2), int),
    "one class": lambda: np.zeros(30, int),
    "one class a row": lambda: np.arange(30),
    "long digits": lambda: np.array(["9" * 5000 + str(i % 3) for i in range(30)]),
    "text with NUL and escapes": lambda: np.array(["a\0b", "\x1b[31mred", "=1+1"])[np.arange(30) % 3],
    "bytes": lambda: np.array([b"\xff\xfe", b"b", b"c"])[np.arange(30) % 3],
    "booleans": lambda: np.arange(30) % 2 == 0,
    "complex": lambda: np.ones(30, complex),
    "dates": lambda: np.zeros(30, "datetime64[s]"),
    "objects": lambda: np.full(30, None),
    "a number": lambda: np.int64(1),
    "surrogates": lambda: np.array(["\ud800", "b", "c"])[np.arange(30) % 3],
}
ODD_CLASSES: dict[str, Callable[[], Any]] = {
    "a number": lambda: np.int64(3),
    "text": lambda: np.array("ant"),
    "too few": lambda: np.array(["ant"]),
    "twice the same": lambda: np.array(["ant", "ant", "ant"]),
    "numbers": lambda: np.array([1.5, np.nan, 3]),
    "a table": lambda: np.array([["a", "b", "c"]]),
    "empty": lambda: np.zeros(0, "U1"),
    "empty names": lambda: np.array(["", " ", "\t"]),
    "bytes": lambda: np.array([b"a", b"\xff", b"c"]),
    "newlines and escapes": lambda: np.array(["a\nb", "\x1b[2J", "c,d"]),
    "long": lambda: np.array(["x" * 100_000, "b", "c"]),
}


def _npz(path: Path, key: str, make: Callable[[], Any]) -> None:
    with np.load(path) as arrays:
        content = {name: arrays[name] for name in arrays.files}
    np.savez(path, **{**content, key: make()})


def _npy(path: Path, make: Callable[[], Any]) -> None:
    np.save(path, make(), allow_pickle=True)


HEADERS = (
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 5)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (30, 4611686018427387904)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-30, 5)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (30, 500)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (2000000000,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': 30}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (30, 10**99)}",
    "{'descr': '<f8', 'fortran_order': 'no', 'shape': (30, 5)}",
    "{'descr': '<f99', 'fortran_order': False, 'shape': (30, 5)}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (30, 5)}",
    "{'descr': '|V0', 'fortran_order': False, 'shape': (30, 5)}",
    "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (30, 5)}",
    "{'descr': '<U1000000000', 'fortran_order': False, 'shape': (30, 5)}",
    "{'descr': '<f8', 'shape': (30, 5)}",
    "[" * 3000,
    "{'descr': " + "(" * 200 + ")" * 200 + "}",
    "{" + "-" * 5000 + "1: 1}",
    "import os",
    "",
    "\x00\x01\x02",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (30, 5)" + " " * 70000 + "}",
)


def _lying_header(header: str, version: bytes = b"\x01\x00") -> bytes:
    text = header.encode("latin-1")
    size = (
        struct.pack("<H", len(text)) if version == b"\x01\x00" and len(text) < 65536 else struct.pack("<I", len(text))
    )
    version = version if len(text) < 65536 else b"\x02\x00"
    return b"\x93NUMPY" + version + size + text + np.zeros((30, 5)).tobytes()


def _lie_npy(path: Path, header: str, version: bytes) -> None:
    path.write_bytes(_lying_header(header, version))


def _lie_npz(path: Path, header: str, key: str) -> None:
    with np.load(path) as arrays:
        content = {name: arrays[name] for name in arrays.files}
    with zipfile.ZipFile(path, "w") as made:
        for name, array in content.items():
            buffer = io.BytesIO()
            np.save(buffer, array)
            made.writestr(f"{name}.npy", _lying_header(header) if name == key else buffer.getvalue())


def _encrypted(path: Path) -> None:
    """Set the flag of encryption in every header of a zip."""
    data = path.read_bytes()
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(mark)
        while at >= 0:
            data = data[: at + offset] + bytes([data[at + offset] | 1]) + data[at + offset + 1 :]
            at = data.find(mark, at + 4)
    path.write_bytes(data)


def _extra_member(path: Path, name: str) -> None:
    with zipfile.ZipFile(path, "a") as made:
        made.writestr(name, b"text")


def _zip_bomb(path: Path) -> None:
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (100000000, 5)}"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made, made.open("x.npy", "w", force_zip64=True) as member:
        member.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head)
        for _ in range(40):
            member.write(bytes(10**7))


def _bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)


_ROWS = b"1,2,3,4,5,ant\n2,3,4,5,6,bee\n" * 15
CSVS: dict[str, bytes] = {
    "header alone": b"a,b,c,d,e,label\n",
    "no header": _ROWS,
    "Latin-1": b"a,b,c,d,\xe9,label\n" + _ROWS,
    "UTF-16": ("a,b,c,d,e,label\n" + _ROWS.decode()).encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbfa,b,c,d,e,label\n" + _ROWS,
    "a row too long": b"a,b,c,d,e,label\n" + _ROWS + b"1,2,3,4,5,ant,7,8,9\n",
    "a row too short": b"a,b,c,d,e,label\n" + _ROWS + b"1,2\n",
    "columns of one name": b"a,a,c,d,e,label\n" + _ROWS,
    "nameless columns": b",,,,,label\n" + _ROWS,
    "two label columns": b"a,b,c,d,y,label\n" + _ROWS,
    "an open quote": b'a,b,c,d,e,label\n"' + _ROWS,
    "NUL": b"a,b,c,d,e,label\n1,2\0,3,4,5,ant\n" + _ROWS,
    "carriage returns alone": (b"a,b,c,d,e,label\n" + _ROWS).replace(b"\n", b"\r"),
    "semicolons": (b"a,b,c,d,e,label\n" + _ROWS).replace(b",", b";"),
    "5,000 digits": b"a,b,c,d,e,label\n" + b"9" * 5000 + b",2,3,4,5,ant\n" + _ROWS,
    "5,000-digit labels": b"a,b,c,d,e,label\n" + _ROWS.replace(b"ant", b"7" * 5000),
    "infinite": b"a,b,c,d,e,label\ninf,-inf,nan,1e999,-1e999,ant\n" + _ROWS,
    "text among numbers": b"a,b,c,d,e,label\n1,2,x,4,5,ant\n" + _ROWS,
    "complex": b"a,b,c,d,e,label\n1j,2,3,4,5,ant\n" + _ROWS,
    "labels of numbers, then text": b"a,b,c,d,e,label\n" + b"1,2,3,4,5,0\n2,3,4,5,6,1\n" * 20000 + b"1,2,3,4,5,x\n",
    "formulas": b"a,b,c,d,e,label\n" + _ROWS.replace(b"ant", b"=cmd|' /C calc'!A0").replace(b"bee", b"@x"),
    "escapes in the header": b"\x1b[31ma,b,c,d,e,label\n" + _ROWS,
    "missing labels": b"a,b,c,d,e,label\n" + _ROWS + b"1,2,3,4,5,\n",
    "labels alone": b"label\nant\nbee\n",
    "booleans": b"a,b,c,d,e,label\nTrue,False,True,True,False,ant\n" + _ROWS,
    "one huge line": b"a," * 200_000 + b"label\n",
    "spaces": b"  \n  \n",
    "a comment": b"# data\n1 2 3\n",
    "dates": b"a,b,c,d,e,label\n" + _ROWS.replace(b"1,", b"2020-01-01,"),
}


def _odd_parquet(path: Path, what: str) -> None:
    import pandas

    frame = pandas.DataFrame({name: np.arange(30.0) for name in "abcde"}).assign(label=["ant", "bee"] * 15)
    changes: dict[str, Callable[[], Any]] = {
        "lists": lambda: frame.assign(a=[[1.0, 2.0]] * 30),
        "dates": lambda: frame.assign(a=pandas.Timestamp("2020-01-01")),
        "nullable": lambda: frame.assign(a=pandas.array([1, None] * 15, dtype="Int64")),
        "categories": lambda: frame.assign(label=pandas.Categorical(["ant", None] * 15)),
        "numbers as names": lambda: frame.assign(**{"0": 1.0}),
        "no rows": lambda: frame[:0],
        "no columns": lambda: frame[[]],
        "an index": lambda: frame.set_index("label"),
        "bytes": lambda: frame.assign(label=[b"\xff", b"b"] * 15),
        "structs": lambda: frame.assign(a=[{"x": 1}] * 30),
        "booleans": lambda: frame.assign(a=[True, False] * 15),
        "nested label": lambda: frame.assign(label=[["a"]] * 30),
        "durations": lambda: frame.assign(a=pandas.Timedelta("1s")),
        "decimals": lambda: frame.assign(a=[__import__("decimal").Decimal("1.5")] * 30),
    }
    changes[what]().to_parquet(path)


PARQUETS = (
    "lists", "dates", "nullable", "categories", "numbers as names", "no rows", "no columns", "an index", "bytes",
    "structs", "booleans", "nested label", "durations", "decimals",
)  # fmt: skip


def _odd_mat(path: Path, what: str) -> None:
    from scipy.io import savemat
    from scipy.sparse import eye

    content: dict[str, Any] = {"X": np.zeros((32, 32, 3, 12), np.uint8), "y": np.ones((12, 1))}
    changes: dict[str, dict[str, Any]] = {
        "no X": {"X": None}, "no y": {"y": None}, "text": {"X": "text"}, "a struct": {"X": {"a": 1}},
        "a cell": {"y": np.array(["a", 1], object)}, "sparse": {"X": eye(5, format="csc")},
        "two dimensions": {"X": np.zeros((32, 32))}, "fractions": {"y": np.full((12, 1), np.nan)},
        "fewer labels": {"y": np.ones((3, 1))}, "complex": {"X": 1j * np.ones((32, 32, 3, 12))},
        "no images": {"X": np.zeros((32, 32, 3, 0)), "y": np.zeros((0, 1))},
    }  # fmt: skip
    savemat(path, {name: value for name, value in {**content, **changes[what]}.items() if value is not None})


MATS = (
    "no X", "no y", "text", "a struct", "a cell", "sparse", "two dimensions", "fractions", "fewer labels", "complex",
    "no images",
)  # fmt: skip


def _png_header(width: int, height: int) -> bytes:
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")


def _odd_image(path: Path, what: str) -> None:
    from PIL import Image

    if what in MODES:
        Image.new(what, (9, 7)).save(path, "TIFF" if what in ("CMYK", "F", "LAB") else "PNG")
    elif what == "declares 50,000 × 50,000":
        path.write_bytes(_png_header(50_000, 50_000))
    elif what == "declares 13,000 × 13,000":
        path.write_bytes(_png_header(13_000, 13_000))
    elif what == "declares 0 × 0":
        path.write_bytes(_png_header(0, 0))
    elif what == "1 × 20,000":
        Image.new("RGB", (1, 20_000)).save(path)
    elif what == "text":
        path.write_text("no image")
    elif what == "SVG":
        path.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    else:
        path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n")


MODES = ("1", "L", "LA", "P", "RGBA", "I;16", "CMYK", "F", "LAB")
IMAGES = (
    *MODES, "declares 50,000 × 50,000", "declares 13,000 × 13,000", "declares 0 × 0", "1 × 20,000", "text", "SVG", "EPS"
)  # fmt: skip


def _deep(folder: Path, levels: int) -> None:
    here = Path.cwd()
    os.chdir(folder)
    try:
        for _ in range(levels):
            os.mkdir("d")
            os.chdir("d")
        Path("x.png").write_bytes(b"")
    finally:
        os.chdir(here)


def _up(folder: Path) -> None:
    (folder / "up").symlink_to("..")


def _odd_name(folder: Path, name: str) -> None:
    made = os.fsencode(folder) + b"/" + name.encode("utf-8", "surrogateescape")
    shutil.copy(folder / "class0" / "0.png", os.fsdecode(made))


def _odd_class(folder: Path, name: str) -> None:
    shutil.copytree(
        folder / "class0", os.fsdecode(os.fsencode(folder) + b"/" + name.encode("utf-8", "surrogateescape"))
    )


NAMES = (
    "a\nb.png", "\x1b[31mred.png", "\udcff\udcfe.png", "=1+1.png", "x" * 240 + ".png", " .png", "-rf.png", "a\rb.png",
    "é.png", "e\u0301.png", "\u202e.png", "a,b.png", "#a.png", "CON.png",
)  # fmt: skip
LISTS: dict[str, bytes] = {
    "missing files": b"nowhere.png 0\nphotos/amazon/class0/0.png 0\nphotos/amazon/class1/0.png 1\n",
    "nothing but missing files": b"nowhere.png 0\n",
    "no labels": b"photos/amazon/class0/0.png\nphotos/amazon/class1/0.png\n",
    "some labels": b"photos/amazon/class0/0.png 0\nphotos/amazon/class1/0.png\n",
    "NUL": b"photos/amazon/class0/0\0.png 0\nphotos/amazon/class1/0.png 1\n",
    "NUL in a label": b"photos/amazon/class0/0.png a\0\nphotos/amazon/class1/0.png 1\n",
    "Latin-1": b"photos/amazon/class0/\xe9.png 0\nphotos/amazon/class1/0.png 1\n",
    "5,000-digit labels": b"photos/amazon/class0/0.png " + b"9" * 5000 + b"\nphotos/amazon/class1/0.png 1\n",
    "superscript labels": "photos/amazon/class0/0.png ²\nphotos/amazon/class1/0.png ٣\n".encode(),
    "devices": b"/dev/zero 0\n/dev/null.png 0\nphotos/amazon/class0/0.png 0\nphotos/amazon/class1/0.png 1\n",
    "folders": b"photos 0\nphotos/amazon/class0/0.png 0\nphotos/amazon/class1/0.png 1\n",
    "itself": b"list.txt 0\nphotos/amazon/class0/0.png 0\nphotos/amazon/class1/0.png 1\n",
    "a long path": b"x" * 10000 + b".png 0\nphotos/amazon/class1/0.png 1\n",
    "the same file": b"photos/amazon/class0/0.png 0\n" * 20 + b"photos/amazon/class0/0.png 1\n",
    "comments alone": b"# nothing\n",
    "a huge line": b"a" * 1_000_000,
    "negative labels": b"photos/amazon/class0/0.png -1\nphotos/amazon/class1/0.png -2\n",
    "home": b"~/0.png 0\n~nobody/0.png 1\nphotos/amazon/class1/0.png 1\n",
    "form feeds": b"photos/amazon/class0/0.png 0\x0cphotos/amazon/class1/0.png 1\x1c\n",
}


def _odd_tar(path: Path, what: str) -> None:
    picture = (path.parent / "photos" / "amazon" / "class0" / "0.png").read_bytes()
    if what == "compressed":
        path.write_bytes(gzip.compress(path.read_bytes()))
        return
    with tarfile.open(path, "a" if what != "alone" else "w") as tar:
        member = tarfile.TarInfo("amazon/class0/odd.png")
        member.size = len(picture)
        if what == "a long name":
            member.name = "amazon/class0/" + "x" * 5000 + ".png"
        elif what == "no UTF-8":
            member.name = "amazon/class0/\udcff.png"
        elif what == "sparse":
            member.type, member.pax_headers = tarfile.GNUTYPE_SPARSE, {}
        elif what == "a link":
            member.type, member.size, member.linkname = tarfile.SYMTYPE, 0, "../../../etc/passwd"
        elif what == "a device":
            member.type, member.size = tarfile.CHRTYPE, 0
        elif what == "a pax size":
            member.pax_headers = {"size": "99999999999999999999"}
        elif what == "a sparse pax":
            member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9" * 30}
        elif what == "a pax number that is none":
            member.pax_headers = {"mtime": "x", "uid": "-", "GNU.sparse.map": "a,b"}
        tar.addfile(member, io.BytesIO(picture if member.size else b""))


TARS = (
    "compressed", "a long name", "no UTF-8", "sparse", "a link", "a device", "a pax size", "a sparse pax",
    "a pax number that is none", "alone",
)  # fmt: skip


# --- cases of files

Odd = tuple[str, Damage, bool]
"""What is wrong in words, how it is made, and whether it could be noticed."""


def _pick(rng: random.Random, table: dict[str, Any]) -> tuple[str, Any]:
    return rng.choice([*table.items()])


def _spoiled(rng: random.Random, path: str, checked: bool, cut_shows: bool = True) -> Odd:
    """A file with damaged bytes, or something else in its place."""
    if rng.random() < 0.15:
        what, place = _pick(rng, PLACES)
        fewer = what == "removed" and path in PNGS  # a folder with one image less is as good a folder
        return f"{path}: {what}", lambda here: place(here / path), not fewer
    how, seed = rng.choice([*BYTES]), rng.randrange(2**32)
    shows = checked or (cut_shows and how in SHORTER)
    return f"{path}: {how}", lambda here: _spoil(here / path, how, seed), shows


def _odd_npz(rng: random.Random, path: str) -> Odd:
    key, table = rng.choice([("x", ODD_X), ("y", ODD_Y), ("classes", ODD_CLASSES)])
    kind = rng.randrange(8)
    if kind < 4:
        what, make = _pick(rng, table)
        return f"{path}: {key} is odd: {what}", lambda here: _npz(here / path, key, make), False
    if kind < 6:
        header = rng.choice(HEADERS)
        return f"{path}: the header of {key} is {header[:60]!r}", lambda here: _lie_npz(here / path, header, key), True
    if kind == 6:
        return f"{path}: encrypted", lambda here: _encrypted(here / path), True
    changes: list[tuple[str, Damage]] = [
        ("another member", partial(_extra_member, name="readme.txt")),
        ("a member with no UTF-8", partial(_extra_member, name="\xff.npy")),
        ("a member named ../x.npy", partial(_extra_member, name="../x.npy")),
        ("400 MB of zeros", _zip_bomb),
    ]
    what, make_zip = rng.choice(changes)
    return f"{path}: {what}", lambda here: make_zip(here / path), False


def _odd_npy(rng: random.Random, path: str) -> Odd:
    if rng.random() < 0.5:
        what, make = _pick(rng, ODD_X)
        return f"{path}: {what}", lambda here: _npy(here / path, make), False
    header, version = rng.choice(HEADERS), rng.choice((b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x09"))
    return f"{path}: the header is {header[:60]!r}", lambda here: _lie_npy(here / path, header, version), False


def _odd_folder(rng: random.Random, path: str) -> Odd:
    kind, file, folder = rng.randrange(6), path, "photos/amazon"
    if kind < 2:
        what = rng.choice(IMAGES)
        return f"{file}: {what}", lambda here: _odd_image(here / file, what), False
    if kind == 2:
        what, place = _pick(rng, PLACES)
        return f"{file}: {what}", lambda here: place(here / file), False
    name = rng.choice(NAMES)
    changes: list[tuple[str, Damage]] = [
        (f"a file named {name!r}", partial(_odd_name, name=name)),
        (f"a class named {name!r}", partial(_odd_class, name=name)),
        ("1,100 folders deep", partial(_deep, levels=1100)),
        ("200 folders deep", partial(_deep, levels=200)),
        ("a link to the folder above", _up),
    ]
    what, damage = rng.choice(changes)
    return f"{folder}: {what}", lambda here: damage(here / folder), False


def _files_case(rng: random.Random, number: int, stage: Path) -> Case:
    """Data of some format, damaged or odd, given to some verb."""
    name = rng.choice([*FORMATS])
    data, paths, checked, cut_shows, odd = FORMATS[name]
    path = rng.choice(paths)
    spoil = odd is None or rng.random() < 0.5
    wrong, damage, noticeable = _spoiled(rng, path, checked, cut_shows) if spoil or not odd else odd(rng, path)
    words, results = _verb_for(rng, name, data)
    return Case(number, "files", words, wrong, damage, results, (*results, "o", "runs"), noticeable)


def _odd_text(rng: random.Random, path: str, table: dict[str, bytes]) -> Odd:
    what, data = _pick(rng, table)
    return f"{path}: {what}", lambda here: _bytes(here / path, data), False


def _named(rng: random.Random, path: str, names: tuple[str, ...], make: Callable[[Path, str], None]) -> Odd:
    what = rng.choice(names)
    return f"{path}: {what}", lambda here: make(here / path, what), False


def _verb_for(rng: random.Random, name: str, data: str) -> tuple[list[str], tuple[str, ...]]:
    """A command that reads the data, and the files it writes."""
    if name in ("npz", "npy", "csv", "parquet"):
        source = {"csv": "source.csv", "parquet": "source.parquet"}.get(name, "features:source")
        commands = [
            (["predict", "run", data, "--out", "o.csv"], ("o.csv",)),
            (["evaluate", "run", data, "--out", "o.json"], ("o.json",)),
            (["fit", data, source, *TINY, "--out", "o"], ()),
            (["fit", source, data, "--tsa", *TINY, "--out", "o"], ()),
        ]
    elif name in ("mat", "idx", "image array"):
        commands = [
            (["fit", data, data, *TINY, "--out", "o"], ()),
            (["features", data, *SEE, "--out", "o.npz"], ("o.npz",)),
        ]
    else:
        commands = [
            (["predict", "photo-run", data, "--out", "o.csv"], ("o.csv",)),
            (["evaluate", "photo-run", data, "--out", "o.json"], ("o.json",)),
            (["fit", data, "office-caltech:webcam", *SEE, *TINY, "--out", "o"], ()),
            (["features", data, *SEE, "--out", "o.npz"], ("o.npz",)),
        ]
    commands.append((["doctor", data, "--workers", "0", "--out", "o.json"], ("o.json",)))
    if name in ("folder", "list"):
        commands.append((["doctor", data, "--workers", "0", "--fix-list", "o"], ("o/source.txt",)))
    return rng.choice(commands)


TAR = "office-caltech-10.tar"
IDX = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
PNGS = tuple(f"photos/amazon/class{label}/{i}.png" for label in range(2) for i in range(4))
FORMATS: dict[str, tuple[str, tuple[str, ...], bool, bool, Callable[[random.Random, str], Odd] | None]] = {
    "npz": ("features/target.npz", ("features/target.npz",), True, True, _odd_npz),
    "npy": ("target.npy", ("target.npy",), False, True, _odd_npy),
    "csv": ("target.csv", ("target.csv",), False, False, partial(_odd_text, table=CSVS)),
    "parquet": ("target.parquet", ("target.parquet",), False, True, partial(_named, names=PARQUETS, make=_odd_parquet)),
    "mat": ("digits:svhn", ("test_32x32.mat",), False, True, partial(_named, names=MATS, make=_odd_mat)),
    "idx": ("digits:mnist", IDX, True, True, None),
    "image array": ("images.npz", ("images.npz",), True, True, _odd_npz),
    "folder": ("photos/amazon", PNGS, False, True, _odd_folder),
    "list": ("list.txt", ("list.txt",), False, False, partial(_odd_text, table=LISTS)),
    "tar": ("office-caltech:amazon", (TAR,), False, True, partial(_named, names=TARS, make=_odd_tar)),
}
"""Of each format: the data's name, the files that can be damaged, whether it has checksums, whether a cut shows, and
what else can be odd about it."""


# --- cases of run folders


def _edit_json(path: Path, seed: int) -> None:
    """Replace, remove or rename one value somewhere in a JSON file."""
    rng, lines = random.Random(seed), path.read_text().splitlines()
    single = path.suffix == ".json"
    at = 0 if single else rng.randrange(max(len(lines), 1))
    try:
        value = json.loads(path.read_text() if single else lines[at])
    except (ValueError, IndexError):
        return
    holder: Any = None
    key: Any = None
    found = value
    while isinstance(found, dict | list) and found and (holder is None or rng.random() < 0.7):
        holder = found
        key = rng.choice([*found]) if isinstance(found, dict) else rng.randrange(len(found))
        found = found[key]
    odd: Any = rng.choice([None, "", "x", -1, 0, 1e300, [], {}, True, "\0", [[]], 10**30])
    if holder is None:
        value = odd
    elif rng.random() < 0.3:
        del holder[key]
    else:
        holder[key] = odd
    lines[at if lines else slice(0)] = json.dumps(value)
    path.write_text(json.dumps(value) if single else "\n".join(lines) + "\n")


def _edit_toml(path: Path, seed: int) -> None:
    """Replace or remove one line of a TOML file."""
    rng, lines = random.Random(seed), path.read_text().splitlines()
    at = rng.randrange(len(lines))
    key = lines[at].partition("=")[0]
    odd = rng.choice(
        ["1e999", '"x"', "-1", "[]", "[" * 2000, "{}", "nan", "true", '"\\u0000"', "2020-01-01", "9" * 5000]
    )
    lines[at : at + 1] = [] if rng.random() < 0.3 else [f"{key}= {odd}"]
    path.write_text("\n".join(lines) + "\n")


def _edit_tensors(path: Path, seed: int) -> None:
    """Sound files of tensors that hold something else: NaN, another shape, a missing or an additional one."""
    from safetensors.numpy import load_file, save_file

    rng, tensors = random.Random(seed), load_file(path)
    key = rng.choice(sorted(tensors))
    what = rng.randrange(5)
    if what == 0:
        tensors[key] = (
            np.full_like(tensors[key], np.nan) if tensors[key].dtype.kind == "f" else np.zeros_like(tensors[key])
        )
    elif what == 1:
        tensors[key] = tensors[key][..., None]
    elif what == 2:
        tensors.pop(key)
    elif what == 3:
        tensors["other"] = np.zeros(3, np.float32)
    else:
        tensors[key] = np.zeros_like(tensors[key])
    save_file(tensors, path)


def _edit_checkpoint(path: Path, seed: int) -> None:
    """A checkpoint with a valid digest whose content is not the trainer's."""
    import hashlib

    import torch

    rng, buffer = random.Random(seed), io.BytesIO()
    state = torch.load(io.BytesIO(path.read_bytes()[32:]), weights_only=True)
    what = rng.randrange(4)
    if what == 0:
        state = {}
    elif what == 1:
        state = [1, 2]
    elif isinstance(state, dict):
        key = rng.choice(sorted(state, key=str))
        state = {k: v for k, v in state.items() if k != key} | ({key: "x"} if what == 3 else {})
    torch.save(state, buffer)
    path.write_bytes(hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue())


EDITS: dict[str, Callable[[Path, int], None]] = {
    ".json": _edit_json,
    ".jsonl": _edit_json,
    ".toml": _edit_toml,
    ".safetensors": _edit_tensors,
    ".pt": _edit_checkpoint,
}


def _run_commands(folder: str, rng: random.Random) -> tuple[list[str], tuple[str, ...], tuple[str, ...]]:
    """A command that reads a run's folder, the files it writes, and where it may write."""
    data, again = {"run": (TASK[1], FIT), "photo-run": (PHOTOS[1], PHOTO_FIT), "sweep": (TASK[1], SWEEP)}[folder]
    use = ["--use", "selected"] if folder == "run" and rng.random() < 0.3 else []
    commands: list[tuple[list[str], tuple[str, ...], tuple[str, ...]]] = [
        (["predict", folder, data, *use, "--probabilities", "--out", "o.csv"], ("o.csv",), ("o.csv",)),
        (["evaluate", folder, data, *use, "--out", "o.json"], ("o.json",), ("o.json",)),
        (["load", folder, data], (), ()),
        (again, (), (folder,)),
        ([*again, "--overwrite"], (), (folder,)),
        (["fit", "--config", f"{folder}/config.toml", "--quiet", "--out", "o"], ("o/metrics.json",), ("o",)),
    ]
    if folder != "photo-run":
        commands.append((["select", folder, "plain", "--out", "o"], ("o/choice.json", "o/scores.csv"), ("o",)))
    if folder == "photo-run":
        commands.append((["augmented", folder, "--out", "o"], (), ("o",)))
    return rng.choice(commands)


def _runs_case(rng: random.Random, number: int, stage: Path) -> Case:
    """One file of a run's folder (or of the cache) damaged, and a command that reads it."""
    folder = rng.choice(["run", "run", "photo-run", "sweep"])
    words, results, may_write = _run_commands(folder, rng)
    inside = rng.choice([folder, folder, folder, "cache"]) if folder == "photo-run" else folder
    files = sorted(path.relative_to(stage).as_posix() for path in (stage / inside).rglob("*") if path.is_file())
    path = rng.choice(files)
    seed, kind, unfinished = rng.randrange(2**32), rng.random(), folder == "run" and rng.random() < 0.3
    edit = EDITS.get(Path(path).suffix)
    change: Damage
    if kind < 0.4 and edit is not None:
        what, change = "edited", lambda file: edit(file, seed)
    elif kind < 0.6:
        what, change = _pick(rng, PLACES)
    else:
        how = rng.choice([*BYTES])
        what, change = how, lambda file: _spoil(file, how, seed)

    def damage(here: Path) -> None:
        change(here / path)
        if unfinished and path != "run/metrics.json":
            _gone(here / "run" / "metrics.json")

    wrong = f"{path}: {what}" + (" (unfinished)" if unfinished else "")
    return Case(number, "runs", words, wrong, damage, results, may_write, noticeable=True)


# --- cases of flags


@cache
def _options(verb: str) -> dict[str, Any]:
    """Every option of a verb with its type, groups of options included."""
    from importlib import import_module

    def walk(cls: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, hint in typing.get_type_hints(cls, include_extras=False).items():
            kinds = [kind for kind in (typing.get_args(hint) or (hint,)) if kind is not type(None)]
            if dataclasses.is_dataclass(hint):
                found |= walk(hint)
            else:
                found[name] = hint if typing.get_origin(hint) is Literal else kinds[0] if kinds else str
        return found

    positional = {"source", "target", "run_folder", "runs", "kind", "pattern"}
    positional |= {"data"} if verb in ("predict", "evaluate", "features") else set()
    options = walk(getattr(import_module(f"tsadapt.cli.{verb}"), verb.capitalize()))
    return {name: kind for name, kind in options.items() if name not in positional}


@cache
def _names() -> list[str]:
    """Names that some option takes: terms, methods, networks, validators."""
    from tsadapt.cli.list import Kind, _lines

    kinds = [kind for kind in typing.get_args(Kind) if kind not in ("datasets", "backbones")]
    return sorted({line.partition(":")[0] for kind in kinds for line in _lines(kind)})


@cache
def _settings() -> dict[str, Any]:
    from tsadapt.cli.options import ROOMS, terms_of_room
    from tsadapt.config import RUN_SETTINGS

    terms = {
        name: one for room in ROOMS for term in terms_of_room(room).values() for name, one in term.settings.items()
    }
    return terms | RUN_SETTINGS


ODD_WORDS = (
    "", " ", "x", "-1", "0", "1", "2", "0.5", "1e3", "1e-300", "1e300", "nan", "inf", "-inf", "1_0", "٣", "0x10",
    "none", "None", "true", "a" * 5000, "9" * 5000, "\x1b[31m", "a\nb", "\udcff", "..", "~", ".",
    "-", "--", "é", "=", "a=b", "tsa.lambda0=x", "mi=0.5", "lambda0=0.1,0.5", "lambda0=0..1", "lambda0=0.01..1:log",
    "lambda0=", "seed=0,1", "steps=1,2", "method=dann,cdan", "%s", "{}", "[red]x[/red]", "meta", "cpu", "cuda",
    "cpu:7", "mps", "run", "features/source.npz", "run/config.toml", "run/model/model.safetensors", "sqlite:///x.db",
    "postgresql://u:secret@127.0.0.1:1/x", "consensus", "99999999999",
)  # fmt: skip
COSTLY = {"steps": ("1", "2", "3"), "trials": ("1", "2"), "jobs": ("1", "2"), "workers": ("0", "1")}
"""Options whose large values are honest work: their sound values are small."""


def _value(rng: random.Random, name: str, kind: Any) -> str:
    """A word for an option: sound about half of the time."""
    one = _settings().get({"target_term": "target_terms"}.get(name, name))
    if rng.random() < 0.45 and name not in COSTLY:
        return rng.choice(ODD_WORDS)
    if name in COSTLY:
        return rng.choice((*COSTLY[name] * 3, "-1", "0", "x", "", "nan", "0.5", "1e3"))
    if typing.get_origin(kind) is Literal:
        return str(rng.choice(typing.get_args(kind)))
    if one is not None and one.choices:
        return str(rng.choice(one.choices))
    if kind in (int, float):
        limits = [
            limit for limit in (one and one.at_least, one and one.above, one and one.at_most) if limit is not None
        ]
        near = [limit + step for limit in limits for step in (-1, 0, 1e-9, 1)]
        numbers = [*near, 0, 1, 2, 3, 10**9, 0.1, 0.5] if kind is float else [*map(int, near), 1, 2, 7, 10**9, 2**63]
        return str(rng.choice(numbers))
    if name == "term_weight":
        return f"{rng.choice(_names())}={rng.choice(['0', '0.5', '1e300', '-1', 'nan'])}"
    if name in ("set", "grid"):
        setting = rng.choice([*_settings()])
        term = f"{rng.choice(_names())}." if name == "set" else ""
        return f"{term}{setting}={','.join(rng.choice(ODD_WORDS) for _ in range(rng.choice((1, 1, 2))))}"
    return rng.choice([*_names(), *ODD_WORDS])


def _flags_case(rng: random.Random, number: int, stage: Path) -> Case:
    """A verb with a few random options, some of them wrong or contradictory."""
    verb = rng.choice(
        [
            "fit",
            "fit",
            "fit",
            "fit",
            "sweep",
            "predict",
            "evaluate",
            "features",
            "doctor",
            "select",
            "augmented",
            "list",
        ]
    )
    small = ["--steps", "3", "--batch-size", "8", "--bottleneck", "4", "--quiet"]
    photos = rng.random() < 0.15
    task = [*PHOTOS, *SEE] if photos else TASK
    sound: dict[str, list[str]] = {
        "fit": [*task, *small, "--out", "o"], "sweep": [*TASK, "--grid", "lambda0=0.1", *small, "--out", "o"],
        "predict": ["run", TASK[1], "--out", "o.csv"], "evaluate": ["run", TASK[1], "--out", "o.json"],
        "features": ["photos/amazon", *SEE, "--out", "o.npz"], "doctor": [*TASK, "--out", "o.json"],
        "select": ["run", "plain", "--out", "o"], "augmented": ["photo-run", "--out", "o"],
        "list": [rng.choice(["methods", "datasets", "networks", "validators", "x"]), *rng.sample(ODD_WORDS, 1)],
    }  # fmt: skip
    words = [verb, *sound[verb]]
    if rng.random() < 0.15 and len(words) > 1:
        at = rng.randrange(1, min(3, len(words)))
        words[at] = rng.choice(
            [*ODD_WORDS, "target.csv", "photos/amazon", "images.npz", "digits:svhn", "o", "moons:source"]
        )
    options = _options(verb)
    chosen = rng.sample([*options], min(rng.choice((1, 1, 1, 2, 3)), len(options)))
    for name in chosen:
        flag = f"--{name.replace('_', '-')}"
        if options[name] is bool:
            words.append(flag)
        else:
            words += [flag, _value(rng, name, options[name])]
    if rng.random() < 0.05:
        words.append(rng.choice(["--stepz", "--out", "-x", "extra", "--no-tsa", "--help"]))
    places = [words[i + 1] for i, word in enumerate(words[:-1]) if word in ("--out", "--fix-list")]
    wrong = "flags: " + " ".join(chosen)
    return Case(number, "flags", words, wrong, may_write=("o", "o.csv", "o.json", "runs", "x.db", "augmented", *places))
