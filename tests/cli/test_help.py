"""What the help says: groups, real defaults, and nothing that only a programmer understands."""

import re
import subprocess
import sys

import pytest

from tsadapt.cli import VERBS, main
from tsadapt.cli.options import setting_options
from tsadapt.config import RUN_SETTINGS
from tsadapt.models.networks import NETWORKS, TRAINED_BACKBONE
from tsadapt.objectives.base import METHODS, SOURCE_TERMS, TARGET_TERMS
from tsadapt.objectives.objective import all_settings

CHOSEN = ("mlp", "small-16", "mcd-28", "mcd-32", "dtn")
"""The networks that a run has unless told otherwise."""


def help_of(verb, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


def flat(text):
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


@pytest.fixture
def fit_help(monkeypatch, capsys):
    return help_of("fit", monkeypatch, capsys)


def shown(fit_help, flag):
    """What the help gives as the default of a flag."""
    found = re.search(rf" --{flag} [^│]*?\(default: ([^)]*)\)", flat(fit_help))
    assert found, flag
    return found[1]


@pytest.mark.parametrize("verb", ["fit", "sweep"])
def test_options_come_in_groups(monkeypatch, capsys, verb):
    text = help_of(verb, monkeypatch, capsys)
    titles = re.findall(r"╭─ (\w+) options ─", text)
    assert titles == ["data", "objective", "network", "optimisation", "run"]
    boxes = {title: flat(box) for title, box in zip(titles, re.split(r"╭─ \w+ options ─", text)[1:], strict=True)}
    for title, flags in {
        "data": ("holdout", "target-share"),
        "objective": ("method", "source-term", "target-term", "tsa", "mi", "set", "lambda0", "beta", "term-weight"),
        "network": ("backbone", "weights", "bottleneck"),
        "optimisation": ("steps", "lr", "weight-decay"),
        "run": ("seed", "device", "candidates"),
    }.items():
        for flag in flags:
            assert f" --{flag} " in boxes[title], (title, flag)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "reproduce"])
def test_none_is_no_default(monkeypatch, capsys, verb):
    text = help_of(verb, monkeypatch, capsys)
    assert "None" not in text
    assert "Example: tsadapt" in text


def test_every_setting_has_a_flag_with_its_default(fit_help):
    text = flat(fit_help)
    names = set(all_settings()) - {"tsa", "mi"}
    assert {"lambda0", "estimator", "samples", "reversal", "seed", "device"} <= names
    for name, one in all_settings().items():
        flag = (one.flag or name).replace("_", "-")
        if bool in one.kinds:
            flags = [switch.replace("_", "-") for switch in one.switches]
            flags = flags or [f"no-{flag}" if one.default is True else flag]
            assert all(f" --{switch} " in text for switch in flags), name
            continue
        assert f" --{flag} " in text, name
        if not one.shown:
            default = one.default
            assert shown(fit_help, flag) == (f"{default:g}" if isinstance(default, float) else str(default)), name
        else:
            assert shown(fit_help, flag) == one.shown


def test_the_terms_that_there_are_stand_in_the_help(fit_help):
    text = flat(fit_help)
    for flag, registry in (("method", METHODS), ("source-term", SOURCE_TERMS), ("target-term", TARGET_TERMS)):
        assert re.search(rf"--{flag} NAME .*?Available: {re.escape(', '.join(registry))}\.", text), flag
    assert "[isda, sampled, tsa]" in text  # whose setting it is


@pytest.mark.parametrize("name", ["steps", "batch_size", "lr", "weight_decay"])
def test_defaults_by_the_data_are_those_of_the_networks(fit_help, name):
    said = shown(fit_help, name.replace("_", "-"))
    numbers = {float(word) for word in re.findall(r"\d+(?:\.\d+)?", said)}
    known = {float(NETWORKS[network].defaults[name]) for network in CHOSEN} | {float(TRAINED_BACKBONE[name])}
    assert numbers == known
    # The plain one, for vectors and features, comes first.
    assert float(re.match(r"[\d.]+", said)[0].rstrip(".")) == NETWORKS["mlp"].defaults[name]
    trained = re.search(r"([\d.]+) with the backbone trained", said)
    assert float(trained[1] if trained else re.match(r"[\d.]+", said)[0]) == TRAINED_BACKBONE[name]


def test_a_setting_that_is_skipped_has_no_flag():
    assert "seed" in {name for name, _, _ in setting_options()["run"]}
    assert "seed" not in {name for name, _, _ in setting_options(skip=("seed",))["run"]}
    assert all(one.group for name, one in RUN_SETTINGS.items() if name != "settings")


def test_python_dash_m():
    done = subprocess.run(
        [sys.executable, "-m", "tsadapt", "--help"], capture_output=True, text=True, check=True, timeout=30
    )
    assert all(re.search(rf"^  {verb} ", done.stdout, re.MULTILINE) for verb in VERBS)
    assert "usage: tsadapt VERB" in done.stdout


def test_reproduce_says_where_it_went(capsys):
    assert main(["reproduce", "table4", "--jobs", "2"]) == 2
    said = capsys.readouterr().err
    assert "python -m paper table4 --jobs 2" in said
    assert len(said.splitlines()) == 1
