import pytest

from tsadapt.adapt.portfolio import PORTFOLIO, REFERENCE, members
from tsadapt.config import RunConfig
from tsadapt.errors import UserError
from tsadapt.objectives.objective import check_objective, with_settings


def test_every_member_of_the_portfolio_is_a_run_and_no_two_are_the_same():
    configs = [with_settings(RunConfig("a", "b"), **settings) for settings in members(PORTFOLIO).values()]
    for config in configs:
        check_objective(config)
    assert len({config.hash() for config in configs}) == len(PORTFOLIO)


def test_source_only_comes_first_and_once():
    assert [*members(["dann", REFERENCE])] == [REFERENCE, "dann"]


def test_methods_and_target_terms_take_mi_and_tsa():
    found = members(["cdan+e", "cdan+e+tsa", "mcc", "mcc+tsa"])
    assert found["cdan+e"] == {"method": "cdan+e"}  # the method of that name, not cdan and something
    assert found["cdan+e+tsa"] == {"method": "cdan+e", "tsa": True}
    config = with_settings(RunConfig("a", "b"), **found["mcc+tsa"])
    assert (config.source_term, set(config.target_terms)) == ("tsa", {"mcc", "mi"})


@pytest.mark.parametrize("names", [["dan+x"], ["storng"], []])
def test_unknown_names(names):
    with pytest.raises(UserError):
        members(names)
