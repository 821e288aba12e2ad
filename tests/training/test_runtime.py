"""How a run treats the machine's memory."""

import os
import platform
import subprocess
import sys

import pytest

from tsadapt.training.runtime import keep_freed_memory

STEPS = """
import resource, sys, torch
from tsadapt.training.runtime import keep_freed_memory

def step():
    for tensor in [torch.empty(5_000_000) for _ in range(3)]:  # 20 MB each
        tensor.fill_(1)

if "keep" in sys.argv:
    keep_freed_memory()
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory_is_used_again_without_the_system() -> None:
    # The C library gives everything back at once, unless it is told otherwise later.
    eager = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_MMAP_THRESHOLD_": "131072"}

    def faults(*words: str) -> int:
        command = [sys.executable, "-c", STEPS, *words]
        return int(subprocess.run(command, env=eager, capture_output=True, text=True, check=True).stdout)

    given_back = faults()
    assert faults("keep") < given_back / 10


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not keep_freed_memory()
