"""The whole job: check the data, train a few candidates, choose without labels, estimate, predict, report."""

from tsadapt.adapt.job import Adapted, adapt
from tsadapt.adapt.portfolio import PORTFOLIO

__all__ = ["PORTFOLIO", "Adapted", "adapt"]
