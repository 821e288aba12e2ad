"""Exported models: the same predictions as their runs, for every kind of run, and nothing left behind otherwise."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from tests.export.cases import OWN, RUNS, assert_same, exported, own, predictions, run_of
from tests.photos import truncate, write_flat

import tsadapt
from tsadapt.adapt import adapt
from tsadapt.cli import main
from tsadapt.errors import UserError
from tsadapt.export import ExportedModel, export, graph, write
from tsadapt.export.graph import ten_crops


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("case", RUNS)
def test_predictions_are_those_of_the_run(case):
    file = exported(case)
    backbone = ["--backbone", own(case)] if own(case) else []
    data = [RUNS[case][1], "--probabilities"]
    assert_same(predictions(file, *data), predictions(run_of(case), *data, *backbone))
    assert_same(predictions(file.parent, *data), predictions(file, *data))  # by its folder


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("case", ["frozen", "ten-crop", "table", "digits"])
def test_a_torch_program_predicts_the_same(case):
    model, file = ExportedModel(exported(case)), exported(case, "torch")
    extra = {"classes.json": "", "tsadapt.json": ""}
    program = torch.export.load(file, extra_files=extra).module()
    assert tuple(json.loads(extra["classes.json"])) == model.classes
    x = np.random.default_rng(0).integers(0, 255, (5, *model.recipe.row_shape)).astype(model.recipe.dtype)
    for n in (1, 5):  # batches of any size
        p, z = (t.detach().numpy() for t in program(torch.from_numpy(x[:n])))
        for found, expected in zip(model.run(x[:n]), (p, z), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-4 * max(1, np.abs(z).max()))


@pytest.mark.usefixtures("here")
def test_tables_have_their_ids_and_images_may_come_one_by_one():
    assert predictions(exported("table"), "target.csv")[7]["no"] == "row 7"
    some = ["new/0-00.png", "new/9.jpg"]
    for words in ([exported("frozen"), *some], [exported("frozen"), "new/*0.png"]):
        found = predictions(*words)
        assert_same(found, predictions(run_of("frozen"), *words[1:], "--backbone", "enc.py:make"))


@pytest.mark.usefixtures("here")
def test_evaluate_says_of_an_exported_model_what_it_says_of_the_run(capsys, tmp_path):
    few = tmp_path / "few.csv"
    few.write_text("no,label\nrow 3,ant\nrow 4,bee\nrow 5,ant\n")
    images = Path("labelled/few.csv")
    ant, bee = (min(Path("labelled", name).glob("*.*")).name for name in ("ant", "bee"))
    images.write_text(f"name,label\nant/{ant},ant\nbee/{bee},cow\n")
    for case, words in (
        ("table", ["source.csv"]),
        ("table", [few, "--rows", "target.csv"]),
        ("frozen", ["labelled"]),
        ("frozen", [images]),
        ("digits", ["digits:uci"]),
    ):
        said = []
        encoder = ["--backbone", own(case)] if own(case) else []
        for model, more in ((run_of(case), encoder), (exported(case), [])):
            capsys.readouterr()
            assert main(["evaluate", str(model), *map(str, words), *more]) == 0
            said.append(capsys.readouterr().out)
        assert "95% interval of the accuracy (Wilson)" in said[0]
        assert re.sub(r"calibration error .*", "", said[0]) == re.sub(r"calibration error .*", "", said[1])
    images.unlink()


@pytest.mark.usefixtures("here")
def test_grey_images_and_unreadable_ones(tmp_path):
    write_flat(tmp_path / "some", n=1)
    truncate(tmp_path / "some" / "1-00.png")
    Image.new("I;16", (40, 30), 30000).save(tmp_path / "some" / "deep.png")
    file, run = exported("frozen"), run_of("frozen")
    for data in (tmp_path / "some", "grey-photos.npz"):
        found = predictions(file, data)
        assert_same(found, predictions(run, data, "--backbone", "enc.py:make"))
    assert "truncated" in predictions(file, tmp_path / "some")[1]["error"]


@pytest.mark.usefixtures("here")
def test_messages_are_those_of_a_run(capsys, tmp_path):
    write_flat(tmp_path / "some", n=1)
    truncate(tmp_path / "some" / "1-00.png")
    (tmp_path / "some" / "notes.doc").touch()
    said = []
    for words in ([exported("trained")], [run_of("trained"), "--backbone", "enc.py:make"]):
        capsys.readouterr()
        assert main(["predict", *map(str, words), str(tmp_path / "some"), "--out", str(tmp_path / "p.csv")]) == 0
        said.append([line for line in capsys.readouterr().err.splitlines() if not line.startswith("image ")])
    assert said[0] == said[1]
    assert any("1 image cannot be read" in line for line in said[0])


@pytest.fixture(scope="module")
def result(place):
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    centres = 2 * rng.normal(size=(3, 8))
    x_s, x_t = (centres[y] + rng.normal(size=(120, 8)) for _ in range(2))
    np.savez(place / "s.npz", x=x_s.astype(np.float32), y=np.array(["ant", "bee", "cow"])[y])
    np.savez(place / "t.npz", x=(x_t + 0.8).astype(np.float32))
    folder = place / "result"
    return adapt(str(place / "s.npz"), str(place / "t.npz"), out=folder, portfolio=["paper"], steps=60, holdout=0.3)


@pytest.mark.usefixtures("here")
def test_a_result_of_adapt_is_exported_with_its_temperature(result, tmp_path):
    summary, folder = result.summary, result.folder.path
    temperature = summary["temperature"]
    assert temperature != 1
    assert result.model.temperature == tsadapt.load(folder).temperature == temperature
    raw = tsadapt.load(folder / summary["chosen"]["run"])
    assert raw.temperature == 1
    z = raw.outputs("t.npz").logits / temperature
    expected = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    assert tsadapt.load(folder).predict_proba("t.npz") == pytest.approx(expected, abs=1e-6)
    made = export(folder, tmp_path / "shipped")
    assert made.recipe.temperature == temperature
    assert_same(predictions(made.file, "t.npz"), predictions(folder, "t.npz"))
    other = export(folder / "model", tmp_path / "beside", "torch")
    assert other.recipe.temperature == temperature
    card = (tmp_path / "beside" / "README.md").read_text()
    assert f"about {summary['estimated_accuracy']['value']:.0%}" in card
    assert summary["chosen"]["why"] in card


@pytest.mark.usefixtures("here")
def test_a_stale_model_does_not_stand_for_the_chosen_run(result, tmp_path):
    folder = tmp_path / "result"
    shutil.copytree(result.folder.path, folder)
    described = json.loads((folder / "model" / "model.json").read_text())
    described.pop("sha256")
    (folder / "model" / "model.json").write_text(json.dumps({**described, "weights": "of another run"}))
    assert tsadapt.load(folder).temperature == 1


@pytest.mark.usefixtures("here")
def test_what_differs_from_pytorch_is_not_left_behind(monkeypatch, tmp_path):
    run = run_of("adabn")

    def wrong(whole, recipe, example):
        with torch.no_grad():
            whole.network.head.bias[0] += 0.1
            try:
                return graph.as_onnx(whole, recipe, example)
            finally:
                whole.network.head.bias[0] -= 0.1

    with monkeypatch.context() as patch:
        patch.setattr(write, "as_onnx", wrong)
        with pytest.raises(UserError, match=r"differs from PyTorch by .*e-0"):
            export(run, tmp_path / "shipped")
    assert not [*(tmp_path / "shipped").iterdir()]
    before = exported("two-heads").read_bytes()
    monkeypatch.setattr(write, "LIMIT", -1.0)
    with pytest.raises(UserError, match="nothing is written"):
        export(run_of("two-heads"), "shipped/two-heads")
    assert exported("two-heads").read_bytes() == before  # an older one stays


@pytest.mark.usefixtures("here")
def test_what_differs_from_the_run_is_not_left_behind(monkeypatch, tmp_path):
    class Forgetful(graph.Whole):
        def __init__(self, model):
            super().__init__(model)
            self.temperature = 30.0

    monkeypatch.setattr(write, "Whole", Forgetful)
    with pytest.raises(UserError, match="what the run says"):
        export(run_of("adabn"), tmp_path / "shipped", "torch")
    assert not [*(tmp_path / "shipped").iterdir()]


@pytest.mark.usefixtures("here")
def test_files_say_nothing_of_this_machine(place):
    for case in ("frozen", "digits"):
        for file in (exported(case), exported(case, "torch")):
            for name in file.parent.iterdir():
                content = name.read_bytes()
                for secret in (str(place), str(Path(write.__file__).parent), "site-packages"):
                    assert secret.encode() not in content, (name, secret)


@pytest.mark.usefixtures("here")
def test_the_file_describes_itself():
    proto = onnx.load(exported("table"))
    onnx.checker.check_model(proto, full_check=True)
    metadata = {one.key: one.value for one in proto.metadata_props}
    assert json.loads(metadata["classes"]) == ["ant", "bee", "cow"]
    assert json.loads(metadata["tsadapt"])["columns"] == [*"abcdef"]
    assert str(ExportedModel(exported("table")).recipe) == "rows, float64 (N, 6)"
    assert str(ExportedModel(exported("adabn")).recipe) == "rows, float64 (N, 6)"
    assert str(ExportedModel(exported("digits")).recipe) == "images, uint8 (N, 16, 16, 1)"


@pytest.mark.usefixtures("here")
def test_the_card():
    from huggingface_hub import ModelCard

    exported("frozen", "torch")
    file = exported("frozen")
    card = ModelCard.load(file.parent / "README.md")
    assert card.data.pipeline_tag == "image-classification"
    for title in ("Data", "Method", "Estimate", "Limits", "Check"):
        assert f"\n## {title}\n\n" in card.text
    for text in (
        "`labelled`, 15 rows",
        "`new`, 13 rows",
        "tsa + mi",
        "`enc.py:make` (frozen)",
        "ant, bee, cow",
        "model.pt2",
    ):
        assert text in card.text
    assert "\n\n\n" not in card.text


def test_ten_crops_are_those_of_training():
    from tsadapt.data.transforms import Framing, evaluation_transform

    for side in (36, 37, 39):
        whole = torch.randint(256, (3, side, side), dtype=torch.uint8)
        expected = evaluation_transform(Framing(32, side, keep_aspect=False), ten_crop=True)(whole)
        assert torch.equal(ten_crops(whole[None], 32), expected)


REFUSED = [
    (["export", "nowhere"], "No run at nowhere"),
    (["export", "new"], "No trained model in new"),
    (["export", "runs/frozen"], "--backbone"),
    (["export", "runs/adabn", "--backbone", "enc.py:make"], "no encoder of your own"),
    (["export", "runs/adabn", "--use", "selected"], "one candidate"),
    (["export", "runs/adabn", "--out", "enc.py"], "is a file"),
    (["export", "runs/adabn", "--out", "somewhere/model.onnx"], "name a folder"),
    (["export", "runs/adabn", "--out", "labelled"], "holds no exported model"),
    (["export", "runs/adabn", "--data", "new", "--out", "x"], "contains images"),
    (["export", "runs/adabn", "--data", "nowhere.npz", "--out", "x"], "nowhere.npz does not exist"),
    (["predict", "shipped/table/model.onnx", "new"], "contains images, but this model takes vectors"),
    (["predict", "shipped/digits/model.onnx", "target.npz"], "contains feature vectors, but this model takes images"),
    (["predict", "shipped/adabn/model.onnx", "s.npz"], "has 8 features per row, expected 6"),
    (["predict", "shipped/adabn/model.onnx", "target.npz", "--adapt-bn"], "--adapt-bn needs a RUN"),
    (["predict", "shipped/adabn/model.onnx", "target.npz", "--use", "selected"], "--use selected needs a RUN"),
    (["predict", "shipped/adabn/model.onnx", "target.npz", "--backbone", "enc.py:make"], "--backbone needs a RUN"),
    (["predict", "shipped/adabn/model.onnx", "target.npz", "--device", "tpu"], "expected cpu"),
    (["predict", "shipped/frozen/model.pt2", "new"], "torch.export.load"),
    (["evaluate", "shipped/adabn/model.onnx", "target.npz", "--adapt-bn"], "--adapt-bn needs a RUN"),
    (["evaluate", "shipped/table/model.onnx", "few.csv"], "the model has no run that says of what: add --rows DATA"),
    (["predict", "none.onnx", "target.npz"], "No model at none.onnx"),
    (["predict", "damaged.onnx", "target.npz"], "damaged, or no ONNX model"),
    (["predict", "foreign.onnx", "target.npz"], "not written by this version of tsadapt export"),
]


@pytest.mark.usefixtures("here", "result")
@pytest.mark.parametrize(("words", "said"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_refusals_are_one_line(words, said, capsys):
    for case in ("frozen", "adabn", "table", "digits"):
        exported(case)
    exported("frozen", "torch")
    Path("damaged.onnx").write_bytes(b"no model")
    Path("few.csv").write_text("no,label\nrow 3,ant\n")
    proto = onnx.load("shipped/adabn/model.onnx")
    del proto.metadata_props[:]
    onnx.save(proto, "foreign.onnx")
    capsys.readouterr()
    assert main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert said in lines[0]


@pytest.mark.usefixtures("here")
def test_missing_extras_and_unknown_formats_are_named(monkeypatch, tmp_path):
    with pytest.raises(UserError, match="Unknown format 'onxx'"):
        export(run_of("adabn"), tmp_path / "x", "onxx")
    monkeypatch.setattr(graph, "PACKAGES", ("onnx", "no_such_package"))
    with pytest.raises(UserError, match=r"\(no_such_package\): pip install 'tsadapt\[export\]'"):
        export("nowhere", tmp_path / "x")
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"pip install 'tsadapt\[export\]'"):
        ExportedModel(exported("adabn"))


@pytest.mark.usefixtures("here")
def test_a_run_without_its_data_asks_for_some(tmp_path, monkeypatch):
    for name in ("source", "target"):
        shutil.copy(f"{name}.npz", tmp_path)
    data = Path("target.npz").absolute()
    monkeypatch.chdir(tmp_path)
    tsadapt.fit("source.npz", "target.npz", out="run", steps=5, batch_size=6)
    Path("target.npz").unlink()
    assert export("run", "one", "torch").parity.data.endswith("source.npz")
    Path("source.npz").unlink()
    with pytest.raises(UserError, match="--data DATA"):
        export("run", "two", "torch")
    assert export("run", "two", "torch", data=data).parity.rows == 120
    text = Path("two/README.md").read_text()
    assert "120 rows of `target.npz`" in text
    assert str(data.parent) not in text
    assert export("run", "two", "torch", data=np.load(data)["x"]).parity.rows == 120


@pytest.mark.usefixtures("here")
def test_a_network_that_cannot_be_exported_is_named(tmp_path):
    Path("odd.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Odd(nn.Module):\n    size = 8\n\n    def forward(self, x):\n"
        "        return x.mean((2, 3)) if float(x.sum()) > 0 else x.amax((2, 3))\n\n\ndef make():\n    return Odd()\n"
    )
    settings = {**OWN, "backbone": "odd.py:make"}
    tsadapt.fit("labelled", "new", out="runs/odd", **settings)
    why = r"^The network cannot be exported: its computation depends on its input's values, [^\n]*data-dependent[^\n]*$"
    with pytest.raises(UserError, match=why):
        export("runs/odd", tmp_path / "x", "torch", backbone="odd.py:make")
    assert not (tmp_path / "x").exists()


@pytest.mark.usefixtures("here")
def test_a_network_of_a_fixed_batch_is_named():
    class Pairs(torch.nn.Module):
        def forward(self, x):
            return x.reshape(2, -1).sum(1)

    recipe = ExportedModel(exported("adabn")).recipe
    why = r"exported: its computation depends on the size of the batch, [^\n]* torch says: [^\n]*constant \(2\)\.$"
    with pytest.raises(UserError, match=why):
        graph.as_torch(Pairs(), recipe, torch.ones(2, 6))
