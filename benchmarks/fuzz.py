"""Does a wrong input ever end in a traceback, a hang, a crash or another result without a word? Many seeded tries.

python -m benchmarks.fuzz --cases 2000

A case is a function of (--seed, its number): a kind (files, flags, runs), a folder with one thing wrong in it, and a
command. The command is the real command line, in a child forked from a process that has imported everything, with a
time limit and a memory limit. Its outcome is one of:

- ok: status 0 (for doctor also 1: it found something).
- refused: another status, and a message of a few lines at the end of standard error.
- noisy: refused in more than `FEW_LINES` lines.
- traceback: the words "Traceback (most recent call last)" on standard error, whatever the status.
- hang: still there after the time limit. crash: ended by a signal.
- silent change: status 0, what is wrong could have been noticed (see below), and the result, which is standard output
  and the files the command writes, is not that of the same command on the sound folder, though standard error has no
  line beyond those of the sound command that speaks of it (`SPEAKS`: damaged, cannot, missing, …). What could have
  been noticed: any damage to a run's folder or to the cache; for data, damage that a checksum, a declared length or
  the format's own end tells (a flipped bit in an .npz, any binary file that was cut). A CSV that was cut at a line's
  end, or a flipped bit in a bare .npy, is other valid data.
- wrote outside: a file that is neither --out (--fix-list), nor its lock, nor in the cache was made, changed or removed.

Ends with status 1 if there was a traceback, hang, crash, silent change or a file written outside. The counts and every
failure go to paper/results/benchmarks/fuzz.json.
"""

import argparse
import atexit
import contextlib
import faulthandler
import gc
import itertools
import json
import os
import re
import resource
import shlex
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fuzz_cases import KINDS, Case, make_case, make_stage

__all__ = ["Fuzzer", "Outcome", "main"]

OUTCOMES = ("ok", "refused", "noisy", "traceback", "hang", "crash", "silent change", "wrote outside")
BAD = OUTCOMES[3:]
FEW_LINES = 12
"""Lines of a refusal, at most; a message on wrong flags has a frame of up to eight."""
RESULT = Path("paper/results/benchmarks/fuzz.json")
SECONDS, GIGABYTES = 60.0, 3.0
SPEAKS = re.compile(
    "damaged|cannot|missing|unreadable|not read|left out|not found|not exist|skipped|ignored|changed|incomplete"
    "|expected|another version|too |differ|no longer|anew|again|warning",
    re.IGNORECASE,
)
"""Words of a line that says that something is wrong; "resumed at step 3" says nothing of it."""
HERE = "HERE"
"""What stands for the case's folder in results, which are compared across folders."""


@dataclass(frozen=True)
class Outcome:
    """What came of a case: the name of its outcome, what tells it from others of that name, and what was printed."""

    name: str
    detail: str = ""
    status: int = 0
    out: str = ""
    err: str = ""
    result: dict[str, str] = field(default_factory=dict)


def cli(words: list[str]) -> int:
    """The command line; `load RUN DATA` stands for the same from Python."""
    if words[0] == "load":
        import tsadapt
        from tsadapt.errors import UserError

        try:
            print(*tsadapt.load(words[1]).predict(words[2]))
        except UserError as error:
            print(error, file=sys.stderr)
            return 2
        return 0
    from tsadapt.cli import main as tsadapt_main

    return tsadapt_main(words)


@dataclass
class Running:
    """A case in its child."""

    case: Case
    here: Path
    pid: int
    began: float
    before: dict[str, tuple[int, ...]]


class Fuzzer:
    """Runs cases, each in a fresh copy of the sound folder `stage`, up to `jobs` at a time."""

    def __init__(self, root: Path, call: Callable[[list[str]], int] = cli, seconds: float = SECONDS) -> None:
        self.root, self.call, self.seconds = root, call, seconds
        self.stage = root / "stage"
        self.sound: dict[tuple[str, ...], Outcome] = {}

    def prepare(self) -> None:
        """Make the sound folder, by the commands themselves."""
        self.stage.mkdir(parents=True)
        for words in make_stage(self.stage):
            pid = self._fork(words, self.stage, self.root / "prepare")
            status = os.waitpid(pid, 0)[1]
            if status:
                raise RuntimeError(f"{shlex.join(words)}: {(self.root / 'prepare.err').read_text(errors='replace')}")

    def run(self, cases: Iterator[Case], jobs: int = 1) -> Iterator[tuple[Case, Outcome]]:
        """Each case with its outcome, in the order in which they end."""
        slots, running = list(range(jobs)), dict[int, Running]()
        for case in cases:
            slot = slots.pop()
            running[slot] = self._start(case, self.root / f"slot-{slot}" / "here")
            while not slots:
                yield from self._ended(running, slots)
        while running:
            yield from self._ended(running, slots)

    def _ended(self, running: dict[int, Running], slots: list[int]) -> Iterator[tuple[Case, Outcome]]:
        for slot, one in [*running.items()]:
            pid, status = os.waitpid(one.pid, os.WNOHANG)
            late = time.monotonic() - one.began > self.seconds
            if not pid and not late:
                continue
            if not pid:
                os.kill(one.pid, signal.SIGUSR1)  # it prints where it hangs
                time.sleep(0.3)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)  # with whatever it started
            if not pid:
                status = os.waitpid(one.pid, 0)[1]
            del running[slot]
            slots.append(slot)
            yield one.case, self._judge(one, status, hung=not pid)
        time.sleep(0.005)

    def _start(self, case: Case, here: Path) -> Running:
        _remove(here.parent)
        shutil.copytree(self.stage, here, symlinks=True)
        case.damage(here)
        before = _listing(here)
        return Running(case, here, self._fork(case.words, here, here.parent / "said"), time.monotonic(), before)

    def _fork(self, words: list[str], here: Path, said: Path) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            _become_command(here, said)
            status = self.call(words)
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(status)

    def _judge(self, one: Running, status: int, hung: bool) -> Outcome:
        case, here = one.case, one.here
        said = here.parent / "said"
        out, err = (_text(said.with_suffix(end), here) for end in (".out", ".err"))
        code = os.waitstatus_to_exitcode(status)
        result = {"standard output": out} | {name: _text(here / name, here) for name in case.results}
        found = Outcome("ok", "", code, out, err, result)

        def ended(name: str, detail: str = "") -> Outcome:
            return Outcome(name, detail, code, out, err, result)

        lines = [line for line in err.splitlines() if line.strip()]
        if hung:
            return ended("hang", _last_frame(err))
        if code < 0:
            return ended("crash", signal.Signals(-code).name)
        if "Traceback (most recent call last)" in err:
            return ended("traceback", _last_frame(err))
        if outside := _changed(one.before, _listing(here), case.may_write):
            return ended("wrote outside", ", ".join(outside[:3]))
        if code and not (case.words[0] == "doctor" and code == 1):
            if not lines:
                return ended("traceback", "a status without a message")
            return ended("refused" if len(lines) <= FEW_LINES else "noisy", f"{len(lines)} lines")
        if case.noticeable and not code:  # a doctor with findings has spoken
            sound = self._sound(case)
            differing = [name for name in result if result[name] != sound.result.get(name)]
            more = [line for line in lines if line not in sound.err.splitlines()]
            if sound.status == 0 and differing and not any(map(SPEAKS.search, more)):
                return ended("silent change", ", ".join(differing))
        return found

    def _sound(self, case: Case) -> Outcome:
        """The same command on the sound folder."""
        key = tuple(case.words)
        if key not in self.sound:
            sound = Case(case.number, case.kind, case.words, "nothing", results=case.results)
            one = self._start(sound, self.root / "sound" / "here")
            self.sound[key] = self._judge(one, os.waitpid(one.pid, 0)[1], hung=False)
        return self.sound[key]


def _become_command(here: Path, said: Path) -> None:
    """Make the child what a command started by a shell in `here` is, with limits."""
    os.setsid()
    os.chdir(here)
    handles = [os.open(os.devnull, os.O_RDONLY)]
    handles += [os.open(f"{said}{end}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) for end in (".out", ".err")]
    for standard, handle in enumerate(handles):
        os.dup2(handle, standard)
    sys.stdin, sys.stdout, sys.stderr = (
        open(standard, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        for standard, mode, errors in ((0, "r", "strict"), (1, "w", "strict"), (2, "w", "backslashreplace"))
    )
    faulthandler.register(signal.SIGUSR1, file=sys.stderr)
    for folder in ("home", "tmp"):
        os.makedirs(here / folder, exist_ok=True)
    os.environ |= {
        "HOME": str(here / "home"), "TMPDIR": str(here / "tmp"), "TSADAPT_CACHE": str(here / "cache"),
        "TSADAPT_DATA": str(here), "HF_HUB_OFFLINE": "1", "COLUMNS": "100",
    }  # fmt: skip
    tempfile.tempdir = None
    warnings.resetwarnings()  # as Python has them: a test turns them into errors
    warnings.simplefilter("ignore", DeprecationWarning)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + int(GIGABYTES * 2**30),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _listing(here: Path) -> dict[str, tuple[int, ...]]:
    """Every file below a folder, with what tells whether it was changed; not those too deep to be named."""
    found: dict[str, tuple[int, ...]] = {}
    waiting = [str(here)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    about = entry.stat(follow_symlinks=False)
                    place = os.path.relpath(entry.path, here)
                    found[place] = (stat.S_IFMT(about.st_mode), about.st_size, about.st_mtime_ns)
    return found


def _changed(
    before: dict[str, tuple[int, ...]], after: dict[str, tuple[int, ...]], may_write: tuple[str, ...]
) -> list[str]:
    places = [os.path.normpath(place) for place in ("home", "tmp", "cache", *may_write)]
    locks = {os.path.join(os.path.dirname(place), f".{os.path.basename(place)}.lock") for place in places}

    def allowed(path: str) -> bool:
        return path in locks or any(place in (".", path) or path.startswith(place + "/") for place in places)

    differing = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    return sorted(path for path in differing if not allowed(path))


def _text(path: Path, here: Path) -> str:
    """A file's text, with the case's folder and times named alike in all cases; an archive by what is in it."""
    try:
        data = path.read_bytes()
    except OSError:
        return "(none)"
    if path.suffix == ".npz":
        import numpy as np

        with np.load(path, allow_pickle=False) as arrays:
            return repr({key: (arrays[key].shape, arrays[key].tobytes()) for key in arrays.files})
    text = data.decode("utf-8", "backslashreplace").replace(str(here), HERE)
    return re.sub(r"\d+\.\d+ ?(s|seconds)\b", "TIME", text)


def _last_frame(err: str) -> str:
    """Where in the project it happened, and the exception."""
    frames = re.findall(r'File "(?:.*/src/)?([^"]+)", line (\d+)', err)
    ours = [f"{file}:{line}" for file, line in frames if file.startswith("tsadapt/")]
    hanging = "most recent call first" in err
    place = (ours[0] if hanging else ours[-1]) if ours else "elsewhere"
    last = [line for line in err.splitlines() if re.match(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b", line)]
    return f"{place} {last[-1][:100] if last and not hanging else ''}".strip()


def _remove(folder: Path) -> None:
    """Remove a folder however deep it is."""
    if folder.exists():
        try:
            shutil.rmtree(folder)
        except (OSError, RecursionError):
            import subprocess

            subprocess.run(["rm", "-rf", "--", str(folder)], check=True)


def import_everything() -> None:
    """What the verbs import, so that each child has it from the start."""
    import importlib

    import torch

    from tsadapt.vision import load_torchvision

    torch.set_num_threads(1)
    load_torchvision()
    for name in ("fit", "sweep", "predict", "evaluate", "features", "select", "augmented", "doctor", "list", "demo"):
        importlib.import_module(f"tsadapt.cli.{name}")
    for name in (
        "tsadapt", "tsadapt.runs.fit", "tsadapt.sweep.runner", "tsadapt.sweep.search", "tsadapt.report.augmented",
        "tsadapt.report.selection", "tsadapt.data.doctor", "tsadapt.selection", "pandas", "pyarrow.parquet", "timm",
        "scipy.io", "scipy.stats", "h5py", "optuna", "sklearn.linear_model", "matplotlib.pyplot",
    ):  # fmt: skip
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def repeat(case: Case, seed: int) -> str:
    """The command that runs a case again."""
    return f"python -m benchmarks.fuzz --seed {seed} --case {case.number}"


def summary(found: list[tuple[Case, Outcome]], seed: int) -> str:
    """The counts as a table, and each class of failures with a case that shows it."""
    counts = Counter((case.kind, outcome.name) for case, outcome in found)
    kinds = [kind for kind in KINDS if any(case.kind == kind for case, _ in found)]
    lines = [f"{'outcome':<14}" + "".join(f"{kind:>8}" for kind in kinds) + f"{'all':>8}"]
    for name in OUTCOMES:
        row = [counts[kind, name] for kind in kinds]
        lines.append(f"{name:<14}" + "".join(f"{n:>8}" for n in [*row, sum(row)]))
    classes: dict[tuple[str, str], list[Case]] = {}
    for case, outcome in found:
        if outcome.name in (*BAD, "noisy"):
            detail = f"{case.words[0]}: {case.wrong}" if outcome.name in ("silent change", "hang") else ""
            classes.setdefault((outcome.name, f"{outcome.detail} {detail}".strip()), []).append(case)
    for (name, detail), cases in sorted(classes.items(), key=lambda item: (item[0][0], -len(item[1]))):
        first = cases[0]
        lines += ["", f"{name} × {len(cases)}: {detail}", f"  {first.wrong}; tsadapt {shlex.join(first.words)[:300]}"]
        lines += [f"  {repeat(first, seed)}", f"  cases: {', '.join(str(case.number) for case in cases[:20])}"]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS, help="cases of one kind alone")
    parser.add_argument("--case", type=int, help="run this case, show what it printed, and keep its folder")
    parser.add_argument("--jobs", type=int, default=1, help="cases side by side")
    parser.add_argument("--out", type=Path, default=RESULT, help="JSON file with the counts and every failure")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="tsadapt-fuzz-"))
    if arguments.case is None:
        atexit.register(_remove, root)
    import_everything()
    fuzzer, began = Fuzzer(root), time.monotonic()
    fuzzer.prepare()
    numbers: Iterator[int] = itertools.count()
    if arguments.case is not None:
        numbers = iter([arguments.case])
    every = (make_case(arguments.seed, number, fuzzer.stage) for number in numbers)
    wanted = (case for case in every if arguments.only in (None, case.kind))
    found: list[tuple[Case, Outcome]] = []
    with contextlib.suppress(KeyboardInterrupt):  # what was found until then is shown
        for case, outcome in fuzzer.run(itertools.islice(wanted, arguments.cases), max(arguments.jobs, 1)):
            found.append((case, outcome))
            if outcome.name in BAD or arguments.case is not None:
                print(f"{case.number:>5} {outcome.name}: {outcome.detail} ({case.wrong})", file=sys.stderr, flush=True)
    if arguments.case is not None:
        [(case, outcome)] = found
        print(f"in {root / 'slot-0' / 'here'}: tsadapt {shlex.join(case.words)}\nwrong: {case.wrong}")
        print(f"status {outcome.status}\n--- standard output\n{outcome.out}\n--- standard error\n{outcome.err}")
    print(summary(found, arguments.seed))
    print(f"\n{len(found)} cases in {time.monotonic() - began:.0f} s")
    if arguments.case is None and arguments.only is None:
        _write(arguments.out, found, arguments.seed)
    return int(any(outcome.name in BAD for _, outcome in found))


def _write(path: Path, found: list[tuple[Case, Outcome]], seed: int) -> None:
    """The counts, and the cases that failed; all others follow from the seed."""
    rows: list[dict[str, Any]] = [
        {
            "case": case.number, "kind": case.kind, "outcome": outcome.name, "detail": outcome.detail,
            "wrong": case.wrong, "command": shlex.join(case.words)[:1000], "status": outcome.status,
            "last_line": next(iter(outcome.err.strip().splitlines()[-1:]), "")[:300],
        }
        for case, outcome in sorted(found, key=lambda pair: pair[0].number) if outcome.name in (*BAD, "noisy")
    ]  # fmt: skip
    kinds = {
        kind: {name: sum(c.kind == kind and o.name == name for c, o in found) for name in OUTCOMES} for kind in KINDS
    }
    made = {
        "command": f"python -m benchmarks.fuzz --cases {len(found)} --seed {seed}",
        "counts": {name: sum(kinds[kind][name] for kind in KINDS) for name in OUTCOMES},
        "counts_by_kind": kinds,
        "failures": rows,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
