"""The commands that measure processes, long memories and compiled steps run, on small sizes; kills find whom to hit."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks import compile as compiling
from benchmarks import kills, long_memory, processes


def test_a_long_memory_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path))
    for storage in ("float32", "float16-disk"):
        found = long_memory.measure(2000, 16, 5, storage, batch=8, steps=1)
        assert found["step, s"] >= 0
        assert found["rows take"] == "1 MB"


def test_processes_are_measured():
    assert min(processes.measure(processes.Size(rows=40, batch=8, steps=2), number=2, threads=1)) > 0


def test_compiled_steps_are_measured(here, monkeypatch):
    monkeypatch.setitem(compiling.NETWORKS, "tiny", (("source.npz", "target.npz"), {"tsa": True, "bottleneck": 4}))
    found = compiling.steps_of("tiny", 3, None)
    assert [*found["times as fast"]] == [*compiling.WAYS]
    assert found["times as fast"]["fp32"] == 1
    assert found["seconds of the first step"]["fp32, compiled"] > found["seconds of the first step"]["fp32"]


@pytest.mark.skipif(sys.platform != "linux", reason="children by /proc")
def test_a_signal_hits_the_launcher_or_one_process_or_all():
    with subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60 & wait"]) as launcher:
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
        while len(children.read_text().split()) < 2:
            time.sleep(0.01)
        workers = [*map(int, children.read_text().split())]
        hits = dict(kills.one_or_all(launcher.pid, random.Random(seed)) for seed in range(20))
        for worker in workers:
            subprocess.run(["kill", str(worker)], check=True)
    assert hits["the launcher"] == [launcher.pid]
    assert hits["all"] == [launcher.pid, *workers]
    assert hits["one process"][0] in workers
    assert len(hits["one process"]) == 1
