"""Which rows are of the source and which of the target: the convention of skada."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

__all__ = ["split_domains"]


def split_domains(sample_domain: Any) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are of the source (positive numbers) and which of the target (negative ones), as masks.

    >>> split_domains([1, -2, 1])
    (array([ True, False,  True]), array([False,  True, False]))
    """
    domain = check_array(sample_domain, ensure_2d=False, dtype=None, input_name="sample_domain")
    if domain.ndim != 1 or domain.dtype.kind not in "iuf":
        raise ValueError("sample_domain needs one number per row: positive for the source, negative for the target.")
    if (domain == 0).any():
        raise ValueError("sample_domain has a 0: expected positive numbers (source) and negative ones (target).")
    return domain > 0, domain < 0
