"""The cache: how large it is, and how it is cleared while others use it."""

import os
import shutil
import time

import pytest

from tsadapt import cache
from tsadapt.cache import GONE, clear, kept
from tsadapt.cli import main


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "cache"
    for path, size in (
        ("features/aa/rows-000000000.npz", 1000), ("features/aa/rows-000000128.npz", 500), ("features/bb/rows.npz", 7),
        ("activations/cc/x.npy", 2_000_000), ("backbones/dd.safetensors", 30), ("lists/ee.txt", 4),
        ("mine/notes.txt", 9),
    ):  # fmt: skip
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x" * size)
    for path in (root / "features/bb").iterdir():
        os.utime(path, (time.time() - 40 * 86400,) * 2)
    return root


def test_its_size_is_said_by_kind(root, capsys):
    assert main(["cache"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:2]] == [["activations", "2.0", "MB", "1", "item"], [
        "backbones", "30", "bytes", "1", "item"
    ]]  # fmt: skip
    assert lines[2].split() == ["features", "1.5", "kB", "2", "items"]
    assert lines[-1] == f"2.0 MB in {root}"
    assert main(["cache", "size", "--older-than", "30"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"7 bytes in {root}, not used for 30 days"


def test_old_items_or_all_are_cleared_and_nothing_else(root, capsys):
    assert main(["cache", "clear", "--older-than", "30"]) == 0
    assert capsys.readouterr().out == f"cleared 1 item of {root}: 7 bytes\n"
    assert not (root / "features/bb").exists()
    assert (root / "features/aa").exists()
    assert main(["cache", "clear"]) == 0
    assert "cleared 4 items" in capsys.readouterr().out
    assert kept() == []
    assert (root / "mine/notes.txt").exists()
    assert main(["cache", "clear"]) == 0
    shutil.rmtree(root)
    assert main(["cache"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"0 bytes in {root}"


def test_an_item_goes_all_at_once_and_what_a_kill_left_goes_later(root, monkeypatch):
    def killed(path, *rest):
        assert not (root / "features/aa").exists()  # nobody finds half of it
        raise KeyboardInterrupt

    entries = [one for one in kept() if one.path.name == "aa"]
    monkeypatch.setattr(cache.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        clear(entries)
    monkeypatch.undo()
    monkeypatch.setenv("TSADAPT_CACHE", str(root))
    (left,) = [one for one in kept(30) if one.path.name.startswith(GONE)]  # of any age
    assert left.size == 1500
    assert clear([left]) == (1500, [])
    assert clear(entries) == (0, [])  # another process was faster


def test_a_link_is_deleted_and_not_followed(root, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/precious").write_text("kept")
    (root / "features/link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    clear(kept())
    assert not (root / "features/link").is_symlink()
    assert (tmp_path / "elsewhere/precious").read_text() == "kept"


def test_a_negative_age_is_refused(root, capsys):
    assert main(["cache", "clear", "--older-than", "-1"]) == 2
    assert "expected a number of days" in capsys.readouterr().err
    assert len(kept()) == 5
