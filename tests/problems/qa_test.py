"""Questions of a user's own file: documents in any place, prompts, options, and malformed rows."""

import gzip
import json

import pytest

from lpes_evo.errors import TaskError
from lpes_evo.problems import DataRequest, check_disjoint, examples_of, make_task


def row(number, **changes):
    return {
        "question": f"Who runs shop {number}?",
        "answers": [f"Ann{number}", f"Mrs {number}"],
        "documents": [
            f"Shop 90{number} sells tea.",
            {"title": f"Shop {number}", "text": f"Ann{number} runs it."},
            {"text": f"Shop 91{number} is shut."},
            {"title": None, "text": f"Shop 92{number} burned down."},
        ],
        "gold": 1,
        "score": 0.3,
    } | changes


def without(field, number=0):
    return {key: value for key, value in row(number).items() if key != field}


@pytest.fixture
def write(tmp_path):
    def write(*rows, name="log.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return f"qa:{tmp_path / name}"

    return write


def test_the_gold_document_moves_and_the_others_keep_their_order(write):
    made = make_task(write(row(0))).examples(DataRequest(positions=(0.0, 1 / 3, 1.0)))
    assert [example.details["gold_document"] for example in made] == [1, 2, 4]
    for example in made:
        number = example.details["gold_document"]
        assert example.prompt[slice(*example.gold)] == f"Document [{number}](Title: Shop 0) Ann0 runs it."
        assert example.prompt[slice(*example.cut)].count("\n") == 3
        order = [example.prompt.index(text) for text in ("sells tea", "is shut", "burned down")]
        assert order == sorted(order)
        assert example.answers == ("Ann0", "Mrs 0")
    assert made[0].prompt.endswith(
        "Document [4] Shop 920 burned down.\n\nQuestion: Who runs shop 0?\nAnswer:"
    )
    assert len({example.source for example in made}) == 1


def test_several_gold_documents_move_side_by_side(write):
    (example,) = make_task(write(row(0, gold=[3, 1]))).examples(DataRequest(positions=(1.0,)))
    assert example.prompt[slice(*example.gold)] == (
        "Document [3](Title: Shop 0) Ann0 runs it.\nDocument [4] Shop 920 burned down."
    )


def test_fewer_documents_are_the_gold_ones_and_the_first_others(write):
    spec = write(row(0, gold=3), row(1, documents=["a", "b"], gold=0))
    longer, shorter = make_task(f"{spec}+documents=3").examples(DataRequest(positions=(1.0,)))
    assert "burned down" in longer.prompt[slice(*longer.gold)]
    assert "sells tea" in longer.prompt
    assert "is shut" not in longer.prompt
    assert shorter.details["n_documents"] == 2
    with pytest.raises(TaskError, match="none has more than 4. Leave"):
        make_task(f"{spec}+documents=4").examples(DataRequest())
    with pytest.raises(TaskError, match="a row of .* has 3 of them and 3 are shown"):
        make_task(f"{write(row(0, gold=[0, 1, 2]))}+documents=3").examples(DataRequest())


def test_a_template_is_filled_and_its_spans_are_right(write, tmp_path):
    template = tmp_path / "prompt.txt"
    template.write_text("{{Q}}: {question}\n\n{documents}\n\nBe brief.\n")
    (example,) = make_task(f"{write(row(0))}+template={template}").examples(DataRequest(positions=(0.0,)))
    assert example.prompt.startswith("{Q}: Who runs shop 0?\n\nDocument [1](Title: Shop 0) Ann0")
    assert example.prompt.endswith("burned down.\n\nBe brief.")
    assert example.prompt[slice(*example.gold)] == "Document [1](Title: Shop 0) Ann0 runs it."
    assert example.prompt[example.cut[1] :] == "\n\nBe brief."


@pytest.mark.parametrize(
    ("template", "match"),
    [
        ("{documents} {question} {colour}", "but it holds {colour} .* Double a brace"),
        ("{documents.text} {question}", "but it holds {documents.text}"),
        ("{documents!r} {question}", "but it holds {documents}"),
        ("{documents}", "once each, but it holds {documents}\\."),
        ("{documents} {question} {question}", "once each"),
        ("no placeholder", "but it holds none"),
        ("{documents} {question", "but it is no template: expected '}'"),
    ],
)
def test_a_template_with_other_placeholders_is_refused(write, tmp_path, template, match):
    (tmp_path / "prompt.txt").write_text(template)
    with pytest.raises(TaskError, match=match):
        make_task(f"{write(row(0))}+template={tmp_path / 'prompt.txt'}")


def test_a_passage_is_shown_in_the_form_of_the_user(write, tmp_path):
    form = tmp_path / "passage.txt"
    form.write_text("<{number}> {title}: {text}\n")
    (example,) = make_task(f"{write(row(0))}+passage={form}").examples(DataRequest(positions=(0.0,)))
    assert example.prompt[slice(*example.gold)] == "<1> Shop 0: Ann0 runs it."
    assert "\n<2> : Shop 900 sells tea.\n" in example.prompt
    form.write_text("{number}")
    with pytest.raises(
        TaskError, match="passage.txt to hold {text} once each and at most {number}, {title}, but"
    ):
        make_task(f"{write(row(0))}+passage={form}")


def test_a_template_that_is_missing_is_one_line(write, tmp_path):
    with pytest.raises(TaskError, match="none.txt to be a text in UTF-8, but reading it failed"):
        make_task(f"{write(row(0))}+template={tmp_path / 'none.txt'}")


def test_rows_with_prompts_are_one_set_without_positions(write):
    spec = write({"prompt": "2 + 2?", "answer": "4"}, {"prompt": "3 + 3?", "answers": ["6", "six"], "id": 7})
    made = make_task(spec).examples(DataRequest(positions=(0.0, 1.0)))
    assert [(example.prompt, example.answers, example.position) for example in made] == [
        ("2 + 2?", ("4",), None),
        ("3 + 3?", ("6", "six"), None),
    ]
    with pytest.raises(TaskError, match="its rows have whole prompts. Leave"):
        make_task(f"{spec}+documents=3").examples(DataRequest())


def test_rows_of_both_kinds_in_one_file_are_refused(write):
    with pytest.raises(TaskError, match=r"but line 1 of .* and line 3 of .* differ. Put them into two files"):
        make_task(write(row(0), row(1), {"prompt": "p", "answer": "a"})).examples(DataRequest())


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (without("question"), "line 2 of .*log.jsonl to have the field 'question'"),
        (without("answers"), "line 2 of .*log.jsonl to have the field 'answer'"),
        (without("gold"), "line 2 of .* to have the field 'gold'"),
        (
            without("documents"),
            "line 2 of .* to have the field 'documents' with 'question' and 'gold', or .*'prompt'",
        ),
        (row(1, answers="Ann"), "line 2 of .* list of texts in the field 'answers', but it holds 'Ann'"),
        (row(1, answers=[""]), "line 2 of .* no empty text in the field 'answers'"),
        (row(1, documents="text"), "line 2 of .* two documents in the field 'documents'"),
        (row(1, documents=["only"]), "line 2 of .* two documents in the field 'documents'"),
        (row(1, documents=["a", 3]), "document 1 of line 2 of .* text in the field 'text', but it holds 3"),
        (
            row(1, documents=["a", {"title": 3, "text": "b"}]),
            "document 1 of line 2 of .* text in the field 'title'",
        ),
        (row(1, documents=["a", {"title": "b"}]), "document 1 of line 2 of .* have the field 'text'"),
        (
            row(1, gold=4),
            "line 2 of .* an index from 0 to 3, or a list of such, in the field 'gold', but it holds 4",
        ),
        (row(1, gold=-1), "in the field 'gold', but it holds -1"),
        (row(1, gold=True), "in the field 'gold', but it holds True"),
        (row(1, gold=[]), "in the field 'gold'"),
        (row(1, gold="Shop 1"), "in the field 'gold', but it holds 'Shop 1'"),
        (row(1, gold=[1, 1]), "name each gold document once"),
        (row(1, gold=[0, 1, 2, 3]), "and leave others"),
        ([1], "line 2 of .* to be a JSON object"),
    ],
)
def test_a_malformed_row_is_one_line_with_its_place_and_field(write, wrong, match):
    with pytest.raises(TaskError, match=match) as caught:
        make_task(write(row(0), wrong, row(2))).examples(DataRequest())
    assert "\n" not in str(caught.value)


def test_the_faults_of_several_rows_are_told_together(write):
    with pytest.raises(
        TaskError, match=r"line 1 of .*'gold'.* The faults of 2 further rows: .*line 3 of .*line 4 of"
    ):
        make_task(write(row(0, gold=9), row(1), row(2, gold=8), row(3, gold=7))).examples(DataRequest())


def test_a_question_that_comes_again_is_kept_and_stays_on_one_side(write):
    rows = [row(number) for number in range(20)] * 2 + [row(3, documents=["x", "y"], gold=0)]
    task = make_task(write(*rows))
    made = examples_of(task, DataRequest(positions=(0.5,)))
    assert len(made) == 41
    assert len({example.source for example in made}) == 20
    parts = [examples_of(task, DataRequest(positions=(0.5,), split=split)) for split in ("search", "report")]
    check_disjoint(*parts)
    assert sum(map(len, parts)) == 41


def test_the_order_of_rows_and_the_name_of_the_file_change_no_example(write):
    rows = [row(number) for number in range(6)]
    first = make_task(write(*rows)).examples(DataRequest(positions=(0.0,)))
    other = make_task(write(*rows[::-1], name="again.jsonl")).examples(DataRequest(positions=(0.0,)))
    assert first == other[::-1]


@pytest.mark.parametrize(
    ("option", "metric", "scores"),
    [
        ("", "best-subspan exact match", (1.0, 1.0, 0.0)),
        ("+metric=f1", "F1", (1.0, 0.5, 0.0)),
        ("+metric=exact", "exact match", (1.0, 0.0, 0.0)),
    ],
)
def test_the_first_line_is_scored_by_the_metric_that_is_asked_for(write, option, metric, scores):
    task = make_task(write(row(0)) + option)
    example = task.examples(DataRequest(positions=(0.0,)))[0]
    outputs = ("the ann0.\nMore", "Ann0 runs it", "Bob\nAnn0")
    assert task.metric == metric
    assert tuple(task.score(output, example)[0] for output in outputs) == pytest.approx(scores)
    assert task.teacher_forcing == (not option)


def test_the_name_of_a_file_may_have_colons_and_pluses(write, tmp_path):
    spec = write(row(0), name="a+b:c.jsonl")
    assert make_task(spec).name == spec
    assert make_task(f"{spec}+documents=3+metric=f1").name == f"{spec}+documents=3+metric=f1"
    packed = tmp_path / "log.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps(row(0)).encode()))
    assert len(make_task(f"qa:{packed}+documents=3").examples(DataRequest(positions=(0.0,)))) == 1


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("qa", "Expected qa:FILE with a file that ends in .jsonl"),
        ("qa:log.json", "Expected qa:FILE with a file that ends in .jsonl"),
        ("qa:none.jsonl", "file of questions at none.jsonl, but there is none"),
        ("qa:log.jsonl+colour=red", r"among \+documents, \+template, \+passage, \+metric, but got \+colour"),
        ("qa:log.jsonl+metric=bleu", "metric of qa to be one of subspan, f1, exact, but got 'bleu'"),
        ("qa:log.jsonl+metric", r"Expected \+metric=TEXT"),
        ("qa:log.jsonl+documents=1", "number of documents of qa to be an integer from 2"),
        ("qa:log.jsonl+documents=x", r"Expected \+documents=NUMBER"),
    ],
)
def test_a_wrong_spec_is_one_line(spec, match):
    with pytest.raises(TaskError, match=match):
        make_task(spec).examples(DataRequest())


def test_an_answer_that_normalises_to_nothing_is_warned_about(write):
    task = make_task(write(row(0, answers=["the"])))
    assert "1 accepted answers are empty" in task.check(task.examples(DataRequest(positions=(0.0,))))[0]


def test_real_questions_of_another_format_become_rows(write, real_data):
    source = next((real_data / "lost-in-the-middle").glob("nq-open-oracle*"))
    with gzip.open(source, "rt") as lines:
        given = [json.loads(line) for line in lines]
    rows = [
        {
            "question": question["question"],
            "answers": question["answers"],
            "documents": [question["ctxs"][0], *(given[(n + step) % 300]["ctxs"][0] for step in (7, 19, 31))],
            "gold": 0,
        }
        for n, question in enumerate(given)
    ]
    task = make_task(write(*rows))
    found = {
        split: examples_of(task, DataRequest(positions=(0.0, 1.0), split=split, seed=2))
        for split in ("search", "report", "all")
    }
    assert len(found["search"]) + len(found["report"]) == len(found["all"]) == 600
    check_disjoint(found["search"], found["report"])
