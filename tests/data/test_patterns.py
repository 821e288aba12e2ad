"""Many files by one name: patterns, and paths on standard input."""

import io
import json
import sys
from pathlib import Path

import pytest
from tests.photos import write_classes, write_flat

from tsadapt.data import patterns
from tsadapt.data.open import canonical_name, open_dataset
from tsadapt.errors import UserError


@pytest.fixture
def here(tmp_path, monkeypatch):
    write_classes(tmp_path / "photos", n=3)
    write_flat(tmp_path / "new", n=2)
    (tmp_path / "photos/ant/notes.md").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path / "cache"))
    patterns._pairs.cache_clear()
    yield tmp_path
    patterns._pairs.cache_clear()


def given(monkeypatch, data, terminal=False):
    class Input(io.TextIOWrapper):
        def isatty(self):
            return terminal

    monkeypatch.setattr(sys, "stdin", Input(io.BytesIO(data)))


def content(domain):
    return domain.row_names, domain.x.paths, None if domain.y is None else domain.y.tolist(), domain.classes


def test_a_pattern_reads_what_it_matches_as_its_folder_would(here):
    whole, some = open_dataset("photos").train, open_dataset("photos/*/0[01].png").train
    assert some.classes == whole.classes == ("ant", "bee", "cow")
    kept = [row for row in range(len(whole)) if not whole.row_names[row].endswith("02.png")]
    assert content(some) == content(whole.keep(kept))
    assert content(open_dataset("photos/**/*.png").train) == content(whole)
    assert content(open_dataset("photos/{ant,bee,cow}/{00..02}.png").train) == content(whole)
    assert open_dataset("photos/*/*").train.notes[0].endswith("without an image suffix: ant/notes.md.")
    write_flat(here / "photos/ant/2023/may", n=1)
    deep = open_dataset("photos/**/0-*.png").train
    assert (deep.row_names, deep.classes) == (("ant/2023/may/0-00.png",), ("ant",))
    flat = open_dataset("new/1-*.png")
    assert flat.train.row_names == ("1-00.png", "1-01.png")
    assert flat.train.y is None
    assert flat.name == canonical_name("new/1-*.png") == canonical_name(here / "photos/../new/1-*.png")


def test_a_pattern_that_is_a_path_is_the_path(here):
    Path("new").rename("new [2024]")
    assert open_dataset("new [2024]").train.row_names[0] == "0-00.png"
    assert open_dataset("new [2024]/0-*").train.row_names == ("0-00.png", "0-01.png")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("photos/*.jpg", "matches nothing in photos"),
        ("nowhere/*.jpg", "matches nothing in nowhere"),
        ("photos/*", r"matches 3 paths \(ant, bee, cow\).*To read what is in the folders: photos/\*/\*"),
        ("photos/*/*.md", "format is unknown"),
        ("cow*", "matches nothing"),
    ],
)
def test_a_pattern_without_data_is_explained(here, pattern, said):
    with pytest.raises(UserError, match=said):
        open_dataset(pattern)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\0"])
def test_paths_on_standard_input(here, monkeypatch, end):
    given(monkeypatch, end.join([b"new/1-00.png", b"new/0-01.png", b""]))
    domain = open_dataset("-").train
    assert domain.row_names == ("new/1-00.png", "new/0-01.png")
    assert domain.x.paths == (str(here / "new/1-00.png"), str(here / "new/0-01.png"))
    assert domain.y is None
    assert domain.name == "standard input"
    assert content(open_dataset("-").train) == content(domain)  # it can be asked for twice


def test_labels_comments_and_spaces_on_standard_input(here, monkeypatch):
    Path("new").rename("my new")
    given(monkeypatch, b'\xef\xbb\xbf# checked\nmy new/1-00.png bee\n\n"my new/0-01.png" "ant"\n')
    domain = open_dataset("-").train
    assert domain.row_names == ("my new/1-00.png", "my new/0-01.png")
    assert [domain.classes[i] for i in domain.y] == ["bee", "ant"]


def test_standard_input_has_a_name_that_can_be_opened_again(here, monkeypatch):
    given(monkeypatch, b"new/1-00.png bee\nnew/0-01.png ant\n")
    name = canonical_name("-")
    monkeypatch.chdir("/")
    again = open_dataset(name)
    assert again.name == name
    assert again.train.name == "standard input"
    assert again.train.x.paths == (str(here / "new/1-00.png"), str(here / "new/0-01.png"))
    assert again.train.classes == ("ant", "bee")
    lines = Path(name).read_text().splitlines()
    assert json.loads(lines[0].split('" ')[0] + '"') == str(here / "new/1-00.png")
    patterns._pairs.cache_clear()
    given(monkeypatch, b"%s/new/1-00.png bee\n%s/new/0-01.png ant\n" % (bytes(here), bytes(here)))
    assert canonical_name("-") == name  # the same files are the same data


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "Standard input is empty, expected paths"),
        (b"# nothing\n\n", "Standard input is empty"),
        (b"new/none.png\n", "none of the 1 file exists"),
        (b"new/0-00.png a\nnew/0-01.png\n", "'new/0-01.png' has no label but other lines do"),
        (b"new\n", "none of the 1 file exists. The first, .*new, is a folder"),
    ],
)
def test_what_is_wrong_with_standard_input(here, monkeypatch, data, said):
    given(monkeypatch, data)
    for read in (open_dataset, canonical_name):
        with pytest.raises(UserError, match=said):
            read("-")


def test_a_terminal_is_not_waited_for(here, monkeypatch):
    given(monkeypatch, b"", terminal=True)
    with pytest.raises(UserError, match="Standard input is a terminal"):
        open_dataset("-")
