"""Tables as Markdown and CSV, the seed table and the published ones."""

import csv
import io
import math

import numpy as np
import pytest

from espnet_latentasr.report.published import published_names, published_table
from espnet_latentasr.report.tables import Column, Table, escape_markdown, seed_table

TABLE = Table(
    "t",
    "Title",
    (Column("set"), Column("Δ", "{:+.2f}"), Column("CI", "[{:.1f}, {:.1f}]", ("low", "high"))),
    (("a|b <i>", 1 / 3, (0.123, 0.456)), ("none", None, None), ("nan", float("nan"), (1.0, None))),
)


def test_markdown_rounds_escapes_and_shows_gaps():
    assert TABLE.markdown().splitlines() == [
        "|set|Δ|CI|",
        "|---|---|---|",
        "|a\\|b &lt;i&gt;|+0.33|[0.1, 0.5]|",
        "|none|–|–|",
        "|nan|–|–|",
    ]


def test_csv_keeps_every_digit():
    rows = list(csv.reader(io.StringIO(TABLE.csv())))
    assert rows[0] == ["set", "Δ", "CI low", "CI high"]
    assert rows[1] == ["a|b <i>", repr(1 / 3), "0.123", "0.456"]
    assert rows[2:] == [["none", "", "", ""], ["nan", "", "1.0", ""]]


def test_a_row_of_the_wrong_length_is_an_error():
    with pytest.raises(ValueError):
        Table("t", "", TABLE.columns, (("a", 1.0),)).markdown()


def test_markdown_escapes():
    assert escape_markdown("a*b* [x](y) `c` \\ <b>&") == r"a\*b\* \[x\](y) \`c\` \\ &lt;b&gt;&amp;"
    assert escape_markdown("_em_ test_text\n  next") == r"\_em\_ test_text next"


def test_seed_table():
    table = seed_table({"d/t": {"s1": (0.2, 0.1), "s2": (0.2, 0.3)}, "d/u": {"s1": (0.2, 0.1)}}, "wer")
    _, seeds, frozen, latent, delta = table.rows[0]
    assert (seeds, frozen, latent[0]) == (2, (20, 0), 20)
    assert delta == (pytest.approx(0), pytest.approx(np.std([-10, 10], ddof=1)))
    assert math.isnan(table.rows[1][4][1])
    assert table.cells()[1][4] == "–"


@pytest.mark.parametrize("name", published_names())
def test_published_tables_are_whole_and_say_what_they_are(name):
    table = published_table(name)
    assert table.published and table.title.startswith("Published: ")
    assert table.note.startswith("Published, not measured here (")
    assert all(len(row) == len(table.columns) for row in table.rows)
    table.markdown()


def test_published_numbers_keep_their_digits_and_agree_with_each_other():
    main = {row[0]: row for row in published_table("main").rows}
    assert main["frozen"][1] == "4.900"
    for row in main.values():
        if row[2] is not None:
            for wer, relative in (row[1:3], row[3:5]):
                base = main["frozen"][1] if wer == row[1] else main["frozen"][3]
                computed = 100 * (float(wer) / float(base) - 1)
                assert computed == pytest.approx(float(relative), rel=1e-4, abs=0.02)
    for row in published_table("allocation").rows:
        assert sum(map(float, row[1:])) == pytest.approx(100, abs=0.15)
    quartiles = published_table("quartiles").rows
    assert sum(int(row[1]) for row in quartiles) == 1842
    assert sum(int(row[1]) for row in published_table("counterfactual").rows) == 1842
    stress = published_table("stress").rows
    assert sum(int(row[1]) for row in stress[:-1]) == int(stress[-1][1])
    for row in stress:
        assert float(row[3]) - float(row[2]) == pytest.approx(float(row[4]), abs=0.0011)
