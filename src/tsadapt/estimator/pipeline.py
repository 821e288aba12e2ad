"""Pipelines in which the target goes the way of the source: scaled, reduced and selected by the same steps."""

import sys
from typing import Any, Self

from sklearn import config_context
from sklearn.pipeline import Pipeline, _name_estimators

__all__ = ["AdaptationPipeline", "check_target_went_along", "make_adaptation_pipeline"]


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

    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from tsadapt import TSAClassifier
    >>> X, y = np.repeat(np.eye(2), 20, axis=0), np.repeat([0, 1], 20)
    >>> model = make_adaptation_pipeline(StandardScaler(), TSAClassifier(steps=20, random_state=0))
    >>> model.fit(100 * X, y, X_target=100 * X + 1).predict(100 * X[:1])
    array([0])
    """
    with config_context(enable_metadata_routing=True):
        last = steps[-1].set_fit_request(X_target=True, y_target=True, sample_domain=True, sample_weight=True)
    return AdaptationPipeline(_name_estimators([*steps[:-1], last]), transform_input=["X_target"])


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
