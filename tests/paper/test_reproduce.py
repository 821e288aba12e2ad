import json
from dataclasses import replace

import numpy as np
import pytest
from paper.__main__ import main
from paper.catalogue import RECIPES
from paper.listing import status_lines
from paper.protocols import PROTOCOLS, missing
from paper.reproduce import reproduce
from paper.request import Plan, Request
from PIL import Image

from tsadapt.errors import UserError
from tsadapt.sweep.runner import run_all

TABLES = [name for name, recipe in RECIPES.items() if recipe.work is None and not recipe.only]


def kept(folder, stem):
    return json.loads((folder / f"{stem}.json").read_text())


@pytest.mark.parametrize("name", TABLES)
def test_every_table_and_figure_is_made(tiny, name):
    written = reproduce(Request(name, on="tiny", seeds=(0,), columns=("A → B",)), tiny / "out")
    assert {path.suffix for path in written} == {".json", ".md", ".png"}
    page, said = written[-1].read_text(), kept(tiny / "out", f"{name}-on-tiny")
    assert len(said["runs"]) == len(RECIPES[name].rows)
    for row in RECIPES[name].rows:
        assert f"| {row.title} |" in page
    assert "· the paper" not in page  # its numbers are of other data
    assert f"`python -m paper {name} --on tiny` in part" in page
    assert f" {len(RECIPES[name].rows)} of " in page
    assert all(run["hash"] and run["versions"] for run in said["runs"].values())


@pytest.mark.parametrize("name", ["figure-moons", "figure-bias"])
def test_figures_with_work_of_their_own(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    written = reproduce(Request(name, quick=True, steps=None if name == "figure-bias" else 4), tmp_path / "out")
    assert written[0].parent.name == "quick"
    assert any(path.suffix == ".png" and path.stat().st_size > 5000 for path in written)
    run = next(iter(kept(tmp_path / "out" / "quick", name)["runs"].values()))
    if name == "figure-bias":
        assert [epoch["epoch"] for epoch in run["epochs"]] == [1, 2]
        assert " epochs after the first (1 run)" in written[-1].read_text()
    else:
        assert len(run["boundary"]["share"]) == 49


@pytest.mark.parametrize("same", [True, False])
def test_the_same_run_of_another_table_is_not_trained_again(tiny, same):
    first = Request(
        "table5", on="tiny", seeds=(0,), columns=("A → B",), rows=("source-only",), steps=None if same else 3
    )
    reproduce(first, tiny / "out")
    path = next((tiny / "out").glob("table5*.json"))
    stored = json.loads(path.read_text())
    (run,) = stored["runs"].values()
    run |= {"accuracy": 12.5, "watched": 1}
    path.write_text(json.dumps(stored))
    wanted = Request("table-memory", on="tiny", seeds=(0,), columns=("A → B",), rows=("source-only",))
    *_, page = reproduce(wanted, tiny / "out")
    (found,) = kept(tiny / "out", "table-memory-on-tiny")["runs"].values()
    assert (found["accuracy"] == 12.5) == same
    assert found.get("from") == (path.stem if same else None)
    assert (f"1 run of [{path.stem}]({path.stem}.md)" in page.read_text()) == same
    assert "watched" not in found


def test_a_table_that_measures_more_of_a_run_trains_its_own(tiny):
    request = Request("table5", on="tiny", seeds=(0,), columns=("A → B",), rows=("source-only",))
    reproduce(request, tiny / "out")
    reproduce(replace(request, name="table2"), tiny / "out")
    (found,) = kept(tiny / "out", "table2-on-tiny")["runs"].values()
    assert "from" not in found
    assert "last_record" in found


def test_what_is_kept_is_not_run_again_even_without_its_folder(tiny, capsys):
    request = Request("table5", on="tiny", seeds=(0,), columns=("A → B",), rows=("DANN", "DANN +TSA"))
    reproduce(request, tiny / "out")
    before = kept(tiny / "out", "table5-on-tiny")["runs"]
    for path in sorted((tiny / "out" / "work").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    capsys.readouterr()
    reproduce(replace(request, seeds=(0, 1)), tiny / "out")
    after = kept(tiny / "out", "table5-on-tiny")["runs"]
    assert len(after) == 4
    assert all(after[key] == run for key, run in before.items())
    assert "2 runs to do" in capsys.readouterr().err
    page = (tiny / "out" / "table5-on-tiny.md").read_text()
    assert " 4 of 54 runs done." in page  # nine rows, two tasks, three seeds
    assert "(2 of 3 seeds)" in page
    assert "Not run at all: rows source-only, AdaBN, DANN +TSA without Δμ, " in page
    assert "; tasks B → C.\n" in page
    assert "`python -m paper table5 --on tiny` in part (the whole is 54 runs)" in page
    assert "over 2 seeds." in page  # of those that are there
    reproduce(replace(request, seeds=(2,), rows=("DANN",)), tiny / "out")
    page = (tiny / "out" / "table5-on-tiny.md").read_text()
    assert "over up to 3 seeds." in page


def test_each_run_is_kept_as_soon_as_it_is_over(tiny, monkeypatch, capsys):
    seen = []

    def stopped_at_the_second(folder):
        seen.append(folder.name)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return {}

    monkeypatch.setitem(RECIPES, "table5", replace(RECIPES["table5"], measure=stopped_at_the_second))
    request = Request("table5", on="tiny", seeds=(0,), columns=("A → B",), rows=("DANN", "DANN +MI", "DANN +TSA"))
    with pytest.raises(KeyboardInterrupt):
        reproduce(request, tiny / "out")
    there = kept(tiny / "out", "table5-on-tiny")
    assert [*there["runs"]] == ["DANN | A → B | 0"]
    assert there["command"] == "python -m paper table5 --on tiny"
    capsys.readouterr()
    reproduce(request, tiny / "out")
    assert len(kept(tiny / "out", "table5-on-tiny")["runs"]) == 3
    assert len(seen) == 4  # the second was trained once, and looked at again
    assert "1 run to do" in capsys.readouterr().err


def test_nothing_that_was_measured_is_thrown_away(tiny, monkeypatch):
    request = Request("table5", on="tiny", seeds=(5,), columns=("A → B",), rows=("DANN",))
    page = reproduce(request, tiny / "out")[-1].read_text()
    assert " 1 of 18 runs done." in page  # request for, this seed is the table's
    assert "Made by `python -m paper table5 --on tiny --seeds 5` in part" in page
    page = reproduce(replace(request, seeds=(0,), columns=("B → C",)), tiny / "out")[-1].read_text()
    assert set(kept(tiny / "out", "table5-on-tiny")["runs"]) == {"DANN | A → B | 5", "DANN | B → C | 0"}
    assert " 1 of 54 runs done." in page
    assert "(1 of 3 seeds)" in page
    assert "runs of seed 5" in page
    assert "Made by `python -m paper table5 --on tiny` in part" in page
    # The settings of both are in the file, and none is taken for a former one.
    assert len(kept(tiny / "out", "table5-on-tiny")["settings"]["of_each"]) == 2
    monkeypatch.setitem(RECIPES, "table5", replace(RECIPES["table5"], columns=("A → B",)))
    page = reproduce(replace(request, columns=("B → C",), seeds=(0,)), tiny / "out")[-1].read_text()
    assert "Made by `python -m paper table5 --on tiny --columns 'A → B' 'B → C'` in part" in page


def test_extras_are_measured_anew_for_other_runs(tiny):
    request = Request("table-samples", on="tiny", seeds=(0,), columns=("B → C",), rows=("source-only",))
    reproduce(request, tiny / "out")
    first = kept(tiny / "out", "table-samples-on-tiny")["extra"]
    reproduce(request, tiny / "out")
    assert kept(tiny / "out", "table-samples-on-tiny")["extra"] == first
    reproduce(replace(request, columns=("A → B",)), tiny / "out")
    assert kept(tiny / "out", "table-samples-on-tiny")["extra"]["of"] != first["of"]


def test_data_that_changed_is_told(tiny):
    request = Request("table5", on="tiny", seeds=(0,), columns=("A → B",), rows=("DANN",))
    reproduce(request, tiny / "out")
    with np.load("a.npz") as file:
        x, y = file["x"], file["y"]
    np.savez("a.npz", x=x + 1, y=y)
    written = reproduce(replace(request, rows=("DANN +MI",)), tiny / "out")
    assert "The data of a task changed" in written[-1].read_text()
    assert "A → B 45 + 45" in written[-1].read_text()


def test_figures_are_refused_where_they_cannot_be_made(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("figure-moons", "figure-augmented", "figure-neighbours"):
        assert main([name, "--on", "pacs"]) == 2
        assert "cannot be made on pacs" in capsys.readouterr().err
    assert main(["table5", "--quick", "--only-collect"]) == 2
    assert "no run is stored yet" in capsys.readouterr().err


def test_a_changed_setting_is_run_again(tiny, monkeypatch):
    request = Request("table5", on="tiny", seeds=(0,), columns=("A → B",), rows=("DANN",))
    reproduce(request, tiny / "out")
    first = kept(tiny / "out", "table5-on-tiny")["runs"]["DANN | A → B | 0"]
    monkeypatch.setitem(
        PROTOCOLS, "tiny", replace(PROTOCOLS["tiny"], settings={**PROTOCOLS["tiny"].settings, "lr": 0.03})
    )
    page = reproduce(replace(request, rows=("DANN +MI",)), tiny / "out")[-1].read_text()
    assert "| DANN +MI | " in page
    assert "| DANN | " not in page
    assert "1 run with former settings" in page
    page = reproduce(request, tiny / "out")[-1].read_text()
    assert kept(tiny / "out", "table5-on-tiny")["runs"]["DANN | A → B | 0"]["hash"] != first["hash"]
    assert "former settings" not in page


def test_tables_share_their_runs(tiny, capsys):
    request = Request("table-memory", on="tiny", seeds=(0,), columns=("A → B",))
    reproduce(request, tiny / "out")
    capsys.readouterr()
    reproduce(replace(request, name="table-samples", rows=("source-only", "+L_∞ and MI (TSA)")), tiny / "out")
    hashes = [
        {run["hash"] for run in kept(tiny / "out", f"{n}-on-tiny")["runs"].values()}
        for n in ("table-memory", "table-samples")
    ]
    assert hashes[1] < hashes[0]
    assert len([*(tiny / "out" / "work" / "runs").iterdir()]) == 5


def test_shares_of_the_target_differ_in_nothing_but_the_rows(tiny):
    request = Request("table-stress", on="tiny", seeds=(0,), columns=("A → B",))
    reproduce(request, tiny / "out")
    said = kept(tiny / "out", "table-stress-on-tiny")
    each = said["settings"]["of_each"]
    found = {
        key.split(" | ")[0]: (each[run["hash"]], run["data"]["target"]["rows"]) for key, run in said["runs"].items()
    }
    for share in (0.2, 0.4, 0.6, 0.8):
        (drawn, rows), (stratified, as_many) = (
            found[f"ρ = {share:.0%}, {how}"] for how in ("uniform draw", "oracle-stratified")
        )
        assert drawn.pop("target_draw") == "uniform"
        assert stratified.pop("target_draw") == "oracle-stratified"
        assert drawn == stratified
        assert drawn["target_share"] == share
        assert rows == as_many == round(45 * share)
        assert found[f"ρ = {share:.0%}, uniform draw, +MI alone"][1] == rows


def test_titles_as_they_are_typed(tiny, capsys):
    request = Request("table5", on="tiny", seeds=(0,), columns=("a->b",), rows=("dann +tsa without δμ",))
    reproduce(request, tiny / "out")
    assert set(kept(tiny / "out", "table5-on-tiny")["runs"]) == {"DANN +TSA without Δμ | A → B | 0"}
    with pytest.raises(UserError, match=r"Unknown column 'a->x'. Available: A → B, B → C"):
        reproduce(replace(request, columns=("a->x",)), tiny / "out")


def test_data_that_is_not_here_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TSADAPT_DATA", raising=False)
    missing.cache_clear()
    assert main(["table2"]) == 2
    said = capsys.readouterr().err
    assert "office31:amazon was not found" in said
    assert "python -m paper table2 --on digits-small (digits included in the packages) or --quick" in said
    assert main(["digit-rates"]) == 2  # which needs its own data
    said = capsys.readouterr().err
    assert "digits:usps was not found" in said
    assert "--quick" not in said
    lines = "\n".join(status_lines())
    assert "Office-31: data missing" in lines
    assert "NAME says what to put where" in lines
    assert "digits-small: digits included in the packages" in lines
    assert "*" not in lines  # no footnote without a row that refers to it
    assert "--on digits-small: " in lines
    assert "TSADAPT_DATA is not set" in lines
    monkeypatch.setenv("TSADAPT_DATA", "nowhere")
    missing.cache_clear()
    lines = "\n".join(status_lines("table5"))
    assert "TSADAPT_DATA is nowhere, which is not a folder" in lines
    assert "--on digits-small: " in lines
    assert "table4" not in lines
    assert main(["tabel5", "--list"]) == 2
    assert main(["table9"]) == 2
    assert "Unknown table, figure or study 'table9'" in capsys.readouterr().err
    assert main(["--seeds", "1"]) == 2
    assert main(["table5", "--on", "nowhere"]) == 2
    assert main(["table5", "--on", "digits-small", "--frozen"]) == 2
    assert main(["table5", "--on", "digits-small", "--rows", "DAN"]) == 2
    assert main(["table5", "--on", "digits-small", "--columns", "X → Y"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    missing.cache_clear()


def test_quick_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = ["table4", "--quick", "--steps", "3", "--rows", "source-only", "--out", "here"]
    assert main(line) == 0
    said = capsys.readouterr()
    assert "| source-only | " in said.out
    first = said.err.splitlines()[0]
    assert "digits-small: digits included in the packages (UCI → MNIST-5k)" in first
    assert "results in here/quick" in first
    assert "UCI → MNIST-5k 1,797 of 8×8 + 5,000 of 28×28" in said.out
    assert "Made by `python -m paper table4 --quick --steps 3` in part" in said.out
    assert "written: " in said.err
    with Image.open("here/quick/table4.png") as picture:
        assert picture.info["Comment"] == "a first look: these numbers mean nothing"
    assert main(line) == 0
    assert "nothing to train" in capsys.readouterr().err
    assert main([*line, "--only-collect"]) == 0
    assert main([*line, "--seeds", "1", "1"]) == 0
    said = capsys.readouterr()
    assert "1 run to do" in said.err
    assert " 1 of 13 runs done." in said.out
    assert "Made by `python -m paper table4 --quick --steps 3 --seeds 1` in part" in said.out


def test_the_command_of_a_page_has_all_that_was_request_for(tmp_path):
    (tmp_path / "w.pth").write_bytes(b"weights")
    request = Request(
        "table1", "office31", frozen=True, weights=str(tmp_path / "w.pth"), steps=7, rows=("DANN",), seeds=(0,)
    )
    words = f"python -m paper table1 --on office31 --frozen --weights {tmp_path}/w.pth --steps 7"
    assert Plan(request).command({}) == words
    assert Plan(replace(request, seeds=(5,), frozen=False)).command({}) == (
        f"python -m paper table1 --on office31 --weights {tmp_path}/w.pth --steps 7 --seeds 5"
    )


def test_a_run_that_another_process_ends_meanwhile_is_entered(tiny, monkeypatch):
    def locked(left, side_by_side, ended):
        run_all(left, quiet=True)
        for one in left:
            ended(one, f"{one.out} is being trained by another process")

    monkeypatch.setattr("paper.jobs.run_all", locked)
    page = reproduce(Request("table5", on="tiny", seeds=(0,), rows=("DANN",)), tiny / "out")[-1].read_text()
    assert len(kept(tiny / "out", "table5-on-tiny")["runs"]) == 2
    assert "another process" not in page


def test_a_place_that_cannot_be_written_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    assert main(["table4", "--quick", "--out", str(tmp_path / "file" / "there")]) == 2
    assert "is or lies in a file, expected a folder" in capsys.readouterr().err
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    assert main(["table4", "--quick", "--out", str(tmp_path / "new" / "there")]) == 2
    assert "new/there cannot be written" in capsys.readouterr().err


def test_the_command_alone_names_everything(capsys):
    assert main([]) == 0
    said = capsys.readouterr().out
    assert all(f"  {name} " in said for name in (*RECIPES, "augmented"))
    assert {"base-methods", "digit-rates", "embeddings", "selection"} <= set(RECIPES)


def test_an_interruption_has_its_own_exit_status(tmp_path, monkeypatch, capsys):
    def stopped(request, out):
        raise KeyboardInterrupt

    monkeypatch.setattr("paper.reproduce.reproduce", stopped)
    assert main(["table4", "--quick", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err.startswith("paper: interrupted; ")
