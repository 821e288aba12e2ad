import math
import statistics

import pytest
from paper.catalogue import RECIPES
from paper.published import published

# As the paper prints them: averages that its own columns do not give.
MISPRINTED = {("table2", "ADDA"), ("table2", "ETD"), ("table2", "MCD")}
TABLES = published()


@pytest.mark.parametrize("name", TABLES)
def test_averages_are_those_of_the_columns(name):
    table = TABLES[name]
    for row, values in table.rows.items():
        assert len(values) == len(table.columns)
        if table.columns[-1] == "Avg" and not any(map(math.isnan, values)):
            right = abs(statistics.mean(values[:-1]) - values[-1]) < 0.0501
            assert right != ((name, row) in MISPRINTED), row


def test_every_row_is_there():
    assert {name: len(table.rows) for name, table in TABLES.items()} == {
        "table1": 17, "table2": 19, "table3": 14, "table4": 18, "table5": 7, "table-memory": 3, "table-stress": 6,
    }  # fmt: skip
    assert TABLES["table4"].value("Source-only +TSA", "M → U") == 90.9
    assert TABLES["table4"].value("CDAN", "SY → M") is None
    assert TABLES["table4"].deviations["JADA +TSA"][:2] == (0.1, 0.3)
    assert TABLES["table-memory"].value("TSA (w/ memory)", "Avg") == 89.3
    assert "mixes protocols" in TABLES["table4"].note


def test_rows_that_say_they_are_in_the_paper_are():
    for name, recipe in RECIPES.items():
        if name in TABLES:
            theirs = [row.published for row in recipe.rows if row.published is not None]
            assert theirs, name
            assert set(theirs) <= set(TABLES[name].rows), name
            # Every row of ours that has no counterpart is one that the paper left out.
            without = {row.title for row in recipe.rows if row.published is None}
            ours = ("+MI", "uniform", "L_M", "source-only", "AdaBN", "JADA")
            assert all(any(word in title for word in ours) for title in without)
