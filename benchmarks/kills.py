"""Does a command killed at a random moment, and run again, end with the same bits as one that was left alone?

python -m benchmarks.kills --kills 50

The commands are fit, sweep (one run at a time, and two), features, predict, two of the paper's, and three that torchrun
starts in two processes. Each is run once undisturbed. Then, seeded, one after another is ended with SIGKILL (three
times of five), SIGINT or SIGTERM, mostly after it has begun to write, and run again until it ends by itself; a third of
those second runs is killed as well. Of two processes the launcher gets the signal, or one of the two, or all three at
once. A signal that comes when the command is over kills nothing and counts for nothing: the command is begun anew in an
empty folder, and the signal comes earlier. So each of the endings follows at least one kill that hit. All
files are compared byte for byte: weights, metrics, records, predictions, tables, pages and pictures. Left out are
checkpoints, logs and hidden files (locks, and temporary files that SIGKILL leaves).
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
TSADAPT, PAPER = ["-m", "tsadapt"], ["-m", "paper"]
TWO = ["-m", "torch.distributed.run", "--nproc-per-node", "2", *TSADAPT]
DIGITS = ["digits:uci", "digits:mnist-5k", "--device", "cpu"]
SEE = ["--backbone", "resnet18", "--weights", "none", "--image-size", "64", "--workers", "1", "--device", "cpu"]
OFTEN = ["--checkpoint-every", "10", "--log-every", "5"]
COMMANDS = {
    "fit": [*TSADAPT, "fit", *DIGITS, "--tsa", "--steps", "60", *OFTEN, "--out", "OUT/run"],
    "sweep": [*TSADAPT, "sweep", "DATA/s.npz", "DATA/t.npz", "--grid", "lambda0=0.1,0.3,0.5", "--steps", "150", *OFTEN,
              "--out", "OUT/sweep"],
    "sweep, two jobs": [*TSADAPT, "sweep", "DATA/s.npz", "DATA/t.npz", "--grid", "beta=0.05,0.1", "--steps", "150",
                        *OFTEN, "--jobs", "2", "--out", "OUT/sweep"],
    "features": [*TSADAPT, "features", "DATA/photos.npz", *SEE, "--out", "OUT/features.npz"],
    "predict": [*TSADAPT, "predict", "DATA/run", "DATA/many.npz", "--probabilities", "--out", "OUT/predictions.csv"],
    "paper figure-moons": [*PAPER, "figure-moons", "--quick", "--out", "OUT"],
    "paper table2": [*PAPER, "table2", "--quick", "--steps", "6", "--out", "OUT"],
    "fit, two processes": [*TWO, "fit", *DIGITS, "--tsa", "--steps", "60", *OFTEN, "--out", "OUT/run"],
    "fit of cdan, two processes, rows on the disk": [
        *TWO, "fit", "DATA/s.npz", "DATA/t.npz", "--tsa", "--method", "cdan", "--steps", "150", *OFTEN,
        "--memory-storage", "float16-disk", "--device", "cpu", "--out", "OUT/run"],
    "features, two processes": [*TWO, "features", "DATA/photos.npz", *SEE, "--out", "OUT/features.npz"],
}  # fmt: skip
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
SOONER = 0.8
"""By what a moment that came too late is shortened: the machine may be faster than when the command was left alone."""
BUSY = "is being trained by another process"
"""What a command says while a run that lost its parent saves its state: to be run again in a moment."""
GLOO = ("terminate called without an active exception", "connectFullMesh failed")
"""What gloo's own threads say when processes lose a race at their start or end: to be run again as well."""
RETRIED = (BUSY, *GLOO)


@dataclass(frozen=True)
class Whole:
    """A command left alone: how long it took, when its first file appeared, and what it wrote."""

    seconds: float
    begun: float
    files: dict[str, str]


def write_data(folder: Path) -> None:
    """Vectors, photographs, and a trained run to predict with."""
    rng, y = np.random.default_rng(0), np.arange(600) % 3
    for name, shift, n in (("s", 0.0, 600), ("t", 0.8, 600), ("many", 0.8, 60_000)):
        labels = y if n == 600 else np.arange(n) % 3
        x = 2.5 * np.eye(3, 16)[labels] + rng.normal(size=(n, 16)) + shift
        np.savez(folder / f"{name}.npz", x=x, y=labels)
    np.savez(folder / "photos.npz", x=rng.integers(0, 256, (600, 64, 64, 3), dtype=np.uint8))
    words = [*TSADAPT, "fit", "DATA/s.npz", "DATA/t.npz", "--tsa", "--steps", "30", "--out", "DATA/run"]
    process = start(words, folder, folder)
    if process.wait():
        raise RuntimeError((folder / "said.txt").read_text(encoding="utf-8"))


def start(words: list[str], data: Path, out: Path) -> "subprocess.Popen[bytes]":
    """A command, with its own cache; what it says goes to a file beside its folder."""
    command = [sys.executable, *(word.replace("DATA", str(data)).replace("OUT", str(out)) for word in words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TSADAPT_CACHE": str(out / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    out.mkdir(parents=True, exist_ok=True)
    with (out.parent / "said.txt" if out != data else data / "said.txt").open("ab") as said:
        return subprocess.Popen(command, cwd=out, stdout=subprocess.DEVNULL, stderr=said, env=environment)


def files_of(out: Path) -> dict[str, str]:
    """Each file that counts, with the hash of its bytes."""
    found = {}
    for path in sorted(out.rglob("*")):
        parts = path.relative_to(out).parts
        hidden = any(part.startswith(".") for part in parts)
        if path.is_file() and not hidden and not {"checkpoints", "logs", "cache"} & {*parts}:
            found["/".join(parts)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def left_alone(words: list[str], data: Path, out: Path) -> Whole:
    began, begun = time.monotonic(), None
    process = start(words, data, out)
    while process.poll() is None:
        if begun is None and any(out.iterdir()):
            begun = time.monotonic() - began
        time.sleep(0.01)
    if process.returncode:
        raise RuntimeError((out.parent / "said.txt").read_text(encoding="utf-8"))
    seconds = time.monotonic() - began
    return Whole(seconds, seconds if begun is None else begun, files_of(out))


def disturb(
    words: list[str], data: Path, out: Path, whole: Whole, rng: random.Random, sooner: float = 1.0
) -> dict[str, object]:
    """Run a command and end it at a random moment; which signal, when, and whether it had ended by itself before."""
    number, early = rng.choice(SIGNALS), rng.random() < 0.2
    moment = sooner * (
        rng.uniform(0.3, whole.seconds) if early else rng.uniform(min(whole.begun, 0.8 * whole.seconds), whole.seconds)
    )
    process = start(words, data, out)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(moment)
    over, hit = process.poll() is not None, {}
    if not over:
        if words[: len(TWO)] == TWO:
            name, processes = one_or_all(process.pid, rng)
            hit = {"hit": name}
        else:
            processes = [process.pid]
        for one in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, number)
        process.wait()
    return {"signal": number.name, **hit, "after_seconds": round(moment, 2), "was_over": over}


def one_or_all(launcher: int, rng: random.Random) -> tuple[str, list[int]]:
    """Whom a signal hits of torchrun's launcher and the processes that it has started; who that is, and their ids."""
    lists = Path(f"/proc/{launcher}/task").glob("*/children")
    workers = [int(word) for found in lists for word in found.read_text(encoding="ascii").split()]
    name = rng.choice(("the launcher", "one process", "all"))
    if not workers or name == "the launcher":
        return "the launcher", [launcher]
    return (name, [rng.choice(workers)]) if name == "one process" else (name, [launcher, *workers])


def to_the_end(words: list[str], data: Path, out: Path) -> tuple[int, int]:
    """Run a command until it ends by itself; its status, and how often it had to be run again."""
    said = out.parent / "said.txt"
    said.write_bytes(b"")
    status, again = start(words, data, out).wait(), 0
    while status and again < 30 and any(why in said.read_text(encoding="utf-8", errors="replace") for why in RETRIED):
        time.sleep(1)
        said.write_bytes(b"")
        status, again = start(words, data, out).wait(), again + 1
    return status, again


def kill_once(name: str, data: Path, folder: Path, whole: Whole, rng: random.Random) -> dict[str, Any]:
    """Kill a command once or twice, run it to its end, and compare."""
    words, out, late = COMMANDS[name], folder / "out", 0
    while (first := disturb(words, data, out, whole, rng, SOONER**late))["was_over"]:
        late += 1
        shutil.rmtree(out)
    kills = [first]
    if rng.random() < 1 / 3:
        kills.append(disturb(words, data, out, whole, rng, SOONER**late))
    status, again = to_the_end(words, data, out)
    found = files_of(out)
    differing = sorted(file for file in {*found, *whole.files} if found.get(file) != whole.files.get(file))
    said = (folder / "said.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    same = status == 0 and not differing
    why = {} if same else {"status": status, "differing": differing[:10], "said": said[-3:]}
    return {"command": name, "kills": kills, "came_too_late": late, "run_again": again, "same_bits": same, **why}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=[*COMMANDS], help="these alone")
    parser.add_argument("--out", type=Path, default=Path("paper/results/benchmarks/kills.json"))
    arguments = parser.parse_args()
    rng, root = random.Random(arguments.seed), Path(tempfile.mkdtemp(prefix="tsadapt-kills-"))
    names = arguments.commands
    data = root / "data"
    data.mkdir()
    write_data(data)
    wholes: dict[str, Whole] = {}
    endings: list[dict[str, Any]] = []
    for i in range(arguments.kills):
        name = names[i % len(names)]
        if name not in wholes:
            wholes[name] = left_alone(COMMANDS[name], data, root / f"whole-{len(wholes)}" / "out")
        folder = root / f"killed-{i}"
        endings.append(kill_once(name, data, folder, wholes[name], rng))
        print(f"{i + 1:>3}: {json.dumps(endings[-1], ensure_ascii=False)}", file=sys.stderr, flush=True)
        if endings[-1]["same_bits"]:
            shutil.rmtree(folder)
    same = sum(ending["same_bits"] is True for ending in endings)
    hits = sum(not kill["was_over"] for ending in endings for kill in ending["kills"])
    print(f"{same} of {len(endings)} identical endings, after {hits} kills that hit")
    if same == len(endings):
        shutil.rmtree(root)
    command = f"python -m benchmarks.kills --kills {arguments.kills} --seed {arguments.seed}"
    command += "" if names == [*COMMANDS] else f" --commands {shlex.join(names)}"
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    made = {"command": command, "identical": same, "of": len(endings), "kills_that_hit": hits, "endings": endings}
    arguments.out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return int(same < len(endings))


if __name__ == "__main__":
    sys.exit(main())
