"""What a page says is what the run's folder and the data say: rows in their order, measured by labels alone."""

import numpy as np
import pytest
import torch
from tests.configs import changed, run_config
from tests.photos import SHORT, TINY, truncate, write_classes, write_flat

from tsadapt.errors import UserError
from tsadapt.report.collect import collect, collect_run
from tsadapt.report.page import Trusted
from tsadapt.report.trained_rows import source_rows, target_rows
from tsadapt.runs.fit import train_run
from tsadapt.runs.folder import RunFolder
from tsadapt.runs.model import load
from tsadapt.selection.predictions import Predictions
from tsadapt.training.setup import make_task
from tsadapt.trust.interval import wilson


def test_numbers_are_those_of_the_metrics(several):
    run = RunFolder(several[2])
    found, scored = collect_run(run), run.metrics["last"]["target"]
    assert found.measured.accuracy.value == pytest.approx(scored["accuracy"])
    assert found.measured.accuracy == wilson(round(150 * scored["accuracy"]), 150)
    assert found.measured.confusion.tolist() == scored["confusion"]
    assert found.measured.mean_class_accuracy == pytest.approx(scored["mean_class_accuracy"])
    assert dict(zip(found.classes, found.target.shares, strict=True)) == pytest.approx(scored["predicted_share"])
    assert found.source_accuracy == run.metrics["last"]["source"]["accuracy"]
    assert sum(rows for *_, rows in found.measured.bins) == 150
    predicted = load(run.path).predict(run.config.target)
    assert [found.classes[c] for c in found.rows.guess] == predicted.tolist()
    p = np.sort(load(run.path).predict_proba(run.config.target), 1)
    np.testing.assert_allclose(found.rows.confidence, p[:, -1], atol=1e-6)
    assert (found.rows.second != found.rows.guess).all()


def test_wilson_by_hand():
    assert wilson(0, 0).low == 0
    found = wilson(8, 10)  # (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n)
    assert (found.value, round(found.low, 4), round(found.high, 4)) == (0.8, 0.4902, 0.9433)
    assert wilson(10, 10).high == pytest.approx(1)
    assert wilson(0, 10).low == pytest.approx(0, abs=1e-12)


def test_labels_are_named_as_measured_and_not_needed(unlabelled):
    found = collect_run(RunFolder(unlabelled))
    assert found.measured is None
    assert found.rows.truth is None
    assert any("nothing is measured" in note for note in found.notes)


def test_a_target_whose_rows_changed_is_not_shown(several, rows_task, tmp_path):
    run = RunFolder(several[0])
    file = rows_task / "labelled.npz"
    before = file.read_bytes()
    arrays = dict(np.load(file))
    try:
        np.savez(file, **{**arrays, "x": arrays["x"] + 1})
        found = collect_run(run)
        assert found.rows.truth is None
        assert any("changed after training" in note for note in found.notes)
        assert found.measured.accuracy.value == pytest.approx(run.metrics["last"]["target"]["accuracy"])
        assert found.measured.where.startswith("metrics.json")
        file.unlink()
        gone = collect_run(run)
        assert any("does not exist" in note for note in gone.notes)
        assert gone.findings is None
        assert len(gone.planes) == 1
    finally:
        file.write_bytes(before)


@pytest.mark.parametrize(
    "settings",
    [
        {"freeze_backbone": True},
        {"freeze_backbone": False},
        {"train_from": "blocks.3"},
        {"freeze_backbone": True, "target_share": 0.6, "holdout": 0.25},
        {"freeze_backbone": False, "target_share": 0.6, "holdout": 0.25},
    ],
    ids=["frozen", "trained", "staged", "frozen-share", "trained-share"],
)
def test_rows_of_photographs_are_those_trained_on(tmp_path, monkeypatch, settings):
    """Also where images cannot be read, some rows are held out, and only a share of the target is seen."""
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path / "cache"))
    labelled, new = write_classes(tmp_path / "labelled"), write_flat(tmp_path / "new")
    truncate(new / "1-03.png")
    truncate(new / "2-07.png")
    truncate(labelled / "bee" / "02.png")
    config = run_config(
        str(labelled), str(new), tsa=True, backbone=TINY, weights="none", image_size=32, device="cpu", workers=0,
        **SHORT, **settings,
    )  # fmt: skip
    run = RunFolder(train_run(config, tmp_path / "run", quiet=True)[0])
    predictions = Predictions.read(run.predictions_file(run.metrics["last"]["step"]))
    target = target_rows(run, len(predictions.logits_t))
    features = load(run.path).transform([str(new / name) for name in target.domain.row_names])
    np.testing.assert_allclose(features, predictions.features_t, atol=1e-4)
    assert not {"1-03.png", "2-07.png"} & set(target.domain.row_names)
    if settings.get("target_share") is None:
        assert set(target.unreadable) == {"1-03.png", "2-07.png"}
    task = make_task(config)
    source = source_rows(run)
    assert source.domain.row_names == task.source.train.row_names
    assert torch.equal(source.domain.y, task.source.train.y)


def test_inputs_are_what_went_into_the_trained_part(photos):
    run = RunFolder(photos)
    found = target_rows(run, 24)
    np.testing.assert_array_equal(found.inputs(), make_task(run.config).target.train.tensor.numpy())
    assert found.unreadable == ("9-broken.png",)


def test_small_images_are_found_again_and_shown(tmp_path):
    rng, y = np.random.default_rng(0), np.arange(60) % 3
    x = rng.integers(0, 90, (60, 12, 12)).astype(np.uint8)
    x[np.arange(60), 2 + 3 * y] = 250
    np.savez(tmp_path / "source.npz", x=x, y=y)
    np.savez(tmp_path / "target.npz", x=255 - x, y=y)
    config = run_config(str(tmp_path / "source.npz"), str(tmp_path / "target.npz"), steps=3, batch_size=8, device="cpu")
    found = collect_run(RunFolder(train_run(config, tmp_path / "run", quiet=True)[0]))
    assert found.kind == "image"
    assert found.rows.names[:2] == ("image 0", "image 1")
    np.testing.assert_array_equal(found.rows.pictures.decode(7, 64)[0].numpy(), 255 - x[7])
    assert [plane.text for plane in found.planes] == ["the pixels", "features at step 3"]
    assert found.notes == ()


def test_the_map_is_the_same_every_time_and_before_is_source_only(several, several_page):
    plain, mi, _ = several_page.runs
    again = collect_run(RunFolder(several[1]), before=RunFolder(several[0]))
    for plane, same in zip(mi.planes, again.planes, strict=True):
        np.testing.assert_array_equal(plane.points, same.points)
        assert 0 <= plane.points.min() <= plane.points.max() <= 1
    assert [plane.title for plane in plain.planes] == ["before training", "the network's features"]
    assert [plane.title for plane in mi.planes] == ["before adaptation", "after adaptation"]
    assert "plain" in mi.planes[0].text
    after = mi.planes[1]
    np.testing.assert_array_equal(after.label[after.target], mi.rows.guess[after.rows[after.target]])
    given = mi.source_rows
    np.testing.assert_array_equal(after.label[~after.target], given.guess[after.rows[~after.target]])


def test_several_runs_are_compared_and_one_is_chosen(several, several_page):
    page, table = several_page, several_page.comparison
    assert len(table.names) == 3
    assert [name.partition(",")[0] for name in table.names] == ["plain", "mi", "tsa"]
    assert table.links == (0, 1, 2)
    assert table.chosen == page.first
    columns = {column.name: column for column in table.columns}
    assert {"rank", "dev", "mean softmax", "measured accuracy"} <= set(columns)
    accuracies = [RunFolder(path).metrics["last"]["target"]["accuracy"] for path in several]
    assert list(columns["measured accuracy"].values) == accuracies
    assert "oracle" in columns["measured accuracy"].text


def test_candidates_of_one_run_are_compared(several):
    page = collect([several[2]])
    assert [name.rpartition("step ")[2] for name in page.comparison.names] == ["10", "20", "30", "40"]
    assert page.comparison.chosen is not None
    run = RunFolder(several[2])
    assert page.comparison.why == run.metrics["selected"]["why"]
    assert page.runs[0].step == 40
    selected = collect([several[2]], "selected")
    assert selected.runs[0].step == run.metrics["selected"]["step"]
    with pytest.raises(UserError, match="one candidate"):
        collect([several[0]], "selected")


def test_runs_of_different_tasks_stand_side_by_side_without_a_choice(several, photos):
    page = collect([several[0], photos])
    assert page.comparison.chosen is None
    assert "cannot be compared" in page.comparison.notes[0]
    assert len(page.runs) == 2


def test_trust_fills_the_page(unlabelled):
    run = RunFolder(unlabelled)
    right = np.linspace(0.2, 1, 150)
    trusted = Trusted(right=right, doubtful=right < 0.5, second=np.zeros(150, int), notes=("a note",))
    found = collect_run(run, trusted=trusted)
    assert found.trusted is trusted
    assert (found.rows.second == 0).all()
    assert "a note" not in found.notes  # it stands on the first screen


def test_curves_are_grouped_by_what_they_are(several):
    found = {curve.name: curve for curve in collect_run(RunFolder(several[2])).curves}
    assert found["tsa"].group == found["mi"].group == found["all terms together"].group == "terms"
    assert found["λ, the strength of the augmentation"].values[-1] == pytest.approx(0.25)
    assert found["classes with pseudo-labels"].values[-1] == 3
    assert found["tsa"].steps[-1] == 40
    alone = {curve.name for curve in collect_run(RunFolder(several[0])).curves if curve.group == "terms"}
    assert alone == {"ce"}  # a sum of one term says nothing new


def test_what_cannot_be_reported(tmp_path):
    with pytest.raises(UserError, match="report needs runs"):
        collect([])
    with pytest.raises(UserError, match="No run at"):
        collect([tmp_path / "nothing"])


def test_a_run_is_reported_after_its_backbone_left_the_cache(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path / "empty"))
    found = collect_run(RunFolder(photos))
    assert [plane.title for plane in found.planes] == ["after adaptation"]
    assert found.rows.pictures is not None


def test_seeds_differ_in_which_source_rows_are_kept(several, rows_config, rows_task):
    path = train_run(changed(rows_config, seed=3, mi=True), rows_task / "seed3", quiet=True)[0]
    run = RunFolder(path)
    plane = collect_run(run).planes[-1]
    predictions = Predictions.read(run.predictions_file(40))
    assert (~plane.target).sum() == len(predictions.features_s) == len(source_rows(run).domain)
