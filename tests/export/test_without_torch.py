"""Exported models are used without torch: by predict, and by the example beside the model, without tsadapt as well."""

import csv
import io
import os
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.export.cases import ENCODER, assert_same, exported, predictions, run_of

import tsadapt

ROOT = Path(tsadapt.__file__).parents[2]
BLOCKED = """
import runpy, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ImportError(f"{{name}} is blocked")

sys.meta_path.insert(0, Blocked())
"""
PREDICT = BLOCKED.format(names=("torch", "torchvision", "timm")) + "from tsadapt.cli import main; sys.exit(main())"
LACKING = PREDICT.replace('raise ImportError(f"{name} is blocked")', "raise ModuleNotFoundError(name, name=name)")
RUN = "sys.argv[:] = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
EXAMPLE = BLOCKED.format(names=("torch", "tsadapt", "pandas", "sklearn", "scipy", "onnx")) + RUN
TORCH_EXAMPLE = BLOCKED.format(names=("tsadapt",)) + RUN
PYTHON = (sys.executable, "-c")


def printed(*words, **more):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, timeout=600, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def said(text):
    """Row, class and confidence of each line that an example prints."""
    return [tuple(line.rsplit(" ", 2)) for line in text.splitlines()]


@pytest.fixture
def digit_files(here):
    folder = here / "digit-files"
    folder.mkdir(exist_ok=True)
    for i, pixels in enumerate(np.load("grey.npz")["x"][:6]):
        side = 28 if i % 2 else 21
        Image.fromarray(pixels[:side, :side]).save(folder / f"{i}.png")
    return folder


@pytest.fixture
def examples(here, digit_files):
    """For each kind of input: the model, data for predict, what its example is given, and how close both are.

    Pillow resizes with other roundings than torch.
    """
    np.save("rows.npy", np.load("target.npz")["x"])
    photos = sorted(Path("new").rglob("*.*"), key=lambda path: path.name)
    digits = sorted(digit_files.iterdir())
    return {
        "frozen": ("new", photos, 0.02), "ten-crop": ("new", photos, 0.02), "digits": (digit_files, digits, 0.02),
        "table": ("target.csv", ["target.csv"], 1e-4), "adabn": ("target.npz", ["rows.npy"], 1e-4),
    }  # fmt: skip


CASES = ("frozen", "ten-crop", "digits", "table", "adabn")


def assert_example_agrees(text, expected, close):
    found = said(text)
    assert len(found) == len(expected) > 1
    for (row, name, confidence), line in zip(found, expected, strict=True):
        assert Path(row).name == Path(line.get("row", row)).name
        assert name == line["class"]
        assert float(confidence) == pytest.approx(float(line["confidence"]), abs=close)


@pytest.mark.parametrize("case", CASES)
def test_predict_where_torch_cannot_be_imported(case, examples):
    data = examples[case][0]
    file = exported(case)
    text = printed(*PYTHON, PREDICT, "predict", file, data, "--probabilities")
    assert_same([*csv.DictReader(io.StringIO(text))], predictions(file, data, "--probabilities"), close=1e-5)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_what_needs_torch_says_so_in_one_line(verb):
    model = run_of("adabn") if verb == "predict" else exported("adabn")
    words = [*PYTHON, LACKING, verb, str(model), "source.npz"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"tsadapt: {verb} needs torch, which is not installed here")
    assert "tsadapt predict model.onnx DATA" in line


@pytest.mark.parametrize("case", CASES)
def test_the_example_needs_onnxruntime_numpy_and_pillow_alone(case, examples):
    data, given, close = examples[case]
    file = exported(case)
    lines = (file.parent / "use_onnx.py").read_text().splitlines()
    body = [line for line in lines[1:] if line and not line.startswith(("import ", "from "))]
    assert len(body) <= 12
    text = printed(*PYTHON, EXAMPLE, file.parent / "use_onnx.py", *given)
    assert_example_agrees(text, predictions(file, data), close)
    words = [*PYTHON, EXAMPLE, str(file.parent / "use_onnx.py")]
    alone = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert alone.returncode == 1
    assert alone.stderr.startswith("Predict with model.onnx: python use_onnx.py ")


@pytest.mark.parametrize("case", ["frozen", "table"])
def test_the_example_of_a_torch_program_needs_no_tsadapt(case, examples):
    data, given, close = examples[case]
    file = exported(case, "torch")
    text = printed(*PYTHON, TORCH_EXAMPLE, file.parent / "use_torch.py", *given)
    assert_example_agrees(text, predictions(exported(case), data), close)


NO_PICKLE = """
import io, pickle, sys, zipfile
import torch
from torch.export.pt2_archive import _package  # everything is imported before pickle is taken away

with zipfile.ZipFile(sys.argv[1]) as archive:
    for info in archive.infolist():
        content = archive.read(info)
        try:
            pickle.Unpickler(io.BytesIO(content)).load()
        except Exception:
            continue
        if content[:1] == b"\\x80":
            sys.exit(f"{info.filename} is pickled")

def refuse(*_, **__):
    sys.exit("something is unpickled")

pickle.load = pickle.loads = pickle.Unpickler = pickle._Unpickler = torch.load = refuse
torch._C._pickle_load_obj = refuse
torch.export.load(sys.argv[1]).module()
print("loaded")
"""


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("case", ["frozen", "table"])
def test_nothing_is_unpickled_in_a_torch_program(case):
    assert printed(*PYTHON, NO_PICKLE, exported(case, "torch")) == "loaded\n"


@pytest.mark.usefixtures("here")
def test_the_encoders_code_is_not_run_again():
    file = exported("frozen")
    code = Path("enc.py")
    try:
        code.write_text("raise SystemExit('run')\n")
        assert len(predictions(file, "new")) == 13
    finally:
        code.write_text(ENCODER)


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory):
    """The interpreter of a fresh environment, with what an exported model needs."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--prefer-binary", "-c", ROOT / "constraints.txt"]
    packages = ["onnxruntime", "numpy", "pillow"]
    done = subprocess.run([*map(str, install), *packages], capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        pytest.skip(f"packages cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
    return python, install


def test_a_fresh_environment(without_torch, examples):
    python, install = without_torch
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    missing = "import importlib.util; print([importlib.util.find_spec(n) for n in ('torch', 'tsadapt', 'pandas')])"
    assert printed(python, "-c", missing, env=clean) == "[None, None, None]\n"
    for case in CASES:
        data, given, close = examples[case]
        file = exported(case)
        text = printed(python, file.parent / "use_onnx.py", *given, env=clean)
        assert_example_agrees(text, predictions(file, data), close)
    # tsadapt itself, with the packages that docs/export.md names
    printed(*install, "pandas", "rich", "tyro")
    command = [python, "-m", "tsadapt", "predict"]
    for case in ("frozen", "table"):
        text = printed(*command, exported(case), examples[case][0], env={**clean, "PYTHONPATH": str(ROOT / "src")})
        assert_same([*csv.DictReader(io.StringIO(text))], predictions(exported(case), examples[case][0]), close=1e-5)


@pytest.mark.usefixtures("here")
def test_exporting_is_quiet(tmp_path):
    command = [sys.executable, "-m", "tsadapt", "export", run_of("adabn"), "--out", tmp_path / "shipped"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True, timeout=600)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"written: {tmp_path / 'shipped' / 'model.onnx'} (")
    assert lines[2] == "beside it: README.md, use_onnx.py"
