"""How flags, config files and shorthands become a run's config."""

import json
from pathlib import Path

import pytest
from tests.configs import run_config

from tsadapt.cli import main
from tsadapt.config import read_config
from tsadapt.objectives.base import METHODS, SOURCE_TERMS, TARGET_TERMS, TargetTerm
from tsadapt.objectives.objective import full_settings
from tsadapt.settings import setting

SHORT = ["--steps", "4", "--batch-size", "16", "--bottleneck", "8", "--device", "cpu", "--quiet"]


class Sure(TargetTerm):
    """Confident predictions, as a second target term; it shares the name of a setting with TSA."""

    lambda0: float = setting(0.25, "Strength of the augmentation at the end of training (λ0).", at_least=0)

    def forward(self, out):
        return -self.lambda0 * out.target.logits.float().softmax(1).amax(1).mean()


@pytest.fixture
def sure():
    TARGET_TERMS.register("sure")(Sure)
    yield "sure"
    TARGET_TERMS.forget("sure")


@pytest.fixture
def fitted(here):
    """The config of a short run by some flags."""
    count = []

    def run(*words, status=0):
        count.append(words)
        out = Path(f"run{len(count)}")
        assert main(["fit", "source.npz", "target.npz", *words, *SHORT, "--out", str(out)]) == status
        return read_config(out / "config.toml") if status == 0 else out

    return run


@pytest.mark.parametrize(
    ("words", "terms"),
    [
        ((), ("ce", "source-only")),
        (("--tsa",), ("tsa", "mi", "source-only")),
        (("--tsa", "--no-mi"), ("tsa", "source-only")),
        (("--mi",), ("ce", "mi", "source-only")),
        (("--mi", "--source-term", "isda", "--method", "dann"), ("isda", "mi", "dann")),
        (("--source-term", "tsa", "--target-term", "mi"), ("tsa", "mi", "source-only")),
        (("--target-term", "mi", "--no-mi"), ("ce", "source-only")),
    ],
)
def test_shorthands(fitted, words, terms):
    assert fitted(*words).terms == terms


def test_a_target_term_can_be_repeated(fitted, sure, capsys):
    assert fitted("--target-term", "mi", "--target-term", sure).target_terms == ("mi", "sure")
    assert fitted("--target-term", sure, "--mi").target_terms == ("sure", "mi")
    assert {"mi", "sure"} <= set(json.loads(Path("run1/records.jsonl").read_text().splitlines()[-1]))
    out = fitted("--target-term", "mi", "--target-term", "mi", status=2)
    assert not out.exists()
    assert "once" in capsys.readouterr().err


def test_a_setting_of_one_term_alone(fitted, sure):
    words = ("--tsa", "--target-term", sure)
    assert fitted(*words, "--set", "tsa.lambda0=0.5").settings == {"tsa": {"lambda0": 0.5}}
    both = fitted(*words, "--lambda0", "0.75", "--set", "sure.lambda0=0.125", "--set", "tsa.mean-shift=false")
    assert both.settings == {"tsa": {"lambda0": 0.75, "mean_shift": False}, "sure": {"lambda0": 0.125}}
    several = fitted(*words, "--lambda0", "0.75")
    assert several.settings == {"tsa": {"lambda0": 0.75}, "sure": {"lambda0": 0.75}}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "tsa.lamda0=0.5"), "lambda0"),
        (("--set", "tsaa.lambda0=0.5"), "tsaa"),
        (("--set", "lambda0=0.5"), "TERM.NAME=VALUE"),
        (("--set", "tsa.lambda0"), "TERM.NAME=VALUE"),
        (("--set", "tsa.lambda0=much"), "'much', expected a number"),
        (("--set", "tsa.lambda0=-1"), "zero or more"),
        (("--set", "mi.lambda0=1"), "setting of mi 'lambda0'"),
        (("--target-term", "mii"), "Did you mean 'mi'"),
        (("--source-term", "tsb"), "Did you mean 'tsa'"),
        (("--method", "cdane"), "Did you mean 'cdan"),
        (("--term-weight", "mi"), "NAME=NUMBER"),
        (("--term-weight", "mj=1"), "Did you mean 'mi'"),
        (("--covariance", "target", "--no-covariance"), "contradict"),
        (("--freeze-backbone", "--no-freeze-backbone"), "contradict"),
    ],
)
def test_unknown_names_and_bad_values_are_one_line(fitted, capsys, words, said):
    source = () if "--source-term" in words else ("--tsa",)
    out = fitted(*source, *words, status=2)
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert not out.exists()


def test_a_setting_that_the_run_does_not_use_is_noted(fitted, capsys):
    assert fitted("--lambda0", "0.5", "--set", "mi.beta=0.3").settings == {}
    notes = [line for line in capsys.readouterr().err.splitlines() if "not used" in line]
    assert len(notes) == 2
    assert "tsa" in notes[0]
    assert "mi" in notes[1]


def test_sharpness_aware_steps_are_two_flags(fitted, capsys):
    config = fitted("--method", "dann", "--sdat", "--sdat-rho", "0.1")
    assert (config.sdat, config.sdat_rho) == (True, 0.1)
    Path("c.toml").write_text("sdat = true\n")
    assert fitted("--config", "c.toml") == fitted("--sdat")
    capsys.readouterr()
    plain = fitted("--sdat-rho", "0.1")
    assert plain == fitted()
    assert "sdat_rho is not used" in capsys.readouterr().err
    fitted("--sdat", "--sdat-rho", "0", status=2)
    assert "sdat_rho is 0.0, expected more than zero." in capsys.readouterr().err


def test_flags_win_over_the_file_and_the_file_over_defaults(fitted):
    Path("c.toml").write_text(
        'source_term = "tsa"\ntarget_terms = ["mi"]\nseed = 3\n\n[settings.tsa]\nlambda0 = 0.5\nmin_count = 2\n'
        '\n[settings.mi.class_prior]\nant = 1\nbee = 2\n"cow" = 3\n'
    )
    config = fitted("--config", "c.toml", "--lambda0", "0.75", "--method", "dann")
    assert (config.seed, config.method, config.terms) == (3, "dann", ("tsa", "mi", "dann"))
    assert config.settings == {
        "tsa": {"lambda0": 0.75, "min_count": 2},
        "mi": {"class_prior": {"ant": 1.0, "bee": 2.0, "cow": 3.0}},
    }
    assert main(["fit", "--config", "run1/config.toml", "--out", "run1", "--quiet"]) == 0


def test_settings_in_a_file_by_their_plain_names(fitted):
    Path("c.toml").write_text("tsa = true\nlambda0 = 0.5\nbeta = 0.2\n")
    assert fitted("--config", "c.toml").settings == {"tsa": {"lambda0": 0.5}, "mi": {"beta": 0.2}}


def test_a_class_prior_as_a_table_and_as_a_file_is_one_run(fitted, here, capsys):
    shares = {"ant": 2, "bee": 1, "cow": 1}
    Path("p.json").write_text(json.dumps(shares))
    Path("c.toml").write_text("[settings.mi.class_prior]\nant = 2\nbee = 1\ncow = 1\n")
    by_file = fitted("--mi", "--class-prior", "p.json")
    by_toml = fitted("--mi", "--config", "c.toml")
    in_python = run_config("source.npz", "target.npz", mi=True, class_prior=shares)
    assert by_file == by_toml
    assert by_file.settings == in_python.settings == {"mi": {"class_prior": {"ant": 2.0, "bee": 1.0, "cow": 1.0}}}
    Path("p.json").unlink()  # the run has all it needs
    assert main(["fit", "--config", "run1/config.toml", "--out", "run1", "--quiet"]) == 0
    assert "already done" in capsys.readouterr().err
    for text, said in (('{"ant": 1}', "bee, cow"), ("[1]", "class_prior"), ("{", "not JSON")):
        Path("p.json").write_text(text)
        capsys.readouterr()
        fitted("--mi", "--class-prior", "p.json", status=2)
        assert said in capsys.readouterr().err


def larger(one):
    more = (one.default or 0) + 1
    return more if one.at_most is None else min(more, one.at_most)


def test_every_setting_of_every_term_can_be_given(here):
    """By its flag, and read back out of the run's config."""
    for registry, words in (
        (SOURCE_TERMS, lambda name: ["--source-term", name]),
        (TARGET_TERMS, lambda name: ["--target-term", name]),
        (METHODS, lambda name: ["--method", name]),
    ):
        for term in registry:
            flags, expected = [], {}
            fixed = {"class_prior": "source"}
            if "purity_strength" in registry[term].settings:  # which needs the rows that a memory has
                fixed["estimator"] = "memory"
            for one in registry[term].settings.values():
                flag = f"--{(one.flag or one.name).replace('_', '-')}"
                if one.kinds == (bool,):
                    flags.append(flag.replace("--", "--no-") if one.default else flag)
                    expected[one.name] = not one.default
                    continue
                value = fixed.get(one.name) or (one.choices[-1] if one.choices else larger(one))
                flags += [flag, str(value)]
                expected[one.name] = value
            assert main(["fit", "source.npz", "target.npz", *words(term), *flags, *SHORT, "--out", f"of {term}"]) == 0
            assert full_settings(read_config(Path(f"of {term}", "config.toml")))[term] == expected
