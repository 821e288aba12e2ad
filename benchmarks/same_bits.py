"""Do two checkouts train the same weights? Short runs of every method, source term and {MI, none}, compared bit by bit.

    python -m benchmarks.same_bits BEFORE AFTER            a table of how many runs end with the same weights
    python -m benchmarks.same_bits --train CHECKOUT OUT    one side, in a process of its own

Vectors, digits and photographs (backbone frozen, and trained) are drawn at random; nothing is downloaded.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

import numpy as np

METHODS = ("source-only", "dann", "cdan", "cdan+e", "bsp", "bsp+dann", "jada")
SOURCE_TERMS = ("ce", "isda", "tsa", "sampled")
BACKBONE = ["--backbone", "resnet10t", "--weights", "none", "--image-size", "32", "--workers", "0"]
DATA = {
    "vectors": ["vectors-s.npz", "vectors-t.npz", "--bottleneck", "8", "--batch-size", "12", "--lr", "0.05"],
    "digits": ["digits-s.npz", "digits-t.npz", "--batch-size", "12"],
    "photographs, frozen": ["photos-s", "photos-t", *BACKBONE, "--batch-size", "6", "--bottleneck", "8"],
    "photographs, trained": ["photos-s", "photos-t", *BACKBONE, "--no-freeze-backbone", "--batch-size", "4"],
}
EXTRA = {
    "iterative": ["--tsa", "--estimator", "iterative"],
    "bf16": ["--tsa", "--method", "cdan+e", "--precision", "bf16"],
    "separate-bn": ["--tsa", "--method", "dann", "--separate-bn"],
    "no Δμ": ["--tsa", "--no-mean-shift"],
    "no Σ": ["--tsa", "--no-covariance"],
    "official": ["--tsa", "--policy", "official"],
    "weights": ["--tsa", "--method", "bsp", "--term-weight", "domain=0.5", "--term-weight", "mi=2"],
    "reversal": ["--method", "cdan+e", "--reversal", "iteration", "--entropy-grad", "reversed"],
    "prior": ["--mi", "--class-prior", "source"],
    "holdout": ["--tsa", "--holdout", "0.2", "--candidates", "2"],
}


def write_data(folder: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    for side, shift in (("s", 0.0), ("t", 0.8)):
        x = 2.5 * np.eye(3, 6)[y] + rng.normal(size=(60, 6)) + shift
        np.savez(folder / f"vectors-{side}.npz", x=x, y=y)
        np.savez(folder / f"digits-{side}.npz", x=rng.integers(0, 256, (60, 16, 16), dtype=np.uint8), y=y)
        for i in range(18):
            path = folder / f"photos-{side}" / f"class{i % 3}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(path)


def digest(weights: Path) -> str:
    """Names and values of all tensors, as float32: in which precision a constant is stored does not count."""
    from safetensors.numpy import load_file

    whole = hashlib.sha256()
    for name, tensor in sorted(load_file(weights).items()):
        whole.update(name.encode() + np.ascontiguousarray(tensor.astype(np.float32)).tobytes())
    return whole.hexdigest()


def train(out: Path) -> None:
    """Train every run with the tsadapt that is imported here, and write the digests of their weights."""
    from tsadapt.cli import main

    runs = {}
    for data, words in DATA.items():
        steps = "3" if data == "photographs, trained" else "6"
        common = [*words, "--steps", steps, "--device", "cpu", "--quiet", "--log-every", "2"]
        for method, term, mi in product(METHODS, SOURCE_TERMS, (False, True)):
            objective = ["--method", method, "--source-term", term, *(["--mi"] if mi else [])]
            runs[f"{data} | {method} | {term}{' + mi' if mi else ''}"] = ["fit", *common, *objective]
        for name, given in EXTRA.items():
            if data in ("vectors", "digits"):
                runs[f"{data} | extra | {name}"] = ["fit", *common, *given]
    found = {}
    for i, (key, words) in enumerate(runs.items()):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            status = main([*words, "--out", f"run-{i}"])
        weights = Path(f"run-{i}", "model", "model.safetensors")
        found[key] = digest(weights) if status == 0 else f"exit status {status}"
    out.write_text(json.dumps(found), encoding="utf-8")


def one_side(checkout: Path, folder: Path) -> dict[str, str]:
    folder.mkdir()
    write_data(folder)
    out = folder / "digests.json"
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "TSADAPT_CACHE": str(folder / "cache")}
    command = [sys.executable, str(Path(__file__).resolve()), "--train", str(checkout), str(out)]
    subprocess.run(command, check=True, env=environment, cwd=folder)
    found: dict[str, str] = json.loads(out.read_text(encoding="utf-8"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--train", action="store_true", help="train one side")
    parser.add_argument("folders", nargs=2, type=Path, help="two checkouts")
    arguments = parser.parse_args()
    if arguments.train:
        train(arguments.folders[1])
        return
    with tempfile.TemporaryDirectory() as scratch:
        sides = [one_side(path.resolve(), Path(scratch) / str(i)) for i, path in enumerate(arguments.folders)]
    before, after = sides
    same = {key: before[key] == after.get(key) and len(before[key]) == 64 for key in before}
    print("| data | methods × source terms × {MI, none}, and more | the same bits |\n|---|---|---|")
    for data in DATA:
        mine = [ok for key, ok in same.items() if key.startswith(f"{data} |")]
        print(f"| {data} | {len(mine)} | {sum(mine)} |")
    for key in [key for key, ok in same.items() if not ok]:
        print(f"differs: {key}: {before[key][:24]} {after.get(key, 'not run')[:24]}")
    sys.exit(0 if all(same.values()) else 1)


if __name__ == "__main__":
    main()
