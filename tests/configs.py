"""Configs for tests: a run's own fields and any setting of its terms, by plain names."""

from typing import Any

from tsadapt.config import RunConfig
from tsadapt.objectives.objective import with_settings

__all__ = ["changed", "run_config"]

changed = with_settings
"""A config with other settings; `tsa` and `mi` are short for terms."""


def run_config(source: str, target: str, **settings: Any) -> RunConfig:
    return with_settings(RunConfig(source, target), **settings)
