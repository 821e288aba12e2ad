"""Which rows are of the source and which of the target, as skada says it; and which columns are no numbers."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

__all__ = ["LEFT_IN", "split_domains", "text_columns"]

LEFT_IN = "Put ids into the index of the DataFrame (set_index), and give labels as y."


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


def text_columns(X: Any) -> list[str]:
    """The columns of a DataFrame that cannot be read as numbers; none of anything else."""
    if not hasattr(X, "select_dtypes"):
        return []
    columns = X.select_dtypes(include=["object", "string", "category"])
    return [str(name) for i, name in enumerate(columns.columns) if not _is_numeric(columns.iloc[:, i])]


def _is_numeric(column: Any) -> bool:
    try:
        np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True
