"""The stages of a backbone, and a backbone cut before one of them: what lies before stays, the rest is trained.

Shapes: B images (B, 3, size, size); B activations of whatever shape they have between two stages.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils.flop_counter import FlopCounterMode

from tsadapt.errors import UserError, few, unknown
from tsadapt.models.backbones import Backbone, for_inference
from tsadapt.models.classifier import InputScaling

__all__ = ["STORED", "Cut", "Stage", "Stem", "cut_before", "find_stage", "stages_of"]

STORED = torch.float16
"""How activations are kept."""

COUNTED = 0.01
"""A stage with less than this share of the parameters (a normalisation by itself) has no number."""

NEARLY_ALL = 0.8
"""A sequence with more than this share of the parameters is no stage of its own: its parts are."""


@dataclass(frozen=True)
class Stage:
    """A part of a backbone, by its module's name: parameters, share of the multiplications, shape of what goes in.

    `number` is -1 for the last one, and so on; None for one with hardly any parameters.
    """

    name: str
    parameters: int
    share: float
    shape: tuple[int, ...]
    number: int | None

    @property
    def stored_bytes(self) -> int:
        """What the activations of an image before it take, stored."""
        return prod(self.shape) * STORED.itemsize


def stages_of(backbone: Backbone) -> list[Stage]:
    """The stages that have parameters, in the order of computation."""
    module, inside = backbone.module, _sequences(backbone.module)
    graph = _traced(module, inside, backbone.name)
    measured = _Measured(fx.GraphModule(module, graph))
    with torch.no_grad(), _evaluating(module):
        measured.run(torch.zeros(1, 3, backbone.size, backbone.size))
    whole = max(sum(measured.flops.values()), 1)
    names = _stage_names(module, graph)
    counted = _counted(module, names)
    found = []
    for name in names:
        node = next(node for node in graph.nodes if node.op == "call_module" and node.target == name)
        flops = sum(n for other, n in measured.flops.items() if other.target == name)
        parameters = sum(p.numel() for p in module.get_submodule(name).parameters())
        number = counted.index(name) - len(counted) if name in counted else None
        found.append(Stage(name, parameters, flops / whole, measured.shape_into(node), number))
    return found


def find_stage(backbone: Backbone, asked: str) -> str:
    """The stage that is asked for: a module's name, or -1, -2, … for the last ones (of any size, in parameters)."""
    module = backbone.module
    listed = f"tsadapt list backbones --stages {backbone.name}"
    if asked.startswith("-"):
        names = _counted(module, _stage_names(module, _traced(module, _sequences(module), backbone.name)))
        if not asked[1:].isdigit() or not 1 <= int(asked[1:]) <= len(names):
            raise UserError(f"train_from is {asked}, expected a stage's name, or -1 to -{len(names)} ({listed}).")
        return names[-int(asked[1:])]
    every = {name: layer for name, layer in module.named_modules() if name}
    if asked not in every:
        names = _stage_names(module, _traced(module, _sequences(module), backbone.name))
        raise UserError(unknown("stage", asked, names, listed=listed))
    if not any(True for _ in every[asked].parameters()):
        raise UserError(f"train_from is {asked}, which has no parameters to train ({listed}).")
    return asked


@dataclass(frozen=True)
class Cut:
    """A backbone in two: `before` (images to activations of a `shape`) and `after` (those to features)."""

    before: nn.Module
    after: nn.Module
    shape: tuple[int, ...]


def cut_before(backbone: Backbone, stage: str) -> Cut:
    """The backbone cut before a stage; both parts keep the modules, and the names, that they had.

    Refused where more than one tensor would be cut, or where the two halves do not make the whole.
    """
    module = backbone.module
    parts = stage.split(".")
    inside = {".".join(parts[:i]) for i in range(1, len(parts))}
    graph = _traced(module, inside, backbone.name)
    first = next((node for node in graph.nodes if node.op == "call_module" and node.target == stage), None)
    if first is None:
        raise _uncut(backbone.name, stage, "it is not called there as a module")
    before, after = _halves(module, graph, first, backbone.name)
    x = torch.rand(2, 3, backbone.size, backbone.size, generator=torch.Generator().manual_seed(0)) - 0.5
    with torch.no_grad(), _evaluating(module, before, after):
        between = before(x)
        if not isinstance(between, Tensor) or not between.is_floating_point() or len(between) != len(x):
            raise _uncut(backbone.name, stage, "what goes into it is not one tensor with a row for each image")
        if not torch.allclose(after(between), module(x), rtol=1e-4, atol=1e-5):
            raise _uncut(backbone.name, stage, "the two halves give other features than the whole")
    if not any(True for _ in before.parameters()):
        raise UserError(f"train_from is {stage}, the first stage: to train the whole backbone, --no-freeze-backbone.")
    return Cut(before, after, tuple(between.shape[1:]))


class Stem(nn.Module):
    """Images to the activations that go into the first stage that is trained: scaling, and the layers before it.

    These are always in evaluation mode, and never trained. The activations are rounded as they are stored. Rows that
    have their shape already come from where they are stored, and go through.
    """

    def __init__(self, scaling: InputScaling, cut: Cut, size: int) -> None:
        super().__init__()
        self.scaling, self.before, self.shape, self.size = scaling, cut.before.requires_grad_(False), cut.shape, size
        self._fast: list[nn.Module] = []  # in a list: no part of the state
        self.register_load_state_dict_post_hook(lambda *_: self._fast.clear())  # type: ignore[no-untyped-call]
        self.train(False)

    def train(self, mode: bool = True) -> "Stem":
        """Stay in evaluation mode."""
        return super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        """Activations (B, *shape) of images (B, 3, size, size) with pixels from 0 to 255."""
        if tuple(x.shape[1:]) == self.shape:
            return x.float()
        with torch.no_grad():
            if not self._fast:
                self._fast.append(for_inference(self.before, self.size))
            scaled = self.scaling(x).float().contiguous(memory_format=torch.channels_last)
            out: Tensor = self._fast[0](scaled)
            return out.to(STORED).float()


def _sequences(module: nn.Module) -> set[str]:
    """The names of sequences that hold nearly all parameters, one in the other: they are looked into."""
    whole = sum(p.numel() for p in module.parameters())
    found, prefix, inner = set[str](), "", module
    while True:
        large = [
            (name, child)
            for name, child in inner.named_children()
            if isinstance(child, nn.Sequential)
            and len(child) > 1
            and sum(p.numel() for p in child.parameters()) > NEARLY_ALL * whole
        ]
        if not large:
            return found
        name, inner = large[0]
        prefix = f"{prefix}.{name}" if prefix else name
        found.add(prefix)


def _stage_names(module: nn.Module, graph: fx.Graph) -> list[str]:
    called = dict.fromkeys(str(node.target) for node in graph.nodes if node.op == "call_module")
    return [name for name in called if any(True for _ in module.get_submodule(name).parameters())]


def _counted(module: nn.Module, names: list[str]) -> list[str]:
    """Those of the stages that have a number."""
    size = {name: sum(p.numel() for p in module.get_submodule(name).parameters()) for name in names}
    return [name for name in names if size[name] >= COUNTED * sum(size.values())]


class _Tracer(fx.Tracer):
    """Sees what a network does with its parts, and into those parts that are named."""

    def __init__(self, inside: set[str]) -> None:
        super().__init__()
        self._inside = inside

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name not in self._inside


def _traced(module: nn.Module, inside: set[str], name: str) -> fx.Graph:
    """What the network computes, part by part; the same in training and in evaluation."""
    try:
        graphs = []
        for training in (True, False):
            with _evaluating(module):
                module.training = training
                graphs.append(_Tracer(inside).trace(module, concrete_args=_defaults(module)))
    except Exception as error:  # tracing fails in as many ways as networks are written
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(
            f"The network {name} cannot be taken apart into stages: {reason.rstrip('.')}. An encoder of your own that"
            " is an nn.Sequential can (docs/images.md)."
        ) from error
    if str(graphs[0]) != str(graphs[1]):
        raise UserError(f"The network {name} computes something else in training: it cannot be taken apart.")
    return graphs[1]


def _defaults(module: nn.Module) -> dict[str, Any]:
    """What a network's arguments after the images are, unless somebody says otherwise."""
    _, *others = inspect.signature(module.forward).parameters.values()
    return {one.name: one.default for one in others if one.default is not one.empty}


def _halves(module: nn.Module, graph: fx.Graph, first: fx.Node, name: str) -> tuple[nn.Module, nn.Module]:
    """The graph up to a node, and from it on."""
    nodes = [*graph.nodes]
    place = nodes.index(first)
    early = set(nodes[:place])
    used = dict.fromkeys(node for later in nodes[place:] for node in later.all_input_nodes if node in early)
    # Parameters of the network itself, and arguments that have a default: both halves may have them.
    constants = [node for node in used if node.op == "get_attr" or (node.op == "placeholder" and node.args)]
    crossing = [node for node in used if node not in constants]
    if len(crossing) != 1:
        found = few([node.name for node in crossing], 4)
        raise _uncut(name, str(first.target), f"{len(crossing)} values go past it ({found})")
    front, back = fx.Graph(), fx.Graph()
    needed = {crossing[0]}
    for node in reversed(nodes[:place]):
        if node in needed:
            needed.update(node.all_input_nodes)
    known: dict[fx.Node, fx.Node] = {}
    for node in nodes[:place]:
        if node in needed or node.op == "placeholder":
            known[node] = front.node_copy(node, known.__getitem__)
    front.output(known[crossing[0]])
    later = {crossing[0]: back.placeholder("x")}
    for node in (*constants, *nodes[place:]):
        later[node] = back.node_copy(node, later.__getitem__)
    return fx.GraphModule(module, front), fx.GraphModule(module, back)


def _uncut(name: str, stage: str, reason: str) -> UserError:
    return UserError(f"The network {name} cannot be cut before {stage}: {reason}. Choose another stage.")


class _Measured(fx.Interpreter):
    """Runs a network part by part: the multiplications of each, and the shape of what each gives."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.flops: dict[fx.Node, int] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        with FlopCounterMode(display=False) as counter:
            out = super().run_node(n)
        self.flops[n] = counter.get_total_flops()
        if isinstance(out, Tensor):
            self.shapes[n.name] = tuple(out.shape[1:])
        return out

    def shape_into(self, node: fx.Node) -> tuple[int, ...]:
        return next((self.shapes[given.name] for given in node.all_input_nodes if given.name in self.shapes), ())


@contextmanager
def _evaluating(*modules: nn.Module) -> Iterator[None]:
    """Modules in evaluation mode; each layer as it was, afterwards."""
    before: list[tuple[nn.Module, bool]] = [(layer, layer.training) for m in modules for layer in m.modules()]
    try:
        for module in modules:
            module.eval()
        yield
    finally:
        for layer, training in before:
            layer.training = training
