"""Validators as scorers of scikit-learn's searches."""

import sys
from typing import Any

import numpy as np
from sklearn.utils.metadata_routing import MetadataRequest

from tsadapt.estimator.domains import split_domains
from tsadapt.estimator.fitting import parted
from tsadapt.selection import VALIDATORS
from tsadapt.selection.predictions import Predictions

__all__ = ["ValidatorScorer", "check_search"]

ROUTING = (
    "Turn on sklearn.set_config(enable_metadata_routing=True), ask for set_fit_request(sample_domain=True), and give"
    " sample_domain to fit; or give X_target to the search's fit instead; or use ConsensusSearchCV."
)
NO_TARGET = (
    "A validator scores target rows, and there are none: give X_target to the search's fit, or a sample_domain with"
    " negative numbers."
)


class ValidatorScorer:
    """A label-free validator as a scorer for GridSearchCV and friends; more is better, whatever its own sign.

    Rows of the target (negative `sample_domain`, or all rows where neither that nor y is given) are scored without
    their labels; rows of the source, which the search held out, serve the validators that need some. Where a search
    hands on no domains, because metadata routing is off, the target rows that the estimator was trained on are scored.
    For example `GridSearchCV(TSAClassifier(), {"beta": [0.05, 0.1]}, scoring=ValidatorScorer("im"))`, with `X_target`
    given to its fit.
    """

    def __init__(self, name: str = "im") -> None:
        alone = [known for known in VALIDATORS if VALIDATORS[known].alone is not None]
        if name not in alone:
            raise ValueError(f"validator is {name!r}, expected one that scores a model by itself: {', '.join(alone)}.")
        self.validator = VALIDATORS[name]

    def __repr__(self) -> str:
        return f"ValidatorScorer({self.validator.name!r})"

    def get_metadata_routing(self) -> MetadataRequest:
        """What a search hands on: the domains of the rows."""
        request = MetadataRequest(owner=self)
        request.score.add_request(param="sample_domain", alias=True)
        return request

    def __call__(self, estimator: Any, X: Any, y: Any = None, sample_domain: Any = None) -> float:
        """The score of a fitted estimator (or a pipeline that ends in one) on rows it was not trained on."""
        before, last = parted(estimator)
        if y is not None and sample_domain is None:
            return self._by_own_target(last, X if before is None else before.transform(X), np.asarray(y))
        features, logits = last._forward(last._rows(X if before is None else before.transform(X)))
        is_target = np.ones(len(logits), dtype=bool) if sample_domain is None else split_domains(sample_domain)[1]
        if not is_target.any():
            raise ValueError("No target rows to score: sample_domain has no negative number.")
        held = np.zeros(0, dtype=np.int64) if y is None else np.flatnonzero(~is_target)
        labels = np.zeros(0, dtype=object) if y is None else np.asarray(y)[held]
        return self._score(last, (features[held], logits[held], labels), (features[is_target], logits[is_target]))

    def _by_own_target(self, last: Any, rows: Any, y: np.ndarray) -> float:
        """The score on the target rows of training; what was held out serves if it is of the source."""
        outputs = getattr(last, "target_outputs_", None)
        if outputs is None:
            raise ValueError(NO_TARGET)
        if last.target_given_ == "together":  # rows of both domains, and no telling which
            held, y = last._rows(rows)[:0], y[:0]
        else:
            held = last._rows(rows)
        features, logits = last._forward(held) if len(held) else (outputs[0][:0], outputs[1][:0])
        return self._score(last, (features, logits, y), outputs)

    def _score(self, last: Any, held: tuple[Any, Any, Any], target: tuple[Any, Any]) -> float:
        features, logits, y = held
        known = np.isin(y, last.classes_)  # a class that was not trained has no place among the outputs
        if self.validator.needs_holdout and not known.any():
            raise ValueError(f"{self.validator.name} needs rows of the source that training did not see. {ROUTING}")
        predictions = Predictions(
            features_s=last.source_features_, features_v=features[known], logits_v=logits[known],
            labels_v=np.searchsorted(last.classes_, y[known]) if known.any() else np.zeros(0, dtype=np.int64),
            features_t=target[0], logits_t=target[1], weight=last._weights(),
        )  # fmt: skip
        return float(self.validator.goodness(self.validator.scores([predictions]))[0])


def check_search(has_target: bool, together: bool) -> None:
    """Refuse, in a fit of a search, what its scorer could not score: scikit-learn would make NaN of it, and a best.

    Only the arguments that the search handed on count.
    """
    frame = sys._getframe(1).f_back
    while frame is not None and frame.f_code.co_name != "_fit_and_score":
        frame = frame.f_back
    if frame is None:
        return
    scorer, params = frame.f_locals.get("scorer"), frame.f_locals.get("score_params") or {}
    several = getattr(scorer, "_scorers", None) or (scorer if isinstance(scorer, dict) else {"": scorer})
    if params.get("sample_domain") is not None:
        return
    for one in several.values():
        if isinstance(one, ValidatorScorer) and not has_target:
            raise ValueError(NO_TARGET)
        if isinstance(one, ValidatorScorer) and together and one.validator.needs_holdout:
            raise ValueError(f"{one.validator.name} cannot tell the held-out rows of the source. {ROUTING}")
