"""Methods × seeds × tasks of one's own, in one resumable folder, and a table that says what is certain."""

from tsadapt.benchmark.job import Benchmarked, benchmark

__all__ = ["Benchmarked", "benchmark"]
