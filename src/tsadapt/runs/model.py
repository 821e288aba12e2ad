"""A trained model one can hold: saved, loaded, and asked. The one way from a run back to predictions.

    model = tsadapt.load("runs/photos")
    model.predict("photos/new")

Loading never runs code. Shapes: N rows, K features, C classes.
"""

import copy
import hashlib
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_weights
from safetensors.torch import load_file, save
from torch import Tensor, nn

from tsadapt.cache import cache_root
from tsadapt.data.image_loader import grouped, image_pass, workers_here
from tsadapt.data.images import Images
from tsadapt.data.in_memory import as_dataset
from tsadapt.data.loader import seeded
from tsadapt.data.tables import NO_ROLES
from tsadapt.data.transforms import Framing, evaluation_transform
from tsadapt.data.types import Domain, Roles, Unreadable
from tsadapt.errors import UserError, counted, printable
from tsadapt.files import write_atomically
from tsadapt.models.backbones import Backbone, Origin, make_backbone
from tsadapt.models.classifier import Classifier
from tsadapt.models.encoders import encoder_again
from tsadapt.models.inference import BATCH
from tsadapt.models.networks import Architecture, build
from tsadapt.models.normalisation import normalisations, normalise_by, statistics_batches
from tsadapt.models.preprocessing import Preprocessing, Reader
from tsadapt.progress import StepProgress
from tsadapt.runs.folder import ModelFolder, RunFolder, SweepFolder, read_json, write_sealed
from tsadapt.selection.logits import MOST_CELLS, FactoredLogits, Logits, blocks, guesses
from tsadapt.training.runtime import autocast, pick_device

__all__ = ["Predicted", "TrainedModel", "Which", "load"]

ROLES = ("id", "label")
ROWS_AT_ONCE = 512
STORED_AT_ONCE = 64
IMAGES_AT_ONCE = 16

Which = Literal["last", "selected"]
"""Which model of a run: of its last step, or of the step that validators selected."""


@dataclass(frozen=True)
class Predicted:
    """Features (N, K) and logits (N, C) of the rows of a domain; the logits of many rows and classes as factors.

    `rows` are the numbers of the rows in the domain, and `unreadable` those that are left out, with the reason.
    Probabilities are softmax(logits/T), T the `temperature`.
    """

    features: np.ndarray
    logits: Logits
    rows: list[int]
    unreadable: Unreadable
    temperature: float = 1.0

    @property
    def guess(self) -> np.ndarray:
        """The class of every row (N,), as an index."""
        return guesses(self.logits)

    @property
    def probabilities(self) -> np.ndarray:
        """softmax(logits/T), (N, C)."""
        return np.concatenate([*self.probability_blocks()])

    def probability_blocks(self) -> Iterator[np.ndarray]:
        """The same, some rows at a time."""
        for block in blocks(self.logits):
            yield (torch.from_numpy(block).double() / self.temperature).softmax(1).numpy()

    def finite_rows(self) -> np.ndarray:
        """Which rows (N,) have finite features and logits."""
        finite = np.concatenate([np.isfinite(block).all(1) for block in blocks(self.logits)])
        finite &= np.isfinite(self.features).all(1)
        return finite


@dataclass(frozen=True, repr=False)
class TrainedModel:
    """A trained network with its classes, its architecture, a table's column names, and how photographs reach it.

    Its logits are divided by the `temperature` that calibrates them; it is 1 but for a result of `adapt`.
    """

    network: Classifier
    classes: tuple[str, ...]
    architecture: Architecture
    columns: tuple[str, ...] | None = None
    preprocessing: Preprocessing | None = None
    device: torch.device = torch.device("cpu")
    workers: int | None = None
    quiet: bool = True
    run: RunFolder | None = None
    rows_at_once: int = ROWS_AT_ONCE
    roles: Roles = NO_ROLES
    """Columns of a table that were no features in training; it need not have them any more."""
    temperature: float = 1.0

    def __repr__(self) -> str:
        where = "" if self.run is None else f" of {self.run.path}"
        backbone = "" if self.preprocessing is None else f"{self.preprocessing.backbone.name} + "
        return f"<TrainedModel{where}: {backbone}{self.architecture.network}, {counted(len(self.classes), 'class')}>"

    def predict(self, data: Any) -> np.ndarray:
        """The class of every row (N,): of a path or name as for `fit`, an array, a DataFrame, image files, an image.

        An image that cannot be read has the class "", with a warning.
        """
        predicted = self.outputs(data)
        found = np.array(self.classes, dtype=object)[predicted.guess]
        return self._all_rows(predicted, found, "").astype(str)

    def predict_proba(self, data: Any) -> np.ndarray:
        """Probabilities (N, C), in the order of `classes`; nan for an image that cannot be read."""
        predicted = self.outputs(data)
        return self._all_rows(predicted, predicted.probabilities, np.nan)

    def transform(self, data: Any) -> np.ndarray:
        """The features (N, K) that go into the heads; nan for an image that cannot be read."""
        predicted = self.outputs(data)
        return self._all_rows(predicted, predicted.features, np.nan)

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of the run it came from."""
        if self.run is None:
            raise UserError("This model has no run folder, so it has no metrics.")
        return self.run.metrics

    def read(self, data: Any, roles: Roles = NO_ROLES) -> Domain:
        """The rows that it is asked about: of a dataset with splits, the test split.

        `roles` name columns of a table that are no features, where these are not those of training.
        """
        needed = tuple(role for role in roles.needed if getattr(roles, role) is not None)
        there = Roles(roles.id or self.roles.id, roles.label or self.roles.label, needed)
        domain = as_dataset(data, self.columns, name="the data", roles=there).test
        if isinstance(data, Domain):  # it was read before, and its notes said
            return domain
        for note in domain.notes:
            if self.quiet:
                warnings.warn(note, stacklevel=3)
            else:
                print(printable(f"note: {note}"), file=sys.stderr)
        for said in () if self.quiet else domain.recognised:
            print(printable(f"note: {said}"), file=sys.stderr)
        return domain

    def adapt_bn(self, data: Any) -> Self:
        """The same model normalised by the statistics of `data`, a new unlabelled target (AdaBN); `self` stays."""
        adapted = replace(self, network=copy.deepcopy(self.network))
        reader = Reader(self.architecture, self.preprocessing, self.device, self.workers, self.quiet)
        adapted.normalise_by(reader(self.read(data)).domain)
        return adapted

    def outputs(self, data: Any) -> Predicted:
        """Features and logits of every row that can be read; rows are numbered as they were given."""
        domain = self.read(data)
        reader = Reader(self.architecture, self.preprocessing, self.device, self.workers, self.quiet)
        prepared = reader(domain)
        predicted = self.forward(prepared.domain)
        if bad := int((~predicted.finite_rows()).sum()):
            raise UserError(
                f"The model's outputs for {bad} rows of {domain.name} are not finite: check data and model."
            )
        rows = [prepared.rows[row] for row in predicted.rows]
        later = {prepared.rows[row]: why for row, why in predicted.unreadable.items()}
        return replace(predicted, rows=rows, unreadable=prepared.unreadable | later)

    def forward(self, domain: Domain) -> Predicted:
        """Features and logits of a domain that was prepared for the network, in evaluation mode.

        Over ten crops of an image, features and logits are averaged.
        """
        self.network.eval()
        return self._forward_all(domain)

    def normalise_by(self, domain: Domain) -> None:
        """Normalise the network by a domain that was prepared for it (AdaBN); labels are not needed.

        The rows go through in a random order: batches of one class would not be what the network saw in training.
        """
        if not normalisations(self.network):
            raise UserError(f"The network {self.architecture.network!r} has no batch normalisation to adapt.")
        if len(domain) < 2:
            raise UserError(f"{domain.name} has one row: a network is normalised by at least 2.")
        order = torch.randperm(len(domain), generator=seeded(len(domain))).tolist()
        shuffled = domain.unlabelled().keep(order)
        groups = statistics_batches(len(domain), self._at_once(domain))
        normalise_by(self.network, lambda: self._forward_all(shuffled, groups, least=2))

    def _at_once(self, domain: Domain) -> int:
        if isinstance(domain.x, Tensor):
            return self.rows_at_once
        return IMAGES_AT_ONCE if isinstance(domain.x, Images) else STORED_AT_ONCE

    def _forward_all(self, domain: Domain, groups: list[range] | None = None, least: int = 1) -> Predicted:
        """Features and logits of a domain in batches, in whatever mode the network is.

        A batch of which fewer than `least` rows can be read is left out.
        """
        rows, unreadable = list[int](), Unreadable()
        outputs = self.collector(len(domain))
        groups = groups or grouped(range(len(domain)), self._at_once(domain))
        if isinstance(domain.x, Images):
            assert self.preprocessing is not None
            framing, ten_crop = self.preprocessing.framing, self.preprocessing.ten_crop
            view, at_least = evaluation_transform(framing, ten_crop), 2 * framing.resize
            workers = workers_here(self.workers, len(domain))
            with StepProgress(len(domain), 0, self.quiet, "image") as progress:
                for some in image_pass(domain.x, groups, view, at_least, workers):
                    if len(some.rows) >= least:
                        outputs.add(some.x.flatten(0, -4), len(some.rows))
                        rows += some.rows
                    unreadable |= some.unreadable
                    progress.advance(progress.done + len(some.rows) + len(some.unreadable))
            if not rows:
                found = "None" if len(unreadable) == len(domain) else "Too few"
                raise UserError(f"{found} of the {len(domain)} images of {domain.name} can be read.")
        else:
            rows = [*range(len(domain))]
            for group in groups:
                outputs.add(domain.x[group.start : group.stop])
        return Predicted(*outputs.arrays(), rows, unreadable, self.temperature)

    def collector(self, rows: int) -> "_Collector":
        """Takes inputs some at a time and gives features and logits of all of them, `rows` in number."""
        return _Collector(self.network, self.device, rows * self.network.classes > MOST_CELLS)

    def _all_rows(self, predicted: Predicted, found: np.ndarray, missing: Any) -> np.ndarray:
        """What was found of the rows that could be read, with a stand-in for those that could not."""
        if not predicted.unreadable:
            return found
        first = next(iter(predicted.unreadable.values()))
        text = f"{counted(len(predicted.unreadable), 'image')} cannot be read, the first because: {first}"
        warnings.warn(text, stacklevel=3)
        whole = np.full((len(found) + len(predicted.unreadable), *found.shape[1:]), missing, dtype=found.dtype)
        whole[predicted.rows] = found
        return whole

    def save(self, folder: str | Path | ModelFolder) -> None:
        """Write the weights, a frozen backbone's weights, and a description with all the rest; `load` reads it."""
        folder = folder if isinstance(folder, ModelFolder) else ModelFolder(Path(folder))
        described: dict[str, Any] = {"classes": self.classes, "columns": self.columns}
        described |= {f"{role}_column": name for role in ROLES if (name := getattr(self.roles, role)) is not None}
        if self.temperature != 1:
            described["temperature"] = self.temperature
        if (images := self.preprocessing) is not None:
            backbone = {key: value for key, value in vars(images.backbone).items() if key not in ("module", "origin")}
            described["images"] = {
                "backbone": backbone, "framing": asdict(images.framing), "frozen": images.frozen,
                "ten_crop": images.ten_crop,
            }  # fmt: skip
            if images.backbone.origin is not None:
                described["images"]["encoder"] = asdict(images.backbone.origin)
            if images.frozen:
                described["images"]["precision"] = images.precision
                _save_backbone(folder.backbone, images.backbone)
                described["images"]["fingerprint"] = images.backbone.fingerprint()
        weights = _packed(self.network)
        write_atomically(folder.weights, weights)
        described |= {"architecture": asdict(self.architecture), "weights": hashlib.sha256(weights).hexdigest()}
        write_sealed(folder.description, described)

    @classmethod
    def read_from(
        cls, folder: ModelFolder, device: torch.device, encoder: str | nn.Module | None = None, **details: Any
    ) -> Self:
        """The model in a folder; `encoder` is the user's own backbone, if it has one."""
        described = read_json(folder.description, ("architecture", "classes"))
        try:
            architecture = Architecture(**described["architecture"])
            images = described.get("images")
            if encoder is not None and (images is None or "encoder" not in images):
                raise UserError(f"The model in {folder.path} has no encoder of your own: leave out --backbone.")
            preprocessing = None if images is None else _preprocessing(images, folder, encoder)
            trained = preprocessing is not None and not preprocessing.frozen
            network = build(architecture, backbone=preprocessing.backbone if trained and preprocessing else None)
            network.load_state_dict(load_weights(_whole(folder.weights, described.get("weights"))))
            _check_finite(network)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise UserError(f"The model in {folder.path} cannot be loaded: {str(error).splitlines()[0]}.") from error
        columns = described.get("columns")
        roles = Roles(described.get("id_column"), described.get("label_column"))
        return cls(
            network.to(device).eval(), tuple(described["classes"]), architecture, columns and tuple(columns),
            preprocessing, device, roles=roles, temperature=described.get("temperature", 1.0), **details,
        )  # fmt: skip


class _Collector:
    """Features and logits of inputs that come some at a time; logits as factors if they are too many for a table."""

    def __init__(self, network: Classifier, device: torch.device, factored: bool) -> None:
        self._network, self._device, self._factored = network, device, factored
        self._features, self._logits = list[Tensor](), list[Tensor]()

    @torch.no_grad()
    def add(self, x: Tensor, rows: int | None = None) -> None:
        """Forward inputs; with fewer `rows` than inputs, those of a row (its crops) are averaged."""
        with autocast(self._device, "fp32"):
            if self._factored:
                f = self._network.features(x.to(self._device))
                z = torch.cat([branch(f) for branch in self._network.branches], 1)
            else:
                f, z = self._network(x.to(self._device))
        f, z = f.cpu(), z.cpu()
        if rows is not None:
            f, z = (t.view(rows, -1, t.shape[1]).mean(1) for t in (f, z))
        self._features.append(f)
        self._logits.append(z)

    def arrays(self) -> tuple[np.ndarray, Logits]:
        """Features (N, K) and logits (N, C) of all inputs."""
        features, logits = torch.cat(self._features).numpy(), torch.cat(self._logits).numpy()
        if not self._factored:
            return features, logits
        # The mean over heads of W_h f_h + b_h is linear in all f_h, side by side.
        layers = self._network.linear_layers
        weight = torch.cat([layer.weight.detach() for layer in layers], 1) / len(layers)
        bias = torch.stack([layer.bias.detach() for layer in layers]).mean(0)
        return features, FactoredLogits(logits, weight.cpu().numpy(), bias.cpu().numpy())


def load(
    run: str | Path,
    use: Which = "last",
    device: str = "auto",
    quiet: bool = True,
    backbone: str | nn.Module | None = None,
) -> TrainedModel:
    """The trained model of a run's folder; a sweep's folder stands for what was chosen there, run and step.

    `use="selected"` takes the step that validators selected among several (fit --candidates). A run that was trained
    with an encoder of your own needs it again, as `backbone`: a run's folder never names code that is run.
    """
    path, where = Path(run).expanduser(), pick_device(device)
    if use not in get_args(Which):
        raise UserError(f"use is {use!r}, expected {' or '.join(map(repr, get_args(Which)))}.")
    if not path.is_dir():
        raise UserError(f"No run at {path}: expected the folder that fit, sweep or adapt wrote (its --out).")
    sweep, folder, step = SweepFolder(path), RunFolder(path), None
    if ModelFolder(path).description.is_file():  # a model saved by itself
        return TrainedModel.read_from(ModelFolder(path), where, backbone, quiet=quiet)
    if folder.exists:
        _ = folder.config  # refuses a folder of another revision
    if (chosen := sweep.chosen) is not None:
        folder, step = chosen
    elif use == "selected" and folder.done:
        metrics = folder.metrics
        if "selected" not in metrics:
            raise UserError(
                f"{path} has one candidate, its last step. To select among several, train with --candidates 5."
            )
        step = metrics["selected"]["step"]
    model = folder.model
    if step is not None and folder.done and step != folder.metrics["last"]["step"]:
        model = folder.candidate(step)
        if not model.description.is_file():
            raise UserError(f"The model of step {step}, which was chosen, is missing in {model.path}: train it again.")
    if not model.description.is_file():
        hint = ""
        if folder.exists:
            hint = " Its training did not finish: run the same fit command again."
        elif sweep.exists:
            hint = " The sweep did not finish: run the same sweep command again."
        raise UserError(f"No trained model in {folder.path}: expected {model.weights}.{hint}")
    model = _calibrated(RunFolder(path).model, model)
    return TrainedModel.read_from(model, where, backbone, run=folder, quiet=quiet)


def _calibrated(adapted: ModelFolder, chosen: ModelFolder) -> ModelFolder:
    """A result of `adapt` has the chosen model beside its runs, with its temperature; elsewhere the chosen one."""
    if adapted == chosen or not adapted.description.is_file():
        return chosen
    ours, theirs = (read_json(one.description, ("classes",)).get("weights") for one in (adapted, chosen))
    return adapted if ours is not None and ours == theirs else chosen


def _whole(path: Path, digest: str | None) -> bytes:
    """The bytes of a file, which must be those that were written."""
    if not path.is_file():  # or a pipe, at which reading would wait for ever
        raise ValueError(f"{path.name} is missing. Train it again")
    data = path.read_bytes()
    if digest is not None and hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(f"{path.name} is damaged, its content does not match its checksum. Train it again")
    return data


def _check_finite(module: nn.Module) -> None:
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} has values that are not finite")


def _packed(module: nn.Module) -> bytes:
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()})


def _save_backbone(path: Path, backbone: Backbone) -> None:
    """The weights of a frozen backbone: one file in the cache, of which every run that uses it has a hard link."""
    shared = cache_root() / "backbones" / f"{backbone.fingerprint()}.safetensors"
    try:
        if not _holds(shared, backbone.module):
            write_atomically(shared, _packed(backbone.module))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.link(shared, path)
    except OSError:  # no cache, or on another disk
        write_atomically(path, _packed(backbone.module))


def _holds(path: Path, module: nn.Module) -> bool:
    """Whether a file is there and holds just these weights: the cache may be damaged."""
    if not path.is_file():  # nothing, or a pipe, at which reading would wait for ever
        return False
    try:
        found = load_file(path)
    except (OSError, SafetensorError):
        return False
    expected = module.state_dict()
    return found.keys() == expected.keys() and all(torch.equal(found[k], v.cpu()) for k, v in expected.items())


def _preprocessing(images: dict[str, Any], folder: ModelFolder, encoder: str | nn.Module | None) -> Preprocessing:
    """How photographs reach the model; the weights of a backbone that is trained with it are the model's own."""
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in images["backbone"].items()
    }
    origin = Origin(**images["encoder"]) if "encoder" in images else None
    if origin is None:
        module = make_backbone(fields["name"], "none", fields["size"]).module
    else:
        module = encoder_again(encoder, fields["name"], origin)
    if images["frozen"]:
        module.load_state_dict(load_weights(_whole(folder.backbone, None)))
    backbone = Backbone(module=module, origin=origin, **fields)
    if images.get("fingerprint", backbone.fingerprint()) != backbone.fingerprint():
        raise ValueError(f"{folder.backbone.name} is damaged, its content does not match its checksum. Train it again")
    precision = images.get("precision", "fp32")  # the only one, before it was noted
    if precision not in BATCH:
        raise ValueError(f"its features are of precision {precision!r}, expected {', '.join(BATCH)}")
    return Preprocessing(backbone, Framing(**images["framing"]), images["frozen"], images["ten_crop"], precision)
