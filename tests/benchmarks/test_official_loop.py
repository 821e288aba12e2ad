"""The plain loop beside ours: it learns, it differs from ours in what it should, and nothing is run twice."""

import json

import numpy as np
import pytest
import torch
from benchmarks.official_loop import main, official_accuracy


def blobs(n, shift, seed):
    rng, y = np.random.default_rng(seed), np.arange(n) % 3
    return (3 * np.eye(3, 8)[y] + rng.normal(size=(n, 8)) + shift).astype(np.float32), y


@pytest.mark.parametrize("tsa", [False, True])
def test_the_plain_loop_adapts(tsa):
    source, target = (tuple(map(torch.from_numpy, blobs(n, s, n))) for n, s in ((200, 0.0), (150, 0.5)))
    assert official_accuracy(source, target, tsa, seed=0, steps=60) > 70
    assert official_accuracy(source, target, tsa, seed=0, steps=60) == official_accuracy(source, target, tsa, 0, 60)


def test_every_loop_is_measured_once(tmp_path, monkeypatch, capsys):
    (tmp_path / "features").mkdir()
    for name, shift in (("a", 0.0), ("b", 0.5)):
        x, y = blobs(90, shift, 0)
        np.savez(tmp_path / "features" / f"{name}.npz", x=x, y=y, classes=np.array(["u", "v", "w"]))
    monkeypatch.setenv("TSADAPT_DATA", str(tmp_path))
    line = ["--tasks", "a>b", "--seeds", "1", "--steps", "4", "--out", str(tmp_path / "found.json")]
    main(line)
    runs = json.loads((tmp_path / "found.json").read_text())["runs"]
    assert len(runs) == 3 * 2
    runs["a>b | ours | +TSA | 0"] = 12.5
    (tmp_path / "found.json").write_text(json.dumps({"runs": runs}))
    capsys.readouterr()
    main(line)
    assert "a>b ours +TSA: 12.5 ± 0.0" in capsys.readouterr().out
