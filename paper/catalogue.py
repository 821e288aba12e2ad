"""Every table and figure of the paper that `tsadapt reproduce` makes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paper.augmented import augmented_images, settings_of_picture, tell_augmented
from paper.bound import bound_ingredients
from paper.drawing import Curves
from paper.embedding import plane_of_run
from paper.extras import Section, bound_table, costs, footprints
from paper.figures import (
    boundary_of_run,
    draw_bias,
    draw_moons,
    draw_planes,
    draw_surfaces,
    tell_bias,
    watch_bias,
)
from paper.neighbours import tell_neighbours, train_and_find_neighbours
from paper.results_file import Kept
from paper.rows import ABLATION, MEMORY, MI, SAMPLES, STRESS, STRESS_CURVES, TSA, Row, base_rows
from paper.tables import Measure
from tsadapt.config import RunConfig

__all__ = ["RECIPES", "Recipe"]

BETAS = (0.01, 0.05, 0.1, 0.15, 0.2)
GRID = [(l0, beta) for l0 in (0.1, 0.25, 0.5, 0.75, 1.0) for beta in BETAS]
BASES = ("source-only", "dann", "cdan+e", "bsp")
METHODS = "base methods, each plain, with MI and with TSA"


@dataclass(frozen=True)
class Recipe:
    """A table or figure: its rows, where the paper makes it, and what is made of the runs beside their accuracies.

    `measure` adds to what is kept of a run; `extra` gives a section of the page and its numbers; `curves` has the rows
    drawn as curves, and `draw` makes the picture where it is none of the common ones. `alone` does the work of a run by
    itself, given a folder to work in and the path (without suffix) of its pictures, and `settings` says what that
    depends on beside the config; `tell` makes a section of what was kept. `elsewhere` has the tasks at other places,
    `only` the places where it can be made at all (empty: everywhere), `more_seconds` is about what a run takes beside
    its training, and `note` says what a reader of the page must know.
    """

    what: str
    home: str
    rows: list[Row]
    columns: tuple[str, ...] | None = None
    seeds: tuple[int, ...] = (0, 1, 2)
    measure: Measure | None = None
    extra: Callable[..., Section] | None = None
    curves: Curves | None = None
    draw: Callable[[Kept, list[Row], Path], None] | None = None
    alone: Callable[[RunConfig, Path, Path, bool], dict[str, Any]] | None = None
    settings: Callable[[RunConfig, bool], dict[str, Any]] | None = None
    tell: Callable[[Kept], str] | None = None
    elsewhere: dict[str, tuple[str, ...]] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    more_seconds: float = 0.0
    note: str = ""


RECIPES = {
    "table1": Recipe(METHODS, "office-home", base_rows(BASES, "ResNet-50")),
    "table2": Recipe(METHODS, "office31", base_rows(BASES, "ResNet-50")),
    "table3": Recipe(METHODS, "visda", base_rows(BASES, "ResNet-101")),
    "table4": Recipe(METHODS, "digits", base_rows(("source-only", "dann", "cdan+e", "jada"))),
    "table5": Recipe("what the parts of TSA do, on top of DANN", "office31", ABLATION),
    "table-memory": Recipe(
        "what the memory costs and gains, beside iterative statistics", "office31", MEMORY, extra=footprints
    ),
    "table-stress": Recipe(
        "how much target data is needed", "office31", STRESS, curves=Curves("ρ, %", STRESS_CURVES),
        note="ρ is the share of the target's rows that training sees, drawn once for each seed: uniformly, or so many"
        " of every class, which takes target labels (oracle-stratified, the paper's way). All target rows are judged."
        " Rows are source-only +TSA where nothing else is said.",
    ),
    "table-bound": Recipe(
        "the ingredients of the theory: source error, domain distance, joint error (oracle)", "office31",
        base_rows(("source-only", "dann", "cdan+e"), "ResNet-50"), measure=bound_ingredients, extra=bound_table,
    ),
    "table-samples": Recipe(
        "explicit copies against the closed form: accuracy and cost", "office31", SAMPLES, extra=costs
    ),
    "figure-moons": Recipe(
        "boundaries on two moons", "moons", base_rows(("source-only", "dann")), seeds=tuple(range(100, 110)),
        measure=boundary_of_run, draw=draw_moons, only=("moons",),
    ),
    "figure-bias": Recipe(
        "how far the memory's and the iterative estimates lie from the ideal, epoch by epoch", "office31",
        [Row("source-only +TSA", TSA)], columns=("D → A",), alone=watch_bias, draw=draw_bias, tell=tell_bias,
        note="The ideal is of a fresh pass of all rows through the network as it stands. Distances are means over the"
        " classes of ‖Δμ − ideal‖₂ and ‖Σ − ideal‖_F, in the units of the features.",
        elsewhere={"pacs": ("P → C",), "digits": ("U → M",), "digits-small": ("UCI → MNIST-5k",)},
    ),
    "figure-augmented": Recipe(
        "augmented features as images, by a WGAN-GP and reverse mapping", "digits",
        [Row("source-only +TSA", TSA)], columns=("SV → M",), seeds=(0,), alone=augmented_images,
        settings=settings_of_picture, tell=tell_augmented,
        note="G is the generator, z its input, and the search for z has two stages: the first rebuilds a source image,"
        " the second goes from there to its augmented feature (docs/augmented.md).",
        elsewhere={"digits-small": ("UCI → MNIST-5k",)}, only=("digits", "digits-small"), more_seconds=3600,
    ),
    "figure-neighbours": Recipe(
        "augmented features by the real images nearest to them, without a generator", "digits",
        [Row("source-only +TSA", TSA)], columns=("SV → M",), seeds=(0,), alone=train_and_find_neighbours,
        tell=tell_neighbours, elsewhere={"office-caltech": ("A → W",), "digits-small": ("UCI → MNIST-5k",)},
        only=("digits", "digits-small", "office-caltech-images", "office31", "office-home", "visda"),
    ),
    "figure-sensitivity": Recipe(
        "accuracy over λ0 and β, base CDAN+E (λ0 = 0: mutual information alone)", "office-home",
        [Row(f"λ0 = {l0}, β = {b}", {"method": "cdan+e", **TSA, "lambda0": l0, "beta": b}) for l0, b in GRID]
        + [Row(f"CDAN+E +MI, β = {b}", {"method": "cdan+e", **MI, "beta": b}) for b in BETAS]
        + [Row("source-only", {}), Row("CDAN+E", {"method": "cdan+e"})],
        columns=("Ar → Pr", "Cl → Rw"), seeds=(0,), draw=draw_surfaces,
        elsewhere={"office-caltech": ("A → C", "C → D"), "pacs": ("P → C", "C → A"), "digits": ("U → M",)},
    ),
    "figure-tsne": Recipe(
        "features in a plane: DANN and CDAN+E, each plain, with MI and with TSA", "office31",
        base_rows(("dann", "cdan+e")),
        columns=("A → W",), seeds=(0,), measure=plane_of_run, draw=draw_planes,
        elsewhere={"pacs": ("P → C",), "digits": ("U → M",), "digits-small": ("UCI → MNIST-5k",)},
    ),
}  # fmt: skip
"""By the names that `tsadapt reproduce` has for them."""
