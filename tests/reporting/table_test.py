import csv
import io

import pytest
from rich.console import Console

from lpes_evo.reporting import Table, difference_text, duration, interval_text, p_equation, p_text


@pytest.fixture
def table():
    made = Table(
        "Scores of [red]kv[/red]", ["position", "arm", "score"], names=("arm",), notes=["One <note>"]
    )
    made.add_row("0.500", "a|b", 1 / 3)
    made.add_section()
    made.add_row("all", ":100:", None)
    return made


def test_a_terminal_shows_cells_as_they_are(table):
    console = Console(width=60, file=io.StringIO())
    table.print(console)
    said = console.file.getvalue()
    assert "Scores of [red]kv[/red]" in said
    assert ":100:" in said
    assert said.endswith("  One <note>\n")


def test_sections_are_divided_by_a_line_and_empty_ones_are_none(table):
    table.add_section()
    table.add_section()
    console = Console(width=60, file=io.StringIO())
    table.print(console)
    assert console.file.getvalue().count("├") == 1
    assert len(table.rows) == 2


def test_markdown_aligns_figures_and_escapes_bars(table):
    assert table.to_markdown("##").splitlines() == [
        "## Scores of [red]kv[/red]",
        "",
        "| position | arm | score |",
        "| --- | --- | ---: |",
        "| 0.500 | a\\|b | 0.3333333333333333 |",
        "| all | :100: |  |",
        "",
        "- One <note>",
    ]
    assert Table("", ["a"], [["b"]]).to_markdown() == "| a |\n| --- |\n| b |"


def test_csv_keeps_all_digits_and_leaves_missing_cells_empty(table):
    rows = list(csv.reader(io.StringIO(table.to_csv())))
    assert rows == [
        ["position", "arm", "score"],
        ["0.500", "a|b", "0.3333333333333333"],
        ["all", ":100:", ""],
    ]


def test_html_escapes_text_and_names_rows_and_columns():
    html = str(Table("A <b>", ["", "n & m"], [["<i>", 3]], notes=["<p>"]).to_html("text"))
    assert '<table class="text">' in html
    assert "<caption><span>A &lt;b&gt;.</span></caption>" in html
    assert '<td></td>\n<th scope="col">n &amp; m</th>' in html
    assert '<tr><th scope="row">&lt;i&gt;</th><td>3</td></tr>' in html
    assert "<p>&lt;p&gt;</p>" in html


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="one cell for each of 2 headings, but got 1"):
        Table("", ["a", "b"], [["c"]])


def test_numbers_are_written_in_one_way():
    assert interval_text(0.82, 0.692, 0.9021) == "0.820 [0.692, 0.902]"
    assert interval_text(0.82, 0.692, 0.9021, limits=".2f") == "0.820 [0.69, 0.90]"
    assert difference_text(0.28, -0.14, 0.42) == "+0.280 [-0.140, +0.420]"
    assert difference_text(0.28, -0.14, 0.42, ".3g") == "+0.28 [-0.14, +0.42]"
    assert (p_text(0.0002), p_text(0.0123)) == ("< 0.001", "0.012")
    assert (p_equation(0.0002), p_equation(0.0123)) == ("p < 0.001", "p = 0.012")
    assert (duration(12), duration(65), duration(3900)) == ("12 s", "1 min 05 s", "1 h 05 min")
