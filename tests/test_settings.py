"""One setting: the types it takes, its limits, and what a word on the command line becomes."""

from typing import Any, Literal

import numpy as np
import pytest

from tsadapt.errors import UserError
from tsadapt.settings import Setting, declared_settings, setting


def one(kind, default=None, **details):
    return Setting("depth", kind, default, "How deep.", **details)


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        (int, 3, 3),
        (float, 3, 3.0),
        (float, 0.5, 0.5),
        (bool, True, True),
        (str, "a", "a"),
        (int | None, 3, 3),
        (tuple[str, ...], ["a", "b"], ("a", "b")),
        (tuple[str, ...], (), ()),
        (dict[str, float], {"a": 1}, {"a": 1.0}),
        (str | dict[str, float], "uniform", "uniform"),
        (str | dict[str, float], {"a b": 2}, {"a b": 2.0}),
        (Literal["x", "y"], "x", "x"),
    ],
)
def test_values_in_their_types(kind, given, kept):
    found = one(kind, default=kept).check(given)
    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (int, 3.0, "a whole number"),
        (int, True, "a whole number"),
        (int, "3", "a whole number"),
        (float, True, "a number"),
        (float, "much", "a number"),
        (bool, 1, "true or false"),
        (bool, "true", "true or false"),
        (str, 3, "text"),
        (int, None, "a whole number"),
        (tuple[str, ...], "ab", "a list of names"),
        (tuple[str, ...], [1], "a list of names"),
        (dict[str, float], {"a": "1"}, "a table of numbers by name"),
        (dict[str, float], {"a": True}, "a table of numbers by name"),
        (str | dict[str, float], 3, "text or a table of numbers by name"),
        (Literal["x", "y"], 3, "'x', 'y'"),
    ],
)
def test_other_types_are_refused_by_name(kind, given, expected):
    with pytest.raises(UserError) as error:
        one(kind, default=0).check(given)
    assert "depth" in str(error.value)
    assert repr(given) in str(error.value)
    assert expected in str(error.value)


def test_none_where_it_is_a_value():
    assert one(int | None, default=3).check(None) is None
    assert one(int, default=None).check(None) is None


def test_a_value_out_of_a_list_gets_the_nearest_one():
    with pytest.raises(UserError, match="Did you mean 'memory'"):
        one(Literal["memory", "iterative"], default="memory").check("memmory")


@pytest.mark.parametrize(
    ("limits", "good", "bad", "said"),
    [
        ({"at_least": 0}, (0, 1e9), (-0.1,), "zero or more"),
        ({"above": 0}, (1e-9,), (0, -1), "more than zero"),
        ({"at_most": 2}, (2, -5), (2.1,), "at most 2"),
        ({"at_least": 0, "at_most": 0.5}, (0, 0.5), (-0.1, 0.6), "from zero to 0.5"),
        ({"above": 0, "at_most": 1}, (1,), (0,), "more than zero"),
        ({"above": 0, "at_most": 1}, (0.5,), (1.1,), "at most 1"),
        ({}, (-1e300,), (float("nan"), float("inf")), "a finite number"),
    ],
)
def test_limits(limits, good, bad, said):
    made = one(float, default=0.0, **limits)
    for value in good:
        assert made.check(value) == value
    for value in bad:
        with pytest.raises(UserError, match=rf"depth is .*, expected.* {said}"):
            made.check(value)
    with pytest.raises(UserError, match=rf"tsa\.depth is .*, expected.* {said}"):
        made.check(bad[0], "tsa.")


def test_limits_of_whole_numbers_and_not_of_switches():
    assert one(int, default=1, at_least=1).check(1) == 1
    assert one(bool, default=True, at_least=1).check(False) is False
    with pytest.raises(UserError, match="9223372036854775807"):
        one(int, default=0, at_least=0, at_most=2**63 - 1).check(2**63)


@pytest.mark.parametrize(
    ("kind", "word", "value"),
    [
        (int, " 7 ", 7),
        (int | None, "7", 7),
        (float, "7", 7.0),
        (float, "1e-3", 1e-3),
        (bool, "True", True),
        (bool, "false", False),
        (str, "7", "7"),
        (str | dict[str, float], "source", "source"),
        (tuple[str, ...], "mi", ("mi",)),
        (tuple[str, ...], "mi+other", ("mi", "other")),
        (tuple[str, ...], "", ()),
        (Literal["x", "y"], "y", "y"),
    ],
)
def test_words(kind, word, value):
    found = one(kind, default=value).parse(word)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(("kind", "word"), [(int, "7.5"), (int, "many"), (float, "1,0"), (bool, "yes")])
def test_words_of_another_type(kind, word):
    with pytest.raises(UserError, match=f"depth is '{word}'"):
        one(kind, default=kind(0)).parse(word)


class Base:
    first: int = setting(1, "The first.", above=0)
    shares: dict[str, float] = setting({}, "By name.")
    no_setting: int = 3
    hint_alone: int


class Derived(Base):
    second: Literal["a", "b"] = setting("a", "The second.", switches={"b": "b"})


def test_declarations_are_those_of_the_body():
    assert list(declared_settings(Base)) == ["first", "shares"]
    assert declared_settings(Base)["first"] == Setting("first", int, 1, "The first.", above=0)
    assert declared_settings(Derived)["second"].choices == ("a", "b")
    assert list(declared_settings(Derived)) == ["second"]


def test_a_default_that_can_change_is_not_shared():
    shares: Any = [declared_settings(Base)["shares"].default for _ in range(2)]
    shares[0]["a"] = 1.0
    assert shares[1] == {}


def test_numbers_of_numpy_are_numbers():
    assert Setting("lr", float, 0.1, "").check(np.float32(0.5)) == 0.5
    assert type(Setting("lr", float, 0.1, "").check(np.float64(0.5))) is float
    assert type(Setting("steps", int | None, None, "").check(np.int64(3))) is int
    assert Setting("on", bool, False, "").check(np.True_) is True
    assert Setting("prior", dict[str, float], {}, "").check({1: np.float64(1)}) == {"1": 1.0}
    with pytest.raises(UserError, match="a whole number"):
        Setting("steps", int, 1, "").check(np.float64(3.0))
