"""What TSA logs of a step."""

import pytest
from tests.configs import changed

from tsadapt.objectives.source_terms import tsa
from tsadapt.training.setup import make_task, make_trainer


def logged(config):
    trainer = make_trainer(make_task(config))
    trainer.fill_memory()
    return trainer.step(describe=True)


@pytest.mark.parametrize("estimator", ["memory", "iterative"])
def test_of_many_classes_those_in_the_batch_are_logged(config, monkeypatch, estimator):
    """All three classes are in the batch, so the terms are those of all; the shares would be a long list."""
    config = changed(config, estimator=estimator)
    whole = logged(config)
    monkeypatch.setattr(tsa, "MOST_CLASSES", 2)
    some = logged(config)
    assert len(whole.pop("pseudo_label_share")) == 3
    assert some.pop("gradient_share") == pytest.approx(whole.pop("gradient_share"))
    assert some == pytest.approx(whole)
