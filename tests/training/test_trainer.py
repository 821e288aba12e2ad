"""What a trainer hands to a checkpoint."""

import subprocess
import sys

import pytest
import torch

from tsadapt.training.trainer import _finite

PEAK = """
import resource, torch
from tsadapt.training.trainer import _finite

x = torch.ones(100_000_000, dtype=torch.float16)  # 191 MB
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert _finite(x)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_values_that_are_not_finite_are_found(dtype):
    x = torch.linspace(-3, 3, 1001, dtype=torch.float64).to(dtype)
    assert _finite(x)
    assert _finite(x[:0])
    assert _finite(x[0])
    for bad in ("nan", "inf", "-inf"):
        for place in (0, 500, 1000):
            broken = x.clone()
            broken[place] = float(bad)
            assert not _finite(broken)


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory in KiB")
def test_looking_for_them_takes_no_memory():
    """Before each checkpoint: a memory of 20,000 predictions of 10,000 classes has 381 MB, its copies twice that."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40_000
