"""TSA's mathematics: functions of tensors, and memories with buffers. Knows no device, file or configuration."""

from tsadapt.core.adversarial import (
    certainty_weights,
    domain_loss,
    inverted_domain_loss,
    multilinear_map,
    randomized_map,
)
from tsadapt.core.ascent import climb
from tsadapt.core.averaging import average_weights
from tsadapt.core.class_shares import class_shares_by_em
from tsadapt.core.confusion import class_confusion_loss
from tsadapt.core.consistency import confident_label_loss, dropout_view
from tsadapt.core.discrepancy import covariance_distance, fused_features, joint_mmd, multi_kernel_mmd
from tsadapt.core.graphs import graph_coupling, similarity_graph, translation
from tsadapt.core.halves import half_confusion_loss, half_logit, joint_entropy
from tsadapt.core.information import PredictionMemory, conditional_entropy, mutual_information_loss
from tsadapt.core.iterative import IterativeMoments
from tsadapt.core.loss import TSALoss
from tsadapt.core.margin import margin_disparity_loss
from tsadapt.core.memory import FeatureMemory, keeps_second_moments
from tsadapt.core.mixing import mixed_label_loss, mixed_prediction_distance, mixed_rows, mixing_share
from tsadapt.core.moments import ClassMoments, ClassStatistics
from tsadapt.core.neighbours import (
    attraction_dispersion_loss,
    balanced_predictions,
    nearest_rows,
    neighbour_labels,
)
from tsadapt.core.norms import norm_growth_loss
from tsadapt.core.prototypes import (
    class_prototypes,
    orthogonality_penalty,
    prototype_discrepancy,
    prototype_distance,
    running_prototypes,
    score_discrepancy,
)
from tsadapt.core.pseudo_labels import centroid_labels, nearest_centroid, product_labels, pseudo_label_loss
from tsadapt.core.reversal import reverse_at, reverse_gradient
from tsadapt.core.rows import RowStatistics
from tsadapt.core.sampled import sampled_cross_entropy
from tsadapt.core.schedules import (
    augmentation_strength,
    dispersion_strength,
    learning_rate_factor,
    reversal_coefficient,
)
from tsadapt.core.sharpness import uphill
from tsadapt.core.sliced import random_directions, sliced_wasserstein
from tsadapt.core.spectral import largest_singular_energy, nuclear_discrepancy, nuclear_norm, nuclear_norm_loss
from tsadapt.core.transferable import transferable_cross_entropy, transferable_logits
from tsadapt.core.transport import attended_cost, entropic_dual

__all__ = [
    "ClassMoments",
    "ClassStatistics",
    "FeatureMemory",
    "IterativeMoments",
    "PredictionMemory",
    "RowStatistics",
    "TSALoss",
    "attended_cost",
    "attraction_dispersion_loss",
    "augmentation_strength",
    "average_weights",
    "balanced_predictions",
    "centroid_labels",
    "certainty_weights",
    "class_confusion_loss",
    "class_prototypes",
    "class_shares_by_em",
    "climb",
    "conditional_entropy",
    "confident_label_loss",
    "covariance_distance",
    "dispersion_strength",
    "domain_loss",
    "dropout_view",
    "entropic_dual",
    "fused_features",
    "graph_coupling",
    "half_confusion_loss",
    "half_logit",
    "inverted_domain_loss",
    "joint_entropy",
    "joint_mmd",
    "keeps_second_moments",
    "largest_singular_energy",
    "learning_rate_factor",
    "margin_disparity_loss",
    "mixed_label_loss",
    "mixed_prediction_distance",
    "mixed_rows",
    "mixing_share",
    "multi_kernel_mmd",
    "multilinear_map",
    "mutual_information_loss",
    "nearest_centroid",
    "nearest_rows",
    "neighbour_labels",
    "norm_growth_loss",
    "nuclear_discrepancy",
    "nuclear_norm",
    "nuclear_norm_loss",
    "orthogonality_penalty",
    "product_labels",
    "prototype_discrepancy",
    "prototype_distance",
    "pseudo_label_loss",
    "random_directions",
    "randomized_map",
    "reversal_coefficient",
    "reverse_at",
    "reverse_gradient",
    "running_prototypes",
    "sampled_cross_entropy",
    "score_discrepancy",
    "similarity_graph",
    "sliced_wasserstein",
    "transferable_cross_entropy",
    "transferable_logits",
    "translation",
    "uphill",
]
