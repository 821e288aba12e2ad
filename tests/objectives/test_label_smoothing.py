"""--label-smoothing in every source term that has it."""

import pytest
from tests.configs import changed, run_config
from torch.nn import functional as F

from tsadapt.core import sampled_cross_entropy, transferable_cross_entropy
from tsadapt.objectives.base import SOURCE_TERMS
from tsadapt.training.setup import make_task, make_trainer

SMOOTHED = ["ce", "isda", "sampled", "tsa"]


def test_which_terms_have_it():
    assert {name for name in SOURCE_TERMS if "label_smoothing" in SOURCE_TERMS[name].settings} >= {*SMOOTHED}


@pytest.mark.parametrize("name", SMOOTHED)
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_term_is_the_smoothed_loss(config, name, smoothing):
    config = changed(config, tsa=False, mi=True, source_term=name, label_smoothing=smoothing)
    trainer = make_trainer(make_task(config))
    trainer.fill_memory()
    out, _ = trainer.forward(trainer.batches.at(1), 0.5)
    trainer.statistics.observe(out)
    loss = trainer.objective.source_term(out)
    logits, labels, weight = out.source.logits, out.labels(), out.heads[0].weight

    def kept(domain):
        return out.statistics(domain, "memory", 0)

    if name == "ce":
        expected = F.cross_entropy(logits, labels, label_smoothing=smoothing)
    elif name == "isda":
        expected = transferable_cross_entropy(
            logits, labels, weight, kept("source"), None, 0.125, mean_shift=False, covariance="source",
            label_smoothing=smoothing,
        )  # fmt: skip
    elif name == "tsa":
        expected = transferable_cross_entropy(
            logits, labels, weight, kept("source"), kept("target"), 0.125, label_smoothing=smoothing
        )
    else:
        again, _ = trainer.forward(trainer.batches.at(1), 0.5)  # with a generator that has drawn nothing yet
        expected = sampled_cross_entropy(
            out.source.features, labels, weight, None, kept("source"), kept("target"), 0.125, 8, again.generator(),
            logits=logits, label_smoothing=smoothing,
        )  # fmt: skip
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)


@pytest.mark.parametrize("name", SMOOTHED)
def test_at_zero_the_hash_of_a_run_is_what_it_was(name):
    plain = run_config("a", "b", source_term=name)
    assert changed(plain, label_smoothing=0.0).hash() == plain.hash()
    assert changed(plain, label_smoothing=0.1).hash() != plain.hash()
