"""Data is read without torch, as NumPy arrays, for those who use an exported model."""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.photos import write_classes, write_flat

from tsadapt.data.images import ImageFiles
from tsadapt.data.open import open_dataset
from tsadapt.data.rows import plain_arrays
from tsadapt.errors import UserError

WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torchvision"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, NoTorch())
from tsadapt.data.open import open_dataset
from tsadapt.data.rows import plain_arrays
with plain_arrays():
    for name in sys.argv[1:]:
        domain = open_dataset(name).test
        print(len(domain), domain.kind, domain.row_name(0), type(domain.keep([0]).x).__name__)
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    write_classes(tmp_path / "labelled", n=2)
    write_flat(tmp_path / "new", n=2)
    Path("list.txt").write_text("labelled/ant/00.png ant\nlabelled/bee/00.png bee\n")
    np.savez("rows.npz", x=rng.normal(size=(4, 3)), y=[0, 1, 0, 1], names=["a", "b", "c", "d"])
    np.save("images.npy", rng.integers(0, 255, (4, 8, 8), dtype=np.uint8))
    pd.DataFrame(rng.normal(size=(4, 2)), columns=["u", "v"]).to_csv("table.csv", index=False)
    return "labelled", "new", "list.txt", "labelled/ant/00.png", "rows.npz", "images.npy", "table.csv", "digits:uci"


def test_all_formats_are_read_where_torch_cannot_be_imported(files):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *files], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "6 file ant/00.png ImageFiles", "6 file 0-00.png ImageFiles", "2 file labelled/ant/00.png ImageFiles",
        "1 file 00.png ImageFiles", "4 vector a ndarray", "4 image 0 ndarray", "4 vector 0 ndarray",
        "1797 image 0 ndarray",
    ]  # fmt: skip


def test_arrays_are_those_of_the_tensors(files):
    for name in (*files, "moons:target"):
        expected = open_dataset(name).test
        with plain_arrays():
            found = open_dataset(name).test
        assert (found.classes, found.row_names, found.columns) == (
            expected.classes, expected.row_names, expected.columns,
        )  # fmt: skip
        assert (found.y is None) == (expected.y is None)
        if expected.y is not None:
            assert isinstance(found.y, np.ndarray)
            assert found.y.tolist() == expected.y.tolist()
        if isinstance(expected.x, ImageFiles):
            with plain_arrays():
                pixels = found.x.decode(0, 8)
            assert isinstance(pixels, np.ndarray)
            assert np.array_equal(pixels, expected.x.decode(0, 8).numpy())
        else:
            assert isinstance(found.x, np.ndarray)
            assert found.x.dtype == expected.x.numpy().dtype
            assert np.array_equal(found.x, expected.x.numpy())


def test_missing_values_are_refused_in_both(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[1.0, 2.0], [3.0, np.nan]]))
    for context in (nullcontext, plain_arrays):
        with context(), pytest.raises(UserError, match="row 1, feature 1"):
            open_dataset(tmp_path / "x.npy")
