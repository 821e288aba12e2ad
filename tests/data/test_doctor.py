import numpy as np
import pytest
from tests.photos import picture, truncate, write_classes, write_flat

from tsadapt.data.arrays import from_arrays
from tsadapt.data.doctor import constant_features, examine, quick_findings
from tsadapt.data.in_memory import as_dataset
from tsadapt.data.open import open_dataset

ROLES = ("source", "target")


def opened(path):
    return open_dataset(str(path)).train


@pytest.fixture
def folders(tmp_path):
    return write_classes(tmp_path / "s"), write_classes(tmp_path / "t", tint=90)


def found(source, target, **options):
    """{code: texts} of warnings and errors."""
    texts = {}
    for finding in examine(source, target, workers=0, **options).findings:
        if finding.level != "note":
            texts.setdefault(f"{finding.level} {finding.code}", []).append(finding.text)
    return texts


def test_nothing_is_wrong(folders):
    source, target = map(opened, folders)
    done = []
    examined = examine(source, target, 0, done.append)
    assert [(f.level, f.code) for f in examined.findings] == [("note", "labels")]
    assert examined.bad == (set(), set())
    assert done == list(range(1, 49))
    assert examine(source, source.unlabelled().keep([0]), 0).findings != []
    assert examine(source, None, 0).findings == []


def test_unreadable_images_are_named_with_the_reason(folders):
    truncate(folders[0] / "bee" / "02.png")
    (folders[1] / "ant" / "01.jpg").write_text("a web page")
    source, target = map(opened, folders)
    texts = found(source, target)
    assert list(texts) == ["error unreadable"]
    assert "1 of 24 images" in texts["error unreadable"][0]
    assert "bee/02.png" in texts["error unreadable"][0]
    assert "truncated" in texts["error unreadable"][0]
    assert "ant/01.jpg (not a readable image)" in texts["error unreadable"][1]
    assert examine(source, target, 1).bad == ({7}, {3})


def test_copies_within_across_and_in_two_classes(folders):
    picture(0, 3).save(folders[0] / "ant" / "copy.bmp")  # the same pixels in another file
    picture(1, 4).save(folders[0] / "cow" / "wrong.png")
    picture(2, 5).save(folders[1] / "cow" / "from-source.png")
    source, target = map(opened, folders)
    texts = found(source, target)
    assert set(texts) == {"warning duplicates", "warning torn", "warning shared"}
    assert "2 duplicate rows in 2 groups" in texts["warning duplicates"][0]
    assert "ant/03.png = ant/copy.bmp" in texts["warning duplicates"][0]
    assert "bee/04.png = cow/wrong.png" in texts["warning torn"][0]
    assert "cow/05.png = cow/from-source.png" in texts["warning shared"][0]
    names = [source.row_names[row] for row in sorted(examine(source, target, 0).bad[0])]
    assert names == ["bee/04.png", "ant/copy.bmp", "cow/wrong.png"]


def test_classes_on_one_side_tiny_and_uneven(tmp_path):
    source = write_classes(tmp_path / "s", n=2, classes=("ant", "back_pack", "cow"))
    write_classes(source, n=30, classes=("ant",))
    target = opened(write_classes(tmp_path / "t", classes=("ant", "Back Pack", "yak"), tint=90))
    texts = {f.code: f.text for f in quick_findings(opened(source), target) if f.level == "warning"}
    assert "back_pack (2), cow (2)" in texts["tiny"]
    assert "ant (30)" in texts["imbalance"]
    sided = [f.text for f in quick_findings(opened(source), target) if f.code == "one-sided"]
    assert "Back Pack, yak" in sided[0]
    assert "'Back Pack'" in sided[0]
    assert "'back_pack'" in sided[0]
    assert "back_pack, cow" in sided[1]


def test_a_single_class_and_an_unlabelled_source(tmp_path):
    one = opened(write_classes(tmp_path / "s", classes=("ant",)))
    flat = opened(write_flat(tmp_path / "t"))
    assert "error one-class" in found(one, flat)
    assert "error unlabelled" in found(flat, one)


def test_labels_of_the_target_do_not_choose_its_rows(folders):
    picture(1, 4, 90).save(folders[1] / "cow" / "wrong.png")
    source, target = map(opened, folders)
    with_labels, without = (examine(source, t, 0).bad[1] for t in (target, target.unlabelled()))
    assert with_labels == without == {24}


def test_what_fit_would_refuse():
    images = from_arrays("i", np.random.default_rng(0).integers(0, 256, (9, 8, 8)), np.arange(9) % 3)
    assert "error kinds" in found(vectors(), images)
    wider = from_arrays("w", np.random.default_rng(0).normal(size=(30, 6)))
    assert "error features" in found(vectors(), wider)


def vectors(scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return from_arrays("v", scale * rng.normal(size=(30, 4)), np.arange(30) % 3)


def test_the_same_rows_under_two_names_are_the_same_data():
    source, target = (as_dataset(vectors().x, labels=vectors().y, name=f"the {role}").train for role in ROLES)
    assert "warning same" in found(source, target)
    assert "warning same" not in found(source, target.keep([*range(29)]))


def test_data_in_memory_is_named_by_its_role():
    source, target = (as_dataset(vectors().x, name=f"the {role}").train for role in ROLES)
    assert found(source, target)["error unlabelled"][0].startswith("The source has no labels.")


def test_a_long_group_of_duplicates_is_shown_in_part():
    same = from_arrays("v", np.ones((30, 4)), np.arange(30) % 3)
    finding = next(f for f in examine(same, None, 0).findings if f.code == "duplicates")
    assert "0 = 1 = 2 = 3 = 4 = …" in finding.text
    assert finding.rows == (" = ".join(map(str, range(30))),)


def test_arrays_in_different_ranges():
    assert found(vectors(), vectors(seed=1)) == {}
    assert "scaled" in found(vectors(), vectors(255.0, seed=1))["warning range"][0]
    flat = from_arrays("v", np.tile([0.0, 0.0, 1.0, 2.0], (30, 1)), np.arange(30) % 3)
    texts = found(flat, vectors())
    assert "v has 4 of 4" in texts["warning constant"][0]
    assert "29 duplicate rows in 1 group" in texts["warning duplicates"][0]
    rng = np.random.default_rng(0)
    light, dark = (from_arrays("i", rng.integers(*r, (9, 8, 8)), np.arange(9) % 3) for r in ((180, 250), (2, 60)))
    assert "inverted" in found(light, dark)["warning range"][0]
    twice = from_arrays("i", rng.integers(0, 3, (9, 8, 8)), np.arange(9) % 3)
    assert "scaled twice" in found(twice, dark)["warning range"][0]


def test_constant_and_nearly_constant_features():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 5))
    x[:, 0], x[:, 1], x[:, 2] = 7, 1e6 + 1e-5 * x[:, 1], 1.7e9 + 20 * x[:, 2]  # the last are times: they tell much
    text = constant_features(from_arrays("a", x), from_arrays("b", x[:, ::-1].astype(np.float32)))
    assert text.startswith("Constant features: a has 1 of 5, and 1 nearly constant; b has ")
    assert constant_features(from_arrays("a", x[:, 2:]), from_arrays("b", x[:1])) is None
