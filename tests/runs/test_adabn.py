"""AdaBN: a run normalised by its target at the end, and any run normalised by a new one when it predicts."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.configs import changed, run_config
from tests.photos import truncate

import tsadapt
from tsadapt.cli import main
from tsadapt.data.open import open_dataset
from tsadapt.errors import UserError
from tsadapt.runs.fit import train_run
from tsadapt.runs.model import load

BN = "bottleneck.1"


@pytest.fixture
def moved(here):
    """Classes that stay apart, in columns that are stretched and moved: what normalisation by the target undoes."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = (3 * rng.normal(size=(3, 6)))[y] + rng.normal(size=(300, 6))
    scale = np.array([1, 2, 0.5, 3, 1, 0.3])
    np.savez("s.npz", x=x, y=y)
    np.savez("t.npz", x=x * scale + 5, y=y)
    np.savez("unlabelled.npz", x=x * scale + 5)
    np.savez("new.npz", x=2 * x * scale - 7, y=y)
    np.savez("one.npz", x=x[:1])
    return run_config("s.npz", "t.npz", steps=60, batch_size=32, bottleneck=16, device="cpu", log_every=20)


def weights(folder):
    return load_file(Path(folder) / "model/model.safetensors")


def accuracy(metrics):
    return metrics["last"]["target"]["accuracy"]


def test_it_is_source_only_normalised_by_the_target(moved):
    plain = train_run(moved, Path("plain"), quiet=True)[1]
    adapted = train_run(changed(moved, method="adabn"), Path("adabn"), quiet=True)[1]
    assert accuracy(plain) < 0.8
    assert accuracy(adapted) > 0.95
    before, after = weights("plain"), weights("adabn")
    differ = {name for name in before if not torch.equal(before[name], after[name])}
    assert differ == {f"{BN}.running_mean", f"{BN}.running_var", f"{BN}.num_batches_tracked"}
    model, x = load("adabn"), open_dataset("t.npz").train.tensor
    inputs = model.network.bottleneck[0](model.network.scaling(x).float())
    torch.testing.assert_close(after[f"{BN}.running_mean"], inputs.mean(0))
    torch.testing.assert_close(after[f"{BN}.running_var"], inputs.var(0))


def test_a_source_normalised_by_the_target_is_no_failed_training(moved, capsys):
    """Its accuracy is that of the saved network; whether training failed is judged before."""
    source = train_run(changed(moved, method="adabn"), Path("adabn"), quiet=True)[1]["last"]["source"]
    assert source["accuracy"] < 0.5
    assert source["accuracy_as_trained"] > 0.95
    assert not source["far_below_reference"]
    assert "training failed" not in capsys.readouterr().err
    plain = train_run(moved, Path("plain"), quiet=True)[1]["last"]["source"]
    assert "accuracy_as_trained" not in plain
    failed = changed(moved, method="adabn", source_term="tsa", lambda0=30.0)
    assert train_run(failed, Path("failed"), quiet=True)[1]["last"]["source"]["far_below_reference"]
    assert "training failed" in capsys.readouterr().err


def test_the_target_needs_no_labels(moved):
    train_run(changed(moved, method="adabn"), Path("labelled"), quiet=True)
    train_run(changed(moved, method="adabn", target="unlabelled.npz"), Path("unlabelled"), quiet=True)
    a, b = weights("labelled"), weights("unlabelled")
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_candidates_are_normalised_and_training_goes_on_as_it_was(moved):
    several = changed(moved, method="adabn", candidates=3)
    train_run(several, Path("several"), quiet=True)
    train_run(changed(moved, method="adabn"), Path("one"), quiet=True)
    a, b = weights("several"), weights("one")
    assert all(torch.equal(a[name], b[name]) for name in a)
    by_step = json.loads(Path("several/metrics.json").read_text())["oracle"]["by_step"]
    assert all(found > 0.9 for found in by_step.values())  # source-only has 2/3 at each of them


def test_a_network_without_batch_normalisation_is_refused_before_training(moved, capsys):
    assert main(["fit", "s.npz", "t.npz", "--method", "adabn", "--network", "linear", "--out", "a"]) == 2
    assert "adabn replaces the statistics of batch normalisation, but the network linear has none" in (
        capsys.readouterr().err
    )
    assert not Path("a").exists()
    assert main(["fit", "s.npz", "one.npz", "--method", "adabn", "--out", "a"]) == 2
    assert "one.npz has one row" in capsys.readouterr().err
    assert not Path("a").exists()


def test_a_linear_network_trains(moved):
    """Its features are the inputs, which no gradient reaches."""
    metrics = train_run(changed(moved, network="linear", mi=True, bottleneck=None), Path("a"), quiet=True)[1]
    assert metrics["last"]["source"]["accuracy"] > 0.9
    shares = [json.loads(line)["gradient_share"] for line in Path("a/records.jsonl").read_text().splitlines()]
    assert all(share == {"ce": 0.0, "mi": 0.0} for share in shares)


def test_any_run_is_normalised_by_a_new_target_when_it_predicts(moved, capsys):
    train_run(moved, Path("a"), quiet=True)
    before, y = Path("a/model/model.safetensors").read_bytes(), np.load("new.npz")["y"]

    def right(words):
        capsys.readouterr()
        assert main(["predict", "a", "new.npz", *words]) == 0
        found = [line.split(",")[1] for line in capsys.readouterr().out.splitlines()[1:]]
        return float((np.array(found, dtype=int) == y).mean())

    assert right([]) < 0.8
    assert right(["--adapt-bn"]) > 0.95
    assert main(["evaluate", "a", "new.npz", "--out", "plain.json"]) == 0
    assert main(["evaluate", "a", "new.npz", "--adapt-bn", "--out", "adapted.json"]) == 0
    plain, adapted = (json.loads(Path(name).read_text())["accuracy"] for name in ("plain.json", "adapted.json"))
    assert plain < 0.8
    assert adapted > 0.95
    assert Path("a/model/model.safetensors").read_bytes() == before
    model = tsadapt.load("a")
    x = np.load("new.npz")["x"]
    adapted = model.adapt_bn(x)
    assert (adapted.predict(x).astype(int) == y).mean() > 0.95
    assert (model.predict(x).astype(int) == y).mean() < 0.8  # itself as it was


def test_predicting_refuses_what_cannot_be_normalised(moved, capsys):
    train_run(moved, Path("a"), quiet=True)
    train_run(changed(moved, network="linear", bottleneck=None), Path("linear"), quiet=True)
    for words, why in (
        (["predict", "linear", "new.npz"], "The network 'linear' has no batch normalisation"),
        (["evaluate", "linear", "new.npz"], "The network 'linear' has no batch normalisation"),
        (["predict", "a", "one.npz"], "one.npz has one row"),
    ):
        capsys.readouterr()
        assert main([*words, "--adapt-bn"]) == 2
        assert why in capsys.readouterr().err


@pytest.mark.parametrize("rows", [512, 513, 520, 700])
def test_every_number_of_rows_gives_sound_statistics(moved, rows):
    """513 rows are no batch of 512 and one of a single row, which has no variance."""
    train_run(moved, Path("a"), quiet=True)
    x = np.random.default_rng(0).normal(size=(rows, 6)) * 3 + 9
    adapted = tsadapt.load("a").adapt_bn(x)
    inputs = adapted.network.bottleneck[0](adapted.network.scaling(torch.from_numpy(x)).float())
    torch.testing.assert_close(adapted.network.bottleneck[1].running_mean, inputs.mean(0), rtol=0.05, atol=0.1)
    torch.testing.assert_close(adapted.network.bottleneck[1].running_var, inputs.var(0), rtol=0.1, atol=0)


@pytest.mark.parametrize("kind", ["frozen", "trained"])
def test_photographs(kind, request, capsys):
    """Also with the backbone trained, whose own normalisation is adapted, and among images that cannot be read."""
    config = request.getfixturevalue(kind)
    adabn = changed(config, tsa=False, mi=False, method="adabn")
    images = sorted(Path("new").iterdir())
    for name in images[::2]:
        truncate(name)
    train_run(adabn, Path("a"), quiet=True)
    for name in images[:-1]:
        truncate(name)
    with pytest.raises(UserError, match="has one row" if kind == "frozen" else "Too few of the 24 images of new"):
        load("a").adapt_bn("new")
    assert main(["predict", "a", "labelled", "--adapt-bn", "--out", "p.csv"]) == 0
