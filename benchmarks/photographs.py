"""Photographs from files to a result: Office-Caltech-10, amazon → webcam, with MobileNetV2.

    python -m benchmarks.photographs --only frozen     features, three trainings on them, the same from an .npz, doctor
    python -m benchmarks.photographs --only trained    the whole network trained, killed once in the middle and resumed

Needs the images and weights under TSADAPT_DATA. What was done is kept in --work: the same command goes on from there.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import versions
from tsadapt.runs.folder import RunFolder

SOURCE, TARGET = "office-caltech:amazon", "office-caltech:webcam"
DOMAINS = ("amazon", "caltech10", "dslr", "webcam")
BACKBONE = "torchvision:mobilenet_v2"
TERMS = {"source_only": [], "mi": ["--mi"], "tsa": ["--tsa"]}
STEPS, SIZE, BATCH = 320, 128, 16
"""The trained network: what two cores manage in minutes. The protocol's own size is 224, batch 32."""


def weights() -> Path:
    return Path(os.environ["TSADAPT_DATA"]) / "weights" / "mobilenet_v2-b0353104.pth"


def start(work: Path, *words: str) -> "subprocess.Popen[str]":
    """A tsadapt command with the features kept in `work`."""
    environment = {**os.environ, "TSADAPT_CACHE": str(work / "cache")}
    command = [sys.executable, "-m", "tsadapt", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def run(work: Path, *words: str) -> tuple[float, str]:
    """Seconds of a command, and all it said."""
    began = time.monotonic()
    process = start(work, *words)
    out, err = process.communicate()
    if process.returncode not in (0, 1):
        raise SystemExit(f"tsadapt {' '.join(words)} failed:\n{err}")
    return time.monotonic() - began, out + err


def accuracy(out: Path) -> float:
    target = RunFolder(out).metrics["last"]["target"]
    return round(100 * float(target["accuracy"]), 2)


def frozen(work: Path) -> dict[str, Any]:
    """Features once, trainings on them; then the same by way of .npz files."""
    shutil.rmtree(work / "frozen", ignore_errors=True)
    shutil.rmtree(work / "cache", ignore_errors=True)
    see = ["--backbone", BACKBONE, "--weights", str(weights())]
    result: dict[str, Any] = {"features": {}, "fit": {}, "fit_from_npz": {}}
    for domain in ("amazon", "webcam"):
        out = work / "frozen" / f"{domain}.npz"
        seconds, said = run(work, "features", f"office-caltech:{domain}", *see, "--out", str(out))
        rate = re.search(r"([\d,]+) computed in ([\d.]+) s, (\d+) images/s", said)
        assert rate is not None, said
        result["features"][domain] = {
            "images": int(rate[1].replace(",", "")),
            "seconds": float(rate[2]),
            "images_a_second": int(rate[3]),
            "command_seconds": round(seconds, 1),
        }
    for name, words in TERMS.items():
        for key, data in (
            ("fit", [SOURCE, TARGET, *see]),
            ("fit_from_npz", [str(work / "frozen" / f"{d}.npz") for d in ("amazon", "webcam")]),
        ):
            out = work / "frozen" / f"{key}-{name}"
            seconds, _ = run(work, "fit", *data, *words, "--out", str(out), "--quiet")
            result[key][name] = {"command_seconds": round(seconds, 1), "target_accuracy": accuracy(out)}
        print(name, result["fit"][name], result["fit_from_npz"][name], flush=True)
    return result


def doctor(work: Path) -> dict[str, Any]:
    """All 2,533 images, two domains at a time."""
    seconds = 0.0
    for source, target in (DOMAINS[:2], DOMAINS[2:]):
        took, said = run(work, "doctor", f"office-caltech:{source}", f"office-caltech:{target}", "--quiet")
        seconds += took
        print(said, flush=True)
    return {"images": 2533, "seconds": round(seconds, 1)}


def digests(out: Path) -> list[bytes]:
    run = RunFolder(out)
    return [path.read_bytes() for path in (run.model.weights, run.records_file, run.metrics_file)]


def trained(work: Path) -> dict[str, Any]:
    """Every weight trained; once in one go, once killed in the middle."""
    see = ["--backbone", BACKBONE, "--weights", str(weights()), "--no-freeze-backbone", "--image-size", str(SIZE)]
    see += ["--batch-size", str(BATCH), "--steps", str(STEPS), "--checkpoint-every", "50", "--log-every", "10"]
    result: dict[str, Any] = {"steps": STEPS, "image_size": SIZE, "batch_size": BATCH}
    for name, words in TERMS.items():
        whole, killed = work / "trained" / name, work / "trained" / f"{name}-killed"
        command = ["fit", SOURCE, TARGET, *see, *words, "--quiet", "--out"]
        seconds, _ = run(work, *command, str(whole))
        mark = RunFolder(killed).checkpoints
        if not RunFolder(killed).done and not any(mark.glob("*.pt")):
            process = start(work, *command, str(killed))
            while not any(mark.glob("step-000000150.pt")) and process.poll() is None:
                time.sleep(0.5)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        _, said = run(work, *command, str(killed))
        same = digests(whole) == digests(killed)
        resumed = re.search(r"resumed at step \d+", said)
        result[name] = {
            "command_seconds": round(seconds, 1),
            "target_accuracy": accuracy(whole),
            "killed_and": resumed[0] if resumed else "found done",
            "same_bits": same,
        }
        print(name, result[name], flush=True)
    return result


def main() -> None:
    parts = {"frozen": frozen, "doctor": doctor, "trained": trained}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=[*parts], help="one part instead of all")
    parser.add_argument("--work", type=Path, default=Path("runs/photographs"), help="folder for the runs")
    parser.add_argument("--out", type=Path, default=Path("paper/results/benchmarks/photographs.json"))
    arguments = parser.parse_args()
    result = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {}
    for name, part in parts.items():
        if arguments.only in (None, name):
            threads = os.environ.get("OMP_NUM_THREADS", "all")
            result[name] = {
                **part(arguments.work),
                "threads": threads,
                "command": f"python -m benchmarks.photographs --only {name}",
            }
    result["versions"] = versions()
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
