"""Features in other precisions: the same but for rounding, whatever the batch, and the run's own at prediction."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.configs import changed
from tests.photos import FRAMING, QUICK, SEE, truncate
from torch import nn

from tsadapt.cache import KINDS
from tsadapt.cli import main
from tsadapt.data.image_loader import grouped, image_pass
from tsadapt.data.open import open_dataset
from tsadapt.data.transforms import evaluation_transform
from tsadapt.errors import UserError
from tsadapt.models import agreement, features, inference, preprocessing
from tsadapt.models.backbones import Backbone, for_inference
from tsadapt.models.features import extract
from tsadapt.models.inference import FrozenNetwork
from tsadapt.runs.fit import train_run
from tsadapt.runs.folder import read_json, write_sealed
from tsadapt.runs.model import load
from tsadapt.training import setup

CPU = torch.device("cpu")


class Residual(nn.Module):
    """Every kind of layer that is fused, a depthwise one among them; `fork` makes it hard to trace."""

    def __init__(self, fork=False, groups=16):
        super().__init__()
        self.fork = fork
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
        self.depthwise = nn.Sequential(
            nn.Conv2d(16, 16, 3, 1, 1, groups=groups, bias=False), nn.BatchNorm2d(16), nn.SiLU()
        )
        self.left = nn.Sequential(nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16))
        self.right = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.last = nn.Conv2d(16, 24, 1)

    def forward(self, x):
        if self.fork and float(x.sum()) > 1e9:
            return x
        x = self.depthwise(self.stem(x))
        x = torch.relu(self.left(self.right(x)) + x)
        return nn.functional.hardswish(self.last(x)).mean((2, 3))


def backbone(**how):
    torch.manual_seed(2)
    module = Residual(**how)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-0.5, 0.5)
            layer.running_var.uniform_(0.5, 2)
            layer.bias.data.uniform_(-1, 1)
    return Backbone("residual", module.eval(), 24, 32, 36, "bilinear", (0.5,) * 3, (0.25,) * 3, trained=True)


def pixels(n=19):
    return torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def forwarded(network, x):
    return torch.cat([network(x[rows.start : rows.stop]) for rows in grouped(range(len(x)), network.rows)])


def fused(network):
    return [layer for layer in network.body.modules() if isinstance(layer, inference._Convolution)]


def test_float32_is_to_the_bit_what_it_was():
    by, x = backbone(), pixels(16)
    mean, std = (255 * torch.tensor(v)[:, None, None] for v in (by.mean, by.std))
    scaled = ((x.float() - mean) / std).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        before = for_inference(by.module, 32)(scaled)
    assert torch.equal(FrozenNetwork(by, CPU, "fp32")(x), before)


@pytest.mark.parametrize("precision", ["fp32-fused", "bf16"])
def test_features_agree_and_do_not_depend_on_the_others(precision):
    by, x = backbone(), pixels()
    network, plain = FrozenNetwork(by, CPU, precision), forwarded(FrozenNetwork(by, CPU, "fp32"), x)
    found = forwarded(network, x)
    assert found.dtype == torch.float32
    assert float(torch.cosine_similarity(found, plain).min()) >= (1 - 1e-6 if precision == "fp32-fused" else 0.999)
    assert torch.equal(torch.cat([network(one) for one in x.split(1)]), found)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(4))
    assert torch.equal(forwarded(network, x[order]), found[order])


@pytest.mark.parametrize(("groups", "exact"), [(16, 3), (1, 2)])
def test_layers_are_fused_and_the_first_of_them_stay_in_float32(groups, exact):
    by = backbone(groups=groups)
    assert [layer.name for layer in fused(FrozenNetwork(by, CPU, "fp32-fused"))] == [
        "hardtanh", "swish", "relu", "relu", "hardswish",
    ]  # fmt: skip
    plain = for_inference(by.module, 32)
    kinds = [
        layer.weight.dtype
        for layer in inference._fused(plain, torch.bfloat16).modules()
        if isinstance(layer, inference._Convolution)
    ]
    assert kinds == [torch.float32] * exact + [torch.bfloat16] * (5 - exact)
    left = [node.op for node in inference._fused(plain, torch.float32).graph.nodes]
    assert left.count("call_module") == 5
    assert left.count("call_function") + left.count("call_method") == 1  # the mean


@pytest.mark.parametrize("how", ["untraceable", "unknown layers", "other operators"])
def test_a_network_that_cannot_be_fused_is_used_as_it_is(how, monkeypatch):
    by, x = backbone(fork=how == "untraceable"), pixels(8)
    if how == "unknown layers":
        by.module.last = nn.Sequential(by.module.last, nn.PReLU(24))
    if how == "other operators":
        monkeypatch.setattr(inference._Convolution, "forward", lambda *_: 1 / 0)
    plain = FrozenNetwork(by, CPU, "fp32")(x)
    for precision in ("fp32-fused", "bf16"):
        network = FrozenNetwork(by, CPU, precision)
        assert not fused(network)
        torch.testing.assert_close(network(x), plain, rtol=2e-2, atol=2e-2)


def test_each_precision_has_features_of_its_own_in_the_cache(frozen):
    images, by = open_dataset("labelled").train.x, backbone()

    def computed(precision):
        return extract(images, by, FRAMING, CPU, 0, quiet=True, precision=precision)

    for precision in ("fp32", "fp32-fused", "bf16"):
        assert (computed(precision).computed, computed(precision).computed) == (24, 0)
    assert not torch.equal(computed("bf16").x, computed("fp32").x)
    # The key that features had when float32 was the only way: they are found again.
    framing = {"size": 32, "resize": 36, "keep_aspect": True, "interpolation": "bilinear"}
    key = repr((images.fingerprint, by.fingerprint(), framing, features.PART))
    assert (Path("cache/features") / hashlib.sha256(key.encode()).hexdigest()[:20]).is_dir()


@pytest.mark.parametrize("precision", ["fp32", "fp32-fused", "bf16"])
def test_rows_come_in_their_order_from_whichever_worker(frozen, precision, monkeypatch):
    truncate(Path("labelled/bee/03.png"))
    images, by = open_dataset("labelled").train.x, backbone()
    bad = images.paths.index(next(path for path in images.paths if path.endswith("bee/03.png")))
    here = extract(images, by, FRAMING, CPU, 0, quiet=True, precision=precision)
    monkeypatch.setenv("TSADAPT_CACHE", "other")
    monkeypatch.setattr(features, "PART", 10)
    spread = extract(images, by, FRAMING, CPU, 2, quiet=True, precision=precision)
    assert [*spread.unreadable] == [bad]
    assert spread.rows == here.rows == [row for row in range(24) if row != bad]
    monkeypatch.setenv("TSADAPT_CACHE", "third")
    monkeypatch.setattr(features, "computes_in_workers", lambda device: False)  # as on a GPU, or another system
    apart = extract(images, by, FRAMING, CPU, 2, quiet=True, precision=precision)
    network, view = FrozenNetwork(by, CPU, precision), evaluation_transform(FRAMING)
    one_by_one = torch.cat([network(view(images.decode(row, 72))[None]) for row in here.rows])
    for found in (here.x, spread.x, apart.x):
        if precision == "fp32":
            torch.testing.assert_close(found, one_by_one, rtol=1e-5, atol=1e-5)
        else:
            assert torch.equal(found, one_by_one)


def test_workers_forward_and_this_process_does_not(frozen):
    here = torch.tensor(float(torch.randint(1 << 30, ())))
    images = open_dataset("labelled").train.x

    def mark(x):
        mark.calls += 1
        return here.expand(len(x), 1) + x.is_contiguous(memory_format=torch.channels_last)

    mark.calls = 0
    passed = [*image_pass(images, grouped(range(24), 5), evaluation_transform(FRAMING), 72, 2, then=mark)]
    assert mark.calls == 0
    assert [row for some in passed for row in some.rows] == [*range(24)]
    assert all((some.x == here + 1).all() for some in passed)


def test_an_error_of_the_network_in_a_worker_is_its_own(frozen):
    def broken(x):
        raise RuntimeError("the network does not take these")

    images = open_dataset("labelled").train.x
    with pytest.raises(RuntimeError, match="the network does not take these"):
        next(image_pass(images, grouped(range(24), 5), evaluation_transform(FRAMING), 72, 1, then=broken))


def test_a_truncated_file_is_one_line(frozen, capsys):
    truncate(Path("new/0-02.png"))
    assert main(["features", "new", *SEE, "--out", "f.npz", "--quiet"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "0-02.png" in line]
    assert len(said) == 1
    assert "cannot be read" in said[0]
    assert len(np.load("f.npz")["x"]) == 23


def test_predict_computes_as_the_run_did(frozen, monkeypatch):
    asked = []

    def watched(*arguments):
        asked.append(arguments[-1])
        return extract(*arguments)

    monkeypatch.setattr(preprocessing, "extract", watched)
    for precision in ("fp32", "bf16"):
        out, _ = train_run(changed(frozen, feature_precision=precision), Path(precision), quiet=True)
        assert f'feature_precision = "{precision}"' in (out / "config.toml").read_text()
        asked.clear()
        assert main(["predict", precision, "new", "--out", "p.csv"]) == 0
        assert main(["evaluate", precision, "labelled"]) == 0
        assert asked == [precision] * 2
    assert (load("bf16").transform("new") != load("fp32").transform("new")).any()


def test_a_run_from_before_is_read_as_float32(frozen, monkeypatch, capsys):
    out, _ = train_run(changed(frozen, feature_precision="fp32"), Path("run"), quiet=True)
    expected = load(out).predict_proba("new")
    toml = out / "config.toml"
    lines = toml.read_text().splitlines(keepends=True)
    toml.write_text("".join(line for line in lines if "feature_precision" not in line))
    described = read_json(out / "model" / "model.json", ("images",))
    del described["images"]["precision"]
    write_sealed(out / "model" / "model.json", described)
    monkeypatch.setattr(setup, "has_fast_bf16", lambda device: True)
    assert (load(out).predict_proba("new") == expected).all()
    assert train_run(frozen, out, quiet=True)[0] == out
    assert "already done" in capsys.readouterr().err
    with pytest.raises(UserError, match="feature_precision"):
        train_run(changed(frozen, feature_precision="bf16"), out, quiet=True)
    described["images"]["precision"] = "fp8"
    write_sealed(out / "model" / "model.json", described)
    with pytest.raises(UserError, match="precision 'fp8', expected fp32, fp32-fused, bf16"):
        load(out)


@pytest.mark.parametrize(
    ("fast", "cosine", "expected"), [(True, 0.99995, "bf16"), (True, 0.9998, "fp32-fused"), (False, 1.0, "fp32-fused")]
)
def test_bf16_is_the_default_where_it_is_fast_and_agrees(frozen, monkeypatch, fast, cosine, expected):
    monkeypatch.setattr(setup, "has_fast_bf16", lambda device: fast)
    monkeypatch.setattr(agreement, "_agreement", lambda backbone: cosine)
    assert setup.make_task(frozen).config.feature_precision == expected
    given = setup.make_task(changed(frozen, feature_precision="fp32"))
    assert given.config.feature_precision == given.preprocessing.precision == "fp32"
    assert setup.make_task(changed(frozen, freeze_backbone=False)).config.feature_precision is None


def test_agreement_is_measured_once(frozen, monkeypatch):
    by = backbone()
    assert agreement._photographs(by).shape == (6, 3, 32, 32)
    first = agreement.agreement(by)
    assert 0.99 < first <= 1.001
    (kept,) = Path("cache/agreement").iterdir()
    kept.write_text("damaged")
    assert agreement.agreement(by) == first
    monkeypatch.setattr(agreement, "_agreement", lambda backbone: 1 / 0)
    assert "agreement" in KINDS  # so that it is counted, and cleared
    assert agreement.agreement(by) == first == json.loads(kept.read_text())["cosine"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--feature-precision", "bf16", "--no-freeze-backbone"], "only a frozen backbone"),
        (["--feature-precision", "bf16", "--train-from", "-1"], "only a frozen backbone"),
    ],
)
def test_flags_that_make_no_sense_are_refused(frozen, flags, said, capsys):
    assert main(["fit", "labelled", "new", *SEE, *QUICK, "--out", "r", *flags]) == 2
    assert said in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main(["fit", "labelled", "new", "--feature-precision", "fp16"])
    assert stop.value.code == 2
    assert "'fp16'" in capsys.readouterr().err
    np.savez("v.npz", x=np.random.default_rng(0).normal(size=(12, 4)), y=np.arange(12) % 2)
    assert main(["fit", "v.npz", "v.npz", "--feature-precision", "bf16", "--out", "v"]) == 2
    assert "feature_precision is for photographs" in capsys.readouterr().err
