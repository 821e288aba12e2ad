"""A run's config: what it takes, how it is written and read, and the hash that names it."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.configs import changed, run_config
from tests.tasks import runs_in, write_task

from tsadapt.cli import main
from tsadapt.config import REVISION, RUN_SETTINGS, RunConfig, differing_keys, read_config, read_toml, to_toml
from tsadapt.errors import UserError
from tsadapt.objectives.base import METHODS, SOURCE_TERMS, TARGET_TERMS
from tsadapt.objectives.objective import full_settings, uses
from tsadapt.runs.fit import train_run
from tsadapt.settings import Setting, setting
from tsadapt.training.setup import one_spelling

ODD = run_config(
    'C:\\photos "new"', "digits:mnist-5k", tsa=True, method="cdan+e", seed=3, lr=1e-3, freeze_backbone=False,
    term_weight={"mi": 0.5, "domain": 2}, entropy_grad="reversed", lambda0=0.5, mean_shift=False,
    class_prior={"a b": 0.25, "c.d": 0.5, 'e"f': 1, "größe": 2, "": 3, "cdan+e": 4},
)  # fmt: skip


@pytest.mark.parametrize("config", [RunConfig("a", "b"), ODD], ids=["plain", "odd"])
def test_toml_and_back(config, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    again = read_config(path)
    assert again == config
    assert again.hash() == config.hash()
    assert RunConfig(**read_toml(to_toml(config), "here")) == config
    assert to_toml(again) == to_toml(config)


def test_toml_has_nested_settings_with_odd_keys():
    text = to_toml(ODD)
    assert '[settings."cdan+e"]\nentropy_grad = "reversed"' in text
    assert "[settings.tsa]\nlambda0 = 0.5\nmean_shift = false" in text
    assert '"a b" = 0.25' in text
    assert text.startswith(f"revision = {REVISION}\n")
    assert "network" not in text  # None: what suits the data


def test_settings_of_terms_are_checked_kept_and_read():
    assert ODD.settings == {
        "tsa": {"lambda0": 0.5, "mean_shift": False},
        "mi": {"class_prior": {"a b": 0.25, "c.d": 0.5, 'e"f': 1.0, "größe": 2.0, "": 3.0, "cdan+e": 4.0}},
        "cdan+e": {"entropy_grad": "reversed"},
    }
    assert full_settings(ODD)["tsa"]["lambda0"] == 0.5
    assert full_settings(ODD)["tsa"]["policy"] == "skip"
    assert full_settings(ODD)["mi"]["beta"] == 0.1
    with pytest.raises(UserError, match="lambda0 is 'big', expected a number"):
        changed(ODD, lambda0="big")
    with pytest.raises(UserError, match=r"lambda0 is -1.*zero or more"):
        changed(ODD, lambda0=-1)
    with pytest.raises(UserError, match=r"Unknown setting 'lamda0'\. Did you mean 'lambda0'"):
        changed(ODD, lamda0=1)
    with pytest.raises(UserError, match=r"Unknown setting of tsa 'lamda0'.*'lambda0'"):
        changed(replace(ODD, settings={"tsa": {"lamda0": 1}}))


def test_one_term_alone_can_be_meant():
    both = changed(RunConfig("a", "b"), source_term="tsa", **{"tsa.lambda0": 0.5})
    assert both.settings == {"tsa": {"lambda0": 0.5}}
    told = []
    assert changed(both, told.append, **{"isda.lambda0": 0.7}) == both  # of a term that the run does not have
    assert "lambda0" in told[0]
    with pytest.raises(UserError, match="setting of mi 'lambda0'"):
        changed(both, mi=True, **{"mi.lambda0": 0.5})


def test_shorthands():
    plain = RunConfig("a", "b")
    assert changed(plain, tsa=True).terms == ("tsa", "mi", "source-only")
    assert changed(plain, tsa=True, mi=False).terms == ("tsa", "source-only")
    assert changed(plain, mi=True).terms == ("ce", "mi", "source-only")
    assert changed(changed(plain, tsa=True), mi=False).terms == ("tsa", "source-only")
    assert changed(plain, tsa=False).terms == plain.terms
    assert changed(plain, tsa=True, target_terms=("mi",)) == changed(plain, tsa=True)
    with pytest.raises(UserError, match="contradict"):
        changed(plain, tsa=True, source_term="isda")


def test_a_setting_at_its_default_is_no_part_of_the_hash():
    config = run_config("a", "b", tsa=True)
    for registry in (SOURCE_TERMS, TARGET_TERMS, METHODS):
        for term in registry:
            for name, one in registry[term].settings.items():
                assert changed(config, **{name: one.default}).hash() == config.hash(), name
    for name, one in RUN_SETTINGS.items():
        if name not in ("settings", "source_term", "target_terms"):
            assert changed(config, **{name: one.default}).hash() == config.hash(), name
    assert changed(config, lambda0=0.5, beta=0.2).hash() != config.hash()
    assert changed(changed(config, lambda0=0.5), lambda0=0.25) == config
    assert changed(config, class_prior="uniform") == config


def test_a_setting_that_comes_later_leaves_the_names_of_older_runs_alone(monkeypatch):
    @dataclass(frozen=True)
    class Later(RunConfig):
        depth: int = setting(3, "How deep.")

    before = RunConfig("a", "b", seed=1).hash()
    monkeypatch.setitem(RUN_SETTINGS, "depth", Setting("depth", int, 3, "How deep."))
    assert Later("a", "b", seed=1).hash() == before
    assert Later("a", "b", seed=1, depth=4).hash() != before


def test_what_changes_a_result_changes_the_hash_and_nothing_else_does():
    config = run_config("a", "b", tsa=True)
    others = {
        "seed": 1, "steps": 5, "lr": 0.1, "holdout": 0.1, "candidates": 2, "log_every": 5, "method": "dann",
        "mi": False, "term_weight": {"mi": 2}, "weights": "none", "separate_bn": True, "precision": "bf16",
        "target": "c", "lambda0": 0.3, "beta": 0.3, "policy": "official", "estimator": "iterative",
        "class_prior": {"a": 1},
    }  # fmt: skip
    hashes = {name: changed(config, **{name: value}).hash() for name, value in others.items()}
    assert len({config.hash(), *hashes.values()}) == 1 + len(others)
    for name, value in {"device": "cuda", "workers": 3, "checkpoint_every": 7}.items():
        assert changed(config, **{name: value}).hash() == config.hash(), name
    assert set(differing_keys(config, changed(config, lambda0=0.3, seed=1))) == {"tsa.lambda0", "seed"}


def test_settings_of_terms_that_the_run_does_not_have_are_dropped():
    plain = run_config("a", "b")
    told = []
    assert changed(plain, told.append, lambda0=0.5, beta=0.2, reversal="iteration") == plain
    assert [any(note.startswith(name) for note in told) for name in ("lambda0", "beta", "reversal")] == [True] * 3
    tsa = changed(plain, tsa=True, lambda0=0.5)
    assert changed(tsa, source_term="ce", mi=False).settings == {}
    assert changed(tsa, source_term="ce", mi=False) == plain
    unused = RunConfig("a", "b", settings={"tsa": {"lambda0": 1.0}})
    assert unused.hash() == plain.hash()
    assert changed(unused) == plain
    with pytest.raises(UserError, match=r"Unknown term 'tsaa'\. Did you mean 'tsa'"):
        changed(plain, settings={"tsaa": {"lambda0": 1.0}})
    for wrong in (3, {"tsa": 3}, {"lambda0": 1}):
        with pytest.raises(UserError, match="expected a table of settings for each term"):
            RunConfig("a", "b", settings=wrong)
    told.clear()
    changed(plain, told.append, settings={"tsa": {"lambda0": 1.0}})
    assert told == ["the settings of tsa are not used: this run does not have that term."]
    assert changed(tsa, tsa=False) == plain
    assert uses(tsa, "lambda0")
    assert uses(tsa, "steps")
    assert not uses(plain, "lambda0")
    assert not uses(tsa, "isda.lambda0")


def test_configs_do_not_share_what_can_change():
    a, b = RunConfig("a", "b"), RunConfig("a", "b")
    a.term_weight["mi"] = 1.0
    assert b.term_weight == {}
    given = {"tsa": {"lambda0": 0.5}}
    made = RunConfig("a", "b", source_term="tsa", settings=given)
    given["tsa"]["lambda0"] = 1.0
    assert made.settings == {"tsa": {"lambda0": 0.5}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('source = "a"\ntarget = "b"\nmi = true\n', "older version"),
        ('revision = 1\nsource = "a"\ntarget = "b"\n', "revision 1"),
        (f'revision = {REVISION}\nsource = "a"\n', "no target"),
        (f'revision = {REVISION}\nsource = "a"\ntarget = "b"\nlrr = 3\n', "Did you mean 'lr'"),
        (f'revision = {REVISION}\nsource = "a"\ntarget = "b"\nsteps = -1\n', "steps is -1"),
        ("revision = \n", "is not TOML"),
    ],
)
def test_configs_of_another_shape_are_refused(tmp_path, text, said):
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(UserError) as error:
        read_config(tmp_path / "config.toml")
    assert said in str(error.value)
    assert str(tmp_path) in str(error.value) or "steps" in said
    assert "\n" not in str(error.value)


OLD = 'source = "source.npz"\ntarget = "target.npz"\nsource_term = "tsa"\nmi = true\nlambda0 = 0.25\n'


@pytest.mark.parametrize("verb", ["fit", "predict", "evaluate", "select"])
def test_a_folder_of_the_old_shape_is_refused_in_one_line(config, capsys, verb):
    train_run(config, Path("a"), quiet=True)
    Path("a/config.toml").write_text(OLD)
    capsys.readouterr()
    words = {"fit": ["source.npz", "target.npz", "--out", "a"], "select": ["a"]}.get(verb, ["a", "target.npz"])
    assert main([verb, *words]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "older version" in said
    assert Path("a/config.toml").read_text() == OLD


def test_one_spelling_of_paths_is_one_run(config, here, capsys, monkeypatch):
    first, _ = train_run(config, quiet=True)
    here.joinpath("deep").mkdir()
    absolute = changed(config, source=str(here / "source.npz"), target=str(here / "deep/../target.npz"))
    capsys.readouterr()
    again, _ = train_run(absolute, quiet=True)
    assert again == first
    assert "already done" in capsys.readouterr().err
    assert [path.name for path in runs_in("runs")] == [read_config(first / "config.toml").hash()]
    monkeypatch.chdir("deep")
    moved = changed(config, source="../source.npz", target="../target.npz")
    train_run(moved, here / first, quiet=True)
    assert "already done" in capsys.readouterr().err


def test_weights_and_names_have_one_spelling(here, monkeypatch):
    (here / "w.pth").write_bytes(b"")
    config = run_config("digits:uci", "photos", weights="w.pth")
    there = one_spelling(config)
    assert (there.source, there.target, there.weights) == ("digits:uci", str(here / "photos"), str(here / "w.pth"))
    assert one_spelling(there) == there
    assert one_spelling(changed(config, weights=str(here / "w.pth"))).hash() == there.hash()
    for kept in ("none", None):
        assert one_spelling(changed(config, weights=kept)).weights == kept


def test_a_frozen_run_found_by_the_other_spelling_of_its_weights(frozen, capsys):
    import torch

    from tsadapt.models.backbones import make_backbone

    torch.save(make_backbone(frozen.backbone, "none").module.state_dict(), "w.pth")
    first, _ = train_run(changed(frozen, weights="w.pth"), quiet=True)
    again, _ = train_run(changed(frozen, weights=str(Path("w.pth").absolute()), source="./labelled/"), quiet=True)
    assert again == first
    assert "already done" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", [b"caf\xe9.npz", b"\x7f\x01\n\t.npz", "größe\u2028.npz".encode(), b'a"b\\c.npz', b"%41.npz"]
)
def test_any_file_name_survives_the_config(name, tmp_path, monkeypatch, capsys):
    """Also in the command that the chosen run's config is for: fit --config."""
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    odd = os.fsdecode(name)
    Path("source.npz").rename(odd)
    words = [odd, "target.npz", "--steps", "2", "--batch-size", "8", "--bottleneck", "4", "--quiet"]
    assert main(["fit", *words, "--out", "run"]) == 0
    config = read_config(Path("run/config.toml"))
    assert config.source == str(tmp_path / odd)
    assert to_toml(config) == Path("run/config.toml").read_text(encoding="utf-8")
    assert main(["fit", "--config", "run/config.toml", "--quiet", "--out", "again"]) == 0
    assert Path("again/metrics.json").read_bytes() == Path("run/metrics.json").read_bytes()
    said = capsys.readouterr()
    assert all(character.isprintable() or character == "\n" for character in said.out + said.err)


def test_a_name_that_no_file_can_have_is_refused():
    with pytest.raises(UserError, match="cannot be saved in a config"):
        to_toml(RunConfig("\ud800", "b"))


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 5000, "a" + ".a" * 5000 + " = 1", "a = " + "{a=" * 5000, "seed = " + "9" * 5000, "a = \0", "="],
)
def test_toml_that_cannot_be_read_is_one_line(text, tmp_path, capsys):
    path = tmp_path / "deep.toml"
    path.write_text(text)
    assert main(["fit", "a", "b", "--config", str(path)]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "deep.toml" in said
