"""Schedules as functions of progress = t/T, for iterations t = 1…T (Algorithm 1 of the paper).

A schedule that the literature writes by iteration is the same function with its constant multiplied by T.
"""

import math

__all__ = ["augmentation_strength", "dispersion_strength", "learning_rate_factor", "reversal_coefficient"]


def augmentation_strength(progress: float, lambda0: float = 0.25) -> float:
    """λ = λ0·t/T: how far and how widely source features are moved.

    >>> augmentation_strength(0.5, lambda0=0.25)
    0.125
    """
    return lambda0 * _checked(progress)


def reversal_coefficient(progress: float, gain: float = 10.0) -> float:
    """α = 2/(1 + exp(−gain·t/T)) − 1: the factor of the reversed gradient, from 0 towards 1 (DANN).

    The form by iteration, 2/(1 + exp(−10·t/10000)) − 1 (CDAN), is `gain = 10·T/10000`.

    >>> round(reversal_coefficient(1.0, gain=10 * 1000 / 10000), 4)  # iteration 1000 of 1000, by iteration
    0.4621
    """
    return math.tanh(gain * _checked(progress) / 2)


def learning_rate_factor(progress: float, gain: float = 10.0, power: float = 0.75) -> float:
    """(1 + gain·t/T)^(−power): what the first learning rate is multiplied by (DANN).

    The form by iteration, (1 + γt)^(−0.75), is `gain = γ·T`.

    >>> round(0.01 * learning_rate_factor(1.0, gain=1e-3 * 10000), 6)  # γ = 0.001, iteration 10000 of 10000
    0.001656
    """
    return float((1 + gain * _checked(progress)) ** -power)


def dispersion_strength(progress: float, alpha: float = 1.0, decay: float = 5.0) -> float:
    """α·(1 + 10·t/T)^(−decay): how much predictions of a batch are driven apart, less and less (AaD).

    >>> dispersion_strength(0.1, alpha=2.0, decay=1.0)
    1.0
    """
    return alpha * learning_rate_factor(progress, power=decay)


def _checked(progress: float) -> float:
    if not 0 <= progress <= 1:
        raise ValueError(f"progress is {progress}, expected a share of the training between 0 and 1 (t/T).")
    return float(progress)
