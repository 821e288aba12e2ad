"""Pipelines in which the target goes the way of the source: scaled, reduced and selected by the same steps."""

import sys
from inspect import signature
from typing import Any, Self

from sklearn import config_context
from sklearn.pipeline import Pipeline, _name_estimators

__all__ = ["AdaptationPipeline", "check_target_went_along", "make_adaptation_pipeline"]

HANDED_ON = {"X_target", "y_target", "sample_domain", "sample_weight"}
"""What a pipeline hands to its last step, as far as that takes it."""


class AdaptationPipeline(Pipeline):  # type: ignore[misc]
    """A `Pipeline` that sends `X_target` through its steps, as it does X, on the way to its last one.

    It is scikit-learn's `Pipeline(…, transform_input=["X_target"])` with metadata routing turned on for its own fit.
    """

    def fit(self, X: Any, y: Any = None, *, X_target: Any = None, **params: Any) -> Self:
        """Fit all steps on the source; transform source and target; fit the last step on both."""
        with config_context(enable_metadata_routing=True):
            given = params if X_target is None else {**params, "X_target": X_target}
            super().fit(X, y, **given)
        return self


def make_adaptation_pipeline(*steps: Any) -> AdaptationPipeline:
    """A pipeline that ends in a `TSAClassifier` or another estimator with an `X_target`, which goes through all steps.

    `sample_weight` reaches the last step alone, unless a step before it asks for it by `set_fit_request`.

    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from tsadapt import TSAClassifier
    >>> X, y = np.repeat(np.eye(2), 20, axis=0), np.repeat([0, 1], 20)
    >>> model = make_adaptation_pipeline(StandardScaler(), TSAClassifier(steps=20, random_state=0))
    >>> model.fit(100 * X, y, X_target=100 * X + 1).predict(100 * X[:1])
    array([0])
    """
    last = steps[-1]
    if not hasattr(last, "set_fit_request") or "X_target" not in signature(last.fit).parameters:
        raise TypeError(
            f"The last step of make_adaptation_pipeline adapts to X_target, and {type(last).__name__} takes none:"
            " expected TSAClassifier, DomainAdaptationClassifier, or a ConsensusSearchCV of one."
        )
    with config_context(enable_metadata_routing=True):
        last.set_fit_request(**dict.fromkeys(HANDED_ON & {*signature(last.fit).parameters}, True))
        for step in steps[:-1]:
            fit = getattr(step.get_metadata_routing(), "fit", None) if hasattr(step, "set_fit_request") else None
            if fit is not None and fit.requests.get("sample_weight", False) is None:
                step.set_fit_request(sample_weight=False)
    return AdaptationPipeline(_name_estimators([*steps]), transform_input=["X_target"])


def check_target_went_along(estimator: Any) -> None:
    """Refuse an `X_target` that a surrounding pipeline handed over as it was given, while X was transformed.

    Only what was handed over counts, never what the rows look like: domains may differ as much as they like.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        pipeline = frame.f_locals.get("self") if frame.f_code.co_name in ("fit", "fit_transform") else None
        if not isinstance(pipeline, Pipeline):
            continue
        for name, value in frame.f_locals.get("params", {}).items():
            handed_over = value is not None and name.rpartition("__")[2] == "X_target"
            if handed_over and name not in (pipeline.transform_input or ()):
                _refuse_steps_before(pipeline, name, estimator)


def _refuse_steps_before(pipeline: Pipeline, name: str, estimator: Any) -> None:
    """Refuse a parameter of fit if X passes steps on its way to the one that the parameter is for."""
    names = [step for step, _ in pipeline.steps]
    step = name.partition("__")[0]
    before = pipeline.steps[: names.index(step) if step in names else -1]
    passed = [name for name, step in before if step not in (None, "passthrough")]
    if passed:
        raise ValueError(
            f"X_target reached {type(estimator).__name__} untransformed, while X went through {', '.join(passed)}."
            " Use make_adaptation_pipeline(...).fit(X, y, X_target=X_target), or scikit-learn's"
            ' Pipeline(..., transform_input=["X_target"]) with metadata routing enabled.'
        )
