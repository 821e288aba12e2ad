"""RTN: which classifier learns from what, numbers of another implementation, and why TSA is refused."""

import numpy as np
import pytest
import torch
from tests.configs import changed
from tests.objectives.test_alignment import gradients, one_head, sized
from tests.objectives.test_methods import B, C, made
from torch.nn import functional as F

import tsadapt
from tsadapt.core import conditional_entropy, fused_features, multi_kernel_mmd
from tsadapt.errors import UserError
from tsadapt.objectives.base import METHODS, SOURCE_TERMS
from tsadapt.objectives.source_terms.ce import CrossEntropy
from tsadapt.runs.fit import train_run
from tsadapt.training.setup import make_task, make_trainer


def problem():
    """Features and logits of 4 and 3 rows, 6 features, 3 classes, by formula."""
    a = torch.arange(24, dtype=torch.float64)
    f_s, f_t = torch.sin(a).reshape(4, 6), torch.cos(1.7 * a[:18]).reshape(3, 6) + 0.3
    return f_s, f_t, 2 * torch.cos(0.9 * a[:12]).reshape(4, 3), 2 * torch.sin(1.3 * a[:9]).reshape(3, 3)


def test_numbers_of_pytorch_adapt():
    """EntropyLoss, MMDLoss and PlusResidual of pytorch-adapt 0.0.83.

    Its MMD averages the kernels, so that it is a fifth, and takes the bandwidth 2·mean ‖x − y‖² as given.
    """
    f_s, f_t, z_s, z_t = problem()
    assert conditional_entropy(z_t).item() == pytest.approx(0.7063622250922097, rel=1e-12)
    mmd = multi_kernel_mmd(fused_features(f_s, z_s), fused_features(f_t, z_t))
    assert mmd.item() == pytest.approx(-0.3260372425758329, rel=1e-9)
    a = torch.arange(9, dtype=torch.float64)
    method = made("rtn").double()
    for layer, weight in ((method.residual[0], torch.cos(0.4 * a)), (method.residual[2], torch.sin(0.6 * a))):
        layer.load_state_dict({"weight": weight.reshape(3, 3), "bias": torch.zeros(3)})
    loss = F.cross_entropy(z_s + method.residual(z_s), torch.tensor([0, 2, 1, 1]))
    assert loss.item() == pytest.approx(2.968429025015273, rel=1e-12)


def test_the_terms_are_those_of_the_docstring():
    _, out = one_head(progress=0.4)
    method = made("rtn")
    losses = method.losses(out)
    source, target = out.both()
    entropy = -(target.logits.softmax(1) * target.logits.log_softmax(1)).sum() / B
    ramp = 2 / (1 + np.exp(-10 * 0.4)) - 1
    assert losses["target_entropy"].item() == pytest.approx(0.1 * ramp * entropy.item(), rel=1e-5)
    products = [torch.einsum("bk,bc->bck", v.features, v.logits) for v in (source, target)]
    halved = [((p[:, :, 0::2] + p[:, :, 1::2]) / 2).flatten(1) for p in products]
    torch.testing.assert_close(losses["mmd"], multi_kernel_mmd(*halved))
    _, start = one_head(progress=0.0)
    assert method.losses(start)["target_entropy"] == 0


def test_the_source_learns_through_the_residual_and_the_target_head_predicts():
    head, out = one_head()
    method = made("rtn")
    seen = method.seen(out)
    z = out.source.logits
    torch.testing.assert_close(seen.heads[0].source.logits, z + method.residual(z))
    assert seen.source is out.source  # z_T: what predicts, and what pseudo-labels come from
    assert seen.target is out.target
    assert seen.heads[0].target is out.heads[0].target
    loss = CrossEntropy(method.context)(seen)
    torch.testing.assert_close(loss, F.cross_entropy(z + method.residual(z), out.labels()))
    wanted = [*method.parameters(), head.weight, head.bias, out.source.features]
    assert all(grad.abs().sum() > 0 for grad in gradients(loss, wanted) if grad is not None)
    assert all(grad is not None for grad in gradients(loss, wanted))
    assert gradients(loss, [out.target.features]) == (None,)


def test_what_each_term_reaches():
    head, out = one_head()
    method = made("rtn")
    losses = method.losses(method.seen(out))
    f_s, f_t = (view.features for view in out.both())
    for name, reached, left in [
        ("target_entropy", [f_t, head.weight], [f_s]),
        ("mmd", [f_s, f_t, head.weight], []),
    ]:
        assert all(grad.abs().sum() > 0 for grad in gradients(losses[name], reached)), name
        assert all(grad is None for grad in gradients(losses[name], [*left, *method.parameters()])), name


def test_the_two_classifiers_begin_nearly_as_one():
    _, out = one_head()
    method = made("rtn")
    assert method.describe(out)["residual_share"] < 0.01
    assert [tuple(p.shape) for p in method.parameters()] == [(C, C), (C,), (C, C), (C,)]


@pytest.mark.parametrize("source", [name for name in SOURCE_TERMS if SOURCE_TERMS[name].linear])
def test_augmentation_is_refused_in_one_line(config, here, source):
    assert not METHODS["rtn"].linear
    refused = changed(config, tsa=False, method="rtn", source_term=source)
    message = f"{source} augments features before a linear head, but the source's logits of rtn are not linear"
    with pytest.raises(UserError, match=message) as caught:
        train_run(refused, here / "run", quiet=True)
    assert "\n" not in str(caught.value)
    assert not (here / "run").exists()
    if source == "tsa":
        with pytest.raises(ValueError, match="use another method, or source_term ce"):
            tsadapt.TSAClassifier(method="rtn").fit(np.eye(4), [0, 1, 0, 1], X_target=np.eye(4))


def test_batches_that_mmd_cannot_take_are_refused():
    with pytest.raises(UserError, match="RTN needs 2 rows or more of each domain in a batch, received 8 and 1"):
        METHODS["rtn"](sized(8, 1))
    with pytest.raises(UserError, match="received 8 rows of the source and 4 of the target"):
        METHODS["rtn"](sized(8, 4), mmd_estimator="linear")


def test_training_makes_the_classifiers_differ(config):
    trainer = make_trainer(make_task(changed(config, tsa=False, method="rtn", lr=0.05, steps=150)))
    said = [trainer.step(describe=True) for _ in range(150)]
    assert said[-1]["residual_share"] > 3 * said[0]["residual_share"]
    assert said[-1]["ce"] < said[0]["ce"]
