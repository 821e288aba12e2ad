"""Rate and batch size for USPS ↔ MNIST, which the paper does not say: a choice without target labels.

    python -m paper.studies.digit_rates               train and choose where nothing is chosen yet, make the page
    python -m paper.studies.digit_rates --jobs 2      two runs side by side
    python -m paper.studies.digit_rates --table       only make the page of what was chosen

MNIST and USPS are read from TSADAPT_DATA. Runs lie under runs/digit-rates and are never done twice; what is kept of a
task is a folder under paper/results/digits-rates. Its accuracies only judge the choice (oracle).
"""

import argparse
import json
import re
from itertools import product
from pathlib import Path
from statistics import mean

from paper.protocols import PLACES
from paper.results_file import parts
from paper.rows import TSA
from tsadapt.files import write_atomically, write_json
from tsadapt.runs.fit import versions
from tsadapt.selection.select import CONSENSUS, choose
from tsadapt.sweep.choice import read_candidates, varying, write_choice
from tsadapt.sweep.plan import Planned
from tsadapt.sweep.runner import run_all

COMMAND = "python -m paper.studies.digit_rates"
RESULTS = Path("paper/results/digits-rates")
RUNS = Path("runs/digit-rates")
SETTINGS = {
    "U → M": [*product((0.001, 0.005, 0.01, 0.03, 0.1), (64,)), *product((0.01, 0.03, 0.1), (128,))],
    "M → U": [(0.01, 64), (0.03, 128)],
}
"""Rates and batch sizes by task; the second task sees the first setting that was tried and the one that was chosen."""

HEAD = f"""\
# Rate and batch size for USPS ↔ MNIST

The paper does not say with which rate and batch size its digit networks were trained. Here validators choose them
without target labels: **with +TSA alone**, on MCD's 28×28 network, 6,000 steps, seed 0, three candidate steps of each
run, by the consensus. table4 uses what was chosen for all its rows. `scores.csv` of a task has every validator,
`choice.json` the choice, and `oracle.json` what target labels say of it, which had no part in the choice.

**They had a part in the range (oracle).** The first setting was rate 0.01, batch 64 + 64, and its target accuracy on
USPS → MNIST lay below the paper's. Of the rates up to 0.01 the largest had the best target accuracy (validators would
have taken 0.005), and so the search went on to 0.03 and 0.1, and to twice the batch. MNIST → USPS has only seen the
first setting and the one that USPS → MNIST chose. `{COMMAND}` does all of it.

table4 was run on another machine than the search, and a run is the same to the bit only on one: at the same setting and
seed their accuracies differ by some tenths of a point.
"""


def folder_of(column: str) -> Path:
    """Where what is kept of a task lies."""
    return RESULTS / column.lower().replace(" → ", "-")


def planned(column: str) -> list[Planned]:
    """The runs of a task."""
    found = []
    for rate, batch in SETTINGS[column]:
        given = {"lr": rate, "batch_size": batch, "target_batch_size": batch}
        out = RUNS / folder_of(column).name / f"lr-{rate}-batch-{batch}"
        found.append(Planned(given, PLACES["digits"].config(column, 0, **TSA, **given), out))
    return found


def choose_among(column: str) -> None:
    """Choose among the runs of a task, and keep what was decided."""
    candidates = read_candidates([one.out for one in planned(column)])
    choice = choose([candidate.predictions for candidate in candidates], CONSENSUS)
    config = candidates[choice.chosen].config
    chosen = {name: getattr(config, name) for name in varying(candidates)}
    write_choice(folder_of(column), candidates, choice, chosen, {})
    hashes = {one.out.name: one.config.hash() for one in planned(column)}
    write_json(folder_of(column) / "made.json", {"command": COMMAND, "hashes": hashes, "versions": versions()})


def section(column: str) -> str:
    """What was chosen for a task, and what target labels say of every setting."""
    choice, oracle = (
        json.loads((folder_of(column) / name).read_text(encoding="utf-8")) for name in ("choice.json", "oracle.json")
    )
    last: dict[tuple[str, str], float] = {}
    for name, accuracy in oracle["accuracies"].items():  # by run, and in order of the steps
        match = re.fullmatch(r"lr-(.+)-batch-(\d+), step \d+", name)
        assert match is not None, name
        last[match[1], match[2]] = accuracy
    rates, batches = (sorted({key[i] for key in last}, key=float) for i in (0, 1))
    made = {key: f"{100 * accuracy:.2f}" for key, accuracy in last.items()}
    best = (str(choice["overrides"]["lr"]), str(choice["overrides"]["batch_size"]))
    made[best] = f"**{made[best]}**"
    made_by = folder_of(column) / "made.json"
    told = "Made by `tsadapt fit` and `tsadapt select`, run by run."
    if made_by.exists():
        numbers = json.loads(made_by.read_text(encoding="utf-8"))["versions"]
        told = f"Made by `{COMMAND}`: {', '.join(f'{name} {number}' for name, number in numbers.items())}."
    lines = [
        f"## {column}",
        "",
        f"**Chosen: rate {best[0]}, batch {best[1]} + {best[1]}** ({choice['why']}; its step"
        f" {choice['step']:,}). Target accuracy at the last step, % (oracle):",
        "",
        f"| | {' | '.join(f'batch {b} + {b}' for b in batches)} |",
        "|---|" + "---|" * len(batches),
        *(f"| rate {rate} | {' | '.join(made.get((rate, b), '–') for b in batches)} |" for rate in rates),
        "",
        told,
    ]
    return "\n".join(lines)


def first_setting() -> str:
    """What table4 had at the first setting, where it is kept."""
    path = RESULTS / "first-setting.json"
    if not path.exists():
        return ""
    table: dict[str, dict[str, list[float]]] = {}
    for key, run in json.loads(path.read_text(encoding="utf-8"))["runs"].items():
        row, column, _ = parts(key)
        table.setdefault(row, {}).setdefault(column, []).append(run["accuracy"])
    lines = [
        "## table4 at the first setting",
        "",
        "What `tsadapt reproduce table4` had at rate 0.01, batch 64 + 64, before the search: target accuracy, %, last"
        f" step, mean of one or two seeds ([{path.name}]({path.name})).",
        "",
        f"| | {' | '.join(SETTINGS)} |",
        "|---|" + "---|" * len(SETTINGS),
        *(
            f"| {row} | {' | '.join(f'{mean(values[c]):.1f}' if c in values else '–' for c in SETTINGS)} |"
            for row, values in table.items()
        ),
    ]
    return "\n".join(lines)


def page() -> str:
    """The page of the tasks that were chosen for."""
    done = [column for column in SETTINGS if (folder_of(column) / "choice.json").exists()]
    return "\n\n".join(filter(None, [HEAD.strip(), *map(section, done), first_setting()])) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--table", action="store_true", help="only make the page")
    arguments = parser.parse_args()
    for column in SETTINGS if not arguments.table else ():
        if not (folder_of(column) / "choice.json").exists():
            failed = run_all(planned(column), arguments.jobs)
            if failed:
                raise SystemExit(f"{column}: {failed}")
            choose_among(column)
    write_atomically(RESULTS / "README.md", page())
    print(f"written to {RESULTS / 'README.md'}")


if __name__ == "__main__":
    main()
