"""Imports go one way only: a package imports what stands further down, never a sibling of its own row."""

import ast
import tomllib
from pathlib import Path

import pytest

import tsadapt

ROOT = Path(tsadapt.__file__).parent
LAYERS = [
    {"cli"},
    {"export"},
    {"adapt", "benchmark"},
    {"report"},
    {"sweep", "estimator"},
    {"runs"},
    {"training"},
    {"objectives", "trust"},
    {"selection"},
    {"models"},
    {"data"},
    {"core"},
    {"config", "registry"},
    {"settings", "progress", "presets", "cache"},
    {"files", "errors", "vision"},
]
DEPTH = {name: depth for depth, layer in enumerate(LAYERS) for name in layer}
HEAVY = {"torch", "sklearn", "pandas", "matplotlib", "torchvision", "timm"}


def imported(path: Path, top_only: bool = False) -> set[str]:
    """Full names of the modules a file imports, anywhere or at its top level only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = set()
    for node in tree.body if top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def forbidden(part: str, names: set[str]) -> set[str]:
    """Those of `names` that part may not import."""
    parts = {name: name.split(".")[1] for name in names if name.startswith("tsadapt.")}
    return {n for n, other in parts.items() if other in DEPTH and other != part and DEPTH[other] <= DEPTH[part]}


def files() -> list[Path]:
    return [path for path in sorted(ROOT.rglob("*.py")) if path.parent != ROOT or path.stem in DEPTH]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path):
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert part in DEPTH, f"{part} has no place in the order of the design"
    assert not forbidden(part, imported(path))


def test_the_rule_can_fail():
    assert forbidden("core", {"tsadapt.training.trainer"}) == {"tsadapt.training.trainer"}
    assert forbidden("data", {"tsadapt.models.networks"}) == {"tsadapt.models.networks"}
    assert not forbidden("training", {"tsadapt.core.TSALoss", "torch.nn"})


def test_light_parts_import_nothing_heavy():
    light = [
        ROOT / name
        for name in ("__init__.py", "config.py", "settings.py", "registry.py", "cli/__init__.py", "cli/options.py")
    ]
    for path in filter(Path.exists, light):
        top = {name.split(".")[0] for name in imported(path, top_only=True)}
        assert not top & HEAVY, path


def test_the_package_knows_nothing_of_the_paper_next_door():
    for path in ROOT.rglob("*.py"):
        assert not any(name.split(".")[0] == "paper" for name in imported(path)), path
    names = {path.stem for path in ROOT.rglob("*") if path.is_file()}
    assert not names & {"wgan_gp", "published", "reverse_mapping"}


def test_the_wheel_is_the_package_alone():
    project = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/tsadapt"]
