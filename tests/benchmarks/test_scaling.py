"""The commands that measure processes and long memories run, on small sizes."""

from benchmarks import long_memory, processes


def test_a_long_memory_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path))
    for storage in ("float32", "float16-disk"):
        found = long_memory.measure(2000, 16, 5, storage, batch=8, steps=1)
        assert found["step, s"] >= 0
        assert found["rows take"] == "1 MB"


def test_processes_are_measured():
    assert min(processes.measure(processes.Size(rows=40, batch=8, steps=2), number=2, threads=1)) > 0
