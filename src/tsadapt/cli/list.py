"""tsadapt list: what there is."""

from dataclasses import dataclass
from typing import Literal

import tyro

from tsadapt.errors import UserError

__all__ = ["List"]


@dataclass(frozen=True)
class List:
    """List the methods, datasets, networks, backbones, validators or source terms there are.

    Example: tsadapt list backbones resnet
    """

    kind: tyro.conf.Positional[Literal["methods", "datasets", "networks", "backbones", "validators", "source-terms"]]
    """What to list."""
    pattern: tyro.conf.Positional[str] = ""
    """Only names with this in them."""

    def run(self) -> int:
        """Print one a line."""
        found = [line for line in _names(self.kind) if self.pattern in line.partition(": ")[0]]
        if not found:
            raise UserError(f"None of the {self.kind} has {self.pattern!r} in its name.")
        print("\n".join(found))
        return 0


def _names(kind: str) -> list[str]:
    if kind == "methods":
        from tsadapt.objectives.methods import METHODS

        return [
            f"{name}: {(METHODS[name].__doc__ or '').splitlines()[0]}"
            + (f" Terms: {', '.join(METHODS[name].terms)}." if METHODS[name].terms else "")
            for name in METHODS
        ]
    if kind == "datasets":
        from tsadapt.data.open import dataset_names

        return dataset_names()
    if kind == "backbones":
        from tsadapt.models.backbones import backbone_names

        return backbone_names()
    if kind == "validators":
        from tsadapt.selection.select import validator_lines

        return validator_lines()
    if kind == "networks":
        from tsadapt.models.build import network_names

        return network_names()
    from typing import get_args

    from tsadapt.config import SourceTermName

    what = {
        "ce": "cross-entropy",
        "isda": "implicit semantic augmentation with the source's covariance",
        "tsa": "transferable semantic augmentation (--tsa adds mutual information to it)",
        "sampled": "TSA by drawn copies instead of the closed form, for comparison",
    }
    return [f"{name}: {what[name]}" for name in get_args(SourceTermName)]
