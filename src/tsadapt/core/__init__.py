"""TSA's mathematics: functions of tensors, and memories with buffers. Knows no device, file or configuration."""

from tsadapt.core.information import mutual_information_loss
from tsadapt.core.iterative import IterativeMoments
from tsadapt.core.loss import TSALoss
from tsadapt.core.memory import FeatureMemory, keeps_second_moments
from tsadapt.core.moments import ClassMoments, ClassStatistics
from tsadapt.core.sampled import sampled_cross_entropy
from tsadapt.core.schedules import augmentation_strength, learning_rate_factor, reversal_coefficient
from tsadapt.core.transferable import transferable_cross_entropy, transferable_logits

__all__ = [
    "ClassMoments",
    "ClassStatistics",
    "FeatureMemory",
    "IterativeMoments",
    "TSALoss",
    "augmentation_strength",
    "keeps_second_moments",
    "learning_rate_factor",
    "mutual_information_loss",
    "reversal_coefficient",
    "sampled_cross_entropy",
    "transferable_cross_entropy",
    "transferable_logits",
]
