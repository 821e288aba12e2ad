"""Pools of processes, shared by all tests."""

import pytest
from tests.distributed.pool import pools


@pytest.fixture(scope="session")
def pool():
    """`pool(n)` is a pool of n gloo processes."""
    with pools() as of:
        yield of
