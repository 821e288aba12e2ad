"""Terms and a method of somebody else: a module outside the package and its entry points, and nothing more.

They are listed, explained, trained, swept, resumed and held to the contract as those that come with the package.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tsadapt

MODULE = '''
"""A source term, a target term with a setting, and a method that alternates."""

import torch
from torch.nn import functional as F

from tsadapt.objectives.base import Method, SourceTerm, TargetTerm
from tsadapt.settings import setting


class Smooth(SourceTerm):
    """Cross-entropy with smoothed labels."""

    def of_head(self, i, head, out):
        return F.cross_entropy(head.source.logits.float(), out.labels(), label_smoothing=0.1)


class Sharp(TargetTerm):
    """Entropy of the target's predictions, lowered."""

    my_setting: float = setting(0.5, "How sharp the predictions become.", at_least=0)

    def forward(self, out):
        log_p = out.target.logits.float().log_softmax(1)
        return -self.my_setting * (log_p.exp() * log_p).sum(1).mean()


class Tug(Method):
    """Two classifiers pull apart, and the features bring them together again."""

    terms = ("apart", "together")
    heads = 2
    phases = ("features",)

    def update(self, step):
        out = step.forward()
        step.minimize({**step.source(out), "apart": -0.1 * self.distance(out)})
        step.minimize({"together": 0.1 * self.distance(step.forward())}, only=[step.extractor], phase="features")

    def distance(self, out):
        p, q = (head.target.logits.float().softmax(1) for head in out.heads)
        return (p - q).abs().mean()
'''
METADATA = "Metadata-Version: 2.1\nName: somebody-elses\nVersion: 1.0\n"
ENTRY_POINTS = """\
[tsadapt.source_term]
smooth = somebody_elses:Smooth

[tsadapt.target_term]
sharp = somebody_elses:Sharp

[tsadapt.method]
tug = somebody_elses:Tug
"""
OBJECTIVE = ["--source-term", "smooth", "--target-term", "sharp", "--target-term", "mi", "--method", "tug"]
SHORT = ["--steps", "20", "--batch-size", "16", "--bottleneck", "8", "--device", "cpu", "--quiet"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Where Python finds somebody else's module."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "somebody_elses.py").write_text(MODULE)
    described = folder / "somebody_elses-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(METADATA)
    (described / "entry_points.txt").write_text(ENTRY_POINTS)
    path = os.pathsep.join([str(folder), str(Path(tsadapt.__file__).parents[1])])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "90"}


@pytest.fixture
def tool(environment, here):
    """Run `python -m tsadapt` there: what it printed."""

    def run(*words, status=0):
        command = [sys.executable, "-m", "tsadapt", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    return run


def program(environment, text):
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def weights(run):
    return Path(run, "model", "model.safetensors").read_bytes()


def test_they_are_listed(tool, environment):
    lines = tool("list", "target-terms").splitlines()
    assert any(re.fullmatch("sharp .* Entropy of the target's predictions, lowered.", line) for line in lines)
    both = "from tsadapt.cli import main; main(['list', 'source-terms']); main(['list', 'methods'])"
    lines = program(environment, both).splitlines()
    assert any(re.fullmatch("smooth .* in its place +Cross-entropy with smoothed labels.", line) for line in lines)
    assert any(re.fullmatch("tug .* alternating.* Two classifiers pull apart.*", line) for line in lines)


def test_help_explains_them(tool):
    said = " ".join(tool("fit", "--help").replace("│", " ").split())
    assert "--my-setting X How sharp the predictions become. [sharp] (default: 0.5)" in said
    for option, names in (("source-term", "smooth"), ("target-term", "sharp"), ("method", "tug")):
        assert re.search(rf"--{option} NAME [^-]*Available: [^.]*\b{names}\b", said), option


def test_they_are_trained_together_by_flags_python_and_the_estimator(tool, environment):
    tool("fit", "source.npz", "target.npz", *OBJECTIVE, "--my-setting", "2", *SHORT, "--out", "a")
    text = Path("a/config.toml").read_text()
    assert 'source_term = "smooth"' in text
    assert 'target_terms = ["sharp", "mi"]' in text
    assert "[settings.sharp]\nmy_setting = 2.0" in text
    logged = json.loads(Path("a/records.jsonl").read_text().splitlines()[-1])
    assert {"smooth", "sharp", "mi", "apart", "together"} <= set(logged)
    words = ["fit", "source.npz", "target.npz", *OBJECTIVE, *SHORT, "--out", "b"]
    program(
        environment,
        "import numpy as np, tsadapt\n"
        "from tsadapt.cli import main\n"
        f"assert main({[*words, '--my-setting', '-1']}) == 2\n"
        f"assert main({words}) == 0\n"
        "known = dict(source_term='smooth', target_terms=('sharp', 'mi'), method='tug', steps=20, batch_size=16,"
        " bottleneck=8, device='cpu')\n"
        "model = tsadapt.fit('source.npz', 'target.npz', out='c', my_setting=2, **known)\n"
        "assert set(model.predict('target.npz')) <= {'ant', 'bee', 'cow'}\n"
        "s, t = np.load('source.npz'), np.load('target.npz')\n"
        "clf = tsadapt.DomainAdaptationClassifier(term_settings={'my_setting': 2}, random_state=0, **known)\n"
        "clf.fit(s['x'], s['y'], X_target=t['x'])\n",
    )
    assert weights("a") == weights("c") != weights("b")


def test_they_are_swept(tool):
    words = ["source.npz", "target.npz", *OBJECTIVE, "--grid", "my_setting=1,2", *SHORT, "--out", "s"]
    said = tool("sweep", *words)
    assert "my_setting 2" in said
    texts = [path.read_text() for path in Path("s/runs").glob("*/config.toml")]
    found = sorted(match[1] for text in texts if (match := re.search(r"my_setting = (\S+)", text)))
    assert found == ["1.0", "2.0"]
    assert len(texts) == 3  # source-only beside them
    assert {"run", "step", "overrides"} <= set(json.loads(Path("s/choice.json").read_text()))


def test_a_killed_run_ends_with_the_same_bits(environment, tool):
    words = ["fit", "source.npz", "target.npz", *OBJECTIVE, "--my-setting", "2", *SHORT, "--steps", "200"]
    words += ["--checkpoint-every", "20"]
    tool(*words, "--out", "whole")
    command = [sys.executable, "-m", "tsadapt", *words, "--out", "again"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as first:
        end = time.monotonic() + 60
        while not [*Path("again/checkpoints").glob("step-*.pt")] and time.monotonic() < end:
            time.sleep(0.01)
        first.send_signal(signal.SIGKILL)
    assert not Path("again/metrics.json").exists()
    assert "resumed at step" in tool(*words, "--out", "again")
    assert weights("whole") == weights("again")


def test_they_keep_the_contract(environment):
    """The package's own contract, of their combinations with each other and with TSA."""
    chosen = "smooth/tug or tsa/sharp/tug or sharp/shot/tug or smooth/sharp/dann or its_settings_are_whole"
    words = ["-p", "no:cacheprovider", "-n", "0", "-vv", "tests/contract", "-k", chosen]
    command = [sys.executable, "-m", "pytest", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    for one in ("smooth/tug-fp32", "tsa/sharp/tug-fp32", "go_on[smooth/sharp/dann]", "target term-sharp"):
        assert one in done.stdout
    assert "go_on[tsa/aad/" in done.stdout  # with every target term


def test_without_the_module_nobody_knows_them(here):
    """So that what is above comes from the module alone."""
    done = subprocess.run(
        [sys.executable, "-m", "tsadapt", "fit", "source.npz", "target.npz", *OBJECTIVE, *SHORT],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Unknown source term 'smooth'" in done.stderr
