"""Files are whole or not there, whoever else writes, and whatever stands in their place."""

import os

import pytest

from tsadapt.files import csv_cells, write_atomically, writing


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
