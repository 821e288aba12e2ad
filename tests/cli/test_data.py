"""What people have reaches every verb: one image, patterns, standard input, ids, a CSV of labels."""

import csv
import io
import json
import re
import sys
from pathlib import Path

import datasets
import numpy as np
import pandas
import pytest
from tests.photos import QUICK, SEE, picture, write_classes, write_flat

from tsadapt.cli import main
from tsadapt.data import patterns

SHORT = ["--steps", "30", "--batch-size", "16", "--bottleneck", "8", "--quiet"]
CLASSES = ("ant", "bee", "cow")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path / "cache"))
    patterns._pairs.cache_clear()
    yield tmp_path
    patterns._pairs.cache_clear()


@pytest.fixture
def photos(here):
    """A run of photographs."""
    write_classes(here / "labelled", n=4)
    write_flat(here / "new", n=3)
    assert main(["fit", "labelled", "new", "--out", "run", *SEE, *QUICK]) == 0
    return here


@pytest.fixture
def tables(here):
    """Two tables with an id and a label column that are not called so."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(3, 4))
    for name, n, shift in (("source", 60, 0.0), ("target", 45, 0.5)):
        y = np.arange(n) % 3
        frame = pandas.DataFrame((centres[y] + rng.normal(size=(n, 4)) + shift).round(3), columns=[*"abcd"])
        frame.insert(0, "plant", [f"{name[0]}{i:03d}" for i in range(n)])
        frame["species"] = np.array(CLASSES)[y]
        frame.to_csv(f"{name}.csv", index=False)
    frame.drop(columns="species").to_csv("bare.csv", index=False, sep=";", decimal=",")
    return here


COLUMNS = ["--id-column", "plant", "--label-column", "species"]


@pytest.fixture
def run(tables):
    assert main(["fit", "source.csv", "target.csv", *COLUMNS, "--out", "run", *SHORT]) == 0
    return Path("run")


def given(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def predictions(capsys):
    return [*csv.DictReader(capsys.readouterr().out.splitlines())]


def test_predict_takes_one_image_several_a_pattern_and_standard_input(photos, monkeypatch, capsys):
    assert main(["predict", "run", "new"]) == 0
    whole = {row["row"]: row["class"] for row in predictions(capsys)}
    names = ["1-00.png", "2-01.png"]
    for words, prefix, rows in (
        (["new/1-00.png"], "", names[:1]),
        (["new/1-00.png", "new/2-01.png"], "new/", names),
        (["new/{1-00,2-01}.png"], "", names),
        (["-"], "new/", names),
    ):
        given(monkeypatch, "new/1-00.png\nnew/2-01.png\n")
        capsys.readouterr()
        assert main(["predict", "run", *words]) == 0
        found = {row["row"]: row["class"] for row in predictions(capsys)}
        assert found == {prefix + name: whole[name] for name in rows}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["predict", "run"], "predict needs a RUN and DATA"),
        (["predict", "run", "new/1-00.png", "labelled"], "several images, and received 2 names, among them 'labelled'"),
        (["predict", "run", "new/*.jpg"], "matches nothing in new"),
        (["predict", "run", "new", "--out", "new/1-00.png/x"], "lies in a file"),
        (["predict", "run", "new/1-00.png", "new/1-01.png", "--out", "new/1-01.png"], "is the data itself"),
        (["fit", "-", "-"], "both standard input"),
        (["evaluate", "run", "labelled", "--rows", "new"], "--rows goes with a CSV of names and labels"),
        (["evaluate", "run", "wrong.csv"], "names 7-77.png, which the target new does not have"),
        (["evaluate", "run", "strange.csv"], "Unknown class 'emu'"),
    ],
)
def test_mistakes_are_one_line(photos, capsys, words, said):
    Path("wrong.csv").write_text("name,label\n7-77.png,ant\n")
    Path("strange.csv").write_text("name,label\n1-00.png,emu\n")
    capsys.readouterr()
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_what_is_left_out_is_said(photos, capsys):
    assert main(["predict", "run", "new", "--id-column", "id"]) == 2
    assert "--id-column id names a column, and new has none: its rows have names of their own, such as 0-00.png" in (
        capsys.readouterr().err
    )
    np.savez("s.npz", x=np.eye(8), y=np.arange(8) % 2)
    assert main(["fit", "s.npz", "s.npz", "--out", "vectors", *SHORT]) == 0
    parts = {name: datasets.Dataset.from_dict({"x": np.eye(8)[:n].tolist()}) for name, n in (("train", 8), ("test", 3))}
    datasets.DatasetDict(parts).save_to_disk("parts")
    capsys.readouterr()
    assert main(["predict", "vectors", "hf:parts"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 4
    assert said.err == "note: of hf:parts, the test split is predicted (3 rows).\n"


def test_a_run_on_standard_input_is_resumed_and_reported(photos, monkeypatch, capsys):
    lines = "".join(f"new/{label}-{i:02d}.png\n" for label in range(3) for i in range(2))
    words = ["fit", "labelled", "-", "--out", "piped", *SEE, *QUICK]
    given(monkeypatch, lines)
    assert main(words) == 0
    patterns._pairs.cache_clear()
    given(monkeypatch, lines)
    capsys.readouterr()
    assert main(words) == 0
    assert "already done" in capsys.readouterr().err
    assert main(["report", "piped", "--out", "page.html"]) == 0
    assert "2-01.png" in Path("page.html").read_text()


def test_the_id_column_is_carried_through_and_labels_are_found(run, capsys):
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert metrics["last"]["target"]["accuracy"] > 0.8
    capsys.readouterr()
    assert main(["predict", "run", "bare.csv"]) == 0  # it is known from training, and so are the columns
    out, err = capsys.readouterr()
    rows = [*csv.DictReader(out.splitlines())]
    assert [*rows[0]] == ["plant", "class", "confidence"]
    assert [row["plant"] for row in rows] == [f"t{i:03d}" for i in range(45)]
    assert "separated by semicolons" in err
    assert "decimal commas" in err
    assert main(["predict", "run", "target.csv"]) == 0
    assert capsys.readouterr().out == out  # the same numbers, and the label is no feature
    pandas.read_csv("target.csv").drop(columns=["plant", "species"]).to_csv("plain.csv", index=False)
    assert main(["predict", "run", "plain.csv"]) == 0  # none of the two has to be there
    assert capsys.readouterr().out.startswith("row,class,confidence\n0,")
    assert main(["predict", "run", "plain.csv", "--id-column", "plant"]) == 2
    assert "no column 'plant' (--id-column)" in capsys.readouterr().err


def test_columns_are_part_of_the_config(tables, capsys):
    base = ["source.csv", "target.csv", *SHORT]
    assert main(["fit", *base, *COLUMNS]) == 0
    for name in ("source.csv", "target.csv"):
        pandas.read_csv(name).rename(columns={"species": "label"}).to_csv(name, index=False)
    assert main(["fit", *base, "--id-column", "plant"]) == 0
    texts = [path.read_text() for path in Path("runs").glob("*/config.toml")]
    assert ['label_column = "species"' in text for text in sorted(texts, key=len)] == [False, True]
    assert all('id_column = "plant"' in text for text in texts)


def test_evaluate_says_an_interval_and_the_calibration_error(run, capsys):
    capsys.readouterr()
    assert main(["evaluate", "run", "target.csv", "--out", "e.json"]) == 0
    out = capsys.readouterr().out
    found = json.loads(Path("e.json").read_text())
    low, high = found["accuracy_interval"]["low"], found["accuracy_interval"]["high"]
    assert low < found["accuracy"] < high
    assert f"(Wilson): {low:.1%} to {high:.1%}; calibration error {found['calibration_error']:.1%}" in out
    # Wilson's interval by hand, for 45 rows
    p, z, n = found["accuracy"], 1.959964, 45
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5 / (1 + z * z / n)
    assert (low, high) == pytest.approx((middle - half, min(middle + half, 1)))


@pytest.mark.parametrize("head", ["", "name,label\n", "plant,species\n"])
def test_evaluate_on_a_few_names_and_labels(run, capsys, head):
    truth = dict(zip(*pandas.read_csv("target.csv")[["plant", "species"]].to_numpy().T, strict=True))
    chosen = ["t007", "t031", "t002"]
    Path("few.csv").write_text(head + "".join(f"{name},{truth[name]}\n" for name in chosen))
    capsys.readouterr()
    assert main(["evaluate", "run", "few.csv", "--out", "e.json"]) == 0
    found = json.loads(Path("e.json").read_text())
    capsys.readouterr()
    assert main(["predict", "run", "target.csv"]) == 0
    guess = {row["plant"]: row["class"] for row in predictions(capsys)}
    assert found["rows"] == 3
    assert found["accuracy"] == pytest.approx(np.mean([guess[name] == truth[name] for name in chosen]))
    assert main(["evaluate", "run", "few.csv", "--rows", "bare.csv", "--out", "again.json"]) == 0
    assert json.loads(Path("again.json").read_text())["accuracy"] == found["accuracy"]


def test_evaluate_on_labelled_images(photos, capsys):
    Path("checked.csv").write_text("name,label\n1-00.png,bee\n2-01.png,ant\n0-02.png,ant\n")
    assert main(["evaluate", "run", "checked.csv", "--out", "e.json"]) == 0  # by their names in the run's target
    found = json.loads(Path("e.json").read_text())
    assert found["rows"] == 3
    Path("other").mkdir()
    for name in ("a.png", "b.png"):
        picture(0, 5, 90).save(f"other/{name}")
    Path("other/few.csv").write_text("a.png,ant\nb.png,bee\n")  # by their place beside the file
    capsys.readouterr()
    assert main(["evaluate", "run", "other/few.csv"]) == 0
    assert re.search(r"data other/few.csv \(all, 2 rows\): accuracy 50.0%", capsys.readouterr().out)


def test_every_verb_takes_a_pattern_of_tables(tables, capsys):
    Path("target.csv").rename("target-0.csv")
    assert main(["doctor", "source.csv", "target-*.csv", *COLUMNS]) in (0, 1)
    assert "target-*.csv: 45 rows, 3 classes" in capsys.readouterr().out
    words = ["source.csv", "target-*.csv", *COLUMNS, *SHORT]
    assert main(["adapt", *words, "--portfolio", "mi", "--out", "result"]) == 0
    rows = [*csv.DictReader(Path("result/predictions.csv").read_text().splitlines())]
    assert next(iter(rows[0])) == "plant"
    assert rows[3]["plant"] == "t003"
    assert main(["sweep", *words, "--grid", "lambda0=0.1,0.2", "--out", "swept"]) == 0
    assert main(["predict", "swept", "target-0.csv", "--out", "p.csv"]) == 0


def test_features_of_a_table_of_images(photos):
    lines = [f"labelled/{name}/00.png,{name}\n" for name in CLASSES]
    Path("list.csv").write_text("file,kind\n" + "".join(lines))
    words = ["--label-column", "kind", "--id-column", "file", "--backbone", "test_efficientnet", "--weights", "none"]
    assert main(["features", "list.csv", "--out", "x.npz", *words, "--quiet"]) == 0
    arrays = np.load("x.npz")
    assert arrays["classes"].tolist() == [*CLASSES]
    assert arrays["names"].tolist() == [f"labelled/{name}/00.png" for name in CLASSES]
