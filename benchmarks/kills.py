"""Does a run killed with `kill -9` at a random moment end with the same bits? Many times over.

python -m benchmarks.kills --times 20
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tsadapt.runs.folder import RunFolder

WORDS = ["digits:uci", "digits:mnist-5k", "--tsa", "--steps", "300", "--checkpoint-every", "25", "--device", "cpu"]


def start(out: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tsadapt", "fit", *WORDS, "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)


def digest(out: Path) -> str:
    """The model's weights and the records, as one hash."""
    run = RunFolder(out)
    files = [run.model.weights, run.records_file]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("paper/results/benchmarks/kills.json"))
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    folder = Path(tempfile.mkdtemp())
    began = time.monotonic()
    whole = start(folder / "whole")
    whole.communicate()
    seconds, expected = time.monotonic() - began, digest(folder / "whole")
    endings = []
    for i in range(arguments.times):
        out, moment = folder / f"killed-{i}", random.uniform(0, 1.05 * seconds)
        first = start(out)
        try:
            first.communicate(timeout=moment)
        except subprocess.TimeoutExpired:
            first.send_signal(signal.SIGKILL)
            first.communicate()
        second = start(out)
        said = second.communicate()[1]
        resumed = next((line for line in said.splitlines() if line.startswith(("resumed", "done"))), "from the start")
        same = second.returncode == 0 and digest(out) == expected
        endings.append({"killed_after_seconds": round(moment, 2), "then": resumed.split(":")[0], "same_bits": same})
        print(f"{i + 1:>3}: killed after {moment:5.2f} s, {endings[-1]['then']}, same bits: {same}", flush=True)
        shutil.rmtree(out)
    shutil.rmtree(folder)
    print(f"{sum(e['same_bits'] is True for e in endings)} of {len(endings)} endings identical")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    command = f"python -m benchmarks.kills --times {arguments.times}"
    arguments.out.write_text(json.dumps({"command": command, "endings": endings}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
