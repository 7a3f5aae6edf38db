import json

import numpy as np
import pytest
from matplotlib.figure import Figure

from lpes_evo.errors import JournalError
from lpes_evo.operators import CurveSpace, init_identity
from lpes_evo.problems import AnswerScores
from lpes_evo.reporting import save_figure
from lpes_evo.runs import (
    candidates,
    load_report,
    measure,
    plot_convergence,
    plot_curve,
    plot_positions,
    save_report,
    smaller_batches,
    summarise,
    warnings_of,
)
from lpes_evo.search import Evaluation
from lpes_evo.statistics import wilson_interval
from lpes_evo.storage import Journal
from lpes_evo.workers import LocalPool
from samples import without_checksums

LPES = np.array([0.8, 0.9, 1.0, 1.1])


class Fake:
    """Answers right with a chance that grows with the mean scale; two examples share a source; stands for a job too."""

    positions = (0.0, 0.0, 0.5, 0.5, 1.0, 1.0)
    sources = ("a", "b", "a", "b", "a", "b")
    example_ids = ("1", "2", "3", "4", "5", "6")
    mixture = None

    def __init__(self):
        self.calls = []

    @property
    def report_problem(self):
        return self

    def evaluate(self, scales):
        self.calls.append(scales.tolist())
        correct = np.array([True, False, True, True, scales[0] < 1, scales[-1] > 1])
        return AnswerScores(np.where(correct, -0.1, -2.0), correct)


def measured(path, n_shuffles=5):
    problem = Fake()
    vectors = candidates(LPES, 0.9, n_shuffles=n_shuffles, seed=3)
    with Journal(path, {"format": "test"}) as journal:
        pool = LocalPool(lambda _device: problem)
        scores = dict(measure(pool, vectors, len(problem.example_ids), journal))
    return problem, scores, vectors


def test_candidates_are_what_a_found_curve_must_be_compared_with():
    vectors = candidates(LPES, 0.9, n_shuffles=5, seed=3)
    assert vectors["untouched"].tolist() == [1.0] * 4
    assert vectors["constant"].tolist() == [0.9] * 4
    assert vectors["lpes"].tolist() == LPES.tolist()
    shuffles = [vectors[f"shuffle-{number:02d}"] for number in range(1, 6)]
    assert all(sorted(shuffle) == LPES.tolist() for shuffle in shuffles)
    assert len({tuple(shuffle) for shuffle in shuffles}) > 1
    again = candidates(LPES, 0.9, n_shuffles=5, seed=3)
    assert all((vectors[name] == again[name]).all() for name in vectors)
    assert "constant" not in candidates(LPES, None, n_shuffles=0, seed=0)


def test_a_finished_measurement_is_not_repeated(tmp_path):
    first, scores, _ = measured(tmp_path / "report.jsonl")
    assert len(first.calls) == 8
    second, again, _ = measured(tmp_path / "report.jsonl")
    assert second.calls == []
    assert all((scores[name].correct == again[name].correct).all() for name in scores)
    assert all((scores[name].log_probability == again[name].log_probability).all() for name in scores)


def test_scores_of_other_scales_are_refused(tmp_path):
    measured(tmp_path / "report.jsonl")
    text = (tmp_path / "report.jsonl").read_text()
    assert "[0.8, 0.9, 1.0, 1.1]" in text
    (tmp_path / "report.jsonl").write_text(text.replace("[0.8, 0.9, 1.0, 1.1]", "[0.8, 0.9, 1.0, 1.2]", 1))
    with pytest.raises(JournalError, match="to have the checksum"):
        measured(tmp_path / "report.jsonl")
    without_checksums(tmp_path / "report.jsonl")
    with pytest.raises(JournalError, match="the scores of 'lpes' in .* belong to others"):
        measured(tmp_path / "report.jsonl")
    edits = [
        ('"correct"', '"corect"', "to have the field 'correct'"),
        ("-0.1", "NaN", "but got nan at log_probability.0"),
        ("-0.1", '"a"', "log_probability.0 is 'a'"),
        ("-0.1", "[-0.1]", r"log_probability.0 is \[-0.1\]"),
        ("-0.1, ", "", "Expected 6 log-probabilities and as many 0 or 1 under 'untouched'"),
        ('"correct": [1', '"correct": ["a"', "correct.0 is 'a'"),
        ('"correct": [1', '"correct": [true', "correct.0 is True"),
        ('"correct": [1', '"correct": [2', "correct.0 is 2"),
        (
            '"correct": [1, ',
            '"correct": [',
            "Expected 6 log-probabilities and as many 0 or 1 under 'untouched'",
        ),
    ]
    for before, after, message in edits:
        assert before in text
        (tmp_path / "report.jsonl").write_text(text.replace(before, after, 1))
        without_checksums(tmp_path / "report.jsonl")
        with pytest.raises(JournalError, match=message):
            measured(tmp_path / "report.jsonl")
        (tmp_path / "report.jsonl").write_text(text.replace(before, after, 1))
        with pytest.raises(JournalError, match="to have the checksum|but got nan"):
            measured(tmp_path / "report.jsonl")


def test_the_summary_counts_by_position_and_overall(tmp_path):
    problem, scores, vectors = measured(tmp_path / "report.jsonl")
    summary = summarise(problem, scores, vectors)
    lpes = summary["methods"]["lpes"]
    assert lpes["n"] == 6
    assert lpes["accuracy"] == pytest.approx(5 / 6)
    assert [row["accuracy"] for row in lpes["positions"]] == [0.5, 1.0, 1.0]
    assert [row["n"] for row in lpes["positions"]] == [2, 2, 2]
    assert (lpes["positions"][0]["low"], lpes["positions"][0]["high"]) == pytest.approx(wilson_interval(1, 2))
    difference = summary["differences"]["untouched"]
    assert difference["difference"] == pytest.approx(2 / 6)
    assert difference["low"] <= difference["difference"] <= difference["high"]
    assert set(summary["methods"]) == {"untouched", "constant", "lpes"}
    assert summary["shuffles"]["n_shuffles"] == 5
    assert summary["shuffles"]["median_accuracy"] == np.median(summary["shuffles"]["accuracies"])
    save_report(tmp_path / "report.json", summary)
    assert load_report(tmp_path / "report.json") == json.loads(json.dumps(summary))


def test_scores_from_smaller_batches_are_counted_and_told(tmp_path):
    def evaluation(value, halvings):
        return Evaluation((value,), (value,), 0.0, halvings=halvings)

    failed = Evaluation((), (), 0.0, "failed", "no memory", halvings=3)
    with Journal(tmp_path / "report.jsonl", {}) as journal:
        line = {"scales": [1.0], "log_probability": [-1.0], "correct": [1]}
        journal.append("untouched", line | {"halvings": 2})
        journal.append("lpes", line)
        found = smaller_batches([evaluation(-2.0, 1), evaluation(-1.0, 0), failed], journal)
        assert found == {"n_candidates": 2, "best": False, "methods": ["untouched"]}
        (line,) = warnings_of({"smaller_batches": found})
        assert "Warning: 2 candidates and the held-out examples of untouched were scored in smaller" in line
        assert smaller_batches([evaluation(-2.0, 0), evaluation(-1.0, 1)], journal)["best"]
    assert (
        warnings_of({}) == warnings_of({"smaller_batches": found | {"n_candidates": 0, "methods": []}}) == []
    )


def test_a_vector_that_needs_smaller_batches_is_marked_in_the_journal(tmp_path):
    class Hungry(Fake):
        def evaluate(self, scales):
            if scales[0] == 0.9:
                raise MemoryError
            return super().evaluate(scales)

        def smaller(self):
            return Fake()

    vectors = candidates(LPES, 0.9, n_shuffles=0, seed=3)
    with Journal(tmp_path / "report.jsonl", {}) as journal:
        scores = dict(measure(LocalPool(lambda _device: Hungry()), vectors, 6, journal))
        assert [record["key"] for record in journal if record.get("halvings") == 1] == ["constant"]
        assert [record["key"] for record in journal] == ["untouched", "constant", "lpes"]
    expected = Fake().evaluate(vectors["constant"])
    assert (scores["constant"].correct == expected.correct).all()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda summary: summary.pop("differences"), "the field 'differences', but it is missing"),
        (lambda summary: summary.update(version=99), "to have format 'lpes-evo/report', version 1, but got"),
        (lambda summary: summary["methods"].pop("untouched"), "the method 'untouched' is missing"),
        (lambda summary: summary["methods"]["lpes"]["positions"].pop(), "has the positions"),
        (lambda summary: summary["methods"]["lpes"]["positions"][0].update(accuracy="high"),
         "methods.lpes.positions.0.accuracy is 'high'"),
        (lambda summary: summary["shuffles"].pop("positions"), "the field 'shuffles.positions'"),
        (lambda summary: summary["shuffles"]["positions"].pop(), "'shuffles' has the positions"),
        (lambda summary: summary.update(smaller_batches={"n_candidates": "2", "best": True, "methods": []}),
         "smaller_batches.n_candidates is '2'"),
        (lambda summary: summary.update(smaller_batches={"n_candidates": 2, "best": True}),
         "the field 'smaller_batches.methods'"),
        (lambda summary: summary.update(other=1), "to have no field 'other'"),
    ],
)  # fmt: skip
def test_an_edited_report_is_refused(tmp_path, edit, message):
    summary = json.loads(json.dumps(summarise(*measured(tmp_path / "report.jsonl"))))
    edit(summary)
    (tmp_path / "report.json").write_text(json.dumps(summary))
    with pytest.raises(JournalError, match=message):
        load_report(tmp_path / "report.json")
    with pytest.raises(JournalError, match=message):
        save_report(tmp_path / "report.json", summary)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "to be JSON"),
        ("[]", "to have format 'lpes-evo/report', version 1, but got 'list'"),
        ('{"format": "lpes-evo/report"}', "to have format 'lpes-evo/report', version 1, but got"),
        (
            '{"format": "lpes-evo/report", "version": 1, "methods": ["lpes"]}',
            "to be a whole report, but methods is",
        ),
        (
            '{"format": "lpes-evo/report", "version": 1, "methods": {"lpes": {}}}',
            "the field 'methods.lpes.scales'",
        ),
    ],
)
def test_a_damaged_report_is_refused(tmp_path, text, message):
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(JournalError, match=message):
        load_report(path)


def texts(figure):
    (axes,) = figure.axes
    return axes.get_xlabel(), axes.get_ylabel(), [text.get_text() for text in axes.get_legend().get_texts()]


def test_positions_are_drawn_with_their_intervals(tmp_path):
    figure = plot_positions(summarise(*measured(tmp_path / "report.jsonl")))
    assert isinstance(figure, Figure)
    x_label, y_label, legend = texts(figure)
    assert "Position" in x_label
    assert "Accuracy" in y_label
    assert any("untouched" in label for label in legend)
    assert any("LPES (mean 0.833)" in label for label in legend)
    assert any("5 shuffles" in label for label in legend)
    assert "n = 2" in figure.axes[0].get_title()


def test_the_curve_passes_through_the_scales_of_the_layers():
    space = CurveSpace(8)
    figure = plot_curve(space, init_identity(space))
    curve = figure.axes[0].lines[2].get_xydata()
    assert curve[0].tolist() == [0.0, 1.0]
    assert curve[-1].tolist() == [7.0, 1.0]
    assert texts(figure)[0] == "Layer"


def test_convergence_is_drawn_also_with_failures_and_without_success(tmp_path):
    records = [
        {"evaluations": 2, "mean": None, "spread": None},
        {"evaluations": 3, "mean": -1.0, "spread": 0.1},
    ]
    figure = plot_convergence([None, None, -3.0, -1.0, -2.0], records)
    best = figure.axes[0].lines[1].get_ydata()
    assert best[2:].tolist() == [-3.0, -1.0, -1.0]
    save_figure(figure, tmp_path / "convergence.png")
    save_figure(figure, tmp_path / "convergence.svg")
    assert (tmp_path / "convergence.svg").read_text().startswith("<?xml")
    plot_convergence([None], [{"evaluations": 1, "mean": None, "spread": None}])
