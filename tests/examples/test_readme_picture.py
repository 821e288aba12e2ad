from examples import readme_picture
from matplotlib import image


def test_it_draws_what_it_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(readme_picture, "POINTS", 60)
    readme_picture.main(tmp_path / "picture.png", tmp_path / "runs", steps=20)
    picture = image.imread(tmp_path / "picture.png")
    assert picture.shape[1] > 1000
    assert picture.std() > 0.1
    printed = capsys.readouterr().out
    assert all(f"{name} " in printed for name in readme_picture.RUNS)


def test_the_digits_shown_are_the_first_of_each_class():
    labels = readme_picture.np.arange(40) % 10
    assert readme_picture._first_of_each(labels, 2).tolist() == [*range(20)]
