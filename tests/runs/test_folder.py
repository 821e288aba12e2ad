"""The name of a file in a run's folder or a sweep's is written once: everything else asks the folder."""

import ast
from pathlib import Path

import pytest

import tsadapt

ROOT = Path(tsadapt.__file__).parent
FILES = [
    "config.toml",
    "manifest.json",
    "metrics.json",
    "records.jsonl",
    "memory.safetensors",
    "model.json",
    "model.safetensors",
    "backbone.safetensors",
    "choice.json",
    "scores.csv",
    "oracle.json",
    "optuna.db",
]


def literals(source: str) -> set[str]:
    """The string constants of a module; docstrings, and those of attributes and fields, aside."""
    tree = ast.parse(source)
    prose = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose
    }


MODULES = {path.relative_to(ROOT).as_posix(): literals(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}


@pytest.mark.parametrize("name", FILES)
def test_it_is_written_in_one_module(name):
    assert [module for module, found in MODULES.items() if name in found] == ["runs/folder.py"]


def test_the_scan_sees_what_it_should():
    source = '"""config.toml"""\nx = "config.toml"\ndef f():\n    """metrics.json"""\n    return f"{x}/choice.json"\n'
    assert {"config.toml", "/choice.json"} == literals(source)
