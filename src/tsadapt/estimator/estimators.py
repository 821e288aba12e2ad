"""The scikit-learn face: the same training as on the command line, on arrays in memory, with nothing written to disk.

clf = TSAClassifier().fit(X_source, y_source, X_target=X_target)
clf.predict(X_target)
"""

import warnings
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data
from torch import nn

from tsadapt.config import RUN_SETTINGS, RunConfig
from tsadapt.data.arrays import vectors
from tsadapt.data.doctor import constant_features
from tsadapt.data.loader import mixed
from tsadapt.data.types import Domain
from tsadapt.errors import UserError
from tsadapt.estimator.domains import split_domains
from tsadapt.estimator.pipeline import check_target_went_along
from tsadapt.estimator.saving import read_estimator, write_estimator
from tsadapt.models.backbones import feature_width
from tsadapt.models.classifier import Classifier
from tsadapt.models.encoders import copy_of
from tsadapt.models.networks import Architecture, build
from tsadapt.objectives.base import METHODS
from tsadapt.objectives.objective import check_objective, term_classes, uses, with_settings
from tsadapt.progress import StepProgress
from tsadapt.runs.candidates import mixtures
from tsadapt.runs.model import TrainedModel
from tsadapt.selection.predictions import Predictions
from tsadapt.selection.select import VOTERS, choose
from tsadapt.training.setup import check_normalised, with_length
from tsadapt.training.trainer import NotFiniteError, Trainer

__all__ = [
    "ConstantFeaturesWarning",
    "DomainAdaptationClassifier",
    "NoTargetWarning",
    "SourceOnlyWarning",
    "TSAClassifier",
]

ROWS_AT_ONCE, ROWS_THROUGH_BACKBONE = 4096, 256
MOST_SOURCE_ROWS = 2000
"""Source rows whose features are kept, for validators that compare domains."""


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
    a source-only classifier, and says so.

    `fallback="source"` trains a source-only classifier beside it and keeps that one, with a warning, if the adapted one
    has collapsed or the consensus of validators prefers it; `report_` holds what was decided.

    With a `backbone`, a module from rows to features (rows, K), X may have any shape (rows, …), and reaches it as it
    is, in float32, without being standardised. Every `fit` trains a copy of it together with the rest, at the same
    rate; parameters that require no gradient stay. For a frozen encoder, give its features as X instead.

    `term_settings` are
    further settings of the terms, by name: {"min_count": 5}. The other parameters are those of `tsadapt fit`.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(90) % 3
    >>> X_source = 4 * np.eye(3)[y] + rng.normal(size=(90, 3))
    >>> clf = DomainAdaptationClassifier("dann", steps=50, bottleneck=8, random_state=0)
    >>> clf.fit(X_source, y, X_target=X_source + 0.5).score(X_source, y) > 0.8
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 (scikit-learn's name, and never changed)
        "method": [str],
        "source_term": [str],
        "target_terms": ["array-like"],
        "lambda0": [Interval(Real, 0, None, closed="left")],
        "beta": [Interval(Real, 0, None, closed="left")],
        "class_prior": [str, dict],
        "term_settings": [dict, None],
        "term_weight": [dict, None],
        "backbone": [nn.Module, None],
        "bottleneck": [Interval(Integral, 1, None, closed="left"), None],
        "steps": [Interval(Integral, 1, None, closed="left"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "fallback": [StrOptions({"source"}), None],
        "device": [str],
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        method: str = "source-only",
        source_term: str = "ce",
        target_terms: Sequence[str] = (),
        *,
        lambda0: float = 0.25,
        beta: float = 0.1,
        class_prior: str | Mapping[str, float] = "uniform",
        term_settings: Mapping[str, Any] | None = None,
        term_weight: Mapping[str, float] | None = None,
        backbone: nn.Module | None = None,
        bottleneck: int | None = 256,
        steps: int | None = None,
        batch_size: int = 64,
        lr: float = 0.01,
        weight_decay: float = 1e-3,
        fallback: Literal["source"] | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.source_term = source_term
        self.target_terms = target_terms
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
        self.fallback = fallback
        self.device = device
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_domain: Any = None, X_target: Any = None) -> Self:
        """Train on the labelled source and the unlabelled target."""
        self._validate_params()
        if X_target is not None:
            check_target_went_along(self)
        x_s, labels, x_t = self._domains(X, y, sample_domain, X_target)
        if x_t is not None and x_t.shape[1:] != x_s.shape[1:]:
            raise ValueError(f"X_target has rows of shape {x_t.shape[1:]}, but X has rows of shape {x_s.shape[1:]}.")
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"The source has one class, {self.classes_[0]!r}: expected at least 2 classes.")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        adapt = x_t is not None
        if not adapt:
            warnings.warn(
                "No target given: the classifier is trained on the source alone. Pass X_target, or a sample_domain"
                " with negative numbers.",
                NoTargetWarning,
                stacklevel=2,
            )
        source = Domain(
            "the source", self._tensor(x_s), torch.from_numpy(codes.astype(np.int64)), tuple(map(str, self.classes_))
        )
        target = Domain("the target", source.tensor[:1] if x_t is None else self._tensor(x_t))
        constant = None if self.backbone is not None else constant_features(source, target if adapt else None)
        if constant is not None:
            warnings.warn(constant, ConstantFeaturesWarning, stacklevel=2)
        try:
            model, steps = self._train(source, target, seed, adapt)
            self.report_: dict[str, Any] = {
                "used": "adapted" if adapt else "source-only",
                "why": "no comparison was asked for",
            }
            if adapt and self.fallback == "source":
                model = self._compared(model, source, target, seed)
        except (UserError, NotFiniteError) as error:
            raise ValueError(str(error)) from error
        # In float64 a row's prediction does not depend on its neighbours, to the last digit. A backbone may know
        # float32 alone.
        self.model_ = model if self.backbone is not None else replace(model, network=model.network.double())
        rows = _some_rows(len(source), seed)
        self.source_features_ = self._forward(source.tensor[rows].double().numpy())[0].astype(np.float32)
        self._n_features_out = self.model_.network.dim
        self.n_iter_ = steps
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The class of every row."""
        guess = self._logits(X).argmax(1)
        found: np.ndarray = self.classes_[guess]
        return found

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (rows, classes), in the order of `classes_`."""
        return torch.from_numpy(self._logits(X)).softmax(1).numpy()

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
        check_is_fitted(self)
        x = self._rows(X)
        adapted = copy(self)
        adapted.model_ = replace(self.model_, network=deepcopy(self.model_.network))
        try:
            adapted.model_.normalise_by(Domain("the rows", torch.from_numpy(np.ascontiguousarray(x))))
        except UserError as error:
            raise ValueError(str(error)) from error
        return adapted

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to a file that `load` reads: a .safetensors with tensors and text, no pickle.

        Parameters and all that predictions depend on are kept; a request for metadata routing is not.
        """
        write_estimator(self, Path(path).expanduser())

    @classmethod
    def load(cls, path: str | Path, backbone: nn.Module | None = None) -> Self:
        """The estimator that `save` wrote. No code of the file is run, so it need not be trusted, unlike a pickle.

        One that has a backbone needs the same again, with any weights: the file holds no code.
        """
        kinds: list[type[DomainAdaptationClassifier]] = [DomainAdaptationClassifier, TSAClassifier, cls]
        fitting = {kind.__name__: kind for kind in kinds if issubclass(kind, cls)}
        found: Self = read_estimator(Path(path).expanduser(), fitting, backbone)
        return found

    def _rows(self, X: Any) -> np.ndarray:
        """Rows to ask about, of the shape that it was fitted with."""
        rows: np.ndarray = validate_data(self, X, reset=False, dtype=np.float64, allow_nd=self.backbone is not None)
        return rows

    def _tensor(self, x: np.ndarray) -> torch.Tensor:
        if self.backbone is None:
            return _tensor(x)
        with np.errstate(over="ignore"):
            short = x.astype(np.float32)
        if not np.isfinite(short).all():
            raise ValueError("X has values too large for float32: scale it first.")
        return torch.from_numpy(short)

    def _logits(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self._forward(self._rows(X))[1]

    def _domains(self, X: Any, y: Any, sample_domain: Any, X_target: Any) -> tuple[np.ndarray, Any, np.ndarray | None]:
        """Source rows, their labels, and target rows; a label of the target is not looked at."""
        any_shape = self.backbone is not None
        if sample_domain is None:
            x_s, labels = validate_data(self, X, y, dtype=np.float64, allow_nd=any_shape)
            check_classification_targets(labels)
            return x_s, labels, None if X_target is None else self._target(X_target)
        if X_target is not None:
            raise ValueError("sample_domain and X_target both name the target rows: pass one of them.")
        x = validate_data(self, X, dtype=np.float64, allow_nd=any_shape)
        is_source, is_target = split_domains(sample_domain)
        check_consistent_length(x, y, is_source)
        if not is_source.any():
            raise ValueError("sample_domain has no source rows: expected some positive numbers.")
        labels = np.asarray(y)[is_source]
        check_classification_targets(labels)
        _, labels = validate_data(self, x[is_source], labels, reset=False, dtype=np.float64, allow_nd=any_shape)
        return x[is_source], labels, x[is_target] if is_target.any() else None

    def _target(self, X_target: Any) -> np.ndarray:
        """Target rows, checked as those of the source are, under their own name."""
        any_shape = self.backbone is not None
        x: np.ndarray = check_array(
            X_target, dtype=np.float64, estimator=self, input_name="X_target", allow_nd=any_shape
        )
        if x.shape[1] != self.n_features_in_:
            raise ValueError(f"X_target has {x.shape[1]} features, but X has {self.n_features_in_}.")
        validate_data(self, X_target, reset=False, skip_check_array=True)  # the names of the columns
        return x

    def _config(self, seed: int, adapt: bool) -> RunConfig:
        base = RunConfig(
            "the source", "the target", network="linear" if self.bottleneck is None else "mlp",
            bottleneck=self.bottleneck, steps=self.steps, batch_size=self.batch_size, target_batch_size=self.batch_size,
            lr=self.lr, weight_decay=self.weight_decay, seed=seed, device=self.device,
        )  # fmt: skip
        if not adapt:
            return base
        ours = {f"{self.source_term}.lambda0": "lambda0", "mi.beta": "beta", "class_prior": "class_prior"}
        settings: dict[str, Any] = {name: getattr(self, parameter) for name, parameter in ours.items()}
        if of_run := [name for name in self.term_settings or {} if name in RUN_SETTINGS]:
            raise ValueError(f"term_settings has {', '.join(of_run)}, which is no setting of a term.")
        config = with_settings(
            base, method=self.method, source_term=self.source_term, target_terms=tuple(self.target_terms),
            term_weight=dict(self.term_weight or {}),
        )  # fmt: skip
        used = {name: value for name, value in settings.items() if uses(config, name)}
        config = with_settings(config, **used, **(self.term_settings or {}))
        check_objective(config)
        return config

    def _train(
        self, source: Domain, target: Domain, seed: int, adapt: bool, fresh: bool = False
    ) -> tuple[TrainedModel, int]:
        """The trained model, and the steps that it took."""
        classes = source.classes or ()
        config = with_length(self._config(seed, adapt), source, target, len(classes))
        heads = METHODS[config.method].heads
        backbone = None if self.backbone is None else copy_of(self.backbone)
        inputs = source.tensor.shape[1]
        if backbone is not None:
            inputs = feature_width(backbone, source.tensor[:2], f"The backbone {type(backbone).__name__}")
        architecture = Architecture(str(config.network), len(classes), inputs, config.bottleneck, heads)
        check_normalised(config, architecture, target, backbone)
        for name, cls in term_classes(config).items():
            cls.check_classes(config.settings.get(name, {}), classes)
        # The caller's generator is put back: what is random here is a function of random_state.
        with torch.random.fork_rng():
            torch.manual_seed(mixed(seed, 2))
            network = build(architecture, source.tensor, backbone)
            if self.warm_start and not fresh and hasattr(self, "model_"):
                self._continue(network)
            trainer = Trainer(config, network, source, target)
            trainer.fill_memory()
            with StepProgress(trainer.steps, quiet=not self.verbose) as progress:
                for logged in trainer.loop(log_every=50 if self.verbose else None):
                    progress.advance(trainer.at, logged)
        at_once = ROWS_AT_ONCE if backbone is None else ROWS_THROUGH_BACKBONE
        model = TrainedModel(network.cpu().eval(), classes, architecture, rows_at_once=at_once)
        if trainer.objective.method.target_statistics:
            model.normalise_by(target)
        return model, trainer.steps

    def _continue(self, model: Classifier) -> None:
        """Start from the last fit's weights, if they are of the same shapes."""
        state = self.model_.network.state_dict()
        fresh = model.state_dict()
        if {k: v.shape for k, v in state.items()} != {k: v.shape for k, v in fresh.items()}:
            raise ValueError("warm_start: the features, classes or settings changed since the last fit.")
        model.load_state_dict({name: value.to(fresh[name].dtype) for name, value in state.items()})

    def _compared(self, adapted: TrainedModel, source: Domain, target: Domain, seed: int) -> TrainedModel:
        """The adapted network, or source-only if the consensus of validators keeps that."""
        plain, _ = self._train(source, target, seed, adapt=False, fresh=True)  # a reference, whatever was before
        rows = _some_rows(len(source), seed)
        choice = choose([_predictions(model, source.keep(rows), target) for model in (plain, adapted)], reference=0)
        ranks = {name: choice.ranks[name] for name in VOTERS if not np.isnan(choice.scores[name]).any()}
        against = [name for name, rank in ranks.items() if rank[0] < rank[1]]
        speak_for = [name for name, rank in ranks.items() if rank[1] < rank[0]]
        keep_source = 1 in choice.out or len(against) > len(speak_for)
        why = f"for the adapted one speak {', '.join(speak_for) or 'none'}; against it {', '.join(against) or 'none'}"
        why = f"the adapted one {choice.out[1]}" if 1 in choice.out else why
        self.report_ = {
            "used": "source-only" if keep_source else "adapted",
            "why": why,
            "scores": {
                name: {"source-only": float(a), "adapted": float(b)}
                for name, (a, b) in choice.scores.items()
                if not np.isnan(a) or not np.isnan(b)
            },
        }
        if keep_source:
            text = f"Kept the source-only classifier instead of the adapted one: {why}."
            warnings.warn(text, SourceOnlyWarning, stacklevel=3)
        return plain if keep_source else adapted

    def _forward(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Features and logits of rows, in float64."""
        rows = Domain("the rows", torch.from_numpy(np.ascontiguousarray(x)))
        try:
            predicted = self.model_.forward(rows)
        except RuntimeError as error:
            if self.backbone is None:
                raise
            said = next(iter(str(error).splitlines()), type(error).__name__)
            raise ValueError(f"The backbone does not take rows of shape {x.shape[1:]}: {said}") from error
        return predicted.features, np.asarray(predicted.logits)

    def _weights(self) -> np.ndarray:
        return _head_weights(self.model_)


class TSAClassifier(DomainAdaptationClassifier):
    """Transferable semantic augmentation with mutual information, on its own or on top of another method.

    As `DomainAdaptationClassifier`, with source_term="tsa" and target_terms=("mi",).
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
        backbone: nn.Module | None = None,
        bottleneck: int | None = 256,
        steps: int | None = None,
        batch_size: int = 64,
        lr: float = 0.01,
        weight_decay: float = 1e-3,
        fallback: Literal["source"] | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            method, source_term, target_terms, lambda0=lambda0, beta=beta, class_prior=class_prior,
            term_settings=term_settings, term_weight=term_weight, backbone=backbone, bottleneck=bottleneck, steps=steps,
            batch_size=batch_size, lr=lr, weight_decay=weight_decay, fallback=fallback, device=device,
            random_state=random_state, warm_start=warm_start, verbose=verbose,
        )  # fmt: skip


def _some_rows(n: int, seed: int) -> list[int]:
    """Rows of the source at random: the first ones may be of one class."""
    rows: list[int] = np.random.default_rng(seed).permutation(n)[:MOST_SOURCE_ROWS].tolist()
    return rows


def _tensor(x: np.ndarray) -> torch.Tensor:
    with np.errstate(over="ignore"):
        spread = x.std(0)
    if not np.isfinite(spread).all():
        raise ValueError("X has values too large to standardise: scale it first.")
    return vectors(x)


def _predictions(model: TrainedModel, source: Domain, target: Domain) -> Predictions:
    """What validators look at; nothing of the source is held out here."""
    on_source, on_target = model.forward(source), model.forward(target)
    none = np.zeros(0, dtype=np.int64)
    f_t, z_t = on_target.features, on_target.logits
    mixed_rows = mixtures(model, target, on_target)
    return Predictions(on_source.features, f_t[:0], z_t[:0], none, f_t, z_t, _head_weights(model), mixed_rows)


def _head_weights(model: TrainedModel) -> np.ndarray:
    return np.stack([layer.weight.detach().numpy() for layer in model.network.linear_layers])
