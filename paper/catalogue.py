"""Every table, figure and study that `python -m paper` makes."""

from paper.analyses.augmented_images import augmented_images_of_job, describe_augmented_images, settings_of_picture
from paper.analyses.bias import bias_of_job, describe_bias, draw_bias
from paper.analyses.bound import bound_ingredients, bound_table
from paper.analyses.boundary import boundary_of_run, draw_moons
from paper.analyses.footprint import footprints
from paper.analyses.nearest_images import describe_nearest_images, nearest_images_of_job
from paper.analyses.pseudo_labels import augmentation_of_run, augmentation_table, watch_pseudo_labels
from paper.analyses.sensitivity import draw_surfaces
from paper.analyses.step_cost import costs
from paper.analyses.tsne import draw_planes, plane_of_run
from paper.analyses.worth import augmentation_worth
from paper.pictures import Curves
from paper.recipe import Recipe
from paper.rows import (
    ABLATION,
    ADABN,
    EMBEDDINGS,
    MEMORY,
    MI,
    NORMALISATION,
    SAMPLES,
    STRESS,
    STRESS_CURVES,
    TSA,
    VARIANTS,
    Row,
    base_rows,
)
from paper.studies.digit_rates import NOTE, choose_rate, describe_rates, draw_rates, settings_of_search
from paper.studies.embeddings_accuracy import (
    accuracy_of_job,
    describe_embeddings,
    draw_embeddings,
    settings_of_method,
)
from paper.studies.leaderboard import LEADERBOARD, describe_standing, draw_standing, finalists, step_ratios
from paper.studies.length import curve_of_job, describe_lengths, draw_lengths
from paper.studies.normalisation import normalised_accuracies, normalised_table
from paper.studies.preset import DESIGN_COLUMNS, SCREENED, describe_preset, draw_preset, ingredient_costs, stages
from paper.studies.selection_regret import POOL, describe_regrets, draw_choices, score_pool, settings_of_pool
from paper.studies.trust import CHANGED, measure_trust, settings_of_trust
from paper.studies.trust_page import describe_trust, draw_trust
from paper.studies.trust_runs import AS_IT_IS, TRAININGS

__all__ = ["RECIPES"]

BETAS = (0.01, 0.05, 0.1, 0.15, 0.2)
GRID = [(l0, beta) for l0 in (0.1, 0.25, 0.5, 0.75, 1.0) for beta in BETAS]
BASES = ("source-only", "dann", "cdan+e", "bsp")
METHODS = "base methods, each plain, with MI and with TSA"

RECIPES = {
    "table1": Recipe(METHODS, "office-home", base_rows(BASES, "ResNet-50")),
    "table2": Recipe(
        METHODS, "office31", base_rows(BASES, "ResNet-50", ours=("jada",)), watch=watch_pseudo_labels,
        measure=augmentation_of_run, section=augmentation_worth,
    ),
    "table3": Recipe(METHODS, "visda", base_rows(BASES, "ResNet-101")),
    "table4": Recipe(METHODS, "digits", base_rows(("source-only", "dann", "cdan+e", "jada"))),
    "table5": Recipe("ablation of TSA on top of DANN", "office31", ABLATION),
    "table-memory": Recipe(
        "cost and gain of the memory, beside iterative statistics", "office31", MEMORY, section=footprints
    ),
    "table-stress": Recipe(
        "how much target data is needed", "office31", STRESS, curves=Curves("ρ, %", STRESS_CURVES),
        note="ρ is the share of the target's rows that training sees, drawn once for each seed: uniformly, or the same"
        " share of every class, which needs target labels (oracle-stratified, the paper's way). All target rows are"
        " judged. Rows are source-only +TSA unless they say otherwise.",
    ),
    "table-bound": Recipe(
        "the terms of the theory's bound: source error, domain distance, joint error (oracle)", "office31",
        base_rows(("source-only", "dann", "cdan+e"), "ResNet-50"), measure=bound_ingredients, section=bound_table,
    ),
    "table-samples": Recipe(
        "explicit sampling against the closed form: accuracy and cost", "office31", SAMPLES, section=costs
    ),
    "figure-moons": Recipe(
        "boundaries on two moons", "moons", base_rows(("source-only", "dann")), seeds=tuple(range(100, 110)),
        measure=boundary_of_run, draw=draw_moons, only=("moons",),
    ),
    "figure-bias": Recipe(
        "distance of the memory's and the iterative estimates from the ideal, epoch by epoch", "office31",
        [Row("source-only +TSA", TSA)], columns=("D → A",), work=bias_of_job, draw=draw_bias, describe=describe_bias,
        note="The ideal comes from a fresh pass of all rows through the current network. Distances are means over the"
        " classes of ‖Δμ − ideal‖₂ and ‖Σ − ideal‖_F, in the units of the features.",
        elsewhere={"pacs": ("P → C",), "digits": ("U → M",), "digits-small": ("UCI → MNIST-5k",)},
    ),
    "figure-augmented": Recipe(
        "augmented features as images, by a WGAN-GP and reverse mapping", "digits",
        [Row("source-only +TSA", TSA)], columns=("SV → M",), seeds=(0,), work=augmented_images_of_job,
        settings=settings_of_picture, describe=describe_augmented_images,
        note="G is the generator and z its input. Stage 1 searches the z that reconstructs a source image, stage 2"
        " goes on from there to its augmented feature (docs/augmented.md).",
        elsewhere={"digits-small": ("UCI → MNIST-5k",)}, only=("digits", "digits-small"), more_seconds=3600,
    ),
    "figure-neighbours": Recipe(
        "augmented features as the real images nearest to them, without a generator", "digits",
        [Row("source-only +TSA", TSA)], columns=("SV → M",), seeds=(0,), work=nearest_images_of_job,
        describe=describe_nearest_images, elsewhere={"office-caltech": ("A → W",), "digits-small": ("UCI → MNIST-5k",)},
        only=("digits", "digits-small", "office-caltech-images", "office31", "office-home", "visda"),
    ),
    "figure-sensitivity": Recipe(
        "accuracy over λ0 and β, base CDAN+E (λ0 = 0: mutual information alone)", "office-home",
        [Row(f"λ0 = {l0}, β = {b}", {"method": "cdan+e", **TSA, "lambda0": l0, "beta": b}) for l0, b in GRID]
        + [Row(f"CDAN+E +MI, β = {b}", {"method": "cdan+e", **MI, "beta": b}) for b in BETAS]
        + [Row("source-only", {}), Row("CDAN+E", {"method": "cdan+e"})],
        columns=("Ar → Pr", "Cl → Rw"), seeds=(0,), draw=draw_surfaces,
        elsewhere={
            "office31-features": ("A → W", "D → A"), "office-caltech": ("A → C", "C → D"),
            "pacs": ("P → C", "C → A"), "digits": ("U → M",),
        },
    ),
    "figure-tsne": Recipe(
        "features in a plane: DANN and CDAN+E, each plain, with MI and with TSA", "office31",
        [*(row for row in base_rows(("dann", "cdan+e")) if row is not ADABN), ADABN],
        columns=("A → W",), seeds=(0,), measure=plane_of_run, draw=draw_planes,
        elsewhere={"pacs": ("P → C",), "digits": ("U → M",), "digits-small": ("UCI → MNIST-5k",)},
    ),
    "base-methods": Recipe(
        "five base methods: plain, with MI, with TSA, with TSA but no MI", "base-methods", VARIANTS,
        watch=watch_pseudo_labels, measure=augmentation_of_run, section=augmentation_table, only=("base-methods",),
        note="Source-only never sees the target. DANN and JADA forward the domains one by one, everything else both"
        ' together, which changes batch normalisation as well. The row "target forwarded" has that alone: mutual'
        " information with weight 0. Rows with three seeds of source-only with the target, CDAN+E and BSP were measured"
        " before an optimizer change: where table-bound and table5 repeat PACS runs, means over the seeds differ by up"
        " to 2.1 points and single runs by up to 3.2.",
    ),
    "leaderboard": Recipe(
        "every method and target term, plain and with TSA", "leaderboard", LEADERBOARD, seeds=(0,), more=finalists,
        section=step_ratios, describe=describe_standing, draw=draw_standing,
        only=("leaderboard",),
        note="One setting of each method for all tasks, that of its paper or public code where it has one; none was"
        " tuned on target labels. Target terms are on top of source-only. +tsa is the augmentation and mutual"
        " information; +mi is mutual information alone, the row mi on top of source-only, and tsa is TSA there. One"
        " seed of every row, two more of the eight best by mean rank and of the paper's base methods.",
    ),
    "preset": Recipe(
        "settings of mutual information and augmentation: which become the preset strong", "preset", SCREENED,
        columns=DESIGN_COLUMNS, seeds=(0, 1), more=stages, section=ingredient_costs, describe=describe_preset,
        draw=draw_preset, only=("preset",),
        note="The rules, fixed before the first run, are in paper/studies/preset.md. MI as published is mutual"
        " information with β = 0.1; a row's base is the row's name before the plus sign.",
    ),
    "length": Recipe(
        "how long source-only needs: accuracy on held-out source rows over the steps", "length",
        [Row("source-only", {})], work=curve_of_job, describe=describe_lengths, draw=draw_lengths, only=("length",),
    ),
    "normalisation": Recipe(
        "adversarial methods with the domains normalised together and apart", "normalisation", NORMALISATION,
        seeds=(0,), measure=normalised_accuracies, section=normalised_table, only=("normalisation",),
        note="Together: both domains go through the network as one batch and share its batch normalisation. Apart: one"
        " after the other, each normalised by itself. Running averages take in both either way.",
    ),
    "embeddings": Recipe(
        "the estimator on embeddings, beside logistic regression and skada", "embeddings", EMBEDDINGS,
        work=accuracy_of_job, settings=settings_of_method, describe=describe_embeddings, draw=draw_embeddings,
        only=("embeddings",),
    ),
    "selection": Recipe(
        "how well validators choose λ0 and β without target labels", "selection",
        [Row("CDAN+E +TSA", {"method": "cdan+e", **TSA})], seeds=(0,), work=score_pool, settings=settings_of_pool,
        describe=describe_regrets, draw=draw_choices, only=("selection",), trainings=POOL,
        note="A pool is the paper's λ0 × β grid on CDAN+E with TSA, and source-only.",
    ),
    "trust": Recipe(
        "how good the estimates without labels of tsadapt adapt are", "trust", [Row(AS_IT_IS, {}), *CHANGED],
        seeds=(0,), work=measure_trust, settings=settings_of_trust, describe=describe_trust, draw=draw_trust,
        only=("trust",), trainings=TRAININGS,
        note="On every task the portfolio of tsadapt adapt is trained, one member is chosen without labels and trained"
        " again with another seed, and tsadapt.trust assesses the choice. Its constants are fixed on PACS and the"
        " embedded digits; Office-31 and Office-Caltech-10 took no part in choosing them; only the rule for"
        " class shares was made when some of their results had been seen. Target labels only measure (oracle). Where"
        " the target's rows were chosen by their labels, the portfolio is source-only, AdaBN and the"
        " preset strong, without a second seed.",
    ),
    "digit-rates": Recipe(
        "learning rate and batch size of table4, chosen by validators", "digits", [Row("source-only +TSA", TSA)],
        columns=("U → M", "M → U"), seeds=(0,), work=choose_rate, settings=settings_of_search,
        describe=describe_rates, draw=draw_rates, only=("digits",), trainings=5, note=NOTE,
    ),
}  # fmt: skip
"""By the names that `python -m paper` has for them."""
