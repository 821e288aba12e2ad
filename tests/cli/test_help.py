"""What the help says: groups, real defaults, and nothing that only a programmer understands."""

import re
import subprocess
import sys

import pytest

from tsadapt.cli import VERBS, main
from tsadapt.config import RUN_SETTINGS
from tsadapt.models.networks import NETWORKS, TRAINED_BACKBONE, TRAINED_LENGTH
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


def flags(text):
    """The flags of a help text, each with all that is said of it."""
    found = {}
    for line in re.sub("[│╭╮╰╯─]", " ", text).splitlines():
        if start := re.match(r" {2}(?:-h, )?--([\w-]+)( .*|$)", line):
            found[flag := start[1]] = start[2].strip()
        elif found and line.strip() and line.startswith(" " * 10):
            found[flag] += f" {line.strip()}"
    return found


def groups(text):
    """The titles of the groups of options, each with its part of the help."""
    parts = re.split(r"^\W*(\w+) options\W*$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture
def fit_help(monkeypatch, capsys):
    return help_of("fit", monkeypatch, capsys)


def shown(fit_help, flag):
    """What the help gives as the default of a flag."""
    found = re.search(r"\(default: ([^)]*)\)$", flags(fit_help)[flag])
    assert found, flag
    return found[1]


@pytest.mark.parametrize("verb", ["fit", "sweep"])
def test_options_come_in_groups(monkeypatch, capsys, verb):
    found = groups(help_of(verb, monkeypatch, capsys))
    assert list(found) == ["data", "objective", "network", "optimisation", "run"]
    for title, names in {
        "data": ("holdout", "target-share"),
        "objective": ("method", "source-term", "target-term", "tsa", "mi", "set", "lambda0", "beta", "term-weight"),
        "network": ("backbone", "weights", "bottleneck"),
        "optimisation": ("steps", "lr", "weight-decay"),
        "run": ("seed", "device", "candidates"),
    }.items():
        assert set(names) <= set(flags(found[title]))


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "reproduce"])
def test_none_is_no_default(monkeypatch, capsys, verb):
    text = help_of(verb, monkeypatch, capsys)
    assert "None" not in text
    assert not re.search(r"default:\s*(False|''|)\)", re.sub(r"[│\s]+", " ", text))
    assert re.search(r"\n\nExample: tsadapt [^\n]*\n\n", text)  # a paragraph of its own


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "reproduce"])
def test_placeholders_are_the_same_in_every_verb(monkeypatch, capsys, verb, fit_help):
    there, known = flags(help_of(verb, monkeypatch, capsys)), flags(fit_help)
    for flag in ({*there} & {*known}) - {"help"}:
        placeholder = re.match(r"[A-Z]+\b(?! [a-z])|\{[^}]*\}|", known[flag])[0]
        assert there[flag].startswith(placeholder), flag
    assert not [flag for flag, text in there.items() if re.match(r"\[?(STR|INT|FLOAT)\b", text)]


def test_every_setting_has_a_flag_with_its_default(fit_help):
    there = flags(fit_help)
    assert {"lambda0", "estimator", "samples", "reversal", "seed", "device"} <= set(all_settings())
    for name, one in all_settings().items():
        flag = (one.flag or name).replace("_", "-")
        if bool in one.kinds:
            switches = [switch.replace("_", "-") for switch in one.switches]
            assert set(switches or [f"no-{flag}" if one.default is True else flag]) <= set(there), name
            continue
        if not one.shown:
            default = one.default
            assert shown(fit_help, flag) == (f"{default:g}" if isinstance(default, float) else str(default)), name
        else:
            assert shown(fit_help, flag) == one.shown


def test_the_terms_that_there_are_stand_in_the_help(fit_help):
    there = flags(fit_help)
    for flag, registry in (("method", METHODS), ("source-term", SOURCE_TERMS), ("target-term", TARGET_TERMS)):
        assert f"Available: {', '.join(registry)}." in there[flag]
    assert "[isda, sampled, t2sa, tsa]" in there["lambda0"]  # whose setting it is


def test_the_steps_by_the_data_are_those_of_the_networks(fit_help):
    numbers = {int(word) for word in re.findall(r"\d+", shown(fit_help, "steps"))}
    assert numbers == {NETWORKS[network].length.adapted for network in CHOSEN} | {TRAINED_LENGTH.adapted}


@pytest.mark.parametrize("name", ["batch_size", "lr", "weight_decay"])
def test_defaults_by_the_data_are_those_of_the_networks(fit_help, name):
    said = shown(fit_help, name.replace("_", "-"))
    numbers = {float(word) for word in re.findall(r"\d+(?:\.\d+)?", said)}
    known = {float(NETWORKS[network].defaults[name]) for network in CHOSEN} | {float(TRAINED_BACKBONE[name])}
    assert numbers == known
    # The plain one, for vectors and features, comes first.
    assert float(re.match(r"[\d.]+", said)[0].rstrip(".")) == NETWORKS["mlp"].defaults[name]
    trained = re.search(r"([\d.]+) with the backbone trained", said)
    assert float(trained[1] if trained else re.match(r"[\d.]+", said)[0]) == TRAINED_BACKBONE[name]


def test_a_sweep_shows_its_own_defaults(monkeypatch, capsys, fit_help):
    text = help_of("sweep", monkeypatch, capsys)
    assert (shown(fit_help, "holdout"), shown(text, "holdout")) == ("0", "0.1")
    assert (shown(fit_help, "source-term"), shown(text, "source-term")) == ("ce", "tsa")
    assert (shown(text, "target-term"), shown(text, "out")) == ("mi", "runs/sweep-HASH")
    assert set(flags(fit_help)) <= set(flags(text))


def test_every_setting_of_a_run_has_a_group():
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
