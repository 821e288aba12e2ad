"""A frozen backbone made ready to compute features: in float32, with fused layers, or in bfloat16.

A network of convolutions has each of them fused with what follows (a residual connection, an activation), its weights
packed once. In bfloat16 the first convolutions stay in float32, for errors made early grow: two of them, and more than
half of a network with grouped ones. With batch normalisation folded into it, a depthwise filter is a small difference
of large numbers. Other networks run under autocast.

Shapes: B images (B, 3, size, size) as uint8; K features.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from tsadapt.config import FeaturePrecision
from tsadapt.models.backbones import Backbone, for_inference
from tsadapt.models.classifier import InputScaling

__all__ = ["BATCH", "REVISION", "FrozenNetwork"]

BATCH: dict[FeaturePrecision, int] = {"fp32": 16, "fp32-fused": 4, "bf16": 4}
"""Images forwarded at once: more would leave the processor's caches, and be cleared memory each time."""

REVISION = 2
"""Raised when fused features change by more than rounding. 2: more convolutions stay in float32."""

EXACT, EXACT_SHARE = 2, 0.6
"""How many of the first convolutions stay in float32, and which share of them in a network with grouped ones.

On photographs of Office-31 the least cosine is then 0.9996 for ResNet-50 (0.998 without), and 0.9998 for MobileNetV2
(0.9985 with the first two).
"""

SANE = 0.95
"""The same between fused and plain layers on noise: less means that the graph was not understood."""


class FrozenNetwork:
    """A backbone in evaluation mode: uint8 pixels in, float32 features out, on the CPU.

    But for plain float32, every batch has `rows` rows, the last one filled up: how a product is blocked depends on the
    batch, and what an image gets must not depend on how many others there are.
    """

    def __init__(self, backbone: Backbone, device: torch.device, precision: FeaturePrecision) -> None:
        scaling = InputScaling.of_images(backbone.mean, backbone.std)
        side, self.dim, self.device = backbone.size, backbone.dim, device
        self.mean, self.scale = (one.float().to(device) for one in (scaling.mean, scaling.scale))
        self.rows, self.filled = BATCH[precision], precision != "fp32"
        body = for_inference(backbone.module, side)
        if precision != "fp32":
            body = _faster(body, side, device, precision)
        self.body: nn.Module = body.to(device)

    @torch.inference_mode()
    def __call__(self, x: Tensor) -> Tensor:
        """Features (B, K) of images."""
        given = len(x)
        if self.filled and given < self.rows:
            x = torch.cat([x, x[-1:].expand(self.rows - given, -1, -1, -1)])
        out: Tensor = self.body(self._scaled(x.to(self.device)))
        return out[:given].float().cpu()

    def _scaled(self, x: Tensor) -> Tensor:
        """Normalised pixels, channels last. A row of the image is one vector: three channels are too few for one."""
        b, _, h, w = x.shape
        mean, scale = (one.flatten().repeat(w) for one in (self.mean, self.scale))
        rows = x.permute(0, 2, 3, 1).reshape(b, h, 3 * w).float()
        return rows.sub_(mean).div_(scale).view(b, h, w, 3).permute(0, 3, 1, 2)


def _faster(plain: nn.Module, side: int, device: torch.device, precision: FeaturePrecision) -> nn.Module:
    """The network with fused layers; where that cannot be, as it is, or under autocast."""
    other = _Autocast(plain, device) if precision == "bf16" else plain
    if device.type != "cpu" or not isinstance(plain, fx.GraphModule) or not _convolutions_alone(plain):
        return other
    x = torch.rand(BATCH[precision], 3, side, side, generator=torch.Generator().manual_seed(0)) - 0.5
    x = x.contiguous(memory_format=torch.channels_last)
    try:
        fused = _fused(plain, torch.bfloat16 if precision == "bf16" else torch.float32)
        with torch.inference_mode():  # which packs the weights, too
            found, expected = fused(x).float(), plain(x)
    except Exception:  # the fused layers are no public part of PyTorch, and may change
        return other
    if precision == "bf16":
        return fused if float(torch.cosine_similarity(found, expected).min()) >= SANE else other
    return fused if torch.allclose(found, expected, rtol=1e-3, atol=1e-4) else other


class _Autocast(nn.Module):
    """A network under autocast."""

    def __init__(self, body: nn.Module, device: torch.device) -> None:
        super().__init__()
        self.body, self.kind = body, device.type

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(self.kind, dtype=torch.bfloat16):
            out: Tensor = self.body(x)
        return out


def _convolutions_alone(graph: fx.GraphModule) -> bool:
    """Whether nothing but convolutions has parameters or buffers."""
    layers = dict(graph.named_modules())
    used = {str(node.target) for node in graph.graph.nodes if node.op == "call_module"}
    own = any(node.op == "get_attr" for node in graph.graph.nodes)
    others = [layers[name] for name in used if not isinstance(layers[name], nn.Conv2d)]
    held = any(True for layer in others for _ in (*layer.parameters(), *layer.buffers()))
    padded = any(isinstance(layers[name], nn.Conv2d) and not _plainly_padded(layers[name]) for name in used)
    return not (own or held or padded)


def _plainly_padded(layer: nn.Module) -> bool:
    return type(layer) is nn.Conv2d and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


ACTIVATIONS: dict[Any, tuple[str, list[float]]] = {
    nn.ReLU: ("relu", []), nn.ReLU6: ("hardtanh", [0.0, 6.0]), nn.SiLU: ("swish", []), nn.Hardswish: ("hardswish", []),
    F.relu: ("relu", []), torch.relu: ("relu", []), F.relu6: ("hardtanh", [0.0, 6.0]), F.silu: ("swish", []),
    F.hardswish: ("hardswish", []),
}  # fmt: skip
"""Modules and functions that oneDNN computes at the end of a convolution, by its names."""

ADDITIONS = (operator.add, operator.iadd, torch.add)


class _Convolution(nn.Module):
    """A convolution, with another tensor added and an activation if there are such, in one pass over the memory."""

    def __init__(self, layer: nn.Conv2d, dtype: torch.dtype, activation: tuple[str, list[float]] | None) -> None:
        super().__init__()
        self.name, self.numbers = activation or ("none", [])
        self.how = (layer.padding, layer.stride, layer.dilation, layer.groups)
        self.weight = nn.Parameter(layer.weight.detach().to(dtype), requires_grad=False)
        self.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().to(dtype), requires_grad=False)
        self._packed: Tensor | None = None

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        mkldnn: Any = torch.ops.mkldnn
        dtype = self.weight.dtype
        x = x.to(dtype)
        if self._packed is None:
            self._packed = mkldnn._reorder_convolution_weight(self.weight, *self.how, [*x.shape])
        if other is None:
            out = mkldnn._convolution_pointwise(x, self._packed, self.bias, *self.how, self.name, self.numbers, "")
        else:
            name = None if self.name == "none" else self.name
            out = mkldnn._convolution_pointwise.binary(
                x, other.to(dtype), self._packed, self.bias, *self.how, "add", 1.0, name, self.numbers, ""
            )
        return out  # type: ignore[no-any-return]


def _fused(plain: fx.GraphModule, dtype: torch.dtype) -> fx.GraphModule:
    """The graph with every convolution, and what follows it, as one."""
    layers = dict(plain.named_modules())
    graph = fx.Graph()
    graph.output(graph.graph_copy(plain.graph, {}))
    fused = fx.GraphModule(plain, graph)
    nodes = [node for node in fused.graph.nodes if _is(node, layers, nn.Conv2d)]
    grouped = any(layers[str(node.target)].groups > 1 for node in nodes)
    early = max(EXACT, math.ceil(EXACT_SHARE * len(nodes)) if grouped else 0)
    place = {node: i for i, node in enumerate(fused.graph.nodes)}
    for i, node in enumerate(nodes):
        last, other = node, None
        following = _only_user(last)
        if following is not None and following.op == "call_function" and following.target in ADDITIONS:
            others = [one for one in following.args if one is not node]
            # The other tensor has to be there by then; if it is not, the addition belongs to the other convolution.
            if len(others) == 1 and isinstance(others[0], fx.Node) and place[others[0]] < place[node]:
                last, other = following, others[0]
                following = _only_user(last)
        activation = None if following is None else _activation(following, layers)
        last = last if activation is None or following is None else following
        layer: Any = layers[str(node.target)]
        name = f"convolution_{i}"
        fused.add_submodule(name, _Convolution(layer, torch.float32 if i < early else dtype, activation))
        with fused.graph.inserting_before(last):
            new = fused.graph.call_module(name, (node.args[0],) if other is None else (node.args[0], other))
        place[new] = place[last]
        last.replace_all_uses_with(new)
    fused.graph.eliminate_dead_code()
    fused.graph.lint()
    fused.delete_all_unused_submodules()
    fused.recompile()
    return fused


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _is(node: fx.Node, layers: dict[str, nn.Module], kind: type[nn.Module]) -> bool:
    return node.op == "call_module" and isinstance(layers[str(node.target)], kind)


def _activation(node: fx.Node, layers: dict[str, nn.Module]) -> tuple[str, list[float]] | None:
    """What a node is, if it is an activation."""
    key: type | Callable[..., Any] | str = node.target
    if node.op == "call_module":
        key = type(layers[str(node.target)])
    return ACTIVATIONS.get(key) if node.op in ("call_module", "call_function") else None
