"""How long `TSAClassifier.fit` takes, beside scikit-learn's classifiers and skada's deep estimators.

    python -m benchmarks.estimator

Real 1,280-d features (PACS photo → cartoon, read from TSADAPT_DATA), the same batch and number of steps, one thread and
two. The contestants take turns, each in a fresh process, and medians are given; skada runs in an environment of its own
(.venv-skada, made when first needed). A second part fits 100,000 rows of 768 features in 100 classes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from torch import nn

from benchmarks.measure import in_fresh_process, versions
from benchmarks.skada_environment import skada_python
from tsadapt import DomainAdaptationClassifier, TSAClassifier
from tsadapt.report.tables import fill

COMMAND = "python -m benchmarks.estimator"
STEPS, BATCHES, THREADS = 600, (32, 64), (1, 2)
SKADA = ("DANN", "DeepCoral")
LARGE = (50_000, 768, 100)


def ours(data: str, steps: int, batch: int, threads: int) -> dict[str, float]:
    """Seconds of each fit, all that it does included; the first is not counted."""
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    with np.load(data, allow_pickle=False) as file:
        x_s, y_s, x_t = file["x_s"], file["y_s"], file["x_t"]
    how: dict[str, Any] = {"steps": steps, "batch_size": batch, "random_state": 0}
    epochs = max(round(steps * batch / len(x_s)), 1)
    scaled = StandardScaler().fit_transform(x_s)
    adapters = {
        "source-only": DomainAdaptationClassifier(**how),
        "+MI": DomainAdaptationClassifier(target_terms=("mi",), **how),
        "TSAClassifier": TSAClassifier(**how),
    }
    adapters["TSAClassifier"].fit(x_s[:200], y_s[:200], X_target=x_t[:200])  # everything imported and warm
    found = {}
    with threadpool_limits(threads):
        for name, clf in adapters.items():
            found[name] = _seconds(lambda clf=clf: clf.fit(x_s, y_s, X_target=x_t))
        found["bare loop"] = _seconds(lambda: bare_loop(scaled, y_s, x_t, steps, batch))
        mlp = MLPClassifier((256,), solver="sgd", batch_size=batch, max_iter=epochs, n_iter_no_change=epochs)
        found["MLPClassifier"] = _seconds(lambda: mlp.fit(scaled, y_s)) * steps / (epochs * -(-len(x_s) // batch))
        found["LogisticRegression"] = _seconds(lambda: LogisticRegression(max_iter=1000).fit(scaled, y_s))
    return found


def bare_loop(x_s: np.ndarray, y_s: np.ndarray, x_t: np.ndarray, steps: int, batch: int) -> None:
    """The same network in plain PyTorch, both domains forwarded, cross-entropy on the source: a floor for all."""
    source, labels, target = torch.from_numpy(x_s).float(), torch.from_numpy(y_s), torch.from_numpy(x_t)
    network = nn.Sequential(
        nn.Linear(source.shape[1], 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, int(labels.max()) + 1)
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, fused=True)
    for _ in range(steps):
        i, j = torch.randint(len(source), (batch,)), torch.randint(len(target), (batch,))
        logits = network(torch.cat([source[i], target[j]]))
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits[:batch], labels[i]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def large() -> dict[str, float]:
    """Time and peak memory of fitting 100,000 rows (half of them the target) of 768 features, 100 classes."""
    rows, width, classes = LARGE
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(classes, width)).astype(np.float32)
    y = np.arange(rows) % classes
    x_s = centres[y] + 3 * rng.standard_normal((rows, width), dtype=np.float32)
    x_t = centres[y] + 0.5 + 3 * rng.standard_normal((rows, width), dtype=np.float32)
    seconds = _seconds(lambda: TSAClassifier(random_state=0).fit(x_s, y, X_target=x_t))
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return {"seconds": round(seconds, 1), "peak_gb": round(peak / 1e6, 2), "data_gb": round(2 * x_s.nbytes / 1e9, 2)}


def _seconds(what: Any) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def race(data: Path, batch: int, threads: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of a step of every contestant: fit time over steps, median of the rounds."""
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        arguments = (str(data), str(STEPS), str(batch), str(threads))
        mine = in_fresh_process("benchmarks.estimator", "--side", *arguments)
        assert mine is not None
        for name, seconds in mine.items():
            times.setdefault(name, []).append(1000 * float(str(seconds)) / STEPS)
        command = [str(skada_python()), "benchmarks/skada_side.py", "time", *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        said = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
        for name in SKADA:
            times.setdefault(f"skada {name}", []).append(1000 * json.loads(said.splitlines()[-1])[name])
    milliseconds = {name: round(statistics.median(values), 2) for name, values in times.items()}
    logistic = milliseconds.pop("LogisticRegression") * STEPS / 1000
    ratios = {f"skada {n}": round(milliseconds[f"skada {n}"] / milliseconds["TSAClassifier"], 2) for n in SKADA}
    row = {"batch": batch, "threads": threads, "ms_per_step": milliseconds, "logistic_regression_s": round(logistic, 2)}
    print(json.dumps(row | {"skada_over_ours": ratios}), flush=True)
    return row | {"skada_over_ours": ratios}


def table(result: dict[str, Any]) -> str:
    """The rows as Markdown."""
    names = [*result["rows"][0]["ms_per_step"]]
    lines = ["| batch, threads | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for row in result["rows"]:
        cells = " | ".join(f"{row['ms_per_step'][name]:.1f}" for name in names)
        lines.append(f"| {row['batch']}, {row['threads']} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("paper/results/benchmarks/estimator.json"))
    parser.add_argument("--side", nargs=4, metavar=("DATA", "STEPS", "BATCH", "THREADS"), help="time ours, print JSON")
    parser.add_argument("--large", action="store_true", help="only the large fit, print JSON")
    parser.add_argument("--table", action="store_true", help="only make the table of what is there")
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(ours(arguments.side[0], *map(int, arguments.side[1:]))))
        return
    if arguments.large:
        print(json.dumps(large()))
        return
    if not arguments.table:
        root = Path(os.environ.get("TSADAPT_DATA", ""))
        files = [root / "features" / f"pacs_{domain}.npz" for domain in ("photo", "cartoon")]
        if not all(file.is_file() for file in files):
            sys.exit(f"No features at {files[0]}: name the folder that has features/*.npz with TSADAPT_DATA.")
        with np.load(files[0]) as source, np.load(files[1]) as target, tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "both.npz"
            np.savez(data, x_s=source["x"].astype("f4"), y_s=source["y"], x_t=target["x"].astype("f4"))
            rows = [race(data, batch, threads, arguments.rounds) for threads in THREADS for batch in BATCHES]
        result = {"command": COMMAND, "steps": STEPS, "rows": rows, "versions": versions() | {"skada": "0.6.0"}}
        result["large"] = in_fresh_process("benchmarks.estimator", "--large")
        print(result["large"])
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    page = Path("docs/embeddings.md")
    result = json.loads(arguments.out.read_text(encoding="utf-8"))
    page.write_text(fill(page.read_text(encoding="utf-8"), COMMAND, table(result)), encoding="utf-8")


if __name__ == "__main__":
    main()
