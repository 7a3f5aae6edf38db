import csv
import io
import json

import pytest
from rich.console import Console

from lpes_evo.errors import JournalError
from lpes_evo.evals import (
    EvalFolder,
    EvalResults,
    ScoredExample,
    TaskResult,
    csv_table,
    load_results,
    markdown_table,
    plot_task_positions,
    print_results,
    save_results,
    save_tables,
    summarise_arm,
)
from lpes_evo.runs import series_styles


def scored(values):
    return [ScoredExample(f"e{n}", n % 2 / 1, f"s{n}", (float(value),)) for n, value in enumerate(values)]


@pytest.fixture
def results():
    base, better = scored([0, 1, 0, 1, 0, 1]), scored([1, 1, 1, 1, 1, 0])
    arms = {
        "untouched": summarise_arm(None, base, None, n_failed=0, n_in_smaller_batches=0),
        "lpes": summarise_arm(None, better, base, n_failed=1, n_in_smaller_batches=2),
    }
    task = TaskResult(
        name="kv", metric="accuracy | strict", larger_is_better=True, mode="generation", data="d" * 64, n_examples=6,
        n_sources=6, n_skipped=3, n_cut=2, n_gold_lost=1, n_with_unknown=0, notes=["[red]a note[/red]"], arms=arms,
    )  # fmt: skip
    facts = {"n_layers": 3, "dtype": "float32", "device": "cpu", "attention": "sdpa"}
    return EvalResults(
        model="random", facts=facts, arms={"untouched": {}, "lpes": {"scales": [1.0, 2.0, 1.5]}},
        notes=["Transfer: told"], tasks=[task], command="lpes-evo eval random",
    )  # fmt: skip


def test_a_narrow_terminal_folds_names_and_keeps_figures_whole(results):
    task = results.tasks[0]
    name = "attention-buckets:10000/17500/25000:combine=probs"
    folded = results.model_copy(
        update={"tasks": [task.model_copy(update={"arms": task.arms | {name: task.arms["lpes"]}})]}
    )
    console = Console(width=90, file=io.StringIO())
    print_results(folded, console)
    said = console.file.getvalue()
    assert "…" not in said
    assert "[0.436, 0.970]" in said


def test_results_round_trip_through_their_file_and_folder(results, tmp_path):
    save_results(tmp_path / "results.json", results)
    assert load_results(tmp_path / "results.json") == results
    assert load_results(tmp_path) == results


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "other", "to have format 'lpes-evo/eval', version 1"),
        (("version",), 2, "to have format 'lpes-evo/eval', version 1"),
        (("tasks", 0, "n_cut"), "two", r"tasks\.0\.n_cut is 'two'"),
        (("tasks", 0, "arms", "lpes", "overall", "score"), None, r"overall\.score is None"),
        (("tasks", 0, "arms", "lpes", "overall", "p"), 0.1, r"to have no field .*overall\.p'"),
        (("notes",), "text", "notes is 'text'"),
    ],
)
def test_an_edited_field_is_named(results, tmp_path, path, value, message):
    values = json.loads(results.model_dump_json())
    place = values
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    (tmp_path / "results.json").write_text(json.dumps(values))
    with pytest.raises(JournalError, match=message):
        load_results(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "to be JSON, but it is not"), ("[]", "got 'list'"), ('{"format": NaN}', "to have format")],
)
def test_a_damaged_file_is_refused(tmp_path, content, message):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(JournalError, match=message):
        load_results(tmp_path)
    with pytest.raises(JournalError, match="cannot be read: No such file"):
        load_results(tmp_path / "nothing.json")


def test_the_csv_has_a_line_for_each_arm_and_position(results):
    rows = list(csv.DictReader(io.StringIO(csv_table(results))))
    assert [(row["arm"], row["position"], row["n"]) for row in rows] == [
        ("untouched", "0.0", "3"),
        ("untouched", "1.0", "3"),
        ("untouched", "", "6"),
        ("lpes", "0.0", "3"),
        ("lpes", "1.0", "3"),
        ("lpes", "", "6"),
    ]
    last = rows[-1]
    assert float(last["difference"]) == pytest.approx(1 / 3)
    assert (last["n_cut"], last["n_gold_lost"], last["n_skipped"], last["n_failed"]) == ("2", "1", "3", "1")
    assert rows[0]["difference"] == ""
    assert last["test"] == "McNemar, exact"


def test_the_markdown_and_the_terminal_say_the_same(results):
    text = markdown_table(results)
    assert "| all | lpes | 6 | 0.833 |" in text
    assert "+0.333 [" in text
    assert "skipped 3, cut 2 (1 lost the needed fact)" in text
    assert "- Transfer: told" in text
    console = Console(record=True, width=140, file=io.StringIO())
    print_results(results, console)
    printed = console.export_text()
    for part in (
        "0.833",
        "skipped 3, cut 2 (1 lost",
        "Transfer: told",
        "[red]a note[/red]",
        "McNemar, exact",
        "Wilson",
    ):
        assert part in printed
        assert part in text


def test_the_tables_are_files(results, tmp_path):
    folder = EvalFolder(tmp_path)
    save_tables(results, folder)
    assert folder.markdown.read_text() == markdown_table(results)
    assert folder.csv.read_text() == csv_table(results)
    assert folder.picture("a/b:c").name == "positions-a-b-c.png"


def test_the_picture_has_a_line_for_each_arm(results):
    figure = plot_task_positions(results.tasks[0])
    (axes,) = figure.axes
    lines = [container.lines[0] for container in axes.containers]
    assert [line.get_ydata().tolist() for line in lines] == [[0.0, 1.0], [1.0, pytest.approx(2 / 3)]]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "untouched model (all 0.500)",
        "LPES (all 0.833)",
    ]


def test_the_legend_does_not_lie_over_the_data(results):
    figure = plot_task_positions(results.tasks[0])
    figure.draw_without_rendering()
    (axes,), (legend,) = figure.axes, figure.legends
    assert legend.get_window_extent().x0 >= axes.get_window_extent().x1


def test_many_arms_have_a_panel_a_colour_and_a_marker_of_their_own(results):
    task = results.tasks[0]
    names = ["untouched", "lpes", *(f"method {number}" for number in range(7))]
    figure = plot_task_positions(task.model_copy(update={"arms": dict.fromkeys(names, task.arms["lpes"])}))
    assert len(figure.axes) == len(names) - 1
    drawn = [axes.containers[-1].lines[0] for axes in figure.axes]
    assert len({line.get_marker() for line in drawn}) == len(drawn)
    assert all(len(axes.containers) == 2 for axes in figure.axes)


def test_up_to_eight_series_have_a_colour_and_sixteen_a_look_of_their_own():
    names = ["untouched", "constant", "lpes", *map(str, range(10))]
    looks = list(series_styles(names).values())
    assert len(set(looks)) == len(names)
    assert len({color for color, _ in looks[:9]}) == 9
