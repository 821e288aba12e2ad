"""Backbones: any network of timm by name, or torchvision's as torchvision:NAME, without its classifier.

Shapes: B images (B, 3, size, size), normalised by `mean` and `std`; K features.
"""

import hashlib
import os
import pickle
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from tsadapt.errors import UserError, few, unknown
from tsadapt.vision import load_torchvision

__all__ = [
    "Backbone",
    "NoWeightsError",
    "Origin",
    "backbone_names",
    "channels_last",
    "check_weights",
    "feature_width",
    "for_inference",
    "load_file_into",
    "make_backbone",
]

TORCHVISION = "torchvision:"
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
BRANCHED = ("googlenet", "inception_v3")
"""Networks of torchvision whose output in training is not one tensor."""
SHOWN = 4
"""Names of a mismatch that a message shows."""


@dataclass(frozen=True)
class Origin:
    """Where a user's own encoder comes from: the name of its function (or class), and the digest of its file."""

    function: str
    digest: str


@dataclass(frozen=True)
class Backbone:
    """A network from images to features (B, K), and how its images are prepared.

    `size`, `resize` and `interpolation` are what its weights were evaluated with; `trained` says whether it has any.
    `origin` is None for a network of timm or torchvision. `train_from` is the stage that training begins at, where it
    trains only the end of the network.
    """

    name: str
    module: nn.Module
    dim: int
    size: int
    resize: int
    interpolation: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    trained: bool
    origin: Origin | None = None
    train_from: str | None = None

    def fingerprint(self) -> str:
        """A hash of the weights, and of what computes with them."""
        name = self.name if self.origin is None else f"{self.origin.function} {self.origin.digest}"
        whole = hashlib.sha256(name.encode())
        for key, tensor in sorted(self.module.state_dict().items()):
            whole.update(key.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
        return whole.hexdigest()[:16]


def make_backbone(name: str, weights: str | None, image_size: int | None = None) -> Backbone:
    """The backbone called `name`, with weights from a file, from the hub (None), or at random ("none").

    With another `image_size` than its own, the size to resize to keeps its proportion.

    >>> backbone = make_backbone("resnet10t", weights="none")
    >>> backbone.dim, backbone.size, backbone.trained
    (512, 176, False)
    """
    check_weights(weights)
    made = _torchvision(name, weights) if name.startswith(TORCHVISION) else _timm(name, weights, image_size)
    module, given = made.module, made.given
    if weights not in (None, "none"):
        hint = "" if name.startswith(TORCHVISION) else f" Weights of torchvision need --backbone {TORCHVISION}NAME."
        load_file_into(module, weights, made.classifier, name, hint)
    if image_size is not None:
        given = {**given, "size": image_size, "resize": round(image_size * given["resize"] / given["size"])}
    dim = feature_width(module, torch.zeros(1, 3, given["size"], given["size"]), f"The network {name}")
    return Backbone(name, module, dim, trained=weights != "none", **given)


def check_weights(weights: str | None) -> None:
    """Refuse a file of weights that is not there."""
    if weights not in (None, "none") and not Path(weights).expanduser().is_file():
        raise UserError(f"No weights at {weights}: expected a .safetensors or .pth file, or none for random weights.")


def feature_width(module: nn.Module, x: Tensor, what: str) -> int:
    """The features K that a network, put into evaluation mode, gives for each row of `x`; `what` is its name."""
    shape = tuple(x.shape[1:])
    rows = f"images of {shape[-1]} pixels" if len(shape) == 3 and shape[0] == 3 else f"rows of shape {shape}"
    try:
        with torch.no_grad():
            out = module.eval()(x)
    except Exception as error:  # of anybody's code, all kinds
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{what} does not take {rows}: {reason}") from error
    if not isinstance(out, Tensor) or out.ndim != 2 or len(out) != len(x) or not out.is_floating_point():
        found = f"a tensor of shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise UserError(
            f"{what} returns {found} for {len(x)} {rows}, expected one feature vector for each: ({len(x)}, K)."
        )
    return int(out.shape[1])


def backbone_names() -> list[str]:
    """Every backbone: those of timm, then torchvision's."""
    load_torchvision()
    import timm
    import torchvision
    from torchvision.models import list_models

    return [*timm.list_models(), *(f"{TORCHVISION}{name}" for name in list_models(module=torchvision.models))]


@dataclass(frozen=True)
class _Made:
    """A network without its classifier, the names its classifier had, and how its images are prepared."""

    module: nn.Module
    classifier: tuple[str, ...]
    given: dict[str, Any]


def _timm(name: str, weights: str | None, image_size: int | None) -> _Made:
    load_torchvision()
    if weights is None:
        _no_vain_retries()
    import timm
    from timm.data.config import resolve_model_data_config

    if not timm.is_model(name):
        from torchvision.models import list_models

        if name in list_models():
            raise UserError(f"Unknown backbone {name!r} of timm. Did you mean '{TORCHVISION}{name}'?")
        raise UserError(unknown("backbone", name, timm.list_models(), listed="tsadapt list backbones"))
    try:
        fixed = timm.get_pretrained_cfg_value(name, "fixed_input_size")
        size_too: dict[str, Any] = {"img_size": image_size} if fixed and image_size is not None else {}
        module: Any = timm.create_model(name, pretrained=weights is None, num_classes=0, **size_too)
    except Exception as error:  # the hub's clients raise many kinds
        if weights is not None or "tag" in str(error):
            raise UserError(f"The network {name} cannot be built: {error}") from error
        raise _no_download(name, error) from error
    config = resolve_model_data_config(module)  # type: ignore[no-untyped-call]
    classifier = module.default_cfg.get("classifier") or ()
    size = config["input_size"][-1]
    interpolation = config["interpolation"]
    return _Made(
        module,
        (classifier,) if isinstance(classifier, str) else tuple(classifier),
        {
            "size": size,
            "resize": round(size / config["crop_pct"]),
            "interpolation": interpolation if interpolation in ("bilinear", "bicubic") else "bicubic",
            "mean": tuple(config["mean"]),
            "std": tuple(config["std"]),
        },
    )


def _torchvision(full: str, weights: str | None) -> _Made:
    load_torchvision()
    import torchvision
    from torchvision.models import get_model, get_model_weights, list_models

    name = full.removeprefix(TORCHVISION)
    names = list_models(module=torchvision.models)
    if name not in names:
        raise UserError(unknown("torchvision network", name, names, listed="tsadapt list backbones"))
    if name in BRANCHED:
        raise UserError(f"The network {full} has auxiliary classifiers: choose another.")
    published = get_model_weights(name)
    chosen = published.DEFAULT if weights is None else next(iter(published))
    fixed = {"image_size": chosen.meta["min_size"][0]} if name.startswith("vit_") else {}
    module = get_model(name, weights=None, **fixed)
    if weights is None:
        try:
            state = torch.hub.load_state_dict_from_url(chosen.url, check_hash=True, weights_only=True, progress=False)
            module.load_state_dict(state)
        except Exception as error:
            raise _no_download(full, error) from error
    preset = chosen.transforms.keywords
    mean, std = IMAGENET
    return _Made(
        module,
        (_cut_classifier(module, full),),
        {
            "size": preset["crop_size"],
            "resize": preset.get("resize_size", 256),
            "interpolation": preset.get("interpolation", torchvision.transforms.InterpolationMode.BILINEAR).value,
            "mean": tuple(preset.get("mean", mean)),
            "std": tuple(preset.get("std", std)),
        },
    )


def _cut_classifier(module: nn.Module, name: str) -> str:
    """Put an identity in place of the last linear layer and of dropout right before it; the layer's name."""
    linear = [key for key, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise UserError(f"The network {name} has no linear classifier to remove: choose another.")
    parent_name, _, last = linear[-1].rpartition(".")
    parent = module.get_submodule(parent_name)
    setattr(parent, last, nn.Identity())
    if isinstance(parent, nn.Sequential) and len(parent) > 1 and isinstance(parent[-2], nn.Dropout):
        parent[-2] = nn.Identity()
    return str(linear[-1])


def _no_vain_retries() -> None:
    """Without a network the hub's client would ask for a minute before it gives up: have it look on the disk alone."""
    proxies = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HF_ENDPOINT")
    if "HF_HUB_OFFLINE" in os.environ or any(name in os.environ for name in proxies):
        return
    try:
        socket.getaddrinfo("huggingface.co", 443)
    except OSError:
        os.environ["HF_HUB_OFFLINE"] = "1"


class NoWeightsError(UserError):
    """Weights that cannot be downloaded: `what` says which, and why."""

    def __init__(self, what: str, flag: str = "--weights ") -> None:
        self.what = what
        super().__init__(
            f"{what} Offline? Pass local weights: {flag}FILE (.safetensors or .pth), or {flag}none for random ones."
        )


def _no_download(name: str, error: Exception) -> NoWeightsError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return NoWeightsError(f"The weights of {name} cannot be downloaded ({reason.rstrip('.')}).")


def _read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a weights file, by name; nothing in it is ever run."""
    try:
        if path.suffix == ".safetensors":
            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError, SafetensorError) as error:
        reason = "it is damaged, or contains more than tensors, which is never loaded"
        if not isinstance(error, pickle.UnpicklingError) and str(error):
            reason = str(error).splitlines()[0]
        raise UserError(f"{path} cannot be loaded as weights: {reason}") from error
    for wrapper in ("state_dict", "model", "model_state_dict"):
        if isinstance(state, dict) and isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    if not isinstance(state, dict) or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in state.items()):
        raise UserError(f"{path} contains no state_dict: expected a dictionary of tensors.")
    return {key.removeprefix("module."): cast("Tensor", value) for key, value in state.items()}


def load_file_into(module: nn.Module, path: str, classifier: tuple[str, ...], name: str, hint: str = "") -> None:
    """Load weights that must fit but for the classifier that was taken off; all that does not is listed.

    Numbers of a lower precision (float16) become those of the module. `hint` may help if tensors are missing.
    """
    state = _read_weights(Path(path).expanduser())
    heads = tuple(f"{prefix}." for prefix in classifier)
    state = {key: value for key, value in state.items() if not key.startswith(heads)}
    expected = module.state_dict()
    # Files from before PyTorch 0.4.1 do not count their batches.
    missing = [key for key in expected if key not in state and not key.endswith("num_batches_tracked")]
    extra = [key for key in state if key not in expected]
    shapes = [
        f"{key} {tuple(state[key].shape)} for {tuple(expected[key].shape)}"
        for key in expected
        if key in state and state[key].shape != expected[key].shape
    ]
    if missing or extra or shapes:
        parts = (("missing", missing), ("unexpected", extra), ("of the wrong shape", shapes))
        found = "; ".join(f"{len(keys)} {what} ({few(keys, SHOWN)})" for what, keys in parts if keys)
        raise UserError(f"{path} does not fit {name}: tensors {found}.{hint if missing else ''}")
    module.load_state_dict(state, strict=False)


M = TypeVar("M", bound=nn.Module)


def channels_last(module: M) -> M:
    """The network with the channels of its images last in memory; weights of other shapes than images' stay."""
    module._apply(lambda t: t.to(memory_format=torch.channels_last) if t.ndim == 4 else t)  # type: ignore[no-untyped-call]
    return module


def for_inference(module: nn.Module, size: int) -> nn.Module:
    """A copy for evaluation alone: batch normalisation folded into the convolutions, channels last.

    On a CPU that takes a third of the time. A network that cannot be traced, or gives other features then, stays.
    """
    from torch.fx.experimental.optimization import fuse

    plain = module.eval()
    x = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0)) - 0.5
    try:
        fused: nn.Module = fuse(plain)
        with torch.no_grad():
            if not torch.allclose(fused(x), plain(x), rtol=1e-3, atol=1e-4):
                fused = plain
    except Exception:  # tracing fails in as many ways as networks are written
        fused = plain
    return channels_last(fused)
