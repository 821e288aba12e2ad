"""A search that scores candidates as a pool, by the consensus of validators, without a target label."""

import time
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import ParameterGrid, ParameterSampler, StratifiedShuffleSplit, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, indexable

from tsadapt.errors import UserError, few
from tsadapt.estimator.domains import LEFT_IN, split_domains, text_columns
from tsadapt.estimator.estimators import DomainAdaptationClassifier
from tsadapt.estimator.fitting import parted, predictions_of
from tsadapt.estimator.pipeline import AdaptationPipeline
from tsadapt.selection.predictions import Predictions
from tsadapt.selection.select import CONSENSUS, check_selector, choose

__all__ = ["ConsensusSearchCV"]

HOLDOUT = 0.1
"""The share of the source that one split holds out, unless told otherwise."""


class ConsensusSearchCV(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Search over parameters of a `TSAClassifier`, or of a pipeline that ends in one, without target labels.

    Every candidate is trained on the source without a held-out part, and on all of the target. Then all candidates are
    scored together, by the mean rank over several validators, and collapsed ones are excluded: as `tsadapt sweep` does.
    No metadata routing is needed.

    Parameters
    ----------
    estimator : a TSAClassifier or DomainAdaptationClassifier, or a pipeline of `make_adaptation_pipeline`.
    param_grid : dict or list of dicts, as for GridSearchCV; with `n_iter` also distributions, as for
        RandomizedSearchCV.
    n_iter : how many combinations are drawn at random; None tries all.
    by : "consensus", or any validator (`tsadapt list validators`).
    cv : splits of the source, of which one part is held out: None for one split with a tenth held out, a number of
        folds, or a splitter.
    guard : whether collapsed candidates are excluded.
    refit : whether the best parameters are fitted again, on all of the source.
    n_jobs : fits side by side, as for GridSearchCV.
    random_state : of the split, and of the draws with `n_iter`.

    Attributes
    ----------
    best_params_, best_index_, best_estimator_ (with `refit`), and `best_score_`: minus the mean rank.
    cv_results_ : as GridSearchCV's, with `mean_test_score` (minus the mean rank), `excluded` (why, or ""), and
        `validator_NAME`, the mean score by each validator.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(90) % 3
    >>> X = 4 * np.eye(3)[y] + rng.normal(size=(90, 3))
    >>> from tsadapt import TSAClassifier
    >>> search = ConsensusSearchCV(TSAClassifier(steps=20, bottleneck=8, random_state=0), {"beta": [0.05, 0.1]})
    >>> search.fit(X, y, X_target=X + 0.5).best_params_["beta"] in (0.05, 0.1)
    True
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Mapping[str, Any] | Iterable[Mapping[str, Any]],
        *,
        n_iter: int | None = None,
        by: str = CONSENSUS,
        cv: Any = None,
        guard: bool = True,
        refit: bool = True,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.n_iter = n_iter
        self.by = by
        self.cv = cv
        self.guard = guard
        self.refit = refit
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_domain: Any = None, X_target: Any = None, sample_weight: Any = None) -> Self:
        """Train all candidates, choose, and fit the best again.

        `sample_weight` says how often training sees the rows of the source; held-out rows count alike.
        """
        try:
            check_selector(self.by)
        except UserError as error:
            raise ValueError(str(error)) from error
        _check_estimator(self.estimator)
        X, y, X_target, weight = _apart(X, y, sample_domain, X_target, sample_weight)
        candidates = self._candidates()
        splits = [*self._splits(X, y)]
        jobs = [(i, k) for k in range(len(splits)) for i in range(len(candidates))]
        found = Parallel(n_jobs=self.n_jobs)(
            delayed(_candidate)(clone(self.estimator), candidates[i], X, y, X_target, weight, *splits[k])
            for i, k in jobs
        )
        pools = [[one for one, (_, k) in zip(found, jobs, strict=True) if k == split] for split in range(len(splits))]
        texts = text_columns(X)
        hint = f" X has columns of text: {few(texts)}. {LEFT_IN}" if texts else ""
        self.cv_results_ = _results(candidates, pools, self.by, self.guard, hint)
        self.best_index_ = int(np.argmin(self.cv_results_["rank_test_score"]))
        self.best_params_ = candidates[self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self.n_splits_ = len(splits)
        if self.refit:
            self.best_estimator_ = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
            self.best_estimator_.fit(X, y, X_target=X_target, **_given(sample_weight=weight))
        return self

    def _candidates(self) -> list[dict[str, Any]]:
        if self.n_iter is None:
            return [*ParameterGrid(self.param_grid)]
        return [*ParameterSampler(self.param_grid, self.n_iter, random_state=self.random_state)]

    def _splits(self, X: Any, y: Any) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        if self.cv is None:
            _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
            several = np.flatnonzero(counts[codes] > 1)  # the only row of a class is trained on
            if len(several) < 2:
                raise ValueError("The search holds out source rows, and no class has two of them.")
            share = max(HOLDOUT, (counts > 1).sum() / len(several))
            seed = check_random_state(self.random_state)
            split = StratifiedShuffleSplit(1, test_size=share, random_state=seed)
            _, held = next(split.split(np.zeros(len(several)), y[several]))
            return [(np.setdiff1d(np.arange(len(y)), several[held]), several[held])]
        splits: Iterable[tuple[np.ndarray, np.ndarray]] = check_cv(self.cv, y, classifier=True).split(X, y)
        return splits

    @property
    def classes_(self) -> np.ndarray:
        """The classes of the best estimator."""
        found: np.ndarray = self._best.classes_
        return found

    @property
    def _best(self) -> Any:
        check_is_fitted(self)
        if not self.refit:
            raise AttributeError("This search was made with refit=False, so it has no best_estimator_ to ask.")
        return self.best_estimator_

    def predict(self, X: Any) -> np.ndarray:
        """The best estimator's classes."""
        found: np.ndarray = self._best.predict(X)
        return found

    def predict_proba(self, X: Any) -> np.ndarray:
        """The best estimator's probabilities."""
        found: np.ndarray = self._best.predict_proba(X)
        return found

    def transform(self, X: Any) -> np.ndarray:
        """The best estimator's features."""
        found: np.ndarray = self._best.transform(X)
        return found


def _check_estimator(estimator: Any) -> None:
    last = parted(estimator)[1]
    if not isinstance(last, DomainAdaptationClassifier):
        raise ValueError(
            f"estimator is a {type(last).__name__}, expected a TSAClassifier or DomainAdaptationClassifier, or a"
            " pipeline that ends in one."
        )
    plain = isinstance(estimator, Pipeline) and not isinstance(estimator, AdaptationPipeline)
    if plain and len(estimator) > 1 and "X_target" not in (estimator.transform_input or ()):
        raise ValueError(
            "The pipeline would not send the target through its steps: make it with make_adaptation_pipeline(...)."
        )


def _apart(
    X: Any, y: Any, sample_domain: Any, X_target: Any, sample_weight: Any
) -> tuple[Any, Any, Any, np.ndarray | None]:
    """Source rows, their labels, target rows, and the weights of the source rows."""
    if (sample_domain is None) == (X_target is None):
        given = "none" if X_target is None else "both"
        raise ValueError(f"The search needs target rows, as X_target or by sample_domain: {given} of them given.")
    X, y, weight = indexable(X, y, sample_weight)
    weight = None if weight is None else np.asarray(weight)
    if sample_domain is None:
        return X, np.asarray(y), X_target, weight
    source, target = (np.flatnonzero(rows) for rows in split_domains(sample_domain))
    if not len(source) or not len(target):
        raise ValueError("sample_domain needs both positive numbers (source) and negative ones (target).")
    weight = None if weight is None else weight[source]
    return _safe_indexing(X, source), np.asarray(y)[source], _safe_indexing(X, target), weight


def _given(**arguments: Any) -> dict[str, Any]:
    """The arguments that are not None: an estimator may not know the others."""
    return {name: value for name, value in arguments.items() if value is not None}


def _candidate(
    estimator: Any, params: dict[str, Any], X: Any, y: Any, X_target: Any, weight: np.ndarray | None,
    train: np.ndarray, held: np.ndarray,
) -> tuple[Predictions | str, float]:  # fmt: skip
    """The outputs of a trained candidate, or why it failed; and the seconds it took."""
    began = time.monotonic()
    try:
        estimator.set_params(**clone(params, safe=False))
        mine = _given(sample_weight=None if weight is None else weight[train])
        estimator.fit(_safe_indexing(X, train), y[train], X_target=X_target, **mine)
        outputs: Predictions | str = predictions_of(estimator, _safe_indexing(X, held), y[held], X_target)
    except ValueError as error:
        outputs = str(error)
    return outputs, time.monotonic() - began


def _results(
    candidates: list[dict[str, Any]], pools: list[list[tuple[Predictions | str, float]]], by: str, guard: bool,
    hint: str,
) -> dict[str, Any]:  # fmt: skip
    """What GridSearchCV's table holds, of the pools of all splits; `hint` is what may be wrong if all failed."""
    n = len(candidates)
    failed = {i: one[0] for pool in pools for i, one in enumerate(pool) if isinstance(one[0], str)}
    if len(failed) == n:
        hint = "" if LEFT_IN in failed[0] else hint
        raise ValueError(f"All {n} candidates failed. The first: {failed[0]}{hint}")
    for i, why in failed.items():
        warnings.warn(f"The candidate {candidates[i]} failed: {why}", FitFailedWarning, stacklevel=3)
    left = [i for i in range(n) if i not in failed]
    excluded = {i: f"failed: {why}" for i, why in failed.items()}
    rank = np.full((len(pools), n), np.nan)
    scores: dict[str, list[np.ndarray]] = {}
    for k, pool in enumerate(pools):
        try:
            choice = choose(
                [one for one, _ in (pool[i] for i in left) if isinstance(one, Predictions)], by, guard=guard
            )
        except UserError as error:
            raise ValueError(str(error)) from error
        excluded |= {left[i]: why for i, why in choice.out.items()}
        rank[k, left] = choice.scores[by] if by == CONSENSUS else choice.ranks[by]
        for name, values in choice.scores.items():
            scores.setdefault(name, []).append(_spread(values, left, n))
    out = [i for i in range(n) if i in excluded]
    rank[:, out] = np.nan
    mean = -rank.mean(0)
    if np.isnan(mean).all():
        raise ValueError(f"None of the {n} candidates can be chosen; the first {excluded[0]}.")
    names = sorted({name for params in candidates for name in params})
    return {
        "mean_fit_time": np.array([[seconds for _, seconds in pool] for pool in pools]).mean(0),
        **{f"param_{name}": np.ma.masked_array(
            [params.get(name) for params in candidates], [name not in params for params in candidates], dtype=object
        ) for name in names},
        "params": candidates,
        **{f"split{k}_test_score": -rank[k] for k in range(len(pools))},
        "mean_test_score": mean,
        "std_test_score": rank.std(0),
        "rank_test_score": _places(mean),
        "excluded": [excluded.get(i, "") for i in range(n)],
        **{f"validator_{name}": np.stack(values).mean(0) for name, values in scores.items() if name != CONSENSUS},
    }  # fmt: skip


def _spread(values: np.ndarray, places: list[int], n: int) -> np.ndarray:
    found = np.full(n, np.nan)
    found[places] = values
    return found


def _places(goodness: np.ndarray) -> np.ndarray:
    """Places from 1 (best), as whole numbers; equal ones share the best of theirs, and NaN comes last."""
    worst = np.where(np.isnan(goodness), -np.inf, goodness)
    return np.array([1 + int((worst > one).sum()) for one in worst])
