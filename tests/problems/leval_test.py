"""L-Eval: reading, prompts as the released baselines build them, and scores as the released scorer gives them."""

import json

import numpy as np
import pytest

from lpes_evo.errors import TaskError
from lpes_evo.problems import DataRequest
from lpes_evo.problems.tasks import LEVAL_TASKS, LEvalTask

DOCUMENT = "A long document about dogs."


def line(reference="A", n_questions=2, **changes):
    return {
        "instructions": [f"What is it, number {number}?" for number in range(n_questions)],
        "outputs": [reference] * n_questions,
        "input": DOCUMENT,
        "source": "somewhere",
        "evaluation": "exam",
    } | changes


def write(folder, name, lines):
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_there_are_twenty_tasks():
    assert len(set(LEVAL_TASKS)) == 20


@pytest.mark.parametrize("name", LEVAL_TASKS)
def test_every_task_asks_each_instruction_and_gives_a_perfect_answer_all_points(tmp_path, name):
    if "ROUGE" in LEvalTask(name).metric:
        pytest.importorskip("rouge_score", reason="the extra [eval] is not installed")
    reference, answer = {
        "coursera": ("ACD", "A, C and D."),
        "quality": ("B", "B. the dog"),
        "tpo": ("B", "B"),
        "gsm100": ("The answer is 12", "So The answer is 12."),
        "codeU": ("[1, 2]", "the final output is [1, 2]"),
        "sci_fi": ("True [fact: False]", None),
        "topic_retrieval_longchat": ("the future of dogs", "It was The Future of Dogs."),
    }.get(name, ("the red dog runs home", "the red dog runs home"))
    write(tmp_path, name, [line(reference), line(reference, n_questions=1, input="Another document.")])
    task = LEvalTask(name)
    made = task.examples(DataRequest(folder=tmp_path))
    assert len(made) == (6 if name == "sci_fi" else 3)
    assert len({example.id for example in made}) == len(made)
    assert made[0].source == made[1].source != made[-1].source
    assert made[0].prompt[slice(*made[0].cut)] == DOCUMENT
    assert "What is it, number 0?" in made[0].prompt[made[0].cut[1] :]
    scores = np.array([task.score(answer or example.answers[0], example) for example in made])
    assert task.headline(scores) == pytest.approx(100.0)
    nothing = np.array([task.score("", example) for example in made])
    assert task.headline(nothing) == 0


def test_the_prompt_of_a_choice_is_that_of_the_released_predictions(real_data):
    (file,) = (real_data / "leval").glob("tpo.*.pred.jsonl")
    recorded = json.loads(file.read_text().splitlines()[0])
    first = LEvalTask("tpo").examples(DataRequest(folder=real_data))[0]
    document, query = first.prompt[slice(*first.cut)], recorded["query"]
    expected = recorded["prompt"].replace("additonal", "additional").replace("{}", "%s") % (document, query)
    assert first.prompt == expected
    assert first.answers == (recorded["gt"],)


def test_a_length_can_be_asked_for(tmp_path):
    write(tmp_path, "narrative_qa", [line("the red dog runs home", evaluation="f1")])
    plain, _ = LEvalTask("narrative_qa").examples(DataRequest(folder=tmp_path))
    told, _ = LEvalTask("narrative_qa", length=True).examples(DataRequest(folder=tmp_path))
    assert plain.prompt.endswith(
        f"Document is as follows. {DOCUMENT} Instruction: What is it, number 0? Output: "
    )
    assert told.prompt.endswith(
        "Instruction: What is it, number 0? The suggested output length is around 5 words. Output: "
    )
    with pytest.raises(TaskError, match="can ask for a length, but got gsm100"):
        LEvalTask("gsm100", length=True)


def test_coursera_gives_a_quarter_for_some_of_the_right_options(tmp_path):
    write(tmp_path, "coursera", [line("ABD")])
    task = LEvalTask("coursera")
    example, _ = task.examples(DataRequest(folder=tmp_path))
    assert [task.score(output, example)[0] for output in ("A. and B.", "ABD", "AC", "E")] == [25, 100, 0, 25]


def test_science_fiction_asks_twice_and_averages_document_and_world(tmp_path):
    question = "Do dogs fly? Answer based on the world described in the document."
    write(tmp_path, "sci_fi", [line("True [fact: False]", instructions=[question, question])])
    task = LEvalTask("sci_fi")
    made = task.examples(DataRequest(folder=tmp_path))
    assert [example.answers for example in made] == [("true",), ("false",)] * 2
    assert DOCUMENT in made[0].prompt
    assert DOCUMENT not in made[1].prompt
    assert "based on the real-world knowledge" in made[1].prompt
    assert made[1].cut is None
    # Both worlds right once, and one more document answer: (50 + 100) / 2, not the mean 67 of three answers.
    scores = np.array(
        [task.score("True", made[0]), task.score("no", made[2]), task.score("It's False.", made[1])]
    )
    assert task.headline(scores) == pytest.approx(75)


def test_topics_are_averaged_by_place():
    task = LEvalTask("topic_retrieval_longchat")
    assert task.headline(np.array([[100.0, 0.0], [0.0, 0.0], [100.0, 1.0], [0.0, 2.0]])) == pytest.approx(50)


def test_documents_for_judges_are_left_out(tmp_path):
    lines = [
        line("a dog", evaluation="LLM"),
        line("a dog", evaluation="f1"),
        line("a dog", evaluation="human"),
    ]
    write(tmp_path, "financial_qa", lines)
    made = LEvalTask("financial_qa").examples(DataRequest(folder=tmp_path))
    assert [example.id for example in made] == ["leval/financial_qa/1/0", "leval/financial_qa/1/1"]
    write(tmp_path, "financial_qa", lines[:1])
    with pytest.raises(TaskError, match="all are for human or model judges"):
        LEvalTask("financial_qa").examples(DataRequest(folder=tmp_path))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"input": " "}, "hold a document in the field 'input'"),
        ({"outputs": ["A"]}, "one output for each instruction, but it has 1 for 2"),
        ({"outputs": ["A", ""]}, "no empty text in the field 'outputs', but number 2 is empty"),
        ({"instructions": [" ", "Q"]}, "no empty text in the field 'instructions', but number 1 is empty"),
        ({"outputs": None}, "list of texts in the field 'outputs'"),
        ({"instructions": []}, "list of texts in the field 'instructions'"),
        ({"evaluation": "magic"}, "exam, f1, rouge, LLM, human as its evaluation, but it has 'magic'"),
    ],
)
def test_a_malformed_document_is_named_with_its_line(tmp_path, changes, match):
    write(tmp_path, "tpo", [line(), line(**changes)])
    with pytest.raises(TaskError, match=f"line 2 of .*tpo.jsonl to .*{match}"):
        LEvalTask("tpo").examples(DataRequest(folder=tmp_path))


def test_a_reference_of_science_fiction_without_fact_is_an_error(tmp_path):
    write(tmp_path, "sci_fi", [line("True")])
    with pytest.raises(TaskError, match=r"line 1 of .*an answer such as 'true \[fact: false\]'"):
        LEvalTask("sci_fi").examples(DataRequest(folder=tmp_path))


def test_the_problems_of_gsm_need_no_document(tmp_path):
    write(tmp_path, "gsm100", [line("12", input="")])
    assert len(LEvalTask("gsm100").examples(DataRequest(folder=tmp_path))) == 2


@pytest.mark.parametrize(
    ("name", "reference", "warning"),
    [
        ("tpo", "see B", "no option letter in the first word, so that A counts as right"),
        ("coursera", "all", "no option letter in the first word, so that A counts as right"),
        ("gsm100", "twelve", "no number, so that only an output without one is right"),
        ("codeU", ", '", "no output of code, so that only an empty output is right"),
        (
            "topic_retrieval_longchat",
            "...",
            "no word but articles, so that only an output without one is right",
        ),
        ("sci_fi", "True [fact: unknown]", "no plain true or false, so that no output is right"),
        ("narrative_qa", "A", "no word but articles, so that every output scores 0"),
        ("news_summ", "\u65b0\u805e", "no word of Latin letters or digits, so that every output scores 0"),
    ],
)
def test_references_that_the_scorer_cannot_read_are_counted_in_a_warning(tmp_path, name, reference, warning):
    good = {"sci_fi": "True [fact: False]", "gsm100": "12"}.get(name, "B")
    write(tmp_path, name, [line(good, n_questions=3), line(reference, n_questions=2)])
    task = LEvalTask(name)
    made = task.examples(DataRequest(folder=tmp_path))
    (found,) = task.check(made)
    assert found.startswith(f"2 of {len(made)} references hold {warning}: first ")
    assert "leval/" + name + "/1/0" in found
    assert not task.check(made[:3])
    (faulty, *_) = [example for example in made if example.id in found]
    right = {answer for answer in ("A", "B", "12", "true", "") if task.score(answer, faulty)[0] == 100}
    if "A counts" in warning:
        assert "A" in right
        assert "B" not in right
    else:
        assert ("" in right) == ("only an" in warning)
        assert "12" not in right


def test_a_reference_of_science_fiction_without_one_of_its_halves_is_refused(tmp_path):
    write(tmp_path, "sci_fi", [line("True [fact: False]"), line("[fact: False]")])
    with pytest.raises(
        TaskError, match=r"line 2 of .*a reference for the document and one for the world, .*but it ho"
    ):
        LEvalTask("sci_fi").examples(DataRequest(folder=tmp_path))
