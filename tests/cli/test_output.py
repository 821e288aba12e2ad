"""Where results are written: a file, standard output, and nothing else."""

import os

import numpy as np
import pytest
from tests.tasks import write_task

from tsadapt.cli import main


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    words = ["fit", "source.npz", "target.npz", "--steps", "5", "--batch-size", "8", "--bottleneck", "4", "--quiet"]
    assert main([*words, "--out", "run"]) == 0
    return tmp_path


def test_a_dash_streams_to_standard_output(run, capsys):
    assert main(["predict", "run", "target.npz", "--out", "file.csv"]) == 0
    capsys.readouterr()
    assert main(["predict", "run", "target.npz", "--out", "-"]) == 0
    assert capsys.readouterr().out == (run / "file.csv").read_text()
    assert not (run / "-").exists()


@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_devices_pipes_and_the_data_itself_are_refused(run, capsys, verb):
    os.mkfifo("pipe")
    (run / "link.npz").symlink_to("target.npz")
    before = (run / "target.npz").read_bytes()
    for out, why in (
        ("pipe", "device, pipe or socket"), ("/dev/null", "device, pipe or socket"), ("target.npz", "the data itself"),
        ("link.npz", "the data itself"), ("run", "is a folder"),
    ):  # fmt: skip
        assert main([verb, "run", "target.npz", "--out", out]) == 2
        assert why in capsys.readouterr().err, out
    assert (run / "target.npz").read_bytes() == before


def test_features_and_doctor_go_the_same_way(run, capsys):
    np.savez("images.npz", x=np.zeros((4, 16, 16), np.uint8))
    os.mkfifo("pipe")
    assert main(["features", "images.npz", "--out", "pipe"]) == 2
    assert "device, pipe or socket" in capsys.readouterr().err
    assert main(["doctor", "source.npz", "target.npz", "--out", "source.npz"]) == 2
    assert "the data itself" in capsys.readouterr().err
