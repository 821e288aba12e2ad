"""Export: a trained model as one file that runs without tsadapt, compared with PyTorch before it is left behind."""

import contextlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from tsadapt.data.in_memory import as_dataset
from tsadapt.data.types import Domain
from tsadapt.errors import UserError, unknown
from tsadapt.export.card import CARD, Facts, Parity, card, facts_of
from tsadapt.export.exported import FILES, ExportedModel, Recipe
from tsadapt.export.graph import Whole, as_onnx, as_torch, check_packages, recipe_of
from tsadapt.export.script import SCRIPTS, script
from tsadapt.files import write_atomically
from tsadapt.runs.model import TrainedModel, Which, load

__all__ = ["LIMIT", "Exported", "Format", "export"]

Format = Literal["onnx", "torch"]

LIMIT = 1e-4
"""The largest difference from PyTorch, in float32 on the same inputs."""

LIMIT_OF_RUN = 0.05
"""The largest difference of a probability from the run, whose features may be stored in half precision."""

IMAGES, ROWS = 32, 512
"""Rows that are compared, of images and of vectors."""

Run = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Exported:
    """What was written: the folder, the model in it, and how it compares with PyTorch."""

    folder: Path
    file: Path
    recipe: Recipe
    parity: Parity


def export(
    run: str | Path,
    out: str | Path | None = None,
    format: Format = "onnx",  # noqa: A002
    *,
    use: Which = "last",
    data: Any = None,
    backbone: str | nn.Module | None = None,
) -> Exported:
    """Write the model of a run, sweep or result into a folder, beside an example of its use and a model card.

    The file has the whole computation: scaling of pixels or rows, network, temperature, and the names of the classes.
    It is compared with PyTorch on real inputs: rows of `data`, by default the target that the run was adapted to, or
    its source. If they differ by more than `LIMIT`, nothing is left behind. A run with an encoder of your own needs
    that again, as `backbone`.
    """
    if format not in get_args(Format):
        raise UserError(unknown("format", format, get_args(Format)))
    if format == "onnx":
        check_packages()
    path = Path(run).expanduser()
    model = load(path, use, device="cpu", backbone=backbone)
    folder = Path(out).expanduser() if out is not None else path / "export"
    _check_folder(folder)
    facts = facts_of(path, model, selected=use == "selected")
    domain = _some_rows(_real_inputs(path, model, facts, data), model)
    precise = not isinstance(domain.x, Tensor) or domain.x.dtype == torch.float64
    recipe = recipe_of(model, precise)
    whole = Whole(model)
    x, rows, unreadable = recipe.prepared(_without_torch(domain, recipe), [*range(len(domain))])
    if not rows:
        raise UserError(
            f"None of {len(domain)} images of {domain.name} can be read: {next(iter(unreadable.values()))}."
        )
    example = torch.from_numpy(np.ascontiguousarray(np.resize(x, (2, *x.shape[1:]))))
    contents = (as_onnx if format == "onnx" else as_torch)(whole, recipe, example)
    file = folder / FILES[format]
    parity = _write_and_check(file, contents, recipe, lambda run: _compare(model, whole, domain, x, rows, run))
    write_atomically(folder / SCRIPTS[format], script(recipe, format))
    there = [kind for kind, name in FILES.items() if kind != format and (folder / name).is_file()]
    write_atomically(folder / CARD, card(model, recipe, facts, parity, [*there, format], LIMIT))
    return Exported(folder, file, recipe, parity)


def _check_folder(folder: Path) -> None:
    """Refuse a place that holds something else."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder} is a file, expected a folder: the model gets a card and an example beside it.")
    if folder.suffix in (".onnx", ".pt2"):
        raise UserError(
            f"--out {folder} is a folder, in which {' or '.join(FILES.values())} is written: name a folder."
        )
    if folder.is_dir() and any(folder.iterdir()) and not any((folder / name).is_file() for name in FILES.values()):
        raise UserError(f"{folder} is not empty and holds no exported model: choose another --out.")


def _real_inputs(path: Path, model: TrainedModel, facts: Facts, data: Any) -> Domain:
    """What the export is compared on: what was given, or the run's target, or its source."""
    roles = replace(model.roles, needed=())
    if data is not None:
        return as_dataset(data, model.columns, name="the data", roles=roles).test
    names = [] if facts.config is None else [facts.config.target, facts.config.source]
    for name in names:
        with contextlib.suppress(UserError):
            return as_dataset(name, model.columns, roles=roles).test
    why = f"is not there any more ({', '.join(names)})" if names else "is unknown"
    raise UserError(f"The data of {path} {why}. Give some to compare with PyTorch on: --data DATA.")


def _some_rows(domain: Domain, model: TrainedModel) -> Domain:
    """Rows all over the domain, without its labels and notes."""
    most = ROWS if domain.kind == "vector" else IMAGES
    rows = np.unique(np.linspace(0, len(domain) - 1, min(most, len(domain))).round().astype(int)).tolist()
    return replace(domain.unlabelled().keep(rows), notes=())


def _without_torch(domain: Domain, recipe: Recipe) -> Domain:
    """The same rows as `predict` reads them: in NumPy."""
    plain = replace(domain, x=domain.x.numpy()) if isinstance(domain.x, Tensor) else domain  # type: ignore[arg-type]
    recipe.check(plain)
    return plain


def _write_and_check(file: Path, contents: bytes, recipe: Recipe, compare: Callable[[Run], Parity]) -> Parity:
    """Write under another name, open that file, compare, and only then give it its name."""
    staged = file.with_name(f".{secrets.token_hex(8)}-{file.name}")
    try:
        write_atomically(staged, contents)
        parity = compare(ExportedModel(staged).run if file.suffix == ".onnx" else _torch_run(staged))
        if not parity.graph <= LIMIT:  # nan is no equality either
            raise UserError(
                f"The exported model differs from PyTorch by {parity.graph:.1e}, more than {LIMIT:.0e}, on"
                f" {parity.rows} rows of {parity.data}: nothing is written."
            )
        if not parity.run <= LIMIT_OF_RUN:
            raise UserError(
                f"A probability of the exported model differs by {parity.run:.2g} from what the run says of"
                f" {parity.data}, more than {LIMIT_OF_RUN}: nothing is written."
            )
        os.replace(staged, file)
    finally:
        staged.unlink(missing_ok=True)
    return parity


def _torch_run(path: Path) -> Run:
    module = torch.export.load(path).module()

    def run(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            p, z = module(torch.from_numpy(x))
        return p.numpy(), z.numpy()

    return run


def _compare(model: TrainedModel, whole: Whole, domain: Domain, x: np.ndarray, rows: list[int], run: Run) -> Parity:
    """The exported model beside PyTorch on the same inputs, and beside what the run says of the data."""
    parts = [run(x[:1]), run(x[1:])] if len(x) > 1 else [run(x)]  # batches of several sizes
    p, z = (np.concatenate(both) for both in zip(*parts, strict=True))
    with torch.no_grad():
        expected_p, expected_z = (t.numpy() for t in whole(torch.from_numpy(np.ascontiguousarray(x))))
    scale = max(1.0, float(np.abs(expected_z).max()))
    graph = max(float(np.abs(p - expected_p).max()), float(np.abs(z - expected_z).max()) / scale)
    said = model.outputs(domain)
    if said.rows != rows:
        raise UserError(f"The run can read other rows of {domain.name} than the exported model: check the data.")
    return Parity(len(rows), domain.name, graph, float(np.abs(p - said.probabilities).max()))
