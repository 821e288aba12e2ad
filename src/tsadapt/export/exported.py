"""An exported model: what is known of it, and predictions by ONNX Runtime. Nothing here imports torch.

Shapes: N rows, C classes, K features; images (N, height, width, channels) as uint8.
"""

import json
import os
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tsadapt.data.frames import Framing, ImageShape, fit_image, frame
from tsadapt.data.images import ImageRows, Images, UnreadableImageError
from tsadapt.data.lists import load_paths
from tsadapt.data.open import open_dataset
from tsadapt.data.paths import absolute_path
from tsadapt.data.rows import plain_arrays
from tsadapt.data.tables import NO_ROLES
from tsadapt.data.types import Domain, Roles, Unreadable
from tsadapt.errors import UserError, printable
from tsadapt.progress import StepProgress

__all__ = ["FILES", "ExportedModel", "Outputs", "Recipe", "exported_file"]

FILES = {"onnx": "model.onnx", "torch": "model.pt2"}
"""The file of each format."""

IMAGES_AT_ONCE = 16
ROWS_AT_ONCE = 512

CLASSES, RECIPE = "classes", "tsadapt"
"""Keys of the file's metadata: the names of the classes, and all else that is known of its inputs."""

EXTRA = "An exported model needs an extra package: pip install 'tsadapt[export]', or pip install onnxruntime."


@dataclass(frozen=True)
class Recipe:
    """What an exported model takes, and what its outputs mean.

    `takes` photographs (N, size, size, 3) that are framed by `framing`, or for `ten_crop` (N, resize, resize, 3); or
    small images (N, size, size, channels) of a `shape`; or vectors (N, `inputs`), by the names of their `columns` if
    they have some, in float64 where `precise`. `roles` name a table's columns that were no features in training.
    """

    takes: Literal["photographs", "small images", "vectors"]
    classes: tuple[str, ...]
    temperature: float = 1.0
    framing: Framing | None = None
    ten_crop: bool = False
    shape: ImageShape | None = None
    inputs: int = 0
    precise: bool = False
    columns: tuple[str, ...] | None = None
    roles: Roles = NO_ROLES
    version: str = ""

    @property
    def name(self) -> str:
        """The name of the model's input."""
        return "rows" if self.takes == "vectors" else "images"

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        if self.framing is not None:
            side = self.framing.resize if self.ten_crop else self.framing.size
            return side, side, 3
        return (self.inputs,) if self.shape is None else (self.shape.size, self.shape.size, self.shape.channels)

    @property
    def dtype(self) -> type[np.generic]:
        """The numbers of the model's input."""
        if self.takes != "vectors":
            return np.uint8
        return np.float64 if self.precise else np.float32

    def __str__(self) -> str:
        sides = "".join(f", {side}" for side in self.row_shape)
        return f"{self.name}, {np.dtype(self.dtype)} (N{sides})"

    def packed(self) -> dict[str, str]:
        """As metadata of a file."""
        described = asdict(self)
        described["roles"] = {"id": self.roles.id, "label": self.roles.label}
        return {CLASSES: json.dumps(described.pop("classes")), RECIPE: json.dumps(described)}

    @classmethod
    def unpacked(cls, metadata: dict[str, str]) -> "Recipe":
        """From a file's metadata; raises KeyError, TypeError or ValueError if it is somebody else's."""
        found = json.loads(metadata[RECIPE])
        if (framing := found.pop("framing")) is not None:
            framing = Framing(**framing)
        if (shape := found.pop("shape")) is not None:
            shape = ImageShape(shape["channels"], shape["size"], shape["crop"] and tuple(shape["crop"]))
        columns, roles = found.pop("columns"), Roles(**found.pop("roles"))
        classes = tuple(json.loads(metadata[CLASSES]))
        named = columns and tuple(columns)
        return cls(classes=classes, framing=framing, shape=shape, columns=named, roles=roles, **found)

    def prepared(self, domain: Domain, rows: list[int]) -> tuple[np.ndarray, list[int], Unreadable]:
        """Some rows of a domain as the model takes them, which those are, and why the others cannot be read."""
        if self.takes == "vectors":
            return np.asarray(domain.x)[rows].astype(self.dtype), rows, {}
        found, unreadable = dict[int, np.ndarray](), Unreadable()
        for row in rows:
            try:
                found[row] = self._image(domain, row).transpose(1, 2, 0)
            except UnreadableImageError as error:
                unreadable[row] = str(error)
        return np.stack([*found.values()]) if found else np.empty(0), [*found], unreadable

    def _image(self, domain: Domain, row: int) -> np.ndarray:
        with plain_arrays():  # here: other threads do not know of it
            if self.framing is not None:
                images = domain.x if isinstance(domain.x, Images) else ImageRows(domain.tensor)
                image = np.asarray(images.decode(row, 2 * self.framing.resize))
                return frame(image, self.framing, whole=self.ten_crop)
            assert self.shape is not None
            if isinstance(domain.x, Images):
                return fit_image(np.asarray(domain.x.decode(row, 2 * self.shape.size)), self.shape)
            return fit_image(np.asarray(domain.tensor[row]), self.shape)

    def check(self, domain: Domain) -> None:
        """Refuse data of another kind."""
        if (self.takes == "vectors") != (domain.kind == "vector"):
            found, expected = ("feature vectors", "images") if domain.kind == "vector" else ("images", "vectors")
            raise UserError(f"{domain.name} contains {found}, but this model takes {expected}.")
        if self.takes == "vectors" and domain.tensor.shape[1] != self.inputs:
            raise UserError(f"{domain.name} has {domain.tensor.shape[1]} features per row, expected {self.inputs}.")


@dataclass(frozen=True)
class Outputs:
    """Probabilities (N, C) of the `rows` that can be read, and why the others cannot."""

    probabilities: np.ndarray
    rows: list[int]
    unreadable: Unreadable

    @property
    def guess(self) -> np.ndarray:
        """The class of every row (N,), as an index."""
        found: np.ndarray = self.probabilities.argmax(1)
        return found

    def probability_blocks(self) -> Iterator[np.ndarray]:
        """All probabilities at once."""
        yield self.probabilities


class ExportedModel:
    """A model.onnx that `tsadapt export` wrote, ready to predict: its classes, `read` and `outputs`.

    `threads` are those of ONNX Runtime and of decoding.
    """

    def __init__(self, path: str | Path, device: str = "cpu", quiet: bool = True) -> None:
        self.path, self.quiet = Path(path).expanduser(), quiet
        self.threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if not self.path.is_file():
            raise UserError(f"No model at {self.path}: expected a {FILES['onnx']} that tsadapt export wrote.")
        self._session = self._opened(device)
        try:
            self.recipe = Recipe.unpacked(self._session.get_modelmeta().custom_metadata_map)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{self.path} was not written by this version of tsadapt export: {error}.") from error

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.recipe.classes

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of a table's features, as a trained model has them."""
        return self.recipe.columns

    def read(self, data: str | Path | list[str] | Domain, roles: Roles = NO_ROLES) -> Domain:
        """The rows that it is asked about: of a dataset with splits, the test split; or images by their paths.

        `roles` name columns of a table that are no features, where these are not those of training.
        """
        if isinstance(data, Domain):  # it was read before
            return data
        needed = tuple(role for role in roles.needed if getattr(roles, role) is not None)
        there = Roles(roles.id or self.recipe.roles.id, roles.label or self.recipe.roles.label, needed)
        with plain_arrays():
            if isinstance(data, list):
                domain = load_paths("the data", [absolute_path(path) for path in data], data)
            else:
                domain = open_dataset(data, self.recipe.columns, there).test
        for note in domain.notes:
            if self.quiet:
                warnings.warn(note, stacklevel=2)
            else:
                print(printable(f"note: {note}"), file=sys.stderr)
        for said in () if self.quiet else domain.recognised:
            print(printable(f"note: {said}"), file=sys.stderr)
        return domain

    def outputs(self, domain: Domain) -> Outputs:
        """Probabilities of every row that can be read; rows are numbered as they were given."""
        self.recipe.check(domain)
        rows, unreadable = list[int](), Unreadable()
        probabilities = list[np.ndarray]()
        silent = self.quiet or self.recipe.takes == "vectors"
        with StepProgress(len(domain), 0, silent, "image") as progress:
            for x, those, bad in self._prepared(domain):
                if those:
                    probabilities.append(self.run(x)[0])
                rows += those
                unreadable |= bad
                progress.advance(len(rows) + len(unreadable))
        if not rows:
            first = next(iter(unreadable.values()))
            raise UserError(f"None of the {len(domain)} images of {domain.name} can be read. The first: {first}.")
        found = Outputs(np.concatenate(probabilities), rows, unreadable)
        if bad_rows := int((~np.isfinite(found.probabilities).all(1)).sum()):
            raise UserError(
                f"The model's outputs for {bad_rows} rows of {domain.name} are not finite: check data and model."
            )
        return found

    def run(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities and logits (N, C) of inputs as the model takes them; vectors may have any precision."""
        x = x.astype(self.recipe.dtype, copy=False) if self.recipe.takes == "vectors" else x
        p, z = self._session.run(["probabilities", "logits"], {self.recipe.name: x})
        return p, z

    def _prepared(self, domain: Domain) -> Iterator[tuple[np.ndarray, list[int], Unreadable]]:
        """All rows, a batch at a time; while one is predicted, threads decode the next."""
        size = ROWS_AT_ONCE if self.recipe.takes == "vectors" else IMAGES_AT_ONCE
        rows = np.arange(len(domain))
        waiting = list[Future[Any]]()
        with ThreadPoolExecutor(self.threads) as pool:
            for start in range(0, len(rows) + size, size):  # one more, to wait for the last
                parts = [part.tolist() for part in np.array_split(rows[start : start + size], self.threads)]
                coming = [pool.submit(self.recipe.prepared, domain, part) for part in parts if part]
                if waiting:
                    yield _joined([one.result() for one in waiting])
                waiting = coming

    def _opened(self, device: str) -> Any:
        try:
            import onnxruntime
        except ImportError as error:
            raise UserError(EXTRA) from error
        providers = ["CPUExecutionProvider"]
        if device not in ("auto", "cpu"):
            providers = [f"{device.partition(':')[0].upper()}ExecutionProvider"]
            if providers[0] not in onnxruntime.get_available_providers():
                raise UserError(f"device is {device}, which ONNX Runtime does not have here: expected cpu.")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 4  # what goes wrong is raised
        try:
            return onnxruntime.InferenceSession(str(self.path), options, providers)
        except Exception as error:  # ONNX Runtime's own kinds
            raise UserError(f"{self.path} cannot be loaded: it is damaged, or no ONNX model.") from error


def exported_file(path: Path) -> Path | None:
    """The model.onnx that a path names, itself or by its folder; None where it names something else, such as a run."""
    path = path.expanduser()
    if path.suffix.lower() == ".onnx" and not path.is_dir():
        return path
    if path.suffix.lower() == ".pt2" and path.is_file():
        raise UserError(f"{path} is for torch.export.load (docs/export.md); predict takes a RUN, or a model.onnx.")
    inside = path / FILES["onnx"]
    return inside if inside.is_file() and not any(path.glob("*.toml")) else None  # a run has its config there


def _joined(parts: list[tuple[np.ndarray, list[int], Unreadable]]) -> tuple[np.ndarray, list[int], Unreadable]:
    """The parts of a batch, one after the other."""
    read = [x for x, rows, _ in parts if rows]
    return (
        np.concatenate(read) if read else np.empty(0),
        [row for _, rows, _ in parts for row in rows],
        {row: why for _, _, unreadable in parts for row, why in unreadable.items()},
    )
