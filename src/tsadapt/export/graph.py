"""The whole computation of a trained model as one module, and the formats it is written in.

Shapes: N rows, C classes.
"""

import contextlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator
from importlib.metadata import version

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from tsadapt.errors import UserError
from tsadapt.export.exported import Recipe
from tsadapt.models.classifier import InputScaling
from tsadapt.models.networks import NETWORKS
from tsadapt.models.stages import Stem
from tsadapt.runs.model import TrainedModel

__all__ = ["Whole", "as_onnx", "as_torch", "check_packages", "recipe_of"]

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
"""What writing and checking an ONNX file needs."""

OUTPUTS = ["probabilities", "logits"]

MOST_BYTES = 2_000_000_000
"""A single ONNX file holds no more."""


def check_packages() -> None:
    """Refuse to begin without the extra packages of ONNX."""
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise UserError(f"--format onnx needs extra packages ({', '.join(missing)}): pip install 'tsadapt[export]'.")


def recipe_of(model: TrainedModel, precise: bool = False) -> Recipe:
    """What the exported model takes; `precise` for vectors in float64."""
    made = version("tsadapt")
    images, shape = model.preprocessing, NETWORKS[model.architecture.network].takes
    if images is not None:
        return Recipe(
            "photographs", model.classes, model.temperature, images.framing, images.ten_crop, version=made
        )  # fmt: skip
    if shape is not None:
        return Recipe("small images", model.classes, model.temperature, shape=shape, version=made)
    return Recipe(
        "vectors", model.classes, model.temperature, inputs=model.architecture.inputs, precise=precise,
        columns=model.columns, roles=model.roles, version=made,
    )  # fmt: skip


class Whole(nn.Module):
    """Raw pixels or rows to probabilities softmax(z/T) and logits z, both (N, C): what is exported.

    Pixels are scaled, cropped ten times where the run averages over crops, and pass a frozen backbone; vectors are
    standardised. What lies before `train_from` computes in float32: rounding to float16 is for keeping activations.
    """

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        images = model.preprocessing
        self.network, self.temperature = model.network, model.temperature
        self.pixels = images is not None or NETWORKS[model.architecture.network].takes is not None
        self.crop = images.framing.size if images is not None and images.ten_crop else 0
        self.before: nn.Module = nn.Identity()
        if images is not None and images.frozen:
            backbone = images.backbone
            self.before = nn.Sequential(InputScaling.of_images(backbone.mean, backbone.std), backbone.module)
        self.scaling: nn.Module = self.network.scaling
        if isinstance(stem := self.network.scaling, Stem):
            self.scaling = nn.Sequential(stem.scaling, stem.before)
        self.float().eval()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities and logits."""
        if self.pixels:
            x = x.permute(0, 3, 1, 2)
        if self.crop:
            x = ten_crops(x, self.crop)
        network = self.network
        f = network.bottleneck(network.backbone(self.scaling(self.before(x)).to(network.head.weight.dtype)))
        z = network.combined([head.logits for head in network.classify(f)])
        if self.crop:
            z = z.view(-1, 10, z.shape[1]).mean(1)
        return (z / self.temperature).softmax(1), z


def ten_crops(x: Tensor, size: int) -> Tensor:
    """Corners, centre, and their mirror images: (10·N, 3, size, size), those of an image one after the other.

    >>> ten_crops(torch.zeros(2, 3, 36, 36), 32).shape
    torch.Size([20, 3, 32, 32])
    """
    margin = x.shape[-1] - size
    places = [(0, 0), (0, margin), (margin, 0), (margin, margin), (round(margin / 2), round(margin / 2))]
    crops = [y[:, :, top : top + size, left : left + size] for y in (x, x.flip(-1)) for top, left in places]
    return torch.stack(crops, 1).flatten(0, 1)


def as_torch(whole: Whole, recipe: Recipe, example: Tensor) -> bytes:
    """A file for torch.export.load, in which nothing is pickled; the recipe lies in it as extra files."""
    program = _exported(whole, recipe, example)
    buffer = io.BytesIO()
    with _quietly():
        program._example_inputs = None  # they would be pickled
        extra = {f"{key}.json": text for key, text in recipe.packed().items()}
        torch.export.save(program, buffer, extra_files=extra)
    return buffer.getvalue()


def as_onnx(whole: Whole, recipe: Recipe, example: Tensor) -> bytes:
    """An ONNX file with the recipe in its metadata."""
    program = _exported(whole, recipe, example)
    size = sum(tensor.nbytes for tensor in program.state_dict.values())
    if size > MOST_BYTES:
        raise UserError(f"The network has {size / 1e9:.1f} GB of weights, more than an ONNX file can hold (2 GB).")
    try:
        with _quietly():
            made = torch.onnx.export(
                program, dynamo=True, verbose=False, input_names=[recipe.name], output_names=OUTPUTS
            )
            assert made is not None
            proto = made.model_proto
    except Exception as error:  # the exporter's own kinds, and those of onnxscript
        raise UserError(f"The network cannot be written as ONNX: {_first_line(error)}. Try --format torch.") from error
    proto.producer_name, proto.producer_version = "tsadapt", recipe.version
    for part in (proto.graph, *proto.graph.node, *proto.graph.value_info, *proto.graph.initializer):
        del part.metadata_props[:]  # traces of the code, with this machine's paths
    for key, text in recipe.packed().items():
        proto.metadata_props.add(key=key, value=text)
    data: bytes = proto.SerializeToString()
    return data


def _exported(whole: Whole, recipe: Recipe, example: Tensor) -> ExportedProgram:
    """The computation as a graph, for batches of any size."""
    try:
        with _quietly(), torch.no_grad():
            program = torch.export.export(whole, (example,), dynamic_shapes=({0: Dim("batch")},))
    except Exception as error:  # of anybody's network, all kinds
        raise UserError(f"The network cannot be exported: {_why(error)}.") from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    return program


def _why(error: Exception) -> str:
    """What torch.export could not follow, in the words of who wrote the network."""
    said = _first_line(error)
    if "data-dependent" in said:
        return (
            "its computation depends on its input's values, such as an if on a number that it computed from them, which"
            f" no file can hold. Write it without (torch.where, for example). torch says: {said}"
        )
    if "Constraints violated (batch)" in said:
        return (
            "its computation depends on the size of the batch, such as a reshape to a fixed number of rows, and the"
            f" file takes batches of any size. torch says: {str(error).splitlines()[1].strip(' -').partition('. ')[0]}"
        )
    return said


def _first_line(error: Exception) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return text.rstrip(".:")


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Nothing of what the exporters print, log and warn of; what goes wrong is raised."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
