"""What the estimators do with torch: arrays into domains, training, the comparison with source-only, and predictions.

Shapes: N rows of any shape, K features, C classes.
"""

import warnings
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tsadapt.config import RUN_SETTINGS, RunConfig
from tsadapt.data.arrays import vectors
from tsadapt.data.doctor import constant_features
from tsadapt.data.loader import mixed
from tsadapt.data.types import Domain
from tsadapt.errors import UserError
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

if TYPE_CHECKING:
    from tsadapt.estimator.estimators import DomainAdaptationClassifier

__all__ = ["Fitted", "fit", "forward", "head_weights", "normalised", "parted", "predictions_of", "softmax"]

ROWS_AT_ONCE, ROWS_THROUGH_BACKBONE = 4096, 256
MOST_ROWS = 2000
"""Rows of each domain whose outputs are kept, for validators."""


@dataclass(frozen=True)
class Fitted:
    """The trained model, its steps, what was decided, and outputs of some rows of both domains for validators."""

    model: TrainedModel
    steps: int
    report: dict[str, Any]
    source_features: np.ndarray
    target_outputs: tuple[np.ndarray, np.ndarray] | None


def fit(
    estimator: "DomainAdaptationClassifier",
    x_s: np.ndarray,
    codes: np.ndarray,
    x_t: np.ndarray | None,
    weight: np.ndarray | None,
    seed: int,
    known: np.ndarray | None = None,
) -> Fitted:
    """Train as the estimator's parameters say; without target rows on the source alone.

    `known` are labels of target rows that are trained on, −1 for all others.
    """
    from tsadapt.estimator.estimators import ConstantFeaturesWarning

    any_shape = estimator.backbone is not None
    names = tuple(map(str, estimator.classes_))
    y = torch.from_numpy(codes.astype(np.int64))
    weights = None if weight is None else torch.from_numpy(weight)
    source = Domain("the source", _tensor(x_s, any_shape), y, names, weights=weights)
    target = Domain("the target", source.tensor[:1] if x_t is None else _tensor(x_t, any_shape))
    adapt = x_t is not None
    constant = None if any_shape else constant_features(source, target if adapt else None)
    if constant is not None:
        warnings.warn(constant, ConstantFeaturesWarning, stacklevel=3)
    try:
        labels = None if known is None else torch.from_numpy(known)
        model, steps = _train(estimator, source, target, seed, adapt, known=labels)
        report: dict[str, Any] = {
            "used": "adapted" if adapt else "source-only",
            "why": "no comparison was asked for",
        }
        if adapt and estimator.fallback == "source":
            model, report = _compared(estimator, model, source, target, seed)
        if known is not None and report["used"] == "adapted":
            report["target_labels_trained_on"] = int((known >= 0).sum())
    except (UserError, NotFiniteError) as error:
        raise ValueError(str(error)) from error
    # In float64 a row's prediction does not depend on its neighbours, to the last digit. A backbone may know float32
    # alone.
    model = model if any_shape else replace(model, network=model.network.double())
    shown = source.tensor[_some_rows(len(source), seed)]
    features = forward(model, shown.double().numpy(), any_shape)[0].astype(np.float32)
    outputs = None
    if adapt:
        shown = target.tensor[_some_rows(len(target), seed)]
        f_t, z_t = forward(model, shown.double().numpy(), any_shape)
        outputs = f_t.astype(np.float32), z_t
    return Fitted(model, steps, report, features, outputs)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities (N, C)."""
    return torch.from_numpy(logits).softmax(1).numpy()


def normalised(model: TrainedModel, x: np.ndarray) -> TrainedModel:
    """A copy of the model, normalised by the rows of a new target."""
    adapted = replace(model, network=deepcopy(model.network))
    adapted.normalise_by(Domain("the rows", torch.from_numpy(np.ascontiguousarray(x))))
    return adapted


def forward(model: TrainedModel, x: np.ndarray, any_shape: bool) -> tuple[np.ndarray, np.ndarray]:
    """Features and logits of rows, in float64."""
    rows = Domain("the rows", torch.from_numpy(np.ascontiguousarray(x)))
    try:
        predicted = model.forward(rows)
    except RuntimeError as error:
        if not any_shape:
            raise
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"The backbone does not take rows of shape {x.shape[1:]}: {said}") from error
    return predicted.features, np.asarray(predicted.logits)


def _config(estimator: "DomainAdaptationClassifier", seed: int, adapt: bool, labelled: bool = False) -> RunConfig:
    network = "linear" if estimator.bottleneck is None else "mlp"
    base = RunConfig(
        "the source", "the target", network=network, bottleneck=estimator.bottleneck, steps=estimator.steps,
        batch_size=estimator.batch_size, target_batch_size=estimator.batch_size, lr=estimator.lr,
        weight_decay=estimator.weight_decay, seed=seed, device=estimator.device,
        use_target_labels=labelled,
    )  # fmt: skip
    if not adapt:
        return base
    if of_run := [name for name in estimator.term_settings or {} if name in RUN_SETTINGS]:
        raise ValueError(f"term_settings has {', '.join(of_run)}, which is no setting of a term.")
    terms: dict[str, Any] = {} if estimator.source_term is None else {"source_term": estimator.source_term}
    terms |= {} if estimator.target_terms is None else {"target_terms": tuple(estimator.target_terms)}
    if estimator.sdat is not None:
        base = replace(base, sdat=True, sdat_rho=float(estimator.sdat))
    config = with_settings(
        base, preset=estimator.preset, method=estimator.method, term_weight=dict(estimator.term_weight or {}), **terms
    )
    ours = {
        f"{config.source_term}.lambda0": estimator.lambda0,
        "mi.beta": estimator.beta,
        "class_prior": estimator.class_prior,
    }
    used = {name: value for name, value in ours.items() if value is not None and uses(config, name)}
    config = with_settings(config, **used, **(estimator.term_settings or {}))
    check_objective(config)
    return config


def _train(
    estimator: "DomainAdaptationClassifier", source: Domain, target: Domain, seed: int, adapt: bool,
    fresh: bool = False, known: torch.Tensor | None = None,
) -> tuple[TrainedModel, int]:  # fmt: skip
    """The trained model, and the steps that it took."""
    classes = source.classes or ()
    config = with_length(_config(estimator, seed, adapt, known is not None), source, target, len(classes))
    heads = METHODS[config.method].heads
    backbone = None if estimator.backbone is None else copy_of(estimator.backbone)
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
        if estimator.warm_start and not fresh and hasattr(estimator, "model_"):
            _continue(estimator, network)
        trainer = Trainer(config, network, source, target, known_labels=known)
        trainer.fill_memory()
        with StepProgress(trainer.steps, quiet=not estimator.verbose) as progress:
            for logged in trainer.loop(log_every=50 if estimator.verbose else None):
                progress.advance(trainer.at, logged)
    at_once = ROWS_AT_ONCE if backbone is None else ROWS_THROUGH_BACKBONE
    model = TrainedModel(network.cpu().eval(), classes, architecture, rows_at_once=at_once)
    if trainer.objective.method.target_statistics:
        model.normalise_by(target)
    return model, trainer.steps


def _continue(estimator: "DomainAdaptationClassifier", model: Classifier) -> None:
    """Start from the last fit's weights, if they are of the same shapes."""
    state = estimator.model_.network.state_dict()
    fresh = model.state_dict()
    if {k: v.shape for k, v in state.items()} != {k: v.shape for k, v in fresh.items()}:
        raise ValueError("warm_start: the features, classes or settings changed since the last fit.")
    model.load_state_dict({name: value.to(fresh[name].dtype) for name, value in state.items()})


def _compared(
    estimator: "DomainAdaptationClassifier", adapted: TrainedModel, source: Domain, target: Domain, seed: int
) -> tuple[TrainedModel, dict[str, Any]]:
    """The adapted network, or source-only if the consensus of validators keeps that; and what was decided."""
    from tsadapt.estimator.estimators import SourceOnlyWarning

    plain, _ = _train(estimator, source, target, seed, adapt=False, fresh=True)  # a reference, whatever was before
    rows = _some_rows(len(source), seed)
    choice = choose([_predictions(model, source.keep(rows), target) for model in (plain, adapted)], reference=0)
    ranks = {name: choice.ranks[name] for name in VOTERS if not np.isnan(choice.scores[name]).any()}
    against = [name for name, rank in ranks.items() if rank[0] < rank[1]]
    speak_for = [name for name, rank in ranks.items() if rank[1] < rank[0]]
    keep_source = 1 in choice.out or len(against) > len(speak_for)
    why = f"for the adapted one speak {', '.join(speak_for) or 'none'}; against it {', '.join(against) or 'none'}"
    why = f"the adapted one {choice.out[1]}" if 1 in choice.out else why
    report = {
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
        warnings.warn(text, SourceOnlyWarning, stacklevel=4)
    return plain if keep_source else adapted, report


def _some_rows(n: int, seed: int) -> list[int]:
    """Rows at random: the first ones may be of one class."""
    rows: list[int] = np.random.default_rng(seed).permutation(n)[:MOST_ROWS].tolist()
    return rows


def _tensor(x: np.ndarray, any_shape: bool) -> torch.Tensor:
    if any_shape:
        with np.errstate(over="ignore"):
            short = x.astype(np.float32)
        if not np.isfinite(short).all():
            raise ValueError("X has values too large for float32: scale it first.")
        return torch.from_numpy(short)
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
    return Predictions(on_source.features, f_t[:0], z_t[:0], none, f_t, z_t, head_weights(model), mixed_rows)


def predictions_of(estimator: Any, X: Any, y: np.ndarray, X_target: Any) -> Predictions:
    """What validators look at, of a fitted estimator or a pipeline that ends in one; X and y are held out.

    Held-out rows of a class that was not trained have no place among the outputs, and are left out.
    """
    before, last = parted(estimator)
    x_v, x_t = (last._rows(X if before is None else before.transform(X)) for X in (X, X_target))
    known = np.isin(y, last.classes_)
    (f_v, z_v), (f_t, z_t) = last._forward(x_v[known]), last._forward(x_t)
    double = last.backbone is None
    rows = Domain("the target", torch.from_numpy(np.ascontiguousarray(x_t if double else x_t.astype(np.float32))))
    on_target = last.model_.forward(rows)
    return Predictions(
        last.source_features_, f_v, z_v, np.searchsorted(last.classes_, y[known]), f_t, z_t, head_weights(last.model_),
        mixtures(last.model_, rows, on_target),
    )  # fmt: skip


def parted(estimator: Any) -> tuple[Any, Any]:
    """The steps before the last one of a pipeline (None if there are none), and the last one."""
    from sklearn.pipeline import Pipeline

    if not isinstance(estimator, Pipeline):
        return None, estimator
    return (estimator[:-1] if len(estimator) > 1 else None), estimator[-1]


def head_weights(model: TrainedModel) -> np.ndarray:
    """The rows of the heads' last layers (H, C, D)."""
    return np.stack([layer.weight.detach().numpy() for layer in model.network.linear_layers])
