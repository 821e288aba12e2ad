"""Which candidate to trust, without target labels: validators of saved predictions, and the choice among a pool.

Every file of this package that registers validators is imported here, so that the registry is whole.
"""

from tsadapt.selection import clustering, dev, pool, scores
from tsadapt.selection.predictions import Mixed, Predictions
from tsadapt.selection.validators import VALIDATORS, Validator

__all__ = ["VALIDATORS", "Mixed", "Predictions", "Validator", "clustering", "dev", "pool", "scores"]
