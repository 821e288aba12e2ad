"""tsadapt list: what there is."""

from dataclasses import dataclass
from typing import Literal

import tyro

__all__ = ["List"]


@dataclass(frozen=True)
class List:
    """List the methods, datasets, networks or source terms there are.

    Example: tsadapt list datasets
    """

    kind: tyro.conf.Positional[Literal["methods", "datasets", "networks", "source-terms"]]
    """What to list."""

    def run(self) -> int:
        """Print one a line."""
        print("\n".join(_names(self.kind)))
        return 0


def _names(kind: str) -> list[str]:
    if kind == "methods":
        from tsadapt.methods import METHODS

        return [f"{name}: {(METHODS[name].__doc__ or '').splitlines()[0]}" for name in METHODS]
    if kind == "datasets":
        from tsadapt.data.open import dataset_names

        return dataset_names()
    if kind == "networks":
        from tsadapt.models.build import network_names

        return network_names()
    from typing import get_args

    from tsadapt.config import SourceTermName

    return [*get_args(SourceTermName)]
