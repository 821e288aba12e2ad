"""Completion in the shells themselves, where they are installed."""

import shutil
import subprocess

import pytest

from tsadapt.cli import VERBS, main
from tsadapt.objectives.base import METHODS


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The scripts of the three shells."""
    folder, made = tmp_path_factory.mktemp("completion"), {}
    for shell in ("bash", "zsh", "fish"):
        path = folder / f"tsadapt.{shell}"
        with pytest.MonkeyPatch.context() as patch, path.open("w") as file:
            patch.setattr("sys.stdout", file)
            assert main(["completion", shell]) == 0
        made[shell] = path
    return made


def run(*words):
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def offered(scripts, line):
    """What bash offers after a line."""
    words = line.split(" ")
    listed = " ".join(f"'{word}'" for word in words)
    code = f"source {scripts['bash']}; COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _tsadapt; "
    return run("bash", "-c", code + 'printf "%s\\n" "${COMPREPLY[@]}"').split()


def test_bash_offers_verbs_options_and_values(scripts):
    assert offered(scripts, "tsadapt ") == [*(verb for verb in VERBS if verb != "reproduce"), "--help", "--version"]
    assert offered(scripts, "tsadapt pre") == ["predict"]
    assert {"--method", "--tsa", "--id-column", "--lambda0"} <= {*offered(scripts, "tsadapt fit a b --")}
    assert "--grid" not in offered(scripts, "tsadapt fit --")
    assert "--grid" in offered(scripts, "tsadapt sweep --")
    assert offered(scripts, "tsadapt fit --method ") == [*sorted(METHODS)]
    assert offered(scripts, "tsadapt predict --use s") == ["selected"]
    assert offered(scripts, "tsadapt list back") == ["backbones"]
    assert offered(scripts, "tsadapt fit --out ") == []  # then bash offers files
    assert offered(scripts, "tsadapt cache cl") == ["clear"]


def test_fish_offers_the_same(scripts):
    def complete(line):
        said = run("fish", "--no-config", "-c", f"source {scripts['fish']}; complete -C '{line}'")
        return [one.partition("\t")[0] for one in said.splitlines()]

    assert complete("tsadapt pre") == ["predict"]
    assert complete("tsadapt predict --us") == ["--use"]
    assert complete("tsadapt predict --use ") == ["last", "selected"]
    assert complete("tsadapt list back") == ["backbones"]


def test_zsh_reads_its_script(scripts):
    run("zsh", "-f", "-n", str(scripts["zsh"]))
    text = scripts["zsh"].read_text()
    assert text.startswith("#compdef tsadapt")
    code = f"autoload -Uz compinit; compinit -D; source {scripts['zsh']}; print $_comps[tsadapt]"
    assert run("zsh", "-f", "-c", code).strip() == "_tsadapt"


def test_an_unknown_shell_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["completion", "tcsh"])
    assert "tcsh" in capsys.readouterr().err
