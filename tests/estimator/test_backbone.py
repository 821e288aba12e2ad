"""Estimators with a network of one's own in front: arrays of any shape, trained on a copy, saved without code."""

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from torch import nn

from tsadapt.estimator import DomainAdaptationClassifier, TSAClassifier
from tsadapt.objectives.base import METHODS, Method

Y = np.arange(60) % 3
SHORT = {"steps": 20, "bottleneck": 8, "batch_size": 16, "device": "cpu", "random_state": 0}


def waves(seed=0, shift=0.0):
    """Rows (60, 2, 12): a bump in one of three places."""
    rng = np.random.default_rng(seed)
    x = 0.3 * rng.normal(size=(60, 2, 12)) + shift
    for row, label in enumerate(Y):
        x[row, :, 4 * label : 4 * label + 4] += 2
    return x


X = waves()


class Small(nn.Module):
    """Rows (B, 2, L) to 9 features."""

    def __init__(self, channels=3):
        super().__init__()
        self.conv, self.bn = nn.Conv1d(2, channels, 3, padding=1), nn.BatchNorm1d(channels)

    def forward(self, x):
        return nn.functional.adaptive_avg_pool1d(self.bn(self.conv(x)).relu(), 3).flatten(1)


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    return Small()


def fitted(module, **settings):
    return TSAClassifier(backbone=module, **{**SHORT, **settings}).fit(X, Y, X_target=waves(1, 0.3))


def fitted_on(x, module):
    return DomainAdaptationClassifier(target_terms=("mi",), backbone=module, **SHORT).fit(x, Y, X_target=x)


def test_rows_of_any_shape_train_a_copy(module):
    before = {name: value.clone() for name, value in module.state_dict().items()}
    clf = fitted(module, steps=60)
    assert clf.score(waves(2), Y) > 0.9
    assert clf.transform(X).shape == (60, 8)
    assert clf.predict_proba(X).shape == (60, 3)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not torch.equal(clf.model_.network.backbone.conv.weight, before["conv.weight"])
    together = np.concatenate([X, waves(1, 0.3)])
    domain = np.repeat([1, -1], 60)
    same = clone(clf).fit(together, np.tile(Y, 2), sample_domain=domain)
    assert (same.predict_proba(X) == clf.predict_proba(X)).all()


def test_rows_reach_the_backbone_as_they_are(module):
    clf = fitted(nn.Flatten())
    clf.model_.network.backbone.register_forward_hook(lambda _, args, out: seen.append(args[0]))
    seen: list[torch.Tensor] = []
    clf.predict(X)
    assert torch.equal(seen[0], torch.from_numpy(X).float())


def test_vectors_images_and_volumes(module):
    flat = DomainAdaptationClassifier(backbone=nn.Linear(24, 7), **SHORT)
    assert flat.fit(X.reshape(60, 24), Y, X_target=X.reshape(60, 24)).predict(X.reshape(60, 24)).shape == (60,)
    deep = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten())
    square = X.reshape(60, 2, 3, 4)
    clf = DomainAdaptationClassifier("dann", backbone=deep, **{**SHORT, "bottleneck": None})
    assert clf.fit(square, Y, X_target=square).transform(square).shape == (60, 8)
    volumes = X.reshape(60, 1, 2, 3, 4)
    assert fitted_on(volumes, nn.Sequential(nn.Conv3d(1, 4, 2), nn.Flatten())).predict(volumes).shape == (60,)


def test_scikit_learn_s_habits(module):
    clf = TSAClassifier(backbone=module, **SHORT)
    assert clf.get_params()["backbone"] is module
    other = clone(clf)
    assert other.backbone is not module
    assert torch.equal(other.backbone.conv.weight, module.conv.weight)
    assert "backbone=Small(" in repr(clf)
    assert "backbone" in inspect.signature(DomainAdaptationClassifier).parameters
    search = GridSearchCV(DomainAdaptationClassifier(**SHORT), {"backbone": [module, Small(4)]}, cv=2)
    with pytest.warns(UserWarning, match="No target given"):
        search.fit(X, Y)
    assert search.best_estimator_.predict(X).shape == (60,)


def test_the_same_to_the_bit_and_warm_starts(module):
    clf = fitted(module)
    assert (fitted(module).predict_proba(X) == clf.predict_proba(X)).all()
    warm = clone(clf).set_params(warm_start=True).fit(X, Y, X_target=X)
    first = warm.model_.network.backbone.conv.weight.clone()
    assert not torch.equal(warm.fit(X, Y, X_target=X).model_.network.backbone.conv.weight, first)


def test_fallback_and_adabn(module):
    clf = fitted(module, fallback="source")
    assert clf.report_["used"] in ("adapted", "source-only")
    adabn = DomainAdaptationClassifier("adabn", backbone=module, **{**SHORT, "bottleneck": None})
    adabn.fit(X, Y, X_target=X + 5)
    other = adabn.adapt_bn(X - 5)
    assert not torch.equal(other.model_.network.backbone.bn.running_mean, adabn.model_.network.backbone.bn.running_mean)
    plain = DomainAdaptationClassifier("adabn", backbone=nn.Flatten(), **{**SHORT, "bottleneck": None})
    with pytest.raises(ValueError, match="has none"):
        plain.fit(X, Y, X_target=X)


def test_parameters_that_require_no_gradient_stay(module):
    """Also in a method that alternates, and says which modules a step may change."""

    class Alternating(Method):
        """The features alone, in a phase of their own."""

        terms = ("pull",)
        phases = ("features",)

        def update(self, step):
            """Classify, then pull the features together."""
            step.minimize(step.source(step.forward()))
            pull = step.forward().source.features.square().mean()
            step.minimize({"pull": pull}, only=[step.extractor], phase="features")

    module.conv.requires_grad_(False)
    METHODS.register("alternating")(Alternating)
    try:
        clf = DomainAdaptationClassifier("alternating", backbone=module, **SHORT).fit(X, Y, X_target=X)
    finally:
        METHODS.forget("alternating")
    assert torch.equal(clf.model_.network.backbone.conv.weight, module.conv.weight)
    assert not torch.equal(clf.model_.network.backbone.bn.weight, module.bn.weight)


def test_saved_without_code_and_loaded_with_the_same_backbone(module):
    clf = fitted(module)
    clf.save("clf.safetensors")
    again = TSAClassifier.load("clf.safetensors", backbone=Small())  # with other weights, which the file's replace
    for ask in ("predict", "predict_proba", "transform"):
        assert (getattr(again, ask)(X) == getattr(clf, ask)(X)).all(), ask
    assert again.set_params(steps=5).fit(X, Y, X_target=X).n_iter_ == 5
    with pytest.raises(ValueError, match="it has a backbone, Small, whose code it does not hold: add backbone=module"):
        TSAClassifier.load("clf.safetensors")
    with pytest.raises(ValueError, match="its backbone is another Small than the Small given"):
        TSAClassifier.load("clf.safetensors", backbone=Small(4))
    plain = TSAClassifier(**SHORT).fit(X.reshape(60, 24), Y, X_target=X.reshape(60, 24))
    plain.save("plain.safetensors")
    assert Path("plain.safetensors").stat().st_size
    with pytest.raises(ValueError, match="it has no backbone, leave it out"):
        TSAClassifier.load("plain.safetensors", backbone=module)


def test_mistakes(module):
    with pytest.raises(ValueError, match=r"Small does not take rows of shape \(3, 12\): "):
        TSAClassifier(backbone=module, **SHORT).fit(X[:, [0, 1, 0]], Y, X_target=X[:, [0, 1, 0]])
    with pytest.raises(
        ValueError, match=r"Conv1d returns a tensor of shape \(2, 4, 10\) for 2 rows of shape \(2, 12\)"
    ):
        fitted(nn.Conv1d(2, 4, 3))
    with pytest.raises(ValueError, match=r"X_target has rows of shape \(2, 5\), but X has rows of shape \(2, 12\)"):
        TSAClassifier(backbone=module, **SHORT).fit(X, Y, X_target=X[:, :, :5])
    with pytest.raises(ValueError, match="backbone"):
        TSAClassifier(backbone="resnet50", **SHORT).fit(X, Y, X_target=X)
    with pytest.raises(ValueError, match="too large for float32"):
        TSAClassifier(backbone=module, **SHORT).fit(X * 1e300, Y, X_target=X)
    with pytest.raises(ValueError, match="dim 3"):  # as ever without a backbone
        TSAClassifier(**SHORT).fit(X, Y, X_target=X)
    with pytest.raises(ValueError, match="layers without weights yet: run it once"):
        fitted(nn.Sequential(nn.Flatten(), nn.LazyLinear(5)))
    flat = fitted(nn.Flatten())
    with pytest.raises(ValueError, match=r"does not take rows of shape \(2, 7\): "):
        flat.predict(X[:, :, :7])
