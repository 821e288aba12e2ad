"""Names, formats, and the spelling of paths."""

import os
from pathlib import Path

import numpy as np
import pytest
from tests.photos import write_classes, write_flat

from tsadapt.data import open as opening
from tsadapt.data.open import FAMILIES, FORMATS, KINDS, Format, canonical_name, dataset_names, open_dataset
from tsadapt.data.types import Roles
from tsadapt.errors import UserError


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder is tmp/work; data is in it and beside it."""
    work = tmp_path / "work"
    write_classes(work / "photos", n=2)
    write_flat(tmp_path / "beside", n=1)
    (work / "list.txt").write_text("photos/ant/00.png 1\nphotos/bee/01.png 0\n")
    (work / "table.csv").write_text("a,label\n1,cat\n2,dog\n")
    np.savez(work / "array.npz", x=np.eye(3), y=[0, 1, 1])
    monkeypatch.chdir(work)
    monkeypatch.delenv("TSADAPT_DATA", raising=False)
    return work


def content(domain):
    files = getattr(domain.x, "paths", None)
    labels = None if domain.y is None else domain.y.tolist()
    return domain.name, domain.row_names, files, labels, domain.classes, domain.notes, domain.fingerprint()


@pytest.mark.parametrize("name", ["photos", "list.txt", "table.csv", "array.npz", "photos/ant/01.png"])
def test_relative_and_absolute_paths_give_the_same_dataset(here, name, monkeypatch):
    monkeypatch.setenv("HOME", str(here))
    spellings = [name, f"./{name}", str(here / name), Path(name), f"~/{name}", f"../work/{name}", f"photos/../{name}"]
    relative = open_dataset(name)
    assert relative.train.name == name
    assert relative.name == str(here / name)
    for spelling in spellings:
        assert canonical_name(spelling) == str(here / name)
        assert content(open_dataset(spelling).train) == content(relative.train)


def test_row_names_are_relative_to_the_data(here):
    assert open_dataset(here / "photos").train.row_names[:3] == ("ant/00.png", "bee/00.png", "cow/00.png")
    assert open_dataset(here / "list.txt").train.row_names == ("photos/ant/00.png", "photos/bee/01.png")
    assert open_dataset(here / "photos/ant/01.png").train.row_names == ("01.png",)


def test_images_stay_readable_when_the_current_folder_changes(here, monkeypatch):
    images = open_dataset("photos").train.x
    monkeypatch.chdir("/")
    assert images.decode(0, 1).shape == (3, 30, 40)


def test_a_path_outside_the_current_folder_is_shown_as_given(here):
    for spelling in ("../beside", str(here.parent / "beside")):
        dataset = open_dataset(spelling)
        assert dataset.train.name == spelling
        assert dataset.name == str(here.parent / "beside")
        assert dataset.train.row_names == ("0-00.png", "1-00.png", "2-00.png")


def test_family_names_stay_and_a_folder_wins(here):
    for name in ("digits:uci", "digits:none", "office31:amazon", "moons:source-3", "features:x", "memory:0123"):
        assert canonical_name(name) == name
    assert canonical_name("digit:uci") == str(here / "digit:uci")
    assert canonical_name("nowhere/../not here.npz") == str(here / "not here.npz")
    write_flat(here / "digits:uci", n=1)
    assert canonical_name("digits:uci") == str(here / "digits:uci")
    for name in ("digits:uci", here / "digits:uci"):
        domain = open_dataset(name).train
        assert (domain.name, domain.kind, len(domain)) == ("digits:uci", "file", 3)


def test_a_linked_folder_is_resolved_and_a_linked_file_keeps_its_place(here):
    (here / "link").symlink_to(here / "photos", target_is_directory=True)
    assert canonical_name("link") == canonical_name("photos")
    store = here / "store"
    store.mkdir()
    os.rename("list.txt", store / "0a1b")  # a cache that keeps files by their hash
    (here / "list.txt").symlink_to(store / "0a1b")
    assert canonical_name("list.txt") == str(here / "list.txt")
    assert open_dataset("list.txt").train.notes == ()


def test_an_unknown_name_gets_a_suggestion_in_both_spellings(here):
    for name in ("digit:mnist", canonical_name("digit:mnist")):
        with pytest.raises(UserError, match=r"Unknown dataset 'digit:mnist'.*'digits:mnist'.*Available: digits:uci"):
            open_dataset(name)


def test_names_and_messages_come_from_the_tables(here, monkeypatch):
    assert {name.partition(":")[0] for name in dataset_names()} == set(FAMILIES) - {"features", "memory"}
    for form in FORMATS:
        assert form.title in KINDS
        assert len([f for f in FORMATS if set(f.suffixes) & set(form.suffixes)]) == 1
    seen = []
    monkeypatch.setattr(opening, "FORMATS", (*FORMATS, Format("a poem", (".poem",), lambda *given: seen.append(given))))
    (here / "ode.POEM").touch()
    with pytest.raises(TypeError):  # the reader above returns no dataset
        open_dataset("ode.POEM", ("a",))
    assert seen == [(here / "ode.POEM", "ode.POEM", ("a",), Roles())]


def test_embeddings_in_the_data_folder(here, monkeypatch):
    with pytest.raises(UserError, match=r"features:mine was not found.*TSADAPT_DATA is not set"):
        open_dataset("features:mine")
    (here / "features").mkdir()
    os.rename("array.npz", "features/mine.npz")
    monkeypatch.setenv("TSADAPT_DATA", str(here))
    assert dataset_names()[-1] == "features:mine"
    dataset = open_dataset("features:mine")
    assert (dataset.name, dataset.train.name, len(dataset.train)) == ("features:mine", "features:mine", 3)
    with pytest.raises(UserError, match=r"other.npz does not exist.*tsadapt features"):
        open_dataset("features:other")


def test_data_in_memory_cannot_be_opened_by_name():
    with pytest.raises(UserError, match=r"memory:0123456789abcdef .*Pass the data again"):
        open_dataset("memory:0123456789abcdef")
