"""A run of every kind, its exported model, and what predict says by either; each is made once."""

import csv
from pathlib import Path

import pytest

import tsadapt
from tsadapt.cli import main
from tsadapt.export import export

__all__ = ["ENCODER", "OWN", "PHOTOGRAPHS", "RUNS", "assert_same", "exported", "own", "predictions", "run_of"]

ENCODER = """
from torch import nn

def make():
    first = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU())
    second = nn.Sequential(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    encoder = nn.Sequential(first, second)
    encoder.size, encoder.resize, encoder.interpolation = 24, 29, "bicubic"
    return encoder
"""
SHORT = {"steps": 12, "batch_size": 6, "lr": 0.05}
OWN = {"backbone": "enc.py:make", "workers": 0, "bottleneck": 8, **SHORT}
RUNS = {
    "frozen": ("labelled", "new", {"tsa": True, "feature_precision": "fp32", **OWN}),
    "trained": ("labelled", "new", {"freeze_backbone": False, **OWN}),
    "ten-crop": ("labelled", "new", {"freeze_backbone": False, "ten_crop": True, **OWN}),
    "stage": ("labelled", "new", {"train_from": "1", "precision": "fp32", **OWN}),
    "two-heads": ("source.npz", "target.npz", {"method": "mcd", **SHORT}),
    "adabn": ("source.npz", "target.npz", {"method": "adabn", **SHORT}),
    "table": ("source.csv", "target.csv", {"tsa": True, "id_column": "no", **SHORT}),
    "digits": ("digits:uci", "grey.npz", {"steps": 12, "network": "small-16"}),
}
PHOTOGRAPHS = ("frozen", "trained", "ten-crop", "stage")


def run_of(case):
    """The folder of a case's run, trained once."""
    source, target, settings = RUNS[case]
    folder = Path("runs") / case
    if not (folder / "metrics.json").is_file():
        tsadapt.fit(source, target, out=folder, **settings)
    return folder


def own(case):
    return "enc.py:make" if case in PHOTOGRAPHS else None


def exported(case, kind="onnx"):
    """The exported model of a case, made once."""
    folder = Path("shipped") / case
    file = folder / ("model.onnx" if kind == "onnx" else "model.pt2")
    if not file.is_file():
        export(run_of(case), folder, kind, backbone=own(case))
    return file


def predictions(*words):
    out = Path("predictions.csv")
    assert main(["predict", *map(str, words), "--out", str(out)]) == 0
    with out.open() as file:
        return [*csv.DictReader(file)]


def assert_same(found, expected, close=1e-4):
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.keys() == theirs.keys()
        for key in mine:
            if key == "confidence" or key.startswith("p("):
                assert float(mine[key] or 0) == pytest.approx(float(theirs[key] or 0), abs=close)
            else:
                assert mine[key] == theirs[key]
