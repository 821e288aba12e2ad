"""Which settings become the preset `strong`, by the protocol in preset.md: screening, finalists, replication."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paper.analyses.section import Section, measured_before, with_hashes
from paper.analyses.step_cost import step_costs
from paper.analyses.worth import half_width, interval
from paper.jobs import Job, make_jobs
from paper.protocols import PROTOCOLS, Protocol
from paper.published import Published
from paper.results_file import Results, parts
from paper.rows import MI, TSA, Row
from tsadapt.report.figures import pyplot, write_figure

__all__ = ["DESIGN_COLUMNS", "SCREENED", "describe_preset", "draw_preset", "ingredient_costs", "stages"]

DESIGN, REPLICATION = ("PACS", "digits", "Caltech"), ("Office-31", "28×28")
"""Suites by which settings are chosen, and those that judge the choice once; columns begin with them."""

DESIGN_COLUMNS = tuple(column for column in PROTOCOLS["preset"].tasks if column.partition(": ")[0] in DESIGN)

SCREENING, FURTHER, LONG = (0, 1), (2, 3, 4), ("28×28",)
"""Seeds of the screening, those that finalists have besides, and the suites where runs are too long for these."""

REFERENCE, PUBLISHED_MI = "MI as published", "batch MI, β = 0.1"
MOST_LOST, SIMPLER = 2.0, 0.5
"""Points that a task may lose; points that a simpler finalist may lie below the best."""

ADDED = 1.0
"""Points that an augmentation must add, with an interval above zero, on a suite of either kind."""

BETAS = (0.1, 0.25, 0.5, 1.0)
SMOOTHED, WARM = {"label_smoothing": 0.1}, {"warmup": 0.05}
WAYS: dict[str, dict[str, Any]] = {"": {}, ", smoothed": SMOOTHED, ", smoothed, warm-up": {**SMOOTHED, **WARM}}
TERMS = ("bnm", "mcc", "atdoc", "shot")
AUGMENTATIONS: dict[str, dict[str, Any]] = {
    "TSA": {"source_term": "tsa"},
    "TSA, λ0 = 1": {"source_term": "tsa", "lambda0": 1.0},
    "TSA without Δμ": {"source_term": "tsa", "mean_shift": False},
    "TSA without Δμ, λ0 = 1": {"source_term": "tsa", "mean_shift": False, "lambda0": 1.0},
    "TSA without the common shift": {"source_term": "tsa", "common_shift": False},
    "TSA by purity": {"source_term": "tsa", "purity_strength": True},
    "TSA by confidence": {"source_term": "tsa", "confidence_weights": True},
    "TSA with a teacher": {"source_term": "tsa", "teacher": 0.99},
    "T²SA": {"source_term": "t2sa"},
    "anchored, centroids": {"target_terms": ("mi", "anchored")},
    "anchored, neighbours": {"target_terms": ("mi", "anchored"), "anchor_labels": "neighbours"},
    "anchored, product": {"target_terms": ("mi", "anchored"), "anchor_labels": "product"},
}
"""Put on top of the best base; with a base that is not mutual information, `anchored` goes beside its own terms."""

FAMILIES = ("batch MI", "memory MI", "other terms", "augmentation")
"""From the simplest on: a tie within half a point goes to the first."""


@dataclass(frozen=True)
class Candidate:
    """A setting on trial: its family, and its levels in the family's grid, whose neighbours say how flat it lies.

    Levels of a factor without an order are two apart.
    """

    row: Row
    family: str
    levels: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """Its name on the page."""
        return self.row.title

    def is_beside(self, other: "Candidate") -> bool:
        """Whether the other is one level away in one factor."""
        if self.family != other.family or len(self.levels) != len(other.levels) or not self.levels:
            return False
        return sum(abs(a - b) for a, b in zip(self.levels, other.levels, strict=True)) == 1


def _grid() -> list[Candidate]:
    """The screened settings that are no augmentation."""
    found = []
    for marginal, family in (("batch", FAMILIES[0]), ("memory", FAMILIES[1])):
        for i, beta in enumerate(BETAS):
            for j, (way, settings) in enumerate(WAYS.items()):
                more = {"marginal": "memory"} if marginal == "memory" else {}
                title = f"{family}, β = {beta}{way}"
                row = Row(REFERENCE if title == PUBLISHED_MI else title, {**MI, "beta": beta, **settings, **more})
                found.append(Candidate(row, family, (i, j)))
    for i, name in enumerate(TERMS):
        alone: dict[str, Any] = {"target_terms": (name,)}
        weaker = {**alone, **SMOOTHED, "term_weight": {name: 0.3}}
        for j, (way, settings) in enumerate(
            ((name, alone), (f"{name}, smoothed", {**alone, **SMOOTHED}), (f"{name} × 0.3, smoothed", weaker))
        ):
            found.append(Candidate(Row(way, settings), FAMILIES[2], (2 * i, j)))
    return found


GRID = _grid()
SMALL_BATCH = {"batch_size": 8, "target_batch_size": 8, "beta": 0.25, **MI}
SMALL_BATCHES = [
    Row("batch of 8, marginal of the batch", {**SMALL_BATCH, "marginal": "batch"}),
    Row("batch of 8, marginal of the memory", {**SMALL_BATCH, "marginal": "memory"}),
]
"""Fewer rows in a batch than there are classes; on Caltech alone."""

PUBLISHED = [Row("source-only", {}), Row("AdaBN", {"method": "adabn"}), Row("TSA as published", TSA)]
SCREENED = [*PUBLISHED, *(one.row for one in GRID)]
"""What runs on the design suites before anything is decided."""


@dataclass
class Standing:
    """What was measured, as accuracies by title and (column, seed)."""

    results: Results
    of: dict[str, dict[tuple[str, int], float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, run in self.results.items():
            title, column, seed = parts(key)
            self.of.setdefault(title, {})[column, seed] = run["accuracy"]

    def gains(self, title: str, over: str, suites: Iterable[str]) -> dict[str, dict[str, dict[int, float]]]:
        """Differences by suite, column and seed, where both were run."""
        found: dict[str, dict[str, dict[int, float]]] = {suite: {} for suite in suites}
        base = self.of.get(over, {})
        for (column, seed), value in self.of.get(title, {}).items():
            suite = suite_of(column)
            if suite in found and (column, seed) in base:
                found[suite].setdefault(column, {})[seed] = value - base[column, seed]
        return found

    def by_suite(self, title: str, over: str, suites: Iterable[str]) -> dict[str, float]:
        """The gain of each suite that was run: the mean over its tasks of the mean over seeds."""
        gains = self.gains(title, over, suites)
        return {
            suite: statistics.mean(statistics.mean(seeds.values()) for seeds in tasks.values())
            for suite, tasks in gains.items()
            if tasks
        }

    def balanced(self, title: str, over: str = REFERENCE) -> float:
        """The gain on the design suites, each counted once."""
        return statistics.mean(self.by_suite(title, over, DESIGN).values())

    def worst(self, title: str, suites: Iterable[str] = DESIGN) -> float:
        """The gain of the worst task."""
        gains = self.gains(title, REFERENCE, suites)
        return min(statistics.mean(seeds.values()) for tasks in gains.values() for seeds in tasks.values())

    def score(self, one: Candidate, among: Iterable[Candidate]) -> float:
        """Half its own gain, half that of its neighbours: a peak between bad settings counts less than a plateau."""
        beside = [self.balanced(other.title) for other in among if one.is_beside(other)]
        own = self.balanced(one.title)
        return own if not beside else (own + statistics.mean(beside)) / 2

    def best(self, candidates: list[Candidate]) -> Candidate:
        """The one of the best score; those that lose more than is allowed on a task only if all do."""
        safe = [one for one in candidates if self.worst(one.title) >= -MOST_LOST] or candidates
        return max(safe, key=lambda one: self.score(one, candidates))

    def chosen(self, candidates: list[Candidate]) -> Candidate:
        """The largest gain of those that lose no task; one that stands before it, if it lies hardly below."""
        safe = [one for one in candidates if self.worst(one.title) >= -MOST_LOST] or candidates
        highest = max(self.balanced(one.title) for one in safe)
        return next(one for one in safe if self.balanced(one.title) >= highest - SIMPLER)

    def confirmed(self, found: "Decision") -> bool | None:
        """Whether the best augmentation adds enough to its base on suites of both kinds; None until all are run."""
        best, base = found.finalists[-1].title, found.base.title
        if {*self.by_suite(best, base, (*DESIGN, *REPLICATION))} != {*DESIGN, *REPLICATION}:
            return None

        def adds(suite: str) -> bool:
            gains = self.each_seed(best, base, [suite])
            return statistics.mean(gains) >= max(ADDED, half_width(gains))

        return any(map(adds, DESIGN)) and any(map(adds, REPLICATION))

    def over_seeds(self, title: str, over: str, suites: Iterable[str]) -> str:
        """The gain with its interval over seeds, of the mean over all tasks of these suites."""
        return interval(self.each_seed(title, over, suites))

    def each_seed(self, title: str, over: str, suites: Iterable[str]) -> list[float]:
        """The mean gain over all tasks of these suites, of every seed that has them all."""
        tasks = [seeds for tasks in self.gains(title, over, suites).values() for seeds in tasks.values()]
        whole = set.intersection(*(set(seeds) for seeds in tasks)) if tasks else set()
        return [statistics.mean(seeds[seed] for seeds in tasks) for seed in sorted(whole)]


def suite_of(column: str) -> str:
    """What a column begins with."""
    return column.partition(": ")[0]


def augmented(base: Candidate) -> list[Candidate]:
    """The forms of augmentation on top of a base."""
    found = []
    for name, settings in AUGMENTATIONS.items():
        given = {**base.row.settings, **settings}
        if "target_terms" in settings:
            given["target_terms"] = (*base.row.settings["target_terms"], "anchored")
        found.append(Candidate(Row(f"{base.title} + {name}", given), FAMILIES[3]))
    return found


@dataclass(frozen=True)
class Decision:
    """Who is how far: the best base, all augmentations of it, the best of each family, and the chosen one.

    If that has an augmentation, `strong` is its base unless the augmentation is confirmed, and `plain`, the choice
    among the finalists without one, is replicated beside it.
    """

    base: Candidate
    augmentations: list[Candidate]
    finalists: list[Candidate]
    chosen: Candidate | None = None
    plain: Candidate | None = None

    @property
    def control(self) -> Candidate | None:
        """The best augmentation without its covariance, if it is anchored: pseudo-labels alone. TSA's is its base."""
        best = self.finalists[-1]
        if "anchored" not in best.row.settings["target_terms"]:
            return None
        return Candidate(Row(f"{best.title}, λ = 0", {**best.row.settings, "anchor_strength": 0.0}), FAMILIES[3])


def decide(results: Results) -> Decision | None:
    """As far as the protocol can be followed with these results; None before the screening is complete."""
    standing, first = Standing(results), Standing(_screened(results))
    if not _complete(first, [one.title for one in GRID], SCREENING):
        return None
    families = {name: [one for one in GRID if one.family == name] for name in FAMILIES[:3]}
    best = [first.best(ones) for ones in families.values()]
    base = max(best, key=lambda one: first.score(one, families[one.family]))
    ways = augmented(base)
    if not _complete(first, [one.title for one in ways], SCREENING):
        return Decision(base, ways, [])
    finalists = [*best, first.best(ways)]
    seeds = (*SCREENING, *FURTHER)
    if not _complete(standing, [REFERENCE, *(one.title for one in finalists)], seeds):
        return Decision(base, ways, finalists)
    return Decision(base, ways, finalists, standing.chosen(finalists), standing.chosen(best))


def _screened(results: Results) -> Results:
    """The runs of the seeds that all settings have."""
    return {key: run for key, run in results.items() if parts(key).seed in SCREENING}


def _complete(standing: Standing, titles: Iterable[str], seeds: Iterable[int]) -> bool:
    """Whether these have every design task, for these seeds."""
    wanted = {(column, seed) for column in DESIGN_COLUMNS for seed in seeds}
    return all(wanted <= set(standing.of.get(title, {})) for title in titles)


def stages(protocol: Protocol, rows: list[Row], results: Results) -> list[Job]:
    """What runs next: augmentations of the best base, further seeds of the finalists and of a control, replication."""
    found = decide(results)
    if found is None:
        return []
    small = [column for column in DESIGN_COLUMNS if suite_of(column) == "Caltech"]
    replication = [column for column in protocol.tasks if suite_of(column) in REPLICATION]
    jobs = make_jobs(protocol, [one.row for one in found.augmentations], DESIGN_COLUMNS, SCREENING)
    jobs += make_jobs(protocol, SMALL_BATCHES, small, SCREENING)
    reference = next(row for row in rows if row.title == REFERENCE)
    if found.finalists:
        jobs += make_jobs(protocol, [reference, *(one.row for one in found.finalists)], DESIGN_COLUMNS, FURTHER)
        if found.control is not None:
            jobs += make_jobs(protocol, [found.control.row], DESIGN_COLUMNS, (*SCREENING, *FURTHER))
    if found.chosen is not None:
        last = {reference.title: reference, "TSA as published": PUBLISHED[-1]}
        compared = (found.plain, found.chosen, found.base, found.finalists[-1], found.control)
        last |= {one.title: one.row for one in compared if one is not None}
        short = [column for column in replication if suite_of(column) not in LONG]
        jobs += make_jobs(protocol, last.values(), short, (*SCREENING, *FURTHER))
        long = [column for column in replication if suite_of(column) in LONG]
        jobs += make_jobs(protocol, last.values(), long, SCREENING)
    return jobs


def ingredient_costs(
    protocol: Protocol, rows: list[Row], columns: list[str], results: Results, before: dict[str, Any],
    may_measure: bool, paper: Published | None,
) -> Section:  # fmt: skip
    """Time of a step of each ingredient, measured in turns in one process on the first task."""
    found = decide(results)
    if found is None:
        return "", before, {}
    base = {**MI, "beta": 0.25}
    ingredients = {
        "MI": base, "+ warm-up": {**base, **WARM}, "+ smoothing": {**base, **SMOOTHED},
        "+ marginal of the memory": {**base, "marginal": "memory"},
        **{name: {"target_terms": (name,)} for name in TERMS},
        **{f"MI + {name}": {**base, **settings} for name, settings in AUGMENTATIONS.items()},
    }  # fmt: skip
    configs = {name: protocol.config(columns[0], 0, **settings) for name, settings in ingredients.items()}
    measured = measured_before(before, configs)
    if not measured and may_measure:
        measured = step_costs(configs)
    if not measured:
        return "", before, {}
    lines = [
        f"Time of a step as a ratio to mutual information's, in turns in one process, medians, on {columns[0]}:", "",
        "| | ratio |", "|---|---|", *(f"| {name} | {ms / measured['MI']:.2f}× |" for name, ms in measured.items()),
    ]  # fmt: skip
    return "\n".join(lines), with_hashes(measured, configs), {}


def describe_preset(results: Results, extra: Mapping[str, Any]) -> str:
    """Screening, finalists, replication and what follows from them."""
    standing, found = Standing(results), decide(results)
    sections = [_screening(standing, [] if found is None else found.augmentations)]
    if found is not None and found.finalists:
        sections.append(_finals(standing, found))
    if found is not None and found.chosen is not None:
        sections.append(_replication(standing, found))
    return "\n\n".join(sections)


def _screening(standing: Standing, augmentations: list[Candidate]) -> str:
    """Every setting with its gain over the reference."""
    lines = [
        f"Screening, seeds {' and '.join(map(str, SCREENING))}: target accuracy minus that of {REFERENCE} (β = 0.1),"
        " points, last step. All: the mean of the three suites. Flat: half of that and half of the neighbouring"
        " settings', by which the best of a family is chosen. Worst: the task that gains least.",
        "",
        f"| | {' | '.join(DESIGN)} | all | flat | worst |",
        "|---|" + "---|" * (len(DESIGN) + 3),
    ]
    first = Standing(_screened(standing.results))
    plain = [Candidate(row, "") for row in PUBLISHED]
    for one in [*plain, *GRID, *augmentations]:
        if {*first.by_suite(one.title, REFERENCE, DESIGN)} == {*DESIGN}:
            suites = first.by_suite(one.title, REFERENCE, DESIGN)
            score = first.score(one, [other for other in GRID if other.title in first.of])
            cells = [*suites.values(), first.balanced(one.title), score, first.worst(one.title)]
            lines.append(f"| {one.title} | {' | '.join(f'{value:+.1f}' for value in cells)} |")
    batch, memory = (row.title for row in SMALL_BATCHES)
    if small := standing.over_seeds(memory, batch, ["Caltech"]).replace("–", ""):
        lines += [
            "",
            f"With batches of 8, fewer than the ten classes of Caltech, the marginal of the memory adds {small}.",
        ]
    return "\n".join(lines)


def _finals(standing: Standing, found: Decision) -> str:
    lines = [
        f"The best of each family, with seeds {SCREENING[0]} to {FURTHER[-1]} (TSA as published: of the screening):"
        f" points over {REFERENCE}, with 95 % intervals over the seeds (Student's t).",
        "",
        f"| | {' | '.join(DESIGN)} | all | worst |",
        "|---|" + "---|" * (len(DESIGN) + 2),
    ]
    published = Candidate(PUBLISHED[-1], "")
    for one in [published, *found.finalists, *([] if found.control is None else [found.control])]:
        if not standing.by_suite(one.title, REFERENCE, DESIGN):
            continue
        cells = [standing.over_seeds(one.title, REFERENCE, [suite]) for suite in DESIGN]
        cells += [f"{standing.balanced(one.title):+.1f}", f"{standing.worst(one.title):+.1f}"]
        lines.append(f"| {one.title} | {' | '.join(cells)} |")
    lines += ["", _worth(standing, found, DESIGN)]
    if found.chosen is not None and found.plain is not None:
        lines += ["", f"Chosen: **{found.chosen.title}**."]
        if found.chosen is not found.plain:
            lines[-1] += f" Without an augmentation: **{found.plain.title}**."
    return "\n".join(lines)


def _replication(standing: Standing, found: Decision) -> str:
    ours = (found.base, found.finalists[-1], found.control, found.chosen, found.plain)
    titles = dict.fromkeys(["TSA as published", *(one.title for one in ours if one is not None)])
    lines = [
        f"Replication, run once after the choice: points over {REFERENCE}, with 95 % intervals over the seeds.", "",
        f"| | {' | '.join(REPLICATION)} | worst task |", "|---|" + "---|" * (len(REPLICATION) + 1),
    ]  # fmt: skip
    for title in titles:
        cells = [standing.over_seeds(title, REFERENCE, [suite]) for suite in REPLICATION]
        there = any(standing.gains(title, REFERENCE, REPLICATION).values())
        worst = f"{standing.worst(title, REPLICATION):+.1f}" if there else "–"
        lines.append(f"| {title} | {' | '.join(cells)} | {worst} |")
    lines += ["", _worth(standing, found, REPLICATION)]
    if found.chosen is found.plain:
        return "\n".join(lines)
    verdict = {
        None: "Whether the augmentation is confirmed is not measured yet",
        True: "The augmentation is confirmed, and is part of `strong`",
        False: f"No replication suite confirms the augmentation, so that `strong` is its base, **{found.base.title}**",
    }[standing.confirmed(found)]
    return "\n".join([*lines, "", f"{verdict}."])


def _worth(standing: Standing, found: Decision, suites: tuple[str, ...]) -> str:
    best, control = found.finalists[-1].title, found.control

    def over(base: str) -> str:
        return ", ".join(f"{suite} {standing.over_seeds(best, base, [suite])}" for suite in suites)

    text = f"What the best augmentation adds to its base: {over(found.base.title)}."
    if control is None or control.title not in standing.of:
        return text
    return f"{text} Of that its covariance adds, beside the same with λ = 0: {over(control.title)}."


def draw_preset(results: Results, rows: list[Row], path: Path) -> None:
    """The gain of every setting on the design suites, a panel for each family."""
    standing, found = Standing(results), decide(results)
    shown = [*GRID, *([] if found is None else found.augmentations)]
    shown = [one for one in shown if {*standing.by_suite(one.title, REFERENCE, DESIGN)} == {*DESIGN}]
    figure, axis = pyplot().subplots(figsize=(9, 1.2 + 0.2 * max(len(shown), 4)), layout="constrained")
    for i, one in enumerate(shown):
        gains = standing.by_suite(one.title, REFERENCE, DESIGN)
        for (suite, gain), marker in zip(gains.items(), "os^", strict=True):
            axis.plot(gain, i, marker, color="#1565c0", alpha=0.5, markersize=4, label=suite if i == 0 else None)
        axis.plot(standing.balanced(one.title), i, "D", color="#e65100", markersize=5, label="all" if i == 0 else None)
    axis.axvline(0, color="#616161", linewidth=0.8)
    axis.set(ylim=(len(shown) - 0.5, -0.5), xlabel=f"points over {REFERENCE}, seeds {SCREENING[0]} and {SCREENING[1]}")
    names = [f"  + {one.title.partition(' + ')[2]}" if one.family == FAMILIES[3] else one.title for one in shown]
    axis.set_yticks(range(len(shown)), names, fontsize=7)
    axis.grid(axis="x", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    if shown:
        figure.legend(frameon=False, loc="outside lower center", ncols=4, fontsize=8)
    write_figure(figure, path)
