"""Columns of the size of Unix times keep their digits: standardised in float64, then cut."""

import numpy as np
import pytest
import torch

import tsadapt
from tsadapt import DomainAdaptationClassifier
from tsadapt.data.arrays import vectors
from tsadapt.models.classifier import InputScaling


@pytest.fixture
def times():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    return 1.7e9 + 20 * y[:, None] + rng.normal(size=(90, 3)), y


def test_rows_are_cut_only_where_nothing_is_lost(times):
    assert vectors(times[0]).dtype == torch.float64
    assert vectors(np.arange(6).reshape(3, 2)).dtype == torch.float32
    assert vectors(times[0].astype(np.float32)).dtype == torch.float32
    assert vectors(np.array([[2**24 + 1]])).dtype == torch.float64


def test_scaling_keeps_the_digits_and_float32_its_bits(times):
    x = torch.from_numpy(times[0])
    scaled = InputScaling.of_rows(x)(x)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(3, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(scaled.std(0, correction=0), torch.ones(3, dtype=torch.float64))
    short = torch.randn(50, 3)
    mean, deviation = short.double().mean(0).float(), short.double().std(0, correction=0).float()
    assert torch.equal(InputScaling.of_rows(short)(short), (short - mean) / deviation)


def test_an_estimator_and_a_run_learn_from_times(times, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = times
    clf = DomainAdaptationClassifier(target_terms=("mi",), steps=60, bottleneck=8, random_state=0)
    assert clf.fit(x, y, X_target=x + 1).score(x, y) > 0.95
    model = tsadapt.fit((x, y), x + 1, mi=True, steps=60, bottleneck=8, device="cpu", out="run")
    assert (model.predict(x) == y.astype(str)).mean() > 0.95
    again = tsadapt.load("run", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
