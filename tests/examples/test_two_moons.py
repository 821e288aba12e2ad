import json
import math

import pytest
from examples import two_moons
from matplotlib import image


def test_small_run_writes_numbers_and_a_picture(tmp_path, capsys):
    result = two_moons.run(seeds=2, steps=30, out=tmp_path)
    assert set(result["target"]) == {"source-only", "+MI", "+TSA"}
    assert all(math.isfinite(value) for values in result["target"].values() for value in values)
    saved = json.loads((tmp_path / "two-moons.json").read_text())
    assert saved["target"] == result["target"]
    assert "--seeds 2 --first-seed 100 --steps 30" in saved["command"]
    picture = image.imread(tmp_path / "two-moons.png")
    assert picture.shape[0] > 200
    assert picture.std() > 0.1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["two-moons.json", "two-moons.png"]
    assert "+TSA" in capsys.readouterr().out


@pytest.mark.parametrize("lambda0", [0.25, 1.0])
def test_normalised_features_survive_a_large_lambda0(lambda0):
    result = two_moons.run(seeds=3, steps=300, lambda0=lambda0)
    tsa, plain = (sum(result["target"][method]) for method in ("+TSA", "source-only"))
    assert min(result["source"]["+TSA"]) > 95
    assert tsa > plain  # over the seeds together; a single one may end below


def test_without_normalisation_a_large_lambda0_collapses():
    """The failure that normalisation prevents: were it gone, the docstring of the example should say so."""
    data = two_moons.Moons(0)
    model = two_moons.train(data, "+TSA", seed=0, steps=1000, lambda0=1.0, normalised=False)
    assert two_moons.accuracy(model, data.x_t, data.y_t) <= 60
