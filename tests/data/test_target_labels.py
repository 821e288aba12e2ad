import numpy as np
import pytest
import torch
from PIL import Image

from tsadapt.data.folders import load_folder
from tsadapt.data.target_labels import read_target_labels
from tsadapt.data.types import Domain
from tsadapt.errors import UserError

CLASSES = ("cat", "dog")
ROWS = Domain("rows", torch.zeros(5, 2))


@pytest.fixture
def photos(tmp_path):
    for i, name in enumerate(("day/a.png", "day/b.png", "day/c.png", "night/c.png")):
        path = tmp_path / "new" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), 40 * i, dtype=np.uint8)).save(path)
    return load_folder(tmp_path / "new", "new").unlabelled()


@pytest.mark.parametrize("head", ["", "name,label\n", "row,class\n"])
def test_rows_by_number(tmp_path, head):
    path = tmp_path / "few.csv"
    path.write_text(f"{head}3,dog\n0, cat\n\n")
    assert read_target_labels(path, ROWS, CLASSES).tolist() == [0, -1, -1, 1, -1]


def test_a_name_of_two_lines(tmp_path):
    """As the predictions of such a target have it, to copy from."""
    path, names = tmp_path / "few.csv", ("a\nb", "c\u2028d", "e", 'f"', "g")
    path.write_text('name,label\n"a\nb",dog\nc\u2028d,cat\n"f""",dog\n', encoding="utf-8")
    found = read_target_labels(path, Domain("rows", torch.zeros(5, 2), row_names=names), CLASSES)
    assert found.tolist() == [1, 0, -1, 1, -1]


def test_a_class_called_label_is_no_heading(tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("0,label\n")
    assert read_target_labels(path, ROWS, ("label", "dog")).tolist() == [0, -1, -1, -1, -1]


def test_images_by_path_or_by_their_own_name(tmp_path, photos):
    path = tmp_path / "few.csv"
    names = [photos.row_name(row) for row in range(len(photos))]
    path.write_text(f"b.png,dog\n{names[-1]},cat\n")
    found = read_target_labels(path, photos, CLASSES)
    assert {names[row]: int(found[row]) for row in np.flatnonzero(found >= 0)} == {
        next(name for name in names if name.endswith("b.png")): 1, names[-1]: 0,
    }  # fmt: skip


def test_class_folders_hold_copies_of_target_images(tmp_path, photos):
    for label, name in (("dog", "a.png"), ("cat", "b.png")):
        folder = tmp_path / "checked" / label
        folder.mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(folder / name)
    found = read_target_labels(tmp_path / "checked", photos, CLASSES)
    assert sorted(found.tolist()) == [-1, -1, 0, 1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("9,dog\n", "names 9, which the target rows does not have: expected names such as 0"),
        ("1,dgo\n", "'dgo'.*dog"),
        ("1,dog,x\n", "line 1, has 3 columns: expected name,label"),
        ("1,dog\n1,cat\n", "gives 1 two classes: dog and cat"),
        ("", "names no row"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, text, said):
    path = tmp_path / "few.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        read_target_labels(path, ROWS, CLASSES)


def test_a_name_that_several_rows_have(tmp_path, photos):
    path = tmp_path / "few.csv"
    path.write_text("c.png,dog\n")
    with pytest.raises(UserError, match=r"several target rows are called c.png"):
        read_target_labels(path, photos, CLASSES)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        read_target_labels(tmp_path / "none.csv", ROWS, CLASSES)
