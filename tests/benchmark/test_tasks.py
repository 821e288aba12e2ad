import numpy as np
import pytest
from tests.tasks import write_task

from tsadapt.benchmark.tasks import Task, checked, named_methods, parse_task, parse_variant
from tsadapt.config import RunConfig
from tsadapt.errors import UserError


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("a=source.npz:target.npz", ("a", "source.npz", "target.npz")),
        ("a=not-there:nor-there", ("a", "not-there", "nor-there")),  # said when it is opened, with what is expected
        ("a=digits:uci:target.npz", ("a", "digits:uci", "target.npz")),
        ("a=source.npz:digits:uci", ("a", "source.npz", "digits:uci")),
        ("U → M=digits:uci:digits:mnist-5k", ("U → M", "digits:uci", "digits:mnist-5k")),
        ("digits:uci:digits:mnist-5k", ("digits:uci:digits:mnist-5k", "digits:uci", "digits:mnist-5k")),
        ("x=1.npz:target.npz", ("x=1.npz:target.npz", "x=1.npz", "target.npz")),
        ("odd=a:b.npz:target.npz", ("odd", "a:b.npz", "target.npz")),
    ],
)
def test_tasks_are_split_where_both_halves_are_data(here, text, task):
    for name in ("x=1.npz", "a:b.npz"):
        (here / name).write_bytes((here / "source.npz").read_bytes())
    assert parse_task(text) == Task(*task)


@pytest.mark.parametrize("text", ["", "a=", "a=source.npz", "a=source.npz:", "a=:target.npz", "a=x:y:z", "=a:b"])
def test_what_is_no_task_is_refused(here, text):
    with pytest.raises(UserError, match="expected NAME=SOURCE:TARGET"):
        parse_task(text)


def test_a_task_that_splits_in_two_ways_is_refused(here):
    for name in ("a", "b:c", "a:b", "c"):
        (here / name).write_text("")
    with pytest.raises(UserError, match="two ways"):
        parse_task("t=a:b:c")


def test_variants_have_settings_of_their_own():
    assert parse_variant("big=tsa, bottleneck=512,tsa.mean-shift=false") == (
        "big", {"tsa": True, "bottleneck": 512, "tsa.mean_shift": False}
    )  # fmt: skip
    for text in ("tsa", "a=", "a=tsa,lambda0", "=tsa", "a=tsa,nonsense=1", "a=tsb"):
        with pytest.raises(UserError):
            parse_variant(text)


def test_names_are_unique_and_there_is_one():
    with pytest.raises(UserError, match="choose another name"):
        named_methods(["tsa"], {"tsa": {}})
    with pytest.raises(UserError, match="needs methods"):
        named_methods([])


def test_a_target_without_labels_or_with_other_classes_is_refused(here):
    task = Task("a", "source.npz", "target.npz")
    assert checked([task])["a"].labels
    write_task(here, target_labels=False)
    with pytest.raises(UserError, match=r"task a, target\.npz, has no labels, and a benchmark measures accuracy"):
        checked([task])
    with np.load("source.npz") as arrays:
        np.savez("target.npz", x=arrays["x"], y=arrays["y"], classes=["x", "y", "z"])
    with pytest.raises(UserError, match="none of the source's classes"):
        checked([task])
    with np.load("source.npz") as arrays:
        np.savez("target.npz", x=arrays["x"])
    with pytest.raises(UserError, match=r"source of task b, target\.npz, has no labels"):
        checked([Task("b", "target.npz", "source.npz")])


def test_tables_by_patterns_and_columns_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("source.csv", "part-0.csv", "part-1.csv"):
        (tmp_path / name).write_text("plant,a,species\n" + "".join(f"{name}{i},{i},{'xy'[i % 2]}\n" for i in range(6)))
    task = parse_task("plants=source.csv:part-*.csv")
    assert (task.source, task.target) == ("source.csv", "part-*.csv")
    config = RunConfig("", "", id_column="plant", label_column="species")
    assert checked([task], config)["plants"].labels
    assert parse_task("faces=hf:one:hf:two/train").target == "hf:two/train"
    with pytest.raises(UserError, match="column 'plant' is not numeric"):
        checked([task])
