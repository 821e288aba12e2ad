import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from tests.photos import picture, truncate, write_classes

from tsadapt.data.in_memory import as_dataset, dataset_name
from tsadapt.data.open import open_dataset
from tsadapt.errors import UserError

RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(4, 3))
LABELS = ["dog", "cat", "dog", "emu"]


def same(a, b):
    """Equal rows, labels, classes and columns; the names may differ."""
    parts = [(d.fingerprint(), d.label_fingerprint(), d.classes, d.columns, d.kind) for d in (a.train, b.train)]
    return parts[0] == parts[1]


@pytest.mark.parametrize(
    "x",
    [
        VECTORS,
        RNG.integers(0, 256, (4, 8, 9)),
        RNG.random((4, 8, 9, 3)),
        RNG.integers(0, 256, (4, 3, 8, 9), dtype=np.uint8),
    ],
    ids=["vectors", "grey", "channels last", "channels first"],
)
@pytest.mark.parametrize("y", [None, LABELS, [3, 1, 3, 2], np.array([3.0, 1.0, 3.0, 2.0])])
def test_arrays_and_tensors_are_read_as_a_file_with_them_is(tmp_path, x, y):
    np.savez(tmp_path / "a.npz", x=x, **({} if y is None else {"y": y}))
    expected = open_dataset(tmp_path / "a.npz")
    tensor = torch.from_numpy(x).requires_grad_(x.dtype.kind == "f")
    targets = torch.tensor(y) if isinstance(y, np.ndarray) else y
    for data, labels in ((x, y), (tensor, targets)):
        assert same(as_dataset((data, labels)), expected)
        assert same(as_dataset(data, labels=labels), expected)
    assert as_dataset((x, y)).train.name == "the data"
    assert as_dataset((x, y), name="the source").train.name == "the source"


def test_bfloat16_and_a_later_change_of_the_array():
    assert as_dataset(torch.ones(2, 2, dtype=torch.bfloat16)).train.x.tolist() == [[1, 1], [1, 1]]
    x = VECTORS.astype(np.float32)
    dataset = as_dataset(x)
    before = dataset_name(dataset)
    x[:] = 0
    assert dataset_name(dataset) == before


def test_a_table_is_read_as_its_file_is(tmp_path):
    frame = pandas.DataFrame({"b": [1.5, 2, 3], "label": ["x", "y", "x"], "a": [1, 2, 3]}, index=[7, 8, 9])
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert same(as_dataset(frame), open_dataset(tmp_path / "t.csv"))
    assert same(as_dataset(frame, ("a", "b")), open_dataset(tmp_path / "t.csv", ("a", "b")))
    assert list(frame.columns) == ["b", "label", "a"]  # the user's table is unchanged
    bare = frame.drop(columns="label")
    assert as_dataset(bare).train.y is None
    for labels in (frame["label"], frame["label"].tolist(), frame["label"].astype("category")):
        assert same(as_dataset((bare, labels)), as_dataset(frame))
        assert same(as_dataset(bare, labels=labels), as_dataset(frame))
    with pytest.raises(UserError, match=r"Missing: c. Unexpected: b"):
        as_dataset(frame, ("a", "c"))
    with pytest.raises(UserError, match=r"the target contains a missing .* row 1, feature 0"):
        as_dataset(pandas.DataFrame({"a": pandas.array([1, None], dtype="Int64")}), name="the target")
    with pytest.raises(UserError, match="more than one column named '0'"):
        as_dataset(pandas.DataFrame([[1, 2]], columns=[0, "0"]))


def test_image_files(tmp_path, monkeypatch):
    folder = open_dataset(write_classes(tmp_path / "photos", n=2)).train
    labels = [folder.classes[i] for i in folder.y]
    monkeypatch.chdir(tmp_path)
    for paths in ([Path("photos") / p for p in folder.row_names], [f"{tmp_path}/photos/{p}" for p in folder.row_names]):
        listed = as_dataset((paths, labels)).train
        assert (listed.classes, listed.y.tolist(), listed.x.paths) == (
            folder.classes,
            folder.y.tolist(),
            folder.x.paths,
        )
        assert listed.fingerprint() == folder.fingerprint()
        assert listed.row_names == tuple(map(str, paths))
        assert as_dataset(tuple(paths)).train.y is None
    pair = as_dataset(("photos/ant/00.png", "photos/bee/00.png")).train  # two paths, not a path and its label
    assert (len(pair), pair.y) == (2, None)
    assert "1 of 2 files not found: gone.png" in as_dataset(["photos/ant/00.png", "gone.png"]).train.notes[0]
    with pytest.raises(UserError, match=r"none of the 2 files exists.*a.png"):
        as_dataset(["a.png", "b.png"])


def test_one_image(tmp_path):
    picture(1, 2).save(tmp_path / "one.png")
    by_path, by_name = (as_dataset(path).train for path in (tmp_path / "one.png", str(tmp_path / "one.png")))
    assert len(by_path) == len(by_name) == 1
    with Image.open(tmp_path / "one.png") as image:
        in_memory = as_dataset(image).train
    assert torch.equal(in_memory.x[0], by_path.x.decode(0, 1))
    assert tuple(as_dataset(picture(0, 0).convert("L")).train.x.shape) == (1, 3, 30, 40)
    truncate(tmp_path / "one.png")
    with Image.open(tmp_path / "one.png") as image, pytest.raises(UserError, match=r"cannot be read.*truncated"):
        as_dataset(image)


def test_datasets_domains_and_names_are_used_as_they_are():
    dataset = open_dataset("moons:source")
    assert as_dataset(dataset) is dataset
    assert as_dataset(dataset.train).test is dataset.train
    assert same(as_dataset("moons:source"), dataset)


def test_names_for_configs(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", VECTORS)
    monkeypatch.chdir(tmp_path)
    assert dataset_name(as_dataset("x.npy")) == str(tmp_path / "x.npy")
    assert dataset_name(as_dataset("digits:uci")) == "digits:uci"
    frame = pandas.DataFrame(VECTORS, columns=list("abc"))
    different = [
        VECTORS,
        VECTORS + 1,
        (VECTORS, LABELS),
        (VECTORS, [0, 1, 0, 2]),
        (VECTORS, LABELS[::-1]),
        ("x.npy", ["a", "b", "a", "b"]),
        frame,
        frame[["c", "a", "b"]],
        frame.rename(columns={"a": "A"}),
    ]
    names = [dataset_name(as_dataset(data)) for data in different]
    assert len(set(names)) == len(different)
    assert all(name.startswith("memory:") and len(name) == 7 + 16 for name in names)
    assert names == [dataset_name(as_dataset(data, name="the source")) for data in different]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "the data is of type builtins.NoneType. Expected a path"),
        (3.5, "builtins.float"),
        ({"x": 1}, "builtins.dict"),
        ([1, 2], "builtins.list of int"),
        ([VECTORS, LABELS], "builtins.list of ndarray.*tuple"),
        ((VECTORS, LABELS, 1), "builtins.tuple of ndarray"),
        ([], "the data has no rows"),
        ((VECTORS, LABELS[:3]), "4 rows but 3 labels"),
        ((VECTORS, ["a", None, "b", "a"]), "row 1 has no label"),
        ((VECTORS, [1, float("nan"), 2, 1]), "row 1 has no label"),
        ((VECTORS, pandas.array([1, 2, None, 1], dtype="Int64")), "row 2 has no label"),
        ((VECTORS, np.array([1, "a", 2, "b"], dtype=object)), "mix numbers and names"),
        ((VECTORS, np.eye(4)), r"y has shape \(4, 4\)"),
        ((VECTORS, [0.5, 1, 2, 3]), "fractions"),
        (("moons:source", [0] * 300), "already contains labels"),
        (np.array([{}]), "dtype object"),
    ],
)
def test_everything_else_is_explained(data, message):
    with pytest.raises(UserError, match=message):
        as_dataset(data)


def test_labels_are_passed_once(tmp_path):
    with pytest.raises(UserError, match="Pass only one"):
        as_dataset((VECTORS, LABELS), labels=LABELS)
    np.savez(tmp_path / "a.npz", train_x=VECTORS, test_x=VECTORS)
    with pytest.raises(UserError, match="test split"):
        as_dataset(tmp_path / "a.npz", labels=LABELS)


def test_pandas_is_not_imported_unless_needed():
    code = "import sys, numpy; from tsadapt.data.in_memory import as_dataset; as_dataset((numpy.eye(2), [0, 1]));"
    subprocess.run([sys.executable, "-c", f"{code} sys.exit('pandas' in sys.modules)"], check=True)


def test_an_image_beyond_the_pixel_budget_is_refused():
    with pytest.raises(UserError, match=r"20,000 × 10,000 pixels.*at most 100 megapixels"):
        as_dataset(Image.new("1", (20_000, 10_000)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((VECTORS, [[1], [1, 2], [3], [4]]), "The array of labels for the data cannot be read"),
        (torch.eye(3).to_sparse(), "the data cannot be read: .*dense tensor"),
        (torch.empty(3, 3, device="meta"), "the data cannot be read: .*meta"),
        (pandas.DataFrame({"a": [1j, 2]}), r"column 'a' is not numeric, for example \(?1j"),
        (pandas.DataFrame({"a": [10**5000, 2]}), "for example a number too large"),
    ],
    ids=["ragged", "sparse", "meta", "complex", "5000 digits"],
)
def test_what_no_array_can_hold_is_explained(data, message):
    with pytest.raises(UserError, match=message):
        as_dataset(data)
