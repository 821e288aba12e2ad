"""The scikit-learn face: the same training as on the command line, on arrays in memory, with nothing written to disk.

clf = TSAClassifier().fit(X_source, y_source, X_target=X_target)
clf.predict(X_target)

torch is imported by what trains and predicts (`fitting`), so that importing this module takes no longer than
scikit-learn.
"""

import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    check_X_y,
    validate_data,
)

from tsadapt.errors import UserError, few
from tsadapt.estimator.domains import LEFT_IN, split_domains, text_columns

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "ConstantFeaturesWarning",
    "DomainAdaptationClassifier",
    "NoTargetWarning",
    "SourceOnlyWarning",
    "TSAClassifier",
]

MODULE = HasMethods(["forward", "named_parameters"])
"""What a backbone is, without importing torch."""


class ConstantFeaturesWarning(UserWarning):
    """Some features are constant, or nearly so."""


class NoTargetWarning(UserWarning):
    """No target to adapt to."""


class SourceOnlyWarning(UserWarning):
    """The source-only classifier was kept instead of the adapted one."""


class DomainAdaptationClassifier(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of vectors that is adapted from a labelled source to an unlabelled target, by any method.

    Network: standardise (by the source) → `bottleneck` features (Linear – BN – ReLU; None: none) → linear head. `steps`
    None takes as many as suit the rows, the classes and the objective; `n_iter_` says how many these were.

    Give both domains at once, `fit(X, y, sample_domain=d)` with d > 0 for rows of the source and d < 0 for rows of the
    target, whose labels are never read; or apart, `fit(X_source, y_source, X_target=X_target)`. Without a target it is
    a source-only classifier, and says so. Where a few target rows have labels, `fit(…, y_target=labels)` trains on
    those, too: one for each row of X_target, −1 (or None) for no label, as in scikit-learn's semi-supervised module.

    `fallback="source"` trains a source-only classifier beside it and keeps that one, with a warning, if the adapted one
    has collapsed or the consensus of validators prefers it; `report_` holds what was decided.

    With a `backbone`, a module from rows to features (rows, K), X may have any shape (rows, …), and reaches it as it
    is, in float32, without being standardised. Every `fit` trains a copy of it together with the rest, at the same
    rate; parameters that require no gradient stay. For a frozen encoder, give its features as X instead.

    `preset` is a name for settings that were tried together: "strong" is what does best on average, "paper" is TSA as
    published (`tsadapt list presets`). Parameters that are None leave theirs to it, or else take the package's: source
    term "ce", no target terms, λ0 = 0.25, β = 0.1. `term_settings` are further settings of the terms, by name:
    {"min_count": 5}. `sdat` takes sharpness-aware steps of that ρ (0.05, say). `TSAClassifier` lists all parameters.

    `sample_weight` of `fit` says how often training sees the rows of the source, relative to each other: a weight of 2
    is as good as two copies, and rows of weight 0 are left out.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(90) % 3
    >>> X_source = 4 * np.eye(3)[y] + rng.normal(size=(90, 3))
    >>> clf = DomainAdaptationClassifier("dann", steps=50, bottleneck=8, random_state=0)
    >>> clf.fit(X_source, y, X_target=X_source + 0.5).score(X_source, y) > 0.8
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 (scikit-learn's name, and never changed)
        "method": [str],
        "source_term": [str, None],
        "target_terms": ["array-like", None],
        "preset": [str, None],
        "lambda0": [Interval(Real, 0, None, closed="left"), None],
        "beta": [Interval(Real, 0, None, closed="left"), None],
        "class_prior": [str, dict],
        "term_settings": [dict, None],
        "term_weight": [dict, None],
        "backbone": [MODULE, None],
        "bottleneck": [Interval(Integral, 1, None, closed="left"), None],
        "steps": [Interval(Integral, 1, None, closed="left"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "sdat": [Interval(Real, 0, None, closed="neither"), None],
        "fallback": [StrOptions({"source"}), None],
        "device": [str],
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        method: str = "source-only",
        source_term: str | None = None,
        target_terms: Sequence[str] | None = None,
        *,
        preset: str | None = None,
        lambda0: float | None = None,
        beta: float | None = None,
        class_prior: str | Mapping[str, float] = "uniform",
        term_settings: Mapping[str, Any] | None = None,
        term_weight: Mapping[str, float] | None = None,
        backbone: "nn.Module | None" = None,
        bottleneck: int | None = 256,
        steps: int | None = None,
        batch_size: int = 64,
        lr: float = 0.01,
        weight_decay: float = 1e-3,
        sdat: float | None = None,
        fallback: Literal["source"] | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.source_term = source_term
        self.target_terms = target_terms
        self.preset = preset
        self.lambda0 = lambda0
        self.beta = beta
        self.class_prior = class_prior
        self.term_settings = term_settings
        self.term_weight = term_weight
        self.backbone = backbone
        self.bottleneck = bottleneck
        self.steps = steps
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.sdat = sdat
        self.fallback = fallback
        self.device = device
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any, sample_domain: Any = None, X_target: Any = None, sample_weight: Any = None,
        y_target: Any = None,
    ) -> Self:  # fmt: skip
        """Train on the labelled source and the unlabelled target.

        `sample_weight` says how often training sees the rows of the source; weights of target rows count for nothing.
        `y_target` are labels of a few rows of `X_target`, −1 (or None) for all others: these are trained on, too.
        """
        from tsadapt.estimator.fitting import fit
        from tsadapt.estimator.scorer import check_search

        self._validate_params()
        if X_target is not None:
            from tsadapt.estimator.pipeline import check_target_went_along

            check_target_went_along(self)
        x_s, labels, x_t, weight = self._domains(X, y, sample_domain, X_target, sample_weight)
        if x_t is not None and x_t.shape[1:] != x_s.shape[1:]:
            raise ValueError(f"X_target has rows of shape {x_t.shape[1:]}, but X has rows of shape {x_s.shape[1:]}.")
        check_search(x_t is not None, sample_domain is not None)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"The source has one class, {self.classes_[0]!r}: expected at least 2 classes.")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        known = None if y_target is None else self._known(y_target, X_target)
        if x_t is None:
            warnings.warn(
                "No target given: the classifier is trained on the source alone. Pass X_target, or a sample_domain"
                " with negative numbers.",
                NoTargetWarning,
                stacklevel=2,
            )
        found = fit(self, x_s, codes, x_t, weight, seed, known)
        self.model_, self.report_, self.n_iter_ = found.model, found.report, found.steps
        self.source_features_, self.target_outputs_ = found.source_features, found.target_outputs
        self.target_given_ = "apart" if sample_domain is None else "together"
        self._n_features_out = self.model_.network.dim
        return self

    def _known(self, y_target: Any, X_target: Any) -> np.ndarray:
        """The labels of target rows as numbers of classes, −1 for none."""
        from tsadapt.data.target_labels import labels_in_memory

        if X_target is None:
            raise ValueError("y_target labels rows of X_target: pass both.")
        try:
            return labels_in_memory(y_target, len(X_target), self.classes_.tolist(), "y_target")
        except UserError as error:
            raise ValueError(str(error)) from error

    def predict(self, X: Any) -> np.ndarray:
        """The class of every row."""
        guess = self._logits(X).argmax(1)
        found: np.ndarray = self.classes_[guess]
        return found

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (rows, classes), in the order of `classes_`."""
        from tsadapt.estimator.fitting import softmax

        return softmax(self._logits(X))

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits (rows, classes); of two classes, how much the second has over the first."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def transform(self, X: Any) -> np.ndarray:
        """The features that go into the linear head."""
        check_is_fitted(self)
        return self._forward(self._rows(X))[0]

    def adapt_bn(self, X: Any) -> Self:
        """A copy normalised by the rows of a new target, without training (AdaBN); `self` stays as it is."""
        from tsadapt.estimator.fitting import normalised

        check_is_fitted(self)
        adapted = copy(self)
        try:
            adapted.model_ = normalised(self.model_, self._rows(X))
        except UserError as error:
            raise ValueError(str(error)) from error
        return adapted

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to a file that `load` reads: a .safetensors with tensors and text, no pickle.

        Parameters and all that predictions depend on are kept; a request for metadata routing is not.
        """
        from tsadapt.estimator.saving import write_estimator

        write_estimator(self, Path(path).expanduser())

    @classmethod
    def load(cls, path: str | Path, backbone: "nn.Module | None" = None) -> Self:
        """The estimator that `save` wrote. No code of the file is run, so it need not be trusted, unlike a pickle.

        One that has a backbone needs the same again, with any weights: the file holds no code.
        """
        from tsadapt.estimator.saving import read_estimator

        kinds: list[type[DomainAdaptationClassifier]] = [DomainAdaptationClassifier, TSAClassifier, cls]
        fitting = {kind.__name__: kind for kind in kinds if issubclass(kind, cls)}
        found: Self = read_estimator(Path(path).expanduser(), fitting, backbone)
        return found

    def _rows(self, X: Any) -> np.ndarray:
        """Rows to ask about, of the shape that it was fitted with."""
        rows: np.ndarray = validate_data(self, X, reset=False, dtype=np.float64, allow_nd=self.backbone is not None)
        return rows

    def _logits(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self._forward(self._rows(X))[1]

    def _domains(
        self, X: Any, y: Any, sample_domain: Any, X_target: Any, sample_weight: Any
    ) -> tuple[np.ndarray, Any, np.ndarray | None, np.ndarray | None]:
        """Source rows, their labels, target rows, and weights; a label of the target is not looked at.

        Rows of the source without weight are left out.
        """
        any_shape = self.backbone is not None
        _check_columns(X, "X")
        if sample_domain is None:
            x, labels = validate_data(self, X, y, dtype=np.float64, allow_nd=any_shape)
            is_source = np.ones(len(x), dtype=bool)
            check_classification_targets(labels)
            x_t = None if X_target is None else self._target(X_target)
        else:
            if X_target is not None:
                raise ValueError("sample_domain and X_target both name the target rows: pass one of them.")
            x = validate_data(self, X, dtype=np.float64, allow_nd=any_shape)
            is_source, is_target = split_domains(sample_domain)
            check_consistent_length(x, y, is_source)
            if not is_source.any():
                raise ValueError("sample_domain has no source rows: expected some positive numbers.")
            labels = np.asarray(y)
            x_t = x[is_target] if is_target.any() else None
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
            is_source = is_source & (weight > 0)
            if not is_source.any():
                raise ValueError("sample_weight is zero for all rows of the source: expected some positive numbers.")
            weight = weight[is_source]
        x_s, labels = x[is_source], labels[is_source]
        if sample_domain is not None:
            check_classification_targets(labels)
            _, labels = check_X_y(x_s, labels, dtype=np.float64, allow_nd=any_shape, estimator=self)
        return x_s, labels, x_t, weight

    def _target(self, X_target: Any) -> np.ndarray:
        """Target rows, checked as those of the source are, under their own name."""
        any_shape = self.backbone is not None
        _check_columns(X_target, "X_target")
        x: np.ndarray = check_array(
            X_target, dtype=np.float64, estimator=self, input_name="X_target", allow_nd=any_shape
        )
        if x.shape[1] != self.n_features_in_:
            raise ValueError(f"X_target has {x.shape[1]} features, but X has {self.n_features_in_}.")
        validate_data(self, X_target, reset=False, skip_check_array=True)  # the names of the columns
        return x

    def _forward(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Features and logits of rows, in float64."""
        from tsadapt.estimator.fitting import forward

        return forward(self.model_, x, self.backbone is not None)

    def _weights(self) -> np.ndarray:
        from tsadapt.estimator.fitting import head_weights

        return head_weights(self.model_)


def _check_columns(X: Any, name: str) -> None:
    """Refuse a DataFrame with columns of text: ids or labels that were left in it."""
    if texts := text_columns(X):
        raise ValueError(f"{name} has columns of text: {few(texts)} (could not convert string to float). {LEFT_IN}")


class TSAClassifier(DomainAdaptationClassifier):
    """Transferable semantic augmentation with mutual information, on its own or on top of another method.

    As `DomainAdaptationClassifier`, with source_term="tsa" and target_terms=("mi",); that says how to give the domains.

    Parameters
    ----------
    method : what brings the domains together (`tsadapt list methods`); "source-only" adds nothing.
    source_term : the loss of labelled rows (`tsadapt list source-terms`).
    target_terms : the losses of unlabelled rows (`tsadapt list target-terms`).
    lambda0 : λ0 of TSA, how far features are moved and spread at the end of training.
    beta : β, the weight of mutual information.
    class_prior : the class shares that target terms favour: "uniform", "source", "estimated", or a dict of shares.
    term_settings : further settings of the terms, by name: {"min_count": 5}.
    term_weight : weights of single terms, by name: {"domain": 0.5}; 0 leaves a term out.
    backbone : a torch module from rows of any shape to features (rows, K), of which every fit trains a copy; None
        takes the columns as they are, standardised by the source.
    bottleneck : features of the hidden layer; None adapts a linear classifier directly.
    steps : training steps; None takes as many as suit rows, classes and objective.
    batch_size : rows of each domain in a step.
    lr : initial learning rate of SGD.
    weight_decay : weight decay of SGD.
    sdat : ρ of sharpness-aware steps (0.05, say); None takes plain ones.
    fallback : "source" trains a source-only classifier too, and keeps it if the adapted one collapsed or validators
        prefer it; None does not compare.
    device : "auto", "cpu", "cuda", …
    random_state : the seed of everything random; the same number gives the same classifier.
    warm_start : whether fit goes on from the weights of the last fit.
    verbose : 1 shows progress.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_ (of DataFrames) : as everywhere in scikit-learn.
    n_iter_ : the steps that training took.
    report_ : which classifier is used, and why (see `fallback`).
    model_ : the trained network, a `TrainedModel`.

    >>> rng = np.random.default_rng(0)
    >>> y = np.array(["cat", "dog", "fox"])[np.arange(90) % 3]
    >>> X_source = 4 * np.eye(3)[np.arange(90) % 3] + rng.normal(size=(90, 3))
    >>> clf = TSAClassifier(steps=50, bottleneck=8, random_state=0).fit(X_source, y, X_target=X_source + 0.5)
    >>> clf.predict(X_source[:2] + 0.5)
    array(['cat', 'dog'], dtype='<U3')
    """

    def __init__(
        self,
        method: str = "source-only",
        source_term: str = "tsa",
        target_terms: Sequence[str] = ("mi",),
        *,
        lambda0: float = 0.25,
        beta: float = 0.1,
        class_prior: str | Mapping[str, float] = "uniform",
        term_settings: Mapping[str, Any] | None = None,
        term_weight: Mapping[str, float] | None = None,
        backbone: "nn.Module | None" = None,
        bottleneck: int | None = 256,
        steps: int | None = None,
        batch_size: int = 64,
        lr: float = 0.01,
        weight_decay: float = 1e-3,
        sdat: float | None = None,
        fallback: Literal["source"] | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            method, source_term, target_terms, lambda0=lambda0, beta=beta, class_prior=class_prior,
            term_settings=term_settings, term_weight=term_weight, backbone=backbone, bottleneck=bottleneck, steps=steps,
            batch_size=batch_size, lr=lr, weight_decay=weight_decay, sdat=sdat, fallback=fallback, device=device,
            random_state=random_state, warm_start=warm_start, verbose=verbose,
        )  # fmt: skip
