import pytest

from tsadapt.cli import main
from tsadapt.config import RunConfig
from tsadapt.errors import UserError
from tsadapt.objectives.objective import setting_named, with_settings
from tsadapt.presets import PRESETS

BASE = RunConfig("a", "b")


def test_paper_is_what_tsa_stands_for():
    assert with_settings(BASE, preset="paper") == with_settings(BASE, tsa=True)
    assert with_settings(BASE, preset="paper").hash() == with_settings(BASE, tsa=True).hash()


@pytest.mark.parametrize("name", PRESETS)
def test_every_setting_of_a_preset_is_known_and_used(name):
    said = []
    config = with_settings(BASE, said.append, preset=name)
    assert said == []
    for setting, value in PRESETS[name].settings.items():
        setting_named(setting).check(value)
    assert config != BASE


def test_what_is_given_beats_the_preset():
    config = with_settings(BASE, preset="paper", beta=0.25, method="dann")
    assert config.method == "dann"
    assert config.settings["mi"]["beta"] == 0.25
    assert config.source_term == "tsa"
    assert with_settings(BASE, preset="strong", target_terms=("mcc",)).target_terms == ("mcc",)


def test_an_unknown_preset_is_named():
    with pytest.raises(UserError, match=r"'storng'.*strong"):
        with_settings(BASE, preset="storng")


def test_fit_takes_a_preset_and_flags_beside_it(tmp_path, capsys):
    words = ["digits:uci", "digits:mnist-5k", "--steps", "2", "--quiet", "--preset", "strong", "--atdoc-weight", "0.3"]
    assert main(["fit", *words, "--out", str(tmp_path / "run")]) == 0
    config = (tmp_path / "run" / "config.toml").read_text()
    assert "atdoc_weight = 0.3" in config
    assert 'target_terms = ["atdoc"]' in config
    assert main(["fit", *words[:-4], "--preset", "stronk", "--out", str(tmp_path / "other")]) == 2
    assert "stronk" in capsys.readouterr().err


def test_presets_are_listed(capsys):
    assert main(["list", "presets"]) == 0
    assert "target_terms = atdoc" in capsys.readouterr().out
