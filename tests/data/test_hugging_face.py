"""Datasets that Hugging Face's library saved on the disk, read without it."""

import json
import subprocess
import sys

import numpy as np
import pytest
from tests.photos import picture, write_flat

from tsadapt.data.open import canonical_name, open_dataset
from tsadapt.data.types import Roles
from tsadapt.errors import UserError

datasets = pytest.importorskip("datasets")
datasets.disable_progress_bars()

NAMES = ["ant", "bee", "cow"]
IMAGES = datasets.Features(
    {"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES), "key": datasets.Value("string")}
)


def photos(n=2, tint=40):
    pictures = [picture(label, i, tint) for label in range(3) for i in range(n)]
    labels = [label for label in range(3) for _ in range(n)]
    keys = [f"k{i}" for i in range(3 * n)]
    return datasets.Dataset.from_dict({"image": pictures, "label": labels, "key": keys}, features=IMAGES)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def pixels(domain, row):
    return domain.x.decode(row, 1).numpy().transpose(1, 2, 0)


def test_images_are_read_where_they_lie(tmp_path):
    photos().save_to_disk("saved", num_shards=2)
    dataset = open_dataset("hf:saved")
    domain = dataset.train
    assert (
        dataset.name == canonical_name("hf:saved") == canonical_name(f"hf:{tmp_path}/saved") == f"hf:{tmp_path}/saved"
    )
    assert domain.name == "hf:saved"
    assert domain.kind == "file"
    assert domain.classes == tuple(NAMES)
    assert domain.y.tolist() == [0, 0, 1, 1, 2, 2]
    for row in range(6):
        assert np.array_equal(pixels(domain, row), np.asarray(picture(row // 2, row % 2)))
    assert len(set(domain.x.paths)) == 2
    named = open_dataset("hf:saved", roles=Roles(id="key")).train
    assert (named.row_names[5], named.id_column) == ("k5", "key")


def test_a_shuffled_selection_and_images_in_files_of_their_own(tmp_path):
    photos().shuffle(seed=1).select(range(4)).save_to_disk("some")
    order = photos().shuffle(seed=1)["key"][:4]
    domain = open_dataset("hf:some", roles=Roles(id="key")).train
    assert domain.row_names == tuple(order)
    for row, key in enumerate(order):
        assert np.array_equal(pixels(domain, row), np.asarray(picture(int(key[1:]) // 2, int(key[1:]) % 2)))
    write_flat(tmp_path / "new", n=1)
    files = sorted(str(path) for path in (tmp_path / "new").iterdir())
    loose = datasets.Dataset.from_dict({"image": files}, features=datasets.Features({"image": datasets.Image()}))
    loose.save_to_disk("loose")
    assert np.array_equal(pixels(open_dataset("hf:loose").train, 2), np.asarray(picture(2, 0, 90)))


def test_splits():
    splits = {"train": photos(3), "test": photos(1), "validation": photos(2)}
    datasets.DatasetDict(splits).save_to_disk("all")
    dataset = open_dataset("hf:all")
    assert (len(dataset.train), len(dataset.test), dataset.test.split) == (9, 3, "test")
    assert len(open_dataset("hf:all/validation").train) == 6
    datasets.DatasetDict(photos=photos(1)).save_to_disk("one")
    assert len(open_dataset("hf:one").train) == 3
    datasets.DatasetDict(a=photos(1), b=photos(1)).save_to_disk("two")
    with pytest.raises(UserError, match=r"has the splits a, b. Expected train and test; or name one: hf:two/a"):
        open_dataset("hf:two")
    with pytest.raises(UserError, match=r"there is no split 'valid'. Available: test, train, validation."):
        open_dataset("hf:all/valid")


@pytest.mark.parametrize("kind", ["List", "fixed", "float16"])
def test_lists_of_numbers_are_feature_vectors(kind):
    x = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float16 if kind == "float16" else np.float32)
    number = datasets.Value("float16" if kind == "float16" else "float32")
    feature = datasets.List(number, length=4) if kind == "fixed" else datasets.List(number)
    features = datasets.Features({"embedding": feature, "species": datasets.Value("string")})
    rows = {"embedding": x.tolist(), "species": ["cat", "dog"] * 3 + ["cat"]}
    datasets.Dataset.from_dict(rows, features=features).select(range(1, 7)).save_to_disk("v", num_shards=2)
    domain = open_dataset("hf:v", roles=Roles(label="species")).train
    assert np.array_equal(domain.x.numpy(), x[1:].astype(np.float32))
    assert domain.y.tolist() == [1, 0, 1, 0, 1, 0]


def test_columns_of_numbers_are_a_table():
    rows = {"a": [1.0, 2.0, 3.0], "b": [3, 4, 5], "kind": [0, 1, 0], "key": ["x", "y", "z"]}
    made = datasets.Dataset.from_dict(rows).cast_column("kind", datasets.ClassLabel(names=["cat", "dog"]))
    made.rename_column("kind", "label").save_to_disk("t")
    domain = open_dataset("hf:t", roles=Roles(id="key")).train
    assert (domain.columns, domain.classes, domain.row_names) == (("a", "b"), ("cat", "dog"), ("x", "y", "z"))
    assert domain.y.tolist() == [0, 1, 0]
    assert open_dataset("hf:t", ("b", "a"), Roles(id="key")).train.x.tolist() == [[3, 1], [4, 2], [5, 3]]


def test_hidden_labels_are_no_labels():
    photos(1).map(lambda row: {"label": -1}).cast_column("label", IMAGES["label"]).save_to_disk("hidden")
    assert open_dataset("hf:hidden").train.y is None


def test_what_is_wrong_is_said(tmp_path):
    photos(1).save_to_disk("saved")
    with pytest.raises(UserError, match=r"hf:nowhere does not exist. Expected a dataset that save_to_disk"):
        open_dataset("hf:nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"hf:empty has no state.json or dataset_dict.json"):
        open_dataset("hf:empty")
    with pytest.raises(UserError, match=r"saved holds a dataset of Hugging Face. To read it: hf:saved"):
        open_dataset("saved")
    with pytest.raises(UserError, match=r"no column 'species' \(--label-column\)"):
        open_dataset("hf:saved", roles=Roles(label="species"))
    state = json.loads((tmp_path / "saved/state.json").read_text())
    (arrow,) = (tmp_path / "saved").glob("*.arrow")
    for change, said in (
        ({"_indices_files": [{"filename": "i.arrow"}]}, "selection of other rows.*flatten_indices"),
        ({"_data_files": [{"filename": "../x"}]}, r"\.\./x is missing"),
        ({"_data_files": []}, "it has no data files"),
        ({"_data_files": 7}, "cannot be read"),
    ):
        (tmp_path / "saved/state.json").write_text(json.dumps(state | change))
        with pytest.raises(UserError, match=said):
            open_dataset("hf:saved")
    (tmp_path / "saved/state.json").write_text(json.dumps(state))
    arrow.write_bytes(arrow.read_bytes()[:200])
    with pytest.raises(UserError, match=r"data-00000.* cannot be read"):
        open_dataset("hf:saved")
    uneven = datasets.Dataset.from_dict({"x": [[1.0, 2.0], [3.0]]})
    uneven.save_to_disk("uneven")
    with pytest.raises(UserError, match="lists in column 'x' differ in length"):
        open_dataset("hf:uneven")
    datasets.Dataset.from_dict({"x": [[1.0], [2.0]], "y": [[1.0], [3.0]]}).save_to_disk("both")
    with pytest.raises(UserError, match="2 columns of lists: x, y"):
        open_dataset("hf:both")


def test_it_is_read_where_the_library_and_torch_are_missing(tmp_path):
    photos(1).save_to_disk("saved")
    code = (
        "import sys\nfor name in ('torch', 'datasets'): sys.modules[name] = None\n"
        "from tsadapt.data.open import open_dataset\nfrom tsadapt.data.rows import plain_arrays\n"
        "with plain_arrays(): print(len(open_dataset('hf:saved').test))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr


def test_the_extra_is_named_where_it_is_missing(tmp_path, monkeypatch):
    photos(1).save_to_disk("saved")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"pip install 'tsadapt\[hf\]'"):
        open_dataset("hf:saved")
