"""Your own encoder as a backbone: a function FILE.py:FUNCTION, an entry point, or a module of a Python program.

Its code runs when you name it, and never because a saved run does: a run holds the name of the function and the digest
of its file, and `encoder_again` takes the encoder that is given a second time, if it is the same.

Shapes: B images (B, 3, size, size), K features.
"""

import copy
import hashlib
import inspect
import json
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from tsadapt.data.paths import absolute_path
from tsadapt.errors import UserError, unknown
from tsadapt.models.backbones import (
    IMAGENET,
    Backbone,
    Origin,
    channels_last,
    check_weights,
    feature_width,
    load_file_into,
    make_backbone,
)
from tsadapt.registry import Registry
from tsadapt.vision import load_torchvision

__all__ = [
    "BACKBONES",
    "copy_of",
    "encoder_again",
    "file_origin",
    "find_backbone",
    "in_memory",
    "is_own",
    "module_origin",
    "names_file",
    "one_path",
    "refuse_code",
]

BACKBONES: Registry[Callable[[], nn.Module]] = Registry("backbone")
"""Functions that return an encoder, of other packages: entry points of the group tsadapt.backbone."""

MEMORY = "memory:"
"""How a config names a module of a Python program; data in memory is named alike."""

PROPORTION = 256 / 224
"""Size to resize to, over size, of an encoder that does not say it: ImageNet's usual one."""


def find_backbone(given: str | nn.Module, weights: str | None, image_size: int | None = None) -> Backbone:
    """The backbone of a name (`make_backbone`), or somebody's own encoder, with weights from a file if there is one.

    The encoder may have the attributes `mean` and `std` of pixels from 0…1, `size`, `resize` and `interpolation`;
    ImageNet's are the default. A file of weights must fit but for layers that became an identity. A module that is
    given stays as it is: a copy is used.
    """
    if isinstance(given, str) and given.startswith(MEMORY):
        raise UserError(f"{given} is a network of a Python program: pass it as tsadapt.fit(…, backbone=module).")
    if isinstance(given, str) and not is_own(given):
        return make_backbone(given, weights, image_size)
    check_weights(weights)
    name, module, origin = _encoder(given)
    if weights not in (None, "none"):
        cut = tuple(key for key, layer in module.named_modules() if isinstance(layer, nn.Identity) and key)
        load_file_into(module, weights, cut, name)
    images = _preparation(module, name)
    if image_size is not None:
        images |= {"size": image_size, "resize": round(image_size * images["resize"] / images["size"])}
    # As training and feature extraction will have it, and two images: a network may mix up rows and features.
    x = torch.zeros(2, 3, images["size"], images["size"]).contiguous(memory_format=torch.channels_last)
    dim = feature_width(module, x, f"The backbone {name}")
    return Backbone(name, module, dim, trained=weights != "none", origin=origin, **images)


def encoder_again(given: str | nn.Module | None, name: str, origin: Origin) -> nn.Module:
    """The encoder that a run was trained with, which is given again; refused if it is another one, or none."""
    if given is None:
        how = "backbone=module in tsadapt.load" if _is_object(name) else f"--backbone {name}, or backbone= in Python"
        raise UserError(
            f"The run was trained with an encoder of its own, {name}, which it never imports. Give it: {how}."
        )
    if isinstance(given, str) and not is_own(given):
        raise UserError(f"The run was trained with the encoder {name}, not with {given}.")
    if isinstance(given, str) and names_file(given):  # before any of its code runs
        _check_same(given, file_origin(given), name, origin)
    found, module, again = _encoder(given)
    _check_same(found, again, name, origin)
    return module


def is_own(given: str | nn.Module) -> bool:
    """Whether a backbone is somebody's own, and none of timm or torchvision."""
    return isinstance(given, nn.Module) or names_file(given) or given in BACKBONES


def names_file(name: str) -> bool:
    """Whether a name stands for a function in a file of Python.

    >>> names_file("encoders/mine.py:make"), names_file("torchvision:resnet18")
    (True, False)
    """
    return ".py:" in name or name.endswith(".py")


def refuse_code(backbone: str | None, config: str) -> None:
    """Refuse the backbone of a config file if it is code: the file may be somebody else's."""
    if backbone is not None and names_file(backbone):
        raise UserError(f"{config} names code, which is run only if you name it, too: add --backbone {backbone}")


def file_origin(name: str) -> Origin:
    """The origin of FILE.py:FUNCTION; nothing of the file is run."""
    file, function = _file_and_function(name)
    return Origin(function, _digest(_source_of(file)))


def one_path(name: str) -> str:
    """The name of a backbone; with the absolute path if it is a function in a file."""
    if not names_file(name):
        return name
    file, function = _file_and_function(name)
    return f"{absolute_path(file)}:{function}"


def in_memory(module: nn.Module) -> str:
    """How a config names a module of a Python program: by its code and its weights.

    >>> in_memory(nn.Flatten()) == in_memory(nn.Flatten()) != in_memory(nn.ReLU())
    True
    """
    _check_has_weights(module)
    whole = hashlib.sha256(_structure(module).encode())
    for key, tensor in sorted(module.state_dict().items()):
        whole.update(key.encode() + tensor.detach().cpu().double().contiguous().numpy().tobytes())
    return f"{MEMORY}{whole.hexdigest()[:16]}"


def module_origin(module: nn.Module) -> Origin:
    """The origin of a module of a Python program: its class, and the digest of its code and layers; no weights."""
    return Origin(type(module).__qualname__, _digest(_structure(module)))


def copy_of(module: nn.Module) -> nn.Module:
    """A copy to train, its convolutions in the memory format of training."""
    _check_has_weights(module)
    try:
        copied = copy.deepcopy(module)
    except Exception as error:
        raise UserError(f"The backbone {_title(module)} cannot be copied: {_said(error)}") from error
    return channels_last(copied)


def _check_has_weights(module: nn.Module) -> None:
    if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        raise UserError(f"The backbone {_title(module)} has layers without weights yet: run it once on an input first.")


class _Encoder(NamedTuple):
    name: str
    module: nn.Module
    origin: Origin


def _encoder(given: str | nn.Module) -> _Encoder:
    """The module that is given, or that a function returns."""
    if isinstance(given, nn.Module):
        return _Encoder(_title(given), copy_of(given), module_origin(given))
    if names_file(given):
        file, function = _file_and_function(given)
        name, source = f"{absolute_path(file)}:{function}", _source_of(file)
        make, origin = _function(source, file, function), Origin(function, _digest(source))
    else:
        name, make, origin = given, BACKBONES[given], _origin(given)
    try:
        module = make()
    except (Exception, SystemExit) as error:  # of somebody else's code, all kinds
        raise UserError(f"The backbone {given} cannot be made, its function failed: {_said(error)}") from error
    if not isinstance(module, nn.Module):
        raise UserError(f"The backbone {given} returned {type(module).__name__}, expected a torch.nn.Module.")
    return _Encoder(name, copy_of(module), origin)


def _file_and_function(name: str) -> tuple[str, str]:
    file, _, function = name.rpartition(":")
    if not file.endswith(".py") or not function:
        raise UserError(f"--backbone is {name}, expected FILE.py:FUNCTION, such as {name.partition(':')[0]}:make.")
    return file, function


def _source_of(file: str) -> bytes:
    path = absolute_path(file)
    if not path.is_file():
        raise UserError(f"No file at {file}: expected FILE.py:FUNCTION with a function that returns the backbone.")
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from error


def _function(source: bytes, file: str, function: str) -> Callable[[], Any]:
    """A function of a file, whose code, just as it was read, is run."""
    module = ModuleType(f"tsadapt_backbone_{_digest(source)}")
    module.__file__ = str(absolute_path(file))
    sys.modules[module.__name__] = module  # dataclasses look there
    try:
        exec(compile(source, module.__file__, "exec"), vars(module))
    except SyntaxError as error:
        raise UserError(f"{file} is not valid Python: {error.msg} (line {error.lineno}).") from error
    except (Exception, SystemExit) as error:
        raise UserError(f"{file} cannot be imported: {_said(error)}") from error
    found = getattr(module, function, None)
    if not callable(found):
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        raise UserError(f"{file}: {unknown('function', function, own)}")
    return found  # type: ignore[no-any-return]


def _origin(name: str) -> Origin:
    """The origin of an entry point: the file that defines its function."""
    load_torchvision()
    import timm

    if timm.is_model(name):
        raise UserError(
            f"An installed package has a backbone called {name}, as timm has: one of them needs another name."
        )
    make = BACKBONES[name]
    try:
        file = inspect.getsourcefile(make)
    except TypeError:
        file = None
    if file is None:
        raise UserError(f"The backbone {name} is {make!r}, expected a function that a file of Python defines.")
    return Origin(make.__qualname__, _digest(_source_of(file)))


def _preparation(module: nn.Module, name: str) -> dict[str, Any]:
    """How images are prepared for an encoder, by its attributes."""

    def wrong(key: str, expected: str) -> UserError:
        return UserError(f"The backbone {name} has {key} = {getattr(module, key)!r}, expected {expected}.")

    images: dict[str, Any] = {}
    for key, default in zip(("mean", "std"), IMAGENET, strict=True):
        value = getattr(module, key, default)
        if not isinstance(value, tuple | list) or len(value) != 3 or not all(_is_number(v) for v in value):
            raise wrong(key, "three numbers, one for each channel of pixels from 0 to 1")
        images[key] = tuple(map(float, value))
    if min(images["std"]) <= 0:
        raise wrong("std", "numbers above zero")
    images["size"] = getattr(module, "size", 224)
    if not isinstance(images["size"], int) or images["size"] < 1:
        raise wrong("size", "the side of the images in pixels")
    images["resize"] = getattr(module, "resize", round(images["size"] * PROPORTION))
    if not isinstance(images["resize"], int) or images["resize"] < images["size"]:
        raise wrong("resize", f"the short side of the images before they are cropped to {images['size']} pixels")
    images["interpolation"] = getattr(module, "interpolation", "bilinear")
    if images["interpolation"] not in ("bilinear", "bicubic"):
        raise wrong("interpolation", "bilinear or bicubic")
    return images


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _check_same(found: str, again: Origin, name: str, origin: Origin) -> None:
    if again != origin:
        raise UserError(
            f"{found} ({again.function}, digest {again.digest}) is not the encoder that the run was trained with:"
            f" {name} ({origin.function}, digest {origin.digest})."
        )


def _structure(module: nn.Module) -> str:
    """What a module computes, but for its weights: layers, shapes, and of classes outside torch the code and values."""
    known = {*vars(nn.Module())}
    parts: list[Any] = []
    for name, layer in module.named_modules():
        kind = type(layer)
        parts.append((name, kind.__qualname__))
        if kind.__module__.partition(".")[0] == "torch":
            parts.append(layer.extra_repr())
            continue
        parts.append({key: value for key, value in vars(layer).items() if key not in known})
        parts += [_code(cls) for cls in kind.__mro__ if cls.__module__.partition(".")[0] not in ("torch", "builtins")]
    parts += [(key, [*value.shape]) for key, value in module.state_dict().items()]
    return json.dumps(parts, skipkeys=True, default=lambda value: getattr(value, "__qualname__", type(value).__name__))


def _code(cls: type) -> list[str]:
    """The source of the functions of a class; what was typed into a prompt has none, but has been compiled."""
    found = []
    for function in [value for value in vars(cls).values() if inspect.isfunction(value)]:
        try:
            found.append(inspect.getsource(function))
        except OSError:
            found.append(function.__code__.co_code.hex())
    return found


def _digest(content: bytes | str) -> str:
    return hashlib.sha256(content if isinstance(content, bytes) else content.encode()).hexdigest()[:16]


def _title(module: nn.Module) -> str:
    return f"{type(module).__qualname__} (in memory)"


def _is_object(name: str) -> bool:
    return name.endswith(" (in memory)")


def _said(error: BaseException) -> str:
    """An error of somebody else's code in one line."""
    said = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {said}" if said else f"{type(error).__name__}."
