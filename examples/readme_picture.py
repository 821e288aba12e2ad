"""The README's picture: MNIST digits as a classifier of UCI digits sees them, before and after adaptation.

    python examples/readme_picture.py                # writes docs/adaptation.png, in a minute or two

Every accuracy in it is of the last step of the run that drew it. Target labels colour the points and judge the digits.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from sklearn.manifold import TSNE

import tsadapt
from tsadapt.data.open import open_dataset
from tsadapt.data.types import Domain
from tsadapt.report.figures import pyplot, write_figure

RUNS: dict[str, dict[str, Any]] = {"source only": {}, "+ mutual information": {"mi": True}, "+ TSA": {"tsa": True}}
DRAWN = {"source only": "Source only", "+ TSA": "Adapted with TSA"}
RIGHT, WRONG, PLAIN = "#2e7d32", "#d32f2f", "0.6"
POINTS = 700
"""Features of each domain in a plane, drawn at random."""


def draw(models: dict[str, tsadapt.TrainedModel], source: Domain, target: Domain, path: Path) -> None:
    """The two domains on the left; for each model its features, and its answers to the same digits."""
    plt = pyplot()
    colours = np.array(plt.get_cmap("tab10").colors)
    y_s, y_t = _labels(source), _labels(target)
    rng = np.random.default_rng(0)
    some_s, some_t = rng.permutation(len(y_s))[:POINTS], rng.permutation(len(y_t))[:POINTS]
    figure = plt.figure(figsize=(10.4, 4.95))
    left, *columns = figure.add_gridspec(
        1, 3, width_ratios=[0.6, 1, 1], left=0.012, right=0.988, top=0.93, bottom=0.08, wspace=0.06
    )
    above, below = left.subgridspec(2, 1, hspace=0.21)
    shown = _first_of_each(y_s, 2)
    _tiles(figure, above, source, shown, 5, "UCI digits, labelled", [(str(y_s[r]), PLAIN) for r in shown])
    shown = _first_of_each(y_t, 3)
    _tiles(figure, below, target, shown[:20], 5, "MNIST, no labels", [("?", PLAIN)] * 20)
    for column, (name, title) in zip(columns, DRAWN.items(), strict=True):
        model = models[name]
        above, below = column.subgridspec(2, 1, height_ratios=[2.35, 1], hspace=0.04)
        features = np.concatenate([model.transform(source)[some_s], model.transform(target)[some_t]])
        plane = TSNE(random_state=0, init="pca").fit_transform(features)
        axis = figure.add_subplot(above, xticks=[], yticks=[])
        axis.spines[:].set_color("0.7")
        axis.scatter(*plane[POINTS:].T, s=9, c=colours[y_t[some_t]], linewidths=0)
        axis.scatter(*plane[:POINTS].T, s=15, facecolors="none", edgecolors=colours[y_s[some_s]], linewidths=0.7)
        predicted = model.predict(target).astype(int)
        axis.set_title(f"{title}: {np.mean(predicted == y_t):.0%} of MNIST right", size=12.5, weight="bold", pad=8)
        answers = [(str(predicted[r]), RIGHT if predicted[r] == y_t[r] else WRONG) for r in shown]
        _tiles(figure, below, target, shown, 10, "", answers)
    dot: dict[str, Any] = {"marker": "o", "linestyle": "", "color": "0.25"}
    square: dict[str, Any] = {"marker": "s", "linestyle": "", "markersize": 7}
    handles = [
        Line2D([], [], markerfacecolor="none", markersize=5, label="source", **dot),
        Line2D([], [], markersize=4, label="target, coloured by true digit (t-SNE of features)", **dot),
        Line2D([], [], color=RIGHT, label="right answer", **square),
        Line2D([], [], color=WRONG, label="wrong answer", **square),
    ]
    figure.legend(
        handles=handles, loc="lower center", ncols=4, frameon=False, bbox_to_anchor=(0.615, 0), fontsize=10,
        handletextpad=0.2, columnspacing=1.2,
    )  # fmt: skip
    write_figure(figure, path)


def _tiles(
    figure: Any, cell: Any, domain: Domain, rows: Any, width: int, title: str, captions: list[tuple[str, str]]
) -> None:
    """Images, `width` of them in a line, each with a word and the colour of its frame."""
    inner = cell.subgridspec(len(rows) // width, width, wspace=0.06, hspace=0.06)
    for place, row, (word, colour) in zip(inner, rows, captions, strict=True):
        axis = figure.add_subplot(place, xticks=[], yticks=[])
        axis.imshow(domain.tensor[int(row)].squeeze().numpy(), cmap="gray_r", aspect="auto")
        axis.text(
            0.96, 0.05, word, transform=axis.transAxes, ha="right", va="bottom", weight="bold", size=10,
            color="black" if colour == PLAIN else colour, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip
        axis.spines[:].set(color=colour, linewidth=0.8 if colour == PLAIN else 1.8)
    if title:
        frame = figure.add_subplot(cell, frameon=False, xticks=[], yticks=[])
        frame.set_title(title, size=12.5, weight="bold", pad=8)


def _labels(domain: Domain) -> np.ndarray:
    assert domain.y is not None
    return domain.y.numpy()


def _first_of_each(labels: np.ndarray, n: int) -> np.ndarray:
    """The first n rows of every digit, digit after digit: nobody chose them."""
    return np.stack([np.flatnonzero(labels == digit)[:n] for digit in range(10)], axis=1).ravel()


def main(
    out: Path = Path("docs/adaptation.png"), runs: Path = Path("runs/readme"), steps: int = 1500, **settings: Any
) -> None:
    """Train, each for the same steps, print the accuracies, and draw."""
    models = {}
    for name, objective in RUNS.items():
        folder = runs / name.replace(" ", "-")
        models[name] = tsadapt.fit("digits:uci", "digits:mnist-5k", out=folder, steps=steps, **objective, **settings)
        print(f"{name:<22} {models[name].metrics['last']['target']['accuracy']:.1%} of the target")
    draw(models, open_dataset("digits:uci").test, open_dataset("digits:mnist-5k").test, out)
    print(f"written: {out}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/adaptation.png"))
    main(parser.parse_args().out)
