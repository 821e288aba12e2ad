"""n processes give what one gives: the same losses and gradients, for every term and method."""

import random
from pathlib import Path

import pytest
import torch
from tests.configs import changed, run_config
from tests.contract.test_contract import STAGES, SURE, fits
from tests.distributed.runs import steps_of
from tests.photos import TINY, truncate, write_classes, write_flat
from tests.tasks import write_task

from tsadapt.objectives.base import METHODS, SOURCE_TERMS, TARGET_TERMS

STEPS = 3
NUMBERS = (1, 2, 3)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    write_task(folder, n=70)
    # Neither 2 nor 3 divides the batches, nor the 70 rows.
    return run_config(
        str(folder / "source.npz"), str(folder / "target.npz"), bottleneck=32, steps=8, batch_size=11,
        target_batch_size=13, lr=0.02, device="cpu",
    )  # fmt: skip


def of(base, source, targets, method, **more):
    settings = STAGES | (SURE if "fixmatch" in targets else {})
    return changed(base, source_term=source, target_terms=tuple(targets), method=method, **settings, **more)


def assert_close(found, expected, where):
    assert found.keys() == expected.keys(), where
    scale = max([1e-12, *(float(v.abs().max()) for v in expected.values() if v.numel())])
    for name, value in expected.items():
        here = found[name]
        if not value.is_floating_point():
            assert torch.equal(here, value), (where, name)
            continue
        largest = max(float(value.abs().max()) if value.numel() else 0.0, 1e-3 * scale)
        off = float((here - value).abs().max()) if value.numel() else 0.0
        assert off <= 1e-6 * largest, (where, name, off, largest)


def compare(pool, number, config, steps=STEPS, cache=None):
    one = steps_of(config, steps, True, cache and f"{cache}-of-one")
    for rank, some in enumerate(pool(number).run(steps_of, config, steps, True, cache)):
        where = f"process {rank} of {number}"
        for mine, theirs in zip(some["terms"], one["terms"], strict=True):
            assert mine.keys() == theirs.keys()
            for name, value in theirs.items():
                assert mine[name] == pytest.approx(value, rel=1e-6, abs=1e-9), (where, name)
        for part in ("grads", "weights", "buffers"):
            assert_close(some[part], one[part], f"{where}: {part}")


def source_of(method):
    return "tsa" if METHODS[method].linear else "ce"


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("method", [*METHODS])
def test_every_method(pool, base, method, number):
    compare(pool, number, of(base, source_of(method), (), method))


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("source", [*SOURCE_TERMS])
def test_every_source_term(pool, base, source, number):
    compare(pool, number, of(base, source, (), "source-only"))


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("target", [*TARGET_TERMS])
def test_every_target_term(pool, base, target, number):
    often = {"refresh_every": 2} if target == "shot" else {"anchor_start": 0.1} if target == "anchored" else {}
    compare(pool, number, of(base, "ce", (target,), "source-only", **often))


def combinations(number=20, seed=26):
    """Objectives drawn at random, with settings that change what is forwarded and kept."""
    drawn = random.Random(seed)
    found = []
    while len(found) < number:
        method, source = drawn.choice([*METHODS]), drawn.choice([*SOURCE_TERMS])
        targets = tuple(sorted(drawn.sample([*TARGET_TERMS], drawn.randint(0, 3))))
        more = {"separate_bn": drawn.choice([None, True, False]), "precision": "fp32"}
        if source == "tsa" and drawn.random() < 0.5:
            more |= drawn.choice([{"teacher": 0.9}, {"confidence_weights": True}, {"purity_strength": True}])
        elif source in ("tsa", "isda", "t2sa") and drawn.random() < 0.5:
            more |= {"estimator": "iterative"}
        if set(targets) & {"mi", "bnm", "shot"} and drawn.random() < 0.3:
            more |= {"class_prior": "estimated"}
        if fits(source, method, targets) and (method, source, targets) not in [case[:3] for case in found]:
            found.append((method, source, targets, more))
    return found


@pytest.mark.parametrize("number", NUMBERS[1:])
@pytest.mark.parametrize("case", combinations(), ids=lambda case: "+".join([case[0], case[1], *case[2]]))
def test_combinations(pool, base, case, number):
    method, source, targets, more = case
    compare(pool, number, of(base, source, targets, method, **more))


def test_a_compiled_pass(pool, base):
    compare(pool, 2, of(base, "tsa", ("mi",), "cdan", compile=True))


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photographs")
    write_classes(folder / "labelled")
    write_flat(folder / "new")
    truncate(sorted((folder / "new").iterdir())[2])
    see = {"backbone": TINY, "weights": "none", "image_size": 32, "device": "cpu", "workers": 0, "bottleneck": 16}
    small = {"steps": 8, "batch_size": 5, "target_batch_size": 7, "lr": 0.01, "precision": "fp32"}
    return run_config(str(folder / "labelled"), str(folder / "new"), tsa=True, **see, **small)


@pytest.mark.parametrize(
    "how", [{"freeze_backbone": False}, {"train_from": "-1", "views": 2}], ids=["trained", "its last stage"]
)
def test_images_in_two_views(pool, photographs, how, monkeypatch):
    """Each process decodes its own images; what is drawn for one does not depend on who decodes it."""
    cache = str(Path(photographs.source).parent / "cache")
    monkeypatch.setenv("TSADAPT_CACHE", cache)  # put back at the end
    compare(pool, 2, changed(photographs, target_terms=("mi", "fixmatch"), **SURE, **how), cache=cache)
