import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from paper.results_file import ResultsFile

from tsadapt.errors import UserError


def read(path):
    return json.loads(path.read_text())


def test_two_processes_lose_nothing(tmp_path):
    path = tmp_path / "table.json"
    ours, theirs = ResultsFile(path, {"name": "table"}), ResultsFile(path, {"name": "table"})
    theirs.add("theirs", {"accuracy": 1})
    theirs.replace_extra({"measured": 7})
    theirs.explain({"third": "no data"})
    theirs.save()
    ours.add("ours", {"accuracy": 2})
    ours.save()
    assert read(path)["runs"] == {"theirs": {"accuracy": 1}, "ours": {"accuracy": 2}} == ours.runs
    assert read(path)["extra"] == {"measured": 7}
    assert read(path)["not_run"] == {"third": "no data"}
    # What the other has measured anew is not written over by what was read before.
    theirs.add("theirs", {"accuracy": 3})
    theirs.save()
    ours.add("third", {"accuracy": 4})
    ours.save()
    assert read(path)["runs"]["theirs"] == {"accuracy": 3}
    assert read(path)["not_run"] == {}


def test_many_at_once(tmp_path):
    path = tmp_path / "table.json"

    def enter(who):
        results = ResultsFile(path, {})
        for i in range(15):
            results.add(f"{who} {i}", {})
            results.save()

    with ThreadPoolExecutor(6) as pool:
        [*pool.map(enter, range(6))]
    assert len(read(path)["runs"]) == 90
    assert sorted(p.name for p in tmp_path.iterdir()) == ["table.json", "work"]


@pytest.mark.parametrize("text", ["[]", "{}", "no json", '{"runs": 3}', '{"runs": {}, "not_run": []}'])
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "table.json").write_text(text)
    with pytest.raises(UserError, match="not a results file"):
        ResultsFile(tmp_path / "table.json", {})
