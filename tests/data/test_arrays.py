import numpy as np
import pytest
import torch

from tsadapt.data.arrays import from_arrays, label_indices
from tsadapt.data.open import open_dataset
from tsadapt.data.types import match_labels
from tsadapt.errors import UserError


def saved(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


def test_feature_vectors_with_names(tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float16)
    dataset = open_dataset(saved(tmp_path / "a.npz", x=x, y=np.array([1, 0, 1, 1]), classes=np.array(["cat", "dog"])))
    assert dataset.train is dataset.test
    assert dataset.train.kind == "vector"
    assert dataset.train.x.dtype == torch.float32
    assert torch.equal(dataset.train.x, torch.from_numpy(x.astype(np.float32)))
    assert dataset.train.classes == ("cat", "dog")
    assert dataset.train.y.tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize(
    ("shape", "scale", "dtype"),
    [((5, 8, 8), 255, np.uint8), ((5, 8, 8, 3), 1, np.float32), ((5, 3, 8, 8), 255, np.float64)],
)
def test_images_by_their_shape(tmp_path, shape, scale, dtype):
    x = (np.random.default_rng(0).random(shape) * scale).astype(dtype)
    domain = open_dataset(saved(tmp_path / "a.npz", x=x)).train
    assert domain.kind == "image"
    assert domain.x.dtype == torch.uint8
    assert tuple(domain.x.shape) == (5, 3 if len(shape) == 4 else 1, 8, 8)
    assert domain.y is None
    assert domain.x.max() > 200


def test_npy_is_unlabelled(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    assert open_dataset(str(tmp_path / "x.npy")).train.y is None


def test_splits(tmp_path):
    file = saved(
        tmp_path / "a.npz", train_x=np.zeros((4, 2)), train_y=[0, 1, 0, 1], test_x=np.ones((2, 2)), test_y=[0, 1]
    )
    dataset = open_dataset(file)
    assert (dataset.train.split, len(dataset.train), dataset.test.split, len(dataset.test)) == ("train", 4, "test", 2)


@pytest.mark.parametrize("labels", [["b", "a", "b"], [2, 10, 2], [2.0, 10.0, 2.0]])
def test_labels_may_be_names_or_numbers(labels):
    domain = from_arrays("d", np.zeros((3, 1)), labels)
    assert domain.classes == (("a", "b") if isinstance(labels[0], str) else ("2", "10"))
    assert [domain.classes[i] for i in domain.y] == [str(int(v)) if v != str(v) else v for v in labels]


@pytest.mark.parametrize("column", ["label", "Class", "y"])
def test_tables(tmp_path, column):
    (tmp_path / "t.csv").write_text(f"a,{column},b\n1,cat,2.5\n3,dog,4\n")
    domain = open_dataset(str(tmp_path / "t.csv")).train
    assert domain.x.tolist() == [[1, 2.5], [3, 4]]
    assert domain.classes == ("cat", "dog")


def test_parquet(tmp_path):
    import pandas

    pandas.DataFrame({"a": [1.0, 2.0], "label": ["x", "y"]}).to_parquet(tmp_path / "t.parquet")
    assert open_dataset(str(tmp_path / "t.parquet")).train.y.tolist() == [0, 1]


def test_a_table_without_labels(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    assert open_dataset(str(tmp_path / "t.csv")).train.y is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,red\n", "column 'b' is not numeric.*'red'.*'label'"),
        ("a,label\n1,x\n2,\n", "row 1 has no label"),
        ("label\nx\n", "has no feature columns"),
        ("", "cannot be read as a table"),
        ("a,label\nnan,x\n", "missing .* row 0"),
        ("a,label\n", "has no rows"),
    ],
)
def test_bad_tables_are_explained(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        open_dataset(str(tmp_path / "t.csv"))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": np.zeros(3)}, "Unknown array 'features'"),
        ({"y": np.zeros(3, int)}, "contains y.*array named x"),
        ({"x": np.zeros((2, 2)), "y": np.zeros(3, int)}, "has 2 rows but 3 labels"),
        ({"x": np.zeros((2, 2)), "y": np.array([0, 2]), "classes": np.array(["a", "b"])}, "from 0 to 1"),
        ({"x": np.zeros((2, 2)), "y": np.array([0.5, 1])}, "labels are fractions"),
        ({"x": np.array(["a", "b"])}, "Expected numbers"),
        ({"x": np.zeros(3)}, "shape \\(3,\\).*\\(rows, features\\)"),
        ({"x": np.full((1, 4, 4), 300)}, "300 to 300.*0 to 255"),
        ({"x": np.full((1, 4, 4, 7), 3)}, "one or three channels"),
        ({"x": np.array([[np.nan, 1.0]])}, "missing .* row 0, feature 0"),
        ({"x": np.zeros((2, 2)), "y": np.array([0, 1]), "classes": np.array(["a", "a"])}, "duplicate names: a, a"),
        ({"x": np.zeros((0, 2))}, "has no rows"),
    ],
)
def test_bad_arrays_are_explained(tmp_path, arrays, message):
    with pytest.raises(UserError, match=message):
        open_dataset(saved(tmp_path / "a.npz", **arrays))


def test_pickled_objects_are_not_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{"code": 1}], dtype=object))
    with pytest.raises((UserError, ValueError), match="pickle"):
        open_dataset(str(tmp_path / "a.npz"))


def test_damaged_and_missing_files(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(UserError, match="cannot be read"):
        open_dataset(str(tmp_path / "a.npz"))
    with pytest.raises(UserError, match=r"b.npz does not exist"):
        open_dataset(str(tmp_path / "b.npz"))
    (tmp_path / "a.docx").touch()
    with pytest.raises(UserError, match=r"cannot read .*a.docx.*\.parquet"):
        open_dataset(str(tmp_path / "a.docx"))
    with pytest.raises(UserError, match="Did you mean 'digits:mnist'"):
        open_dataset("digit:mnist")


def test_classes_are_matched_by_name():
    domain = from_arrays("d", np.zeros((3, 1)), ["dog", "emu", "cat"])
    labels, strange = match_labels(domain, ("cat", "dog"))
    assert labels.tolist() == [1, -1, 0]
    assert strange == ["emu"]


def test_columns_are_found_by_name(tmp_path):
    (tmp_path / "t.csv").write_text("y,b,a,label\n1,2,3,NA\n4,5,6,dog\n")
    columns = ("a", "b", "y")
    domain = open_dataset(str(tmp_path / "t.csv"), columns).train
    assert domain.columns == columns
    assert domain.x.tolist() == [[3, 2, 1], [6, 5, 4]]
    assert domain.classes == ("NA", "dog")
    with pytest.raises(UserError, match=r"Missing: c. Unexpected: b"):
        open_dataset(str(tmp_path / "t.csv"), ("a", "c", "y"))


def test_two_label_columns_would_tell_the_label(tmp_path):
    (tmp_path / "t.csv").write_text("a,label,y\n1,cat,0\n2,dog,1\n")
    with pytest.raises(UserError, match=r"2 .*label columns: label, y"):
        open_dataset(str(tmp_path / "t.csv"))


def test_odd_but_sound_arrays():
    assert from_arrays("d", np.zeros((2, 1)), np.array([b"cat", b"dog"])).classes == ("cat", "dog")
    assert from_arrays("d", np.zeros((2, 1)), [0, 1], np.array([b"cat", b"dog"])).classes == ("cat", "dog")
    assert from_arrays("d", np.ones((1, 4, 4), bool)).x.max() == 255
    with pytest.raises(UserError, match="pixels are not finite"):
        from_arrays("d", np.full((1, 4, 4), np.nan))
    with pytest.raises(UserError, match=r"\(3, 0, 0\).*empty"):
        from_arrays("d", np.zeros((3, 0, 0)))


@pytest.mark.parametrize("wild", [np.inf, -np.inf, 1e300, 2.0**60])
def test_a_label_that_is_no_whole_number_is_not_made_a_class(wild):
    with pytest.raises(UserError, match="the label of row 1 is"):
        label_indices("pets", np.array([0.0, wild, 1.0]))
