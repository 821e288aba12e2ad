"""Where and how precisely a run computes, and how it is asked to stop."""

import ctypes
import platform
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType

import torch

from tsadapt.config import Precision
from tsadapt.errors import UserError

__all__ = ["Stop", "autocast", "has_fast_bf16", "keep_freed_memory", "pick_device", "stop_signals"]

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
MEGABYTE = 1 << 20


def pick_device(name: str) -> torch.device:
    """The device of that name; "auto" takes CUDA if it is there, and else the CPU.

    (Apple's MPS has no float64, which the class-wise sums are kept in.)

    >>> pick_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # "meta" has no numbers
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"Device {name!r} cannot be used here: {reason} Try --device auto or cpu.") from error
    return device


def autocast(device: torch.device, precision: Precision | None) -> AbstractContextManager[object]:
    """The context in which networks are forwarded."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bf16" else nullcontext()


def has_fast_bf16(device: torch.device) -> bool:
    """Whether a device computes in bfloat16 faster than in float32: a CPU needs instructions for it."""
    if device.type == "cpu":
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def keep_freed_memory() -> bool:
    """Let the C library keep what is freed for the next step, for the rest of the process; whether it does.

    A step frees activations of many megabytes, and glibc gives those back to the system, which then clears page after
    page of them for the next step: a fifth of a step of the 28×28 network at batch 128. Elsewhere nothing changes.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # No version takes a threshold over 32 MB for certain: what is larger is mapped, and given back, as ever.
    return bool(mallopt(M_MMAP_THRESHOLD, 32 * MEGABYTE) and mallopt(M_TRIM_THRESHOLD, 2047 * MEGABYTE))


@dataclass
class Stop:
    """Whether the user asked to stop."""

    asked: bool = False


@contextmanager
def stop_signals(patient: bool = False) -> Iterator[Stop]:
    """The first Ctrl-C or SIGTERM asks the loop to stop after its step; a second one stops at once, unless `patient`.

    torchrun passes on to its processes what the terminal has sent them already, and ends those that take too long.
    """
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.asked and not patient:
            raise KeyboardInterrupt
        stop.asked = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: signals are somebody else's
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
