"""Tables as people have them: an index without a name, columns of ids, semicolons, lists of images."""

import numpy as np
import pandas
import pytest
from tests.photos import write_classes

from tsadapt.data.in_memory import as_dataset
from tsadapt.data.open import open_dataset
from tsadapt.data.tables import load_table
from tsadapt.data.types import Roles
from tsadapt.errors import UserError


def written(tmp_path, text, name="t.csv"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_the_index_that_pandas_writes_names_the_rows_and_is_no_feature(tmp_path):
    frame = pandas.DataFrame({"a": [1.5, 2.5], "label": ["cat", "dog"]}, index=["x7", "007"])
    frame.to_csv(tmp_path / "t.csv")
    domain = load_table(tmp_path / "t.csv").train
    assert domain.columns == ("a",)
    assert domain.row_names == ("x7", "007")
    assert domain.x.tolist() == [[1.5], [2.5]]
    assert "first column has no name" in domain.recognised[0]
    frame.reset_index(drop=True).to_csv(tmp_path / "n.csv")
    assert load_table(tmp_path / "n.csv").train.row_names == ("0", "1")
    pandas.read_csv(tmp_path / "n.csv").to_csv(tmp_path / "again.csv", index=False)  # now it is called Unnamed: 0
    assert load_table(tmp_path / "again.csv").train.columns == ("a",)
    # A model that was trained on such a column still gets it.
    assert load_table(tmp_path / "n.csv", ("Unnamed: 0", "a")).train.x.tolist() == [[0, 1.5], [1, 2.5]]


def test_the_index_of_a_frame_names_its_rows_unless_it_only_numbers_them(tmp_path):
    frame = pandas.DataFrame({"a": [1, 2]}, index=["p", "q"])
    assert as_dataset(frame).train.row_names == ("p", "q")
    assert as_dataset(frame.reset_index(drop=True)).train.row_names is None
    frame.to_parquet(tmp_path / "t.parquet")
    assert load_table(tmp_path / "t.parquet").train.row_names == ("p", "q")
    named = as_dataset(frame.rename_axis("key"), roles=Roles(id="key")).train
    assert (named.row_names, named.id_column, named.columns) == (("p", "q"), "key", ("a",))


def test_an_id_column_is_carried_as_it_is_written(tmp_path):
    path = written(tmp_path, "customer,a,species,b\n007,1,cat,2\n1e3,3,dog,4\n")
    domain = load_table(path, roles=Roles("customer", "species")).train
    assert domain.row_names == ("007", "1e3")
    assert domain.id_column == "customer"
    assert domain.columns == ("a", "b")
    assert [domain.classes[i] for i in domain.y] == ["cat", "dog"]
    assert load_table(path, ("b", "a"), roles=Roles("customer", "species")).train.x.tolist() == [[2, 1], [4, 3]]


@pytest.mark.parametrize(
    ("text", "roles", "said"),
    [
        ("a,b\n1,2\n", Roles(id="customer"), r"no column 'customer' \(--id-column\). Its columns: a, b"),
        ("a,species\n1,2\n", Roles(label="specie"), r"no column 'specie' \(--label-column\). Did you mean 'species'"),
        ("a,b\n1,2\n", Roles("a", "a"), "'a' is given as both --id-column and --label-column"),
        ("k,a\nx,1\n,2\n", Roles(id="k"), "row 1 has nothing in its column 'k'"),
        ("k,a\nx,1\ny,2\n", Roles(), "column 'k' is not numeric, for example 'x'.*--id-column k.*--label-column k"),
        ("k,a,label\nx,1,u\ny,2,v\n", Roles(), "column 'k' is not numeric.*--id-column k.$"),
        ("a,label,y\n1,cat,0\n", Roles(), "2 possible label columns: label, y.*--label-column label"),
        ("k\nx\n", Roles(id="k"), "no feature columns"),
    ],
)
def test_what_is_wrong_with_columns_is_said_in_one_line(tmp_path, text, roles, said):
    with pytest.raises(UserError, match=said) as caught:
        load_table(written(tmp_path, text), name="t.csv", roles=roles)
    assert "\n" not in str(caught.value)


def test_a_role_that_is_not_needed_may_be_absent(tmp_path):
    path = written(tmp_path, "a,b\n1,2\n")
    domain = load_table(path, roles=Roles("customer", "species", needed=())).train
    assert (domain.row_names, domain.y, domain.columns) == (None, None, ("a", "b"))


def test_a_named_label_column_leaves_the_usual_names_to_be_features(tmp_path):
    path = written(tmp_path, "y,species\n1,cat\n2,dog\n")
    domain = load_table(path, roles=Roles(label="species")).train
    assert (domain.columns, domain.classes) == (("y",), ("cat", "dog"))


@pytest.mark.parametrize(("mark", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")])
def test_other_separators_are_recognised_and_said(tmp_path, mark, word):
    path = written(tmp_path, f"a{mark}b{mark}label\n1{mark}2.5{mark}cat\n3{mark}4{mark}dog, black\n")
    domain = load_table(path, name="t.csv").train
    assert domain.x.tolist() == [[1, 2.5], [3, 4]]
    assert domain.classes == ("cat", "dog, black")
    assert domain.recognised == (f"t.csv: its columns are separated by {word}.",)
    assert not load_table(written(tmp_path, "a\tb\n1\t2\n", "t.tsv")).train.recognised


def test_decimal_commas_are_recognised_beside_semicolons(tmp_path):
    path = written(tmp_path, "a;b;label\n1,5;-2;x,y\n3,25;1,5e-3;z\n")
    domain = load_table(path, name="t.csv").train
    assert domain.x.tolist() == [[1.5, -2], [3.25, np.float32(0.0015)]]
    assert domain.classes == ("x,y", "z")
    assert domain.recognised[-1] == "t.csv: its numbers have decimal commas."
    assert load_table(written(tmp_path, "a;b\n1.5;2\n")).train.x.tolist() == [[1.5, 2]]
    with pytest.raises(UserError, match="column 'a' is not numeric, for example '1,5'"):
        load_table(written(tmp_path, 'a,b\n"1,5",2\n'))  # with commas between columns it may be two numbers


def test_wide_tables_with_semicolons_do_not_print_their_columns(tmp_path):
    names = [f"feature_{i}" for i in range(1280)]
    path = written(tmp_path, ";".join(names) + "\n" + ";".join("1" for _ in names) + "\n")
    assert load_table(path, tuple(names)).train.x.shape == (1, 1280)
    assert load_table(path).train.columns == tuple(names)
    broken = written(tmp_path, "/".join(names) + "\n1\n")
    with pytest.raises(UserError, match=r"does not have the model's 1,280 columns") as caught:
        load_table(broken, tuple(names), name="t.csv")
    assert len(str(caught.value)) < 300
    with pytest.raises(UserError, match=r"Missing: feature_1279. Unexpected: extra") as caught:
        load_table(written(tmp_path, ",".join([*names[:-1], "extra"]) + "\n" + "1," * 1279 + "1\n"), tuple(names))
    with pytest.raises(UserError, match="If 'extra' names the rows: --id-column extra"):
        load_table(written(tmp_path, ",".join([*names, "extra"]) + "\n" + "1," * 1280 + "1\n"), tuple(names))


def test_a_column_that_seems_to_number_the_rows_is_said(tmp_path):
    domain = load_table(written(tmp_path, "row_id,width,label\n1,5,x\n2,6,y\n"), name="t.csv").train
    assert domain.columns == ("row_id", "width")
    assert "column 'row_id' has another whole number in each row" in domain.recognised[0]
    assert "--id-column row_id" in domain.recognised[0]
    assert not load_table(written(tmp_path, "row_id,label\n1,x\n1,y\n")).train.recognised


def test_a_table_may_list_images(tmp_path):
    write_classes(tmp_path / "photos", n=2)
    lines = [f"photos/{name}/{i:02d}.png,{name},{i}\n" for name in ("bee", "ant") for i in range(2)]
    path = written(tmp_path, "file,label,width\n" + "".join(lines))
    domain = load_table(path, name="t.csv").train
    assert domain.kind == "file"
    assert domain.row_names[0] == "photos/bee/00.png"
    assert domain.classes == ("ant", "bee")
    assert domain.y.tolist() == [1, 1, 0, 0]
    assert domain.x.decode(3, 1).shape == (3, 30, 40)
    assert domain.recognised == ("t.csv: its rows are images; other columns are ignored: width.",)
    named = load_table(path, roles=Roles("width", "label")).train
    assert named.row_names == ("0", "1", "0", "1")
    by_file = load_table(path, roles=Roles(id="file")).train
    assert (by_file.kind, by_file.row_names[1], by_file.id_column) == ("file", "photos/bee/01.png", "file")
    with pytest.raises(UserError, match="none of the 1 file exists"):
        load_table(written(tmp_path, "file,label\nno.png,x\n"))


def test_numbers_as_labels_of_listed_images_stay_whole(tmp_path):
    write_classes(tmp_path, n=1)
    pandas.DataFrame({"file": ["ant/00.png", "bee/00.png"], "y": [10.0, 2.0]}).to_csv(tmp_path / "t.csv", index=False)
    assert load_table(tmp_path / "t.csv").train.classes == ("bee", "ant")  # each number has a folder of its own


def test_several_tables_by_one_pattern(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "k,a,label\n01,1,x\n", "p-0.csv")
    written(tmp_path, "k,a,label\n02,2,y\n", "p-1.csv")
    dataset = open_dataset("p-*.csv", roles=Roles("k"))
    assert dataset.name == str(tmp_path / "p-*.csv")
    assert dataset.train.row_names == ("01", "02")
    assert dataset.train.x.tolist() == [[1], [2]]
    written(tmp_path, "k,b,label\n02,2,y\n", "p-2.csv")
    with pytest.raises(UserError, match=r"p-0.csv and p-2.csv do not have the same columns"):
        open_dataset("p-*.csv")
