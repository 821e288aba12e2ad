import numpy as np
import pytest

from tsadapt.config import RunConfig
from tsadapt.errors import UserError
from tsadapt.sweep.plan import Planned, Range, draw, grid, parse_axis


def test_axes():
    assert parse_axis("lambda0=0.1, 0.25") == ("lambda0", (0.1, 0.25))
    assert parse_axis("mi=true,false") == ("mi", (True, False))
    assert parse_axis("method=dann,cdan+e") == ("method", ("dann", "cdan+e"))
    assert parse_axis("steps=10,20") == ("steps", (10, 20))
    assert parse_axis("target-term=mi,") == ("target_terms", (("mi",), ()))
    assert parse_axis("sdat=true,false") == ("sdat", (True, False))
    assert parse_axis("sdat-rho=0.01,0.05") == ("sdat_rho", (0.01, 0.05))
    assert parse_axis("lr=0.001..0.1:log") == ("lr", Range(0.001, 0.1, True))
    assert grid({"a": (1, 2), "b": (3, 4)}) == [{"a": 1, "b": 3}, {"a": 1, "b": 4}, {"a": 2, "b": 3}, {"a": 2, "b": 4}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lambda0", "expected NAME=VALUE"),
        ("lamda0=1", "Did you mean 'lambda0'"),
        ("lambda0=big", "lambda0 is 'big', expected a number"),
        ("beta=0.1,0.1", "twice"),
        ("lr=1..0.1", "expected a range"),
        ("lambda0=0..1:log", "above zero"),
        ("lr=0..1", "lr is 0.0, expected more than zero"),
        ("source=a,b", "Unknown setting 'source'"),
    ],
)
def test_bad_axes(text, message):
    with pytest.raises(UserError, match=message):
        parse_axis(text)


def test_draws_are_a_function_of_the_seed():
    axes = {"lambda0": (0.1, 0.25, 0.5), "beta": (0.01, 0.1)}
    assert draw(axes, 4, seed=1) == draw(axes, 4, seed=1) != draw(axes, 4, seed=2)
    assert len(draw(axes, 99, seed=1)) == 6  # there are no more
    drawn = draw({"lr": Range(1e-4, 1e-1, log=True), "method": ("dann", "bsp")}, 30, seed=0)
    rates = np.array([one["lr"] for one in drawn])
    assert ((rates >= 1e-4) & (rates <= 1e-1)).all()
    assert 0.2 < (rates < 3e-3).mean() < 0.8  # evenly by orders of magnitude
    with pytest.raises(UserError, match="--trials"):
        grid({"lr": Range(0.1, 0.2)})
    assert len(draw({"lr": Range(0.1, 0.10001)}, 5, seed=0)) == 1  # as many as four digits tell apart
    whole = draw(dict([parse_axis("steps=5..9")]), 4, seed=0)
    assert all(isinstance(one["steps"], int) and 5 <= one["steps"] <= 9 for one in whole)


def test_one_spelling_of_paths_is_one_run_of_a_sweep(here):
    base = RunConfig("source.npz", "target.npz", source_term="tsa")
    spelled = RunConfig(str(here / "source.npz"), "./target.npz", source_term="tsa")
    made, other = (Planned.of(one, {"lambda0": 0.5}, here / "s") for one in (base, spelled))
    assert made == other
    assert made.out.name == made.config.hash()
    assert made.config.source == str(here / "source.npz")
