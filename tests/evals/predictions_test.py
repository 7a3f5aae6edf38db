"""Finished prediction files are scored without a model."""

import json

import pytest
from typer.testing import CliRunner

from lpes_evo.cli import app, score
from lpes_evo.errors import ConfigError, TaskError
from lpes_evo.evals import score_predictions
from lpes_evo.problems import DataRequest, NeedleTask

REQUEST = DataRequest(positions=(0.0, 1.0), limit=4)


def run(*arguments):
    return CliRunner().invoke(app, ["score", *(str(argument) for argument in arguments)])


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def needle_rows():
    made = NeedleTask(4).examples(REQUEST)
    return [
        {"id": example.id, "output": example.answers[0] if example.position == 0 or index == 4 else "none"}
        for index, example in enumerate(made)
    ]


def test_the_released_answers_score_as_the_released_scorer_says(real_data):
    (file,) = (real_data / "leval").glob("tpo.*.pred.jsonl")
    result = score_predictions("leval:tpo", file)
    assert result.n == 269
    assert round(result.score, 4) == 78.4387
    assert 70 < result.low < result.score < result.high < 85
    shown = run("leval:tpo", file, "--json")
    assert shown.exit_code == 0
    assert round(json.loads(shown.stdout)["score"], 4) == 78.4387
    assert "78.4387" in run("leval:tpo", file).stdout


def test_science_fiction_answers_hold_two(tmp_path):
    rows = [
        {"gt": "True [fact: False]", "model_pred": "True. [fact: It is true]", "evaluation": "exam"},
        {"gt": "False [fact: False]", "model_pred": "FALSE [fact: false]", "evaluation": "exam"},
        {"gt": "anything", "model_pred": "judged", "evaluation": "LLM"},
    ]
    result = score_predictions("leval:sci_fi", write(tmp_path / "sci_fi.pred.jsonl", rows))
    assert (result.n, result.score) == (4, 75.0)


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ({"gt": "A", "model_pred": None, "evaluation": "exam"}, "line 2 of .*text in the field 'model_pred'"),
        ({"gt": "", "model_pred": "A", "evaluation": "exam"}, "line 2 of .*text in the field 'gt'"),
        ({"gt": "A", "other_pred": "A", "evaluation": "exam"}, "line 2 of .*the field 'model_pred'"),
        ({"gt": "A", "model_pred": "A"}, "line 2 of .*the field 'evaluation'"),
    ],
)
def test_a_malformed_answer_of_l_eval_is_named_with_its_line(tmp_path, row, match):
    file = write(tmp_path / "tpo.pred.jsonl", [{"gt": "A", "model_pred": "A", "evaluation": "exam"}, row])
    with pytest.raises(TaskError, match=match):
        score_predictions("leval:tpo", file)


def test_an_answer_file_without_predictions_or_without_scored_ones_is_one_line(tmp_path):
    with pytest.raises(TaskError, match="a field such as 'SYSTEM_pred', but it has gt, evaluation"):
        score_predictions("leval:tpo", write(tmp_path / "a.jsonl", [{"gt": "A", "evaluation": "exam"}]))
    judged = [{"gt": "A", "model_pred": "A", "evaluation": "human"}]
    with pytest.raises(TaskError, match="all are for judges"):
        score_predictions("leval:tpo", write(tmp_path / "b.jsonl", judged))


def test_plain_outputs_are_scored_against_the_data(tmp_path):
    file = write(tmp_path / "answers.jsonl", needle_rows())
    result = score_predictions("needle:4", file, REQUEST)
    assert result.score == pytest.approx(5 / 8)
    assert {place: (row["score"], row["n"]) for place, row in result.positions.items()} == {
        0.0: (1.0, 4),
        1.0: (0.25, 4),
    }
    shown = run("needle:4", file, "--positions", "0,1", "--limit", 4, "--json")
    assert json.loads(shown.stdout) == json.loads(json.dumps(result.to_dict()))
    assert "position 1: 0.2500" in run("needle:4", file, "--positions", "0,1", "--limit", 4).stdout


def test_missing_answers_are_refused_or_counted(tmp_path):
    file = write(tmp_path / "answers.jsonl", needle_rows()[:5])
    with pytest.raises(
        TaskError, match=r"each of the 8 examples of needle:4, but .* lacks 3, first 'needle/report"
    ):
        score_predictions("needle:4", file, REQUEST)
    result = score_predictions("needle:4", file, REQUEST, partial=True)
    assert (result.n, result.n_missing, result.score) == (5, 3, 1.0)


@pytest.mark.parametrize(
    ("row", "match"),
    [
        (
            {"id": "unknown", "output": "x"},
            "line 9 of .*id of an example of needle:4, such as 'needle/.*'unknown'",
        ),
        ({"output": "x"}, "line 9 of .*the field 'id'"),
        ({"id": "needle/report/0/0/0/0.0"}, "line 9 of .*the field 'output'"),
        ({"id": "needle/report/0/0/0/0.0", "output": 3}, "line 9 of .*text in the field 'output'"),
        ({"id": "needle/report/0/0/0/0.0", "output": "x"}, "line 9 of .*an id of its own"),
    ],
)
def test_a_malformed_output_is_named_with_its_line(tmp_path, row, match):
    file = write(tmp_path / "answers.jsonl", [*needle_rows(), row])
    with pytest.raises(TaskError, match=match):
        score_predictions("needle:4", file, REQUEST)


def test_a_task_without_outputs_and_a_missing_file_are_refused(tmp_path):
    with pytest.raises(TaskError, match="takes the likelihood"):
        score_predictions("perplexity", tmp_path / "absent.jsonl")
    with pytest.raises(TaskError, match=r"there is no file .*absent\.jsonl"):
        score_predictions("needle:4", tmp_path / "absent.jsonl")
    with pytest.raises(ConfigError, match="--positions to be numbers"):
        score("needle:4", tmp_path / "absent.jsonl", positions="begin")


def test_warnings_of_the_task_are_shown(tmp_path):
    passage = {"title": "T", "text": "Nothing.", "isgold": True}
    rows = [
        {"question": f"q{number}", "answers": ["The"], "ctxs": [passage | {"text": f"t{number}"}]}
        for number in (1, 2)
    ]
    write(tmp_path / "nq-open-oracle.jsonl", rows)
    from lpes_evo.problems.tasks import MdqaTask

    made = MdqaTask(2).examples(DataRequest(folder=tmp_path, positions=(0.0,)))
    file = write(tmp_path / "answers.jsonl", [{"id": example.id, "output": "x"} for example in made])
    shown = run("mdqa:2", file, "--data", tmp_path, "--positions", "0")
    assert "warning: 2 accepted answers are empty once normalised" in shown.stdout


@pytest.mark.parametrize("gold", ["[fact: False]", "True [fact: ]", "True [fact:"])
def test_a_reference_of_science_fiction_without_one_of_its_halves_is_refused(tmp_path, gold):
    rows = [{"gt": gold, "model_pred": "True [fact: False]", "evaluation": "exam"}]
    with pytest.raises(
        TaskError, match="line 1 of .*to hold a reference for the document and one for the world"
    ):
        score_predictions("leval:sci_fi", write(tmp_path / "sci_fi.pred.jsonl", rows))


def test_references_that_the_scorer_cannot_read_are_counted_in_a_warning(tmp_path):
    rows = [{"gt": gold, "model_pred": "A", "evaluation": "exam"} for gold in ("A", "none", "see A")]
    file = write(tmp_path / "tpo.pred.jsonl", rows)
    assert (
        score_predictions("leval:tpo", file).warnings[0].startswith("2 of 3 references hold no option letter")
    )
    assert "warning: 2 of 3 references hold no option letter" in run("leval:tpo", file).stdout


def test_a_file_of_two_systems_is_scored_for_the_one_that_is_named(tmp_path):
    rows = [{"gt": "A", "one_pred": "A", "two_pred": answer, "evaluation": "exam"} for answer in "AB"]
    file = write(tmp_path / "tpo.pred.jsonl", rows)
    with pytest.raises(
        TaskError, match="answers of one system, but it holds those of one, two. Name .* --system"
    ):
        score_predictions("leval:tpo", file)
    with pytest.raises(TaskError, match="answers of the system 'three', but it holds those of one, two"):
        score_predictions("leval:tpo", file, system="three")
    assert [score_predictions("leval:tpo", file, system=name).score for name in ("one", "two")] == [
        100.0,
        50.0,
    ]
    assert "50.0000" in run("leval:tpo", file, "--system", "two").stdout


@pytest.mark.parametrize(
    "options", [("--limit", 3), ("--seed", 0), ("--positions", "0"), ("--data", "."), ("--partial",)]
)
def test_options_that_mean_nothing_to_a_file_of_l_eval_are_refused(tmp_path, options):
    rows = [{"gt": "A", "model_pred": "A", "evaluation": "exam"}]
    file = write(tmp_path / "tpo.pred.jsonl", rows)
    result = run("leval:tpo", file, *options)
    assert isinstance(result.exception, TaskError)
    assert "Expected no data, positions, limit, seed or --partial with" in str(result.exception)


def test_a_system_is_named_only_for_a_file_of_l_eval(tmp_path):
    file = write(tmp_path / "answers.jsonl", needle_rows())
    with pytest.raises(TaskError, match="Expected --system only with a file in L-Eval's own format"):
        score_predictions("needle:4", file, REQUEST, system="mine")


def test_a_name_that_is_too_long_is_no_file(tmp_path):
    name = "a" * 300
    with pytest.raises(TaskError, match="there is no file .*aaa"):
        score_predictions("needle:4", tmp_path / name)
    with pytest.raises(TaskError, match="there is no file aaa"):
        score_predictions(f"{name}.py:Task", tmp_path / name)
    with pytest.raises(TaskError, match="but there is no such folder"):
        score_predictions("mdqa:2", write(tmp_path / "x", [{}]), DataRequest(tmp_path / name))
