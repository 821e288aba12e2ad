"""What lists and pages say of terms is read from their classes."""

import pytest

from tsadapt.cli import main
from tsadapt.objectives.base import METHODS, SOURCE_TERMS, TARGET_TERMS, Method, TargetTerm
from tsadapt.report.terms import GROUPS, facts

REGISTRIES = (SOURCE_TERMS, TARGET_TERMS, METHODS)


def named(group):
    return {found.name: found for found in facts(group)}


def test_facts_of_source_terms():
    found = named("source terms")
    assert (found["ce"].year, found["ce"].needs, found["ce"].composes) == ("", "", "in its place")
    assert (found["tsa"].year, found["tsa"].needs) == ("2021", "target, memory, linear head")
    assert found["tsa"].composes == "it is TSA"
    assert found["isda"].needs == "memory, linear head"  # the source's, whose target is not needed


def test_facts_of_target_terms_and_methods():
    terms, methods = named("target terms"), named("methods")
    assert (terms["bnm"].year, terms["bnm"].needs, terms["bnm"].composes) == ("2020", "target", "yes")
    assert terms["shot"].needs == "target, memory"
    assert (methods["dann"].year, methods["dann"].kind, methods["dann"].needs) == ("2016", "one backward", "target")
    assert methods["dann"].terms == "`domain`"
    assert "`domain_smoothing` 0.0" in methods["dann"].settings
    assert methods["jada"].kind == "one backward, 2 heads"
    assert methods["mcd"].kind == "alternating, 2 heads"
    assert methods["mcd"].composes == "yes, for each head"
    assert methods["adabn"].needs == "target, batch normalisation"
    assert methods["source-only"].needs == ""
    assert methods["gsp"].needs == "target, POT (extra: gsp)"
    assert methods["adda"].composes == "yes, in the pretraining"
    # A setting that methods share, with a default of each one's own.
    assert "`pretraining` 0.5," in methods["adda"].settings
    assert "`pretraining` 0.2," in methods["etd"].settings
    assert "`pretraining` 0.2" in methods["gsp"].settings


@pytest.mark.parametrize("group", GROUPS)
def test_every_term_says_where_it_is_from_and_when_it_helps(group):
    for found in facts(group):
        assert len(found.practice.split()) > 30, found.name
        assert "assume" in found.practice, found.name
        assert found.cost, found.name
        if found.name not in ("ce", "source-only"):  # the baselines are nobody's
            assert found.paper, found.name
            assert found.year, found.name


class Curved(Method):
    """A head that is not linear."""

    linear = False
    cost = "three passes"
    practice = """Over
    two lines."""


class Later(TargetTerm):
    """A term of two papers."""

    paper = "A, 1999; B, ICML 2031 (arXiv 2029)"


def test_new_terms_are_described_by_what_they_declare(capsys):
    METHODS.register("curved")(Curved)
    TARGET_TERMS.register("later")(Later)
    try:
        curved = named("methods")["curved"]
        assert (curved.composes, curved.cost, curved.practice) == ("no", "three passes", "Over two lines.")
        assert main(["list", "methods", "curved"]) == 0
        said = capsys.readouterr().out.splitlines()
        assert said[0] == "methods"
        assert said[1].split() == ["name", "year", "kind", "needs", "cost", "TSA", "what", "it", "does"]
        assert said[2].split()[:6] == ["curved", "one", "backward", "target", "three", "passes"]
        assert len(said) == 3
        assert named("target terms")["later"].year == "2029"
    finally:
        METHODS.forget("curved")
        TARGET_TERMS.forget("later")


def test_methods_are_listed_with_all_terms_in_groups(capsys, monkeypatch):
    assert main(["list", "methods"]) == 0
    plain = capsys.readouterr().out
    assert [line for line in plain.splitlines() if line in GROUPS] == [*GROUPS]
    for registry in REGISTRIES:
        for name in registry:
            assert any(line.startswith(f"{name} ") for line in plain.splitlines()), name
    assert "\x1b" not in plain
    assert main(["list", "target-terms"]) == 0
    alone = capsys.readouterr().out
    assert "dann" not in alone
    assert "atdoc" in alone
    # A terminal gets columns that fold.
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")
    assert main(["list", "methods"]) == 0
    folded = capsys.readouterr().out
    assert max(map(len, folded.splitlines())) <= 100 < max(map(len, plain.splitlines()))
    assert "jada" in folded


def test_a_pattern_that_finds_nothing_is_refused(capsys):
    assert main(["list", "methods", "nothing-here"]) == 2
    assert "None of the source terms and target terms and methods has 'nothing-here'" in capsys.readouterr().err
