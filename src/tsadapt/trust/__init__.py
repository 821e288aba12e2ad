"""How far to trust a network on rows without labels: functions of saved arrays, and one that puts them together."""

from tsadapt.trust.accuracy import (
    agreement,
    average_confidence,
    average_thresholded_confidence,
    confidence_score,
    difference_of_confidences,
    entropy_score,
)
from tsadapt.trust.assess import WORTH, Trust, assess, explain_doubtful
from tsadapt.trust.calibration import bias_corrected_temperature, calibration_error, fit_temperature
from tsadapt.trust.interval import Interval, interval_of
from tsadapt.trust.rows import doubtful_rows, neighbour_support, probability_right, second_classes, support
from tsadapt.trust.shares import bbse_shares, em_shares, label_shares, share_intervals, share_notes

__all__ = [
    "WORTH",
    "Interval",
    "Trust",
    "agreement",
    "assess",
    "average_confidence",
    "average_thresholded_confidence",
    "bbse_shares",
    "bias_corrected_temperature",
    "calibration_error",
    "confidence_score",
    "difference_of_confidences",
    "doubtful_rows",
    "em_shares",
    "entropy_score",
    "explain_doubtful",
    "fit_temperature",
    "interval_of",
    "label_shares",
    "neighbour_support",
    "probability_right",
    "second_classes",
    "share_intervals",
    "share_notes",
    "support",
]
