"""The rows of the tables: a method with or without TSA, and what the paper calls it."""

from dataclasses import dataclass
from typing import Any

__all__ = [
    "ABLATION",
    "ADABN",
    "EMBEDDINGS",
    "MEMORY",
    "MI",
    "NORMALISATION",
    "SAMPLES",
    "STRESS",
    "STRESS_CURVES",
    "TSA",
    "VARIANTS",
    "Row",
    "base_rows",
]

MI: dict[str, Any] = {"target_terms": ("mi",)}
TSA: dict[str, Any] = {"source_term": "tsa", "target_terms": ("mi",)}
TITLES = {"source-only": "source-only", "dann": "DANN", "cdan+e": "CDAN+E", "bsp": "BSP", "jada": "JADA"}


@dataclass(frozen=True)
class Row:
    """What a run sets, and the name of the paper's row beside it; `columns` and `seeds` where it has only some."""

    title: str
    settings: dict[str, Any]
    published: str | None = None
    columns: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()


ADABN = Row("AdaBN", {"method": "adabn"})
"""The baseline to beat: the target's batch normalisation in the source-only network, without training."""


def base_rows(methods: tuple[str, ...], backbone: str = "Source-only", ours: tuple[str, ...] = ()) -> list[Row]:
    """Each method plain, with mutual information alone, and with TSA; the paper's CDAN is compared with CDAN+E.

    The methods `ours` are not in the paper's table.
    """
    rows: list[Row] = []
    for method in (*methods, *ours):
        if rows and method == methods[1]:
            rows.append(ADABN)
        title = TITLES[method]
        theirs = None if method in ours else {"source-only": backbone, "cdan+e": "CDAN"}.get(method, title)
        rows += [
            Row(title, {"method": method}, theirs),
            Row(f"{title} +MI", {"method": method, **MI}),
            Row(f"{title} +TSA", {"method": method, **TSA}, theirs and f"{theirs} +TSA"),
        ]
    return rows


DANN: dict[str, Any] = {"method": "dann"}
ABLATION = [
    Row("source-only", {}),
    ADABN,
    Row("DANN", DANN, "DANN"),
    Row("DANN +TSA without Δμ", {**DANN, **TSA, "mean_shift": False}, "DANN +TSA (w/o Δμ)"),
    Row("DANN +TSA without Σ", {**DANN, **TSA, "covariance": "none"}, "DANN +TSA (w/o Σ)"),
    Row("DANN +MI", {**DANN, **MI}, "DANN +MI"),
    Row("DANN +TSA without MI", {**DANN, "source_term": "tsa"}, "DANN +TSA (w/o MI)"),
    Row("DANN +ISDA", {**DANN, "source_term": "isda"}, "DANN +ISDA"),
    Row("DANN +TSA", {**DANN, **TSA}, "DANN +TSA"),
]
MEMORY = [
    Row("source-only", {}, "ResNet-50"),
    ADABN,
    Row("+MI", MI),
    Row("+TSA, iterative", {**TSA, "estimator": "iterative"}, "TSA (w/ iterative)"),
    Row("+TSA, memory", TSA, "TSA (w/ memory)"),
]
SHARES = (0.2, 0.4, 0.6, 0.8)
STRESS = [
    Row("ρ = 0%, source-only", {}, "ρ = 0%"),
    ADABN,
    *(Row(f"ρ = {s:.0%}, uniform draw, +MI alone", {**MI, "target_share": s}) for s in SHARES),
    *(Row(f"ρ = {s:.0%}, uniform draw", {**TSA, "target_share": s}) for s in SHARES),
    *(
        Row(
            f"ρ = {s:.0%}, oracle-stratified",
            {**TSA, "target_share": s, "target_draw": "oracle-stratified"},
            f"ρ = {s:.0%}",
        )
        for s in SHARES
    ),
    Row("ρ = 100%", TSA, "ρ = 100%"),
    Row("ρ = 100%, +MI alone", MI),
]
STRESS_CURVES: dict[str, dict[float, str]] = {
    **{
        f"{what}, {draw}": {
            0: "ρ = 0%, source-only",
            **{100 * s: f"ρ = {s:.0%}, {title}" for s in SHARES},
            100: f"ρ = 100%{', +MI alone' if what == '+MI' else ''}",
        }
        for what, draw, title in (
            ("+TSA", "uniform draw", "uniform draw"),
            ("+TSA", "oracle-stratified", "oracle-stratified"),
            ("+MI", "uniform draw", "uniform draw, +MI alone"),
        )
    },
    "AdaBN": {100: "AdaBN"},
}
"""Titles of STRESS by their ρ in percent, a curve for each way that they go, and a dot for AdaBN."""

SAMPLES = [
    Row("source-only", {}),
    ADABN,
    Row("+MI", MI),
    *(Row(f"+L_M and MI, M = {m}", {**MI, "source_term": "sampled", "samples": m}) for m in (1, 4, 16, 64)),
    Row("+L_∞ and MI (TSA)", TSA),
]


def _variants() -> list[Row]:
    """Every base method plain, with MI, with TSA, and with TSA but no MI; and two rows that explain others."""
    rows = []
    for method, title in TITLES.items():
        rows.append(Row(title, {"method": method}))
        if method == "source-only":
            # What sharing batch normalisation with the target does by itself: the fair base of TSA without MI.
            rows.append(ADABN)
            rows.append(Row(f"{title}, target forwarded", {"method": method, **MI, "term_weight": {"mi": 0}}))
        rows += [
            Row(f"{title} +MI", {"method": method, **MI}),
            Row(f"{title} +TSA", {"method": method, **TSA}),
            Row(f"{title} +TSA without MI", {"method": method, "source_term": "tsa"}),
        ]
        if method == "bsp":
            # Why BSP +TSA falls below BSP on these digits: it does not with less of MI.
            rows.append(
                Row(f"{title} +TSA, β = 0.01", {"method": method, **TSA, "beta": 0.01}, columns=("UCI → MNIST-5k",))
            )
    return rows


VARIANTS = _variants()
"""Rows of base-methods."""

EMBEDDINGS = [
    *(Row(title, {}, seeds=(0,)) for title in ("logistic regression", "skada CORAL", "skada OTMapping")),
    Row("source-only", {}),
    ADABN,
    Row("+MI", MI),
    Row("+TSA", TSA),
]
"""Rows of embeddings: the first three are not ours and draw nothing at random."""


def _normalised() -> list[Row]:
    """Every adversarial method with the domains normalised together and apart, and DANN with other settings."""
    dann = {"+MI": MI, "+TSA": TSA, "rate 0.003": {"lr": 0.003}, "--reversal iteration": {"reversal": "iteration"}}
    hard = ("Office-31 A → W", "Office-31 D → A")
    variants: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
        *((title, {"method": method}, ()) for method, title in ADVERSARIAL.items()),
        *((f"DANN, {name}", {"method": "dann", **settings}, hard) for name, settings in dann.items()),
    ]
    return [
        Row(f"{title}, {way}", {**settings, "separate_bn": way == "apart"}, columns=columns)
        for title, settings, columns in variants
        for way in ("together", "apart")
    ]


ADVERSARIAL = {"dann": "DANN", "bsp+dann": "BSP on DANN", "jada": "JADA", "cdan+e": "CDAN+E", "bsp": "BSP on CDAN+E"}
NORMALISATION = _normalised()
"""Rows of normalisation."""
