import io
import tracemalloc
import zipfile

import numpy as np
import pandas
import pytest
import torch

from tsadapt.data.arrays import from_arrays, label_indices
from tsadapt.data.open import open_dataset
from tsadapt.data.tables import load_table
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
        ("", "cannot be read.*CSV or Parquet"),
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


def npy(array, shape=None):
    """The bytes of an .npy file; its header may promise another shape than it has."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": array.dtype.str, "fortran_order": False, "shape": shape or array.shape}
    )
    return file.getvalue() + array.tobytes()


HUGE = (1 << 20, 1 << 10, 1 << 10)


@pytest.mark.parametrize("compression", [None, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("shape", [HUGE, (3, 3), (-1, 2), (1 << 62, 1 << 62)])
def test_a_header_that_promises_more_than_the_file_holds_allocates_nothing(tmp_path, shape, compression):
    path = tmp_path / ("x.npy" if compression is None else "x.npz")
    if compression is None:
        path.write_bytes(npy(np.zeros((2, 2)), shape))
    else:
        with zipfile.ZipFile(path, "w", compression) as archive:
            archive.writestr("x.npy", npy(np.zeros((2, 2)), shape))
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=r"cannot be read: its header promises an array of shape .* Expected"):
            open_dataset(str(path))
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


def test_a_directory_of_an_archive_that_promises_too_much_allocates_nothing(tmp_path):
    data = npy(np.zeros((2, 2)), (1 << 28, 1))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", data)
    written = (tmp_path / "x.npz").read_bytes()
    size = len(data).to_bytes(4, "little")
    at = written.rindex(size + size) + 4  # the unpacked size in the directory
    (tmp_path / "x.npz").write_bytes(written[:at] + b"\xf0\xff\xff\xff" + written[at + 4 :])
    with pytest.raises(UserError, match="its header promises"):
        open_dataset(str(tmp_path / "x.npz"))


def test_an_encrypted_archive_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 2)))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(magic) + offset] |= 1  # the flag of an encrypted member
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(UserError, match=r"a.npz cannot be read: .*encrypted"):
        open_dataset(str(tmp_path / "a.npz"))


def test_an_archive_with_a_wrong_checksum_or_with_two_arrays_of_one_name(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros((2, 2)))
    data = path.read_bytes()
    path.write_bytes(data.replace(bytes(8), b"\1" * 8, 1))
    with pytest.raises(UserError, match="CRC"):
        open_dataset(str(path))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", npy(np.zeros((2, 2))))
        archive.writestr("x", npy(np.ones((2, 2))))
    with pytest.raises(UserError, match="two arrays named x"):
        open_dataset(str(path))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"classes": np.array("cat")}, r"classes has shape \(\)"),
        ({"classes": np.array(2)}, r"classes has shape \(\)"),
        ({"classes": np.array([b"cat", b"\xff"])}, "classes cannot be read as text.*UTF-8"),
        ({"y": np.array([b"cat", b"\xff"])}, "y cannot be read as text.*UTF-8"),
        ({"names": np.array([b"a", b"\xff"])}, "names cannot be read as text.*UTF-8"),
        ({"y": np.array(["2020-01-01", "2020-01-02"], "datetime64[D]")}, "labels have dtype datetime64"),
        ({"y": np.array([1j, 2j])}, "labels have dtype complex"),
    ],
)
def test_names_that_are_no_list_of_text(tmp_path, arrays, message):
    with pytest.raises(UserError, match=message):
        open_dataset(saved(tmp_path / "a.npz", **{"x": np.eye(2), "y": np.array([0, 1]), **arrays}))


def test_text_that_no_file_can_hold_is_escaped_or_refused():
    assert label_indices("pets", np.array(["a", "\udcff"]))[1] == ("a", "\\xff")
    broken = np.frombuffer(np.array([97, 0x7FFFFFFF], "<u4").tobytes(), "<U1")
    with pytest.raises(UserError, match="y cannot be read as text"):
        label_indices("pets", broken)


@pytest.mark.parametrize("label", [10**5000, 10**25, -(10**25), float("inf")], ids=["5000", "25", "-25", "inf"])
def test_a_python_number_that_is_too_large_is_not_made_a_class(label):
    with pytest.raises(UserError, match="the label of row 1 has more than 18 digits"):
        label_indices("pets", np.array([0, label, 1], dtype=object))


def test_labels_that_turn_into_text_far_below_are_all_text(tmp_path):
    (tmp_path / "t.csv").write_text("a,label\n" + "1,7\n" * 300_000 + "1,x\n" * 300_000)
    domain = open_dataset(str(tmp_path / "t.csv")).train
    assert domain.classes == ("7", "x")
    assert domain.y[[0, 299_999, 300_000]].tolist() == [0, 0, 1]


def test_a_feature_that_turns_into_text_shows_the_text(tmp_path):
    (tmp_path / "t.csv").write_text("a,label\n1,x\n2,x\nred,y\n")
    with pytest.raises(UserError, match="column 'a' is not numeric, for example 'red'"):
        open_dataset(str(tmp_path / "t.csv"))


def test_long_numbers_and_nul_in_a_table(tmp_path):
    long = "9" * 5000
    (tmp_path / "t.csv").write_text(f"a,label\n1,{long}\n2,x\0y\n")
    assert open_dataset(str(tmp_path / "t.csv")).train.classes == (long, "x\0y")
    (tmp_path / "t.csv").write_text(f"a,label\n1,{long}\n2,{'8' * 25}\n")
    assert open_dataset(str(tmp_path / "t.csv")).train.classes == ("8" * 25, long)
    (tmp_path / "t.csv").write_text(f"a,label\n1,{'8' * 25}\n2,1\n")
    with pytest.raises(UserError, match="row 0 has more than 18 digits"):
        open_dataset(str(tmp_path / "t.csv"))
    (tmp_path / "t.csv").write_text(f"a,label\n{long},x\n2,y\n")
    with pytest.raises(UserError, match=r"column 'a' is not numeric|missing or infinite"):
        open_dataset(str(tmp_path / "t.csv"))


def test_rows_longer_than_the_header_do_not_move_its_columns(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,label\n1,2,x,3\n4,5,y,6\n")
    with pytest.raises(UserError, match=r"cannot be read: .*Expected a CSV"):
        open_dataset(str(tmp_path / "t.csv"))


@pytest.mark.parametrize("data", [b"a,label\n1,\xff\n", b"\0\0\0\0", b"PAR1", b'"'])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_damaged_tables(tmp_path, data, suffix):
    (tmp_path / f"t{suffix}").write_bytes(data)
    with pytest.raises(UserError, match=rf"t\{suffix} (cannot be read|has no)"):
        open_dataset(str(tmp_path / f"t{suffix}"))


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_header_that_promises_less_than_the_file_holds_loses_no_rows(tmp_path, suffix):
    path, data = tmp_path / f"x{suffix}", npy(np.zeros((4, 2)), (3, 2))
    if suffix == ".npy":
        path.write_bytes(data)
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", data)
    with pytest.raises(UserError, match=r"more bytes follow its array of shape \(3, 2\)"):
        open_dataset(str(path))


def test_columns_of_one_name_in_a_csv_are_refused_at_once(tmp_path):
    (tmp_path / "a.csv").write_text("a,a,label\n1,2,x\n")
    with pytest.raises(UserError, match=r"a\.csv has more than one column named 'a'\. Give each column its own name"):
        load_table(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("a," * 200_000 + "label\n")
    with pytest.raises(UserError, match="more than one column named 'a'"):  # pandas takes minutes
        load_table(tmp_path / "a.csv")


def test_the_header_of_a_csv_may_be_marked_quoted_nameless_and_late(tmp_path):
    (tmp_path / "a.csv").write_text('\ufeff\n\n"a, b",,label\r\n1,2,x\r\n3,4,y\r\n', newline="")
    table = load_table(tmp_path / "a.csv").train
    assert table.columns == ("a, b", "Unnamed: 1")
    assert table.classes == ("x", "y")
    assert table.tensor[0].tolist() == [1, 2]
