"""Files are whole or not there, whoever else writes, and whatever stands in their place."""

import errno
import os

import pytest

from tsadapt.files import csv_cells, naming, write_atomically, writing


def test_the_umask_decides_who_may_read(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    write_atomically(tmp_path / "out", "new")
    assert (tmp_path / "elsewhere").read_text() == "mine"
    assert not (tmp_path / "out").is_symlink()
    assert (tmp_path / "out").read_text() == "new"


def test_two_writers_do_not_mix(tmp_path):
    path = tmp_path / "rows.csv"
    with writing(path, text=True) as a, writing(path, text=True) as b:
        for i in range(100):
            a.write(f"a{i}\n")
            b.write(f"b{i}\n")
    lines = path.read_text().splitlines()
    assert len(lines) == 100
    assert len({line[0] for line in lines}) == 1
    assert [*tmp_path.iterdir()] == [path]


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")

    def fail():
        with writing(path) as file:
            file.write(b"half")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("text", ["=1+1", "+a", "-a", "@a", "\ta", "\r=1", "-", "+1 of 2"])
def test_no_cell_of_a_table_is_run_by_a_spreadsheet(text):
    (cell,) = csv_cells([text])
    assert cell == "'" + text.replace("\r", "\\r")


def test_numbers_and_other_cells_of_a_table_stay():
    cells = ["", "cat", "-1", "+2.5e-3", "-inf", -3, 0.5, None, "a=b", "a-b"]
    assert csv_cells(cells) == cells
    assert csv_cells(["a\r=1"]) == ["a\\r=1"]


@pytest.mark.parametrize("fails", ["fsync", "replace", "open"])
def test_a_full_disk_names_the_file(tmp_path, monkeypatch, fails):
    def full(*given, **named):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, fails, full)
    with pytest.raises(OSError, match="No space left on device") as raised:
        write_atomically(tmp_path / "rows.csv", "text")
    assert raised.value.filename == str(tmp_path / "rows.csv")
    monkeypatch.undo()
    assert [*tmp_path.iterdir()] == []


def test_an_error_about_another_file_keeps_its_name(tmp_path):
    with pytest.raises(FileNotFoundError) as raised, writing(tmp_path / "out"):
        (tmp_path / "in").open()
    assert raised.value.filename == str(tmp_path / "in")
    with pytest.raises(OSError, match="no number"), naming(tmp_path / "out"):
        raise OSError("no number")
