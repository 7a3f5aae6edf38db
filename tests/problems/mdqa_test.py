"""Multi-document question answering, built from gold passages and read from files with distractors."""

import gzip
import json
import sys

import pytest

from lpes_evo.errors import TaskError
from lpes_evo.problems import DataRequest, metrics
from lpes_evo.problems.tasks import MdqaTask


def question(number, answers=None, others=0):
    gold = {
        "title": f"Town {number}",
        "text": f"The mayor is Name{number}x.",
        "hasanswer": True,
        "isgold": True,
    }
    rest = [
        {"title": f"Other {number}", "text": f"Distractor {index}.", "hasanswer": False, "isgold": False}
        for index in range(others)
    ]
    return {
        "question": f"who is mayor of town {number}",
        "answers": answers or [f"Name{number}x"],
        "ctxs": [*rest[:1], gold, *rest[1:]],
    }


def write(path, rows):
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


@pytest.fixture
def oracle(tmp_path):
    write(tmp_path / "nq-open-oracle.jsonl.gz", [question(number) for number in range(12)])
    return tmp_path


def test_the_prompt_is_that_of_the_paper_with_the_gold_document_at_each_position(oracle):
    request = DataRequest(folder=oracle, positions=(0.0, 0.5, 1.0), limit=1)
    made = MdqaTask(3).examples(request)
    assert [example.details["gold_document"] for example in made] == [1, 2, 3]
    lines = made[1].prompt.split("\n")
    assert lines[0] == (
        "Write a high-quality answer for the given question using only the provided search results (some of which "
        "might be irrelevant)."
    )
    assert lines[1] == ""
    assert [line.split("]")[0] for line in lines[2:5]] == ["Document [1", "Document [2", "Document [3"]
    assert lines[3].startswith("Document [2](Title: Town ")
    assert lines[5:] == ["", f"Question: {made[1].details['question']}", "Answer:"]
    assert len({example.source for example in made}) == 1
    assert len({example.id for example in made}) == 3
    for example in made:
        start, end = example.gold
        assert example.prompt[start:end] == f"Document [{example.details['gold_document']}](Title: " + (
            f"Town {example.details['question'].split()[-1]}) The mayor is {example.answers[0]}."
        )
        assert example.prompt[example.cut[0] :].startswith("Document [1]")
        assert example.prompt[example.cut[1] :].startswith("\n\nQuestion: ")
        # The distractors keep their order when the gold document moves.
        others = [
            line.split("(")[1] for line in example.prompt.split("\n")[2:5] if example.answers[0] not in line
        ]
        assert others == [
            line.split("(")[1] for line in made[0].prompt.split("\n")[2:5] if made[0].answers[0] not in line
        ]


def test_built_distractors_are_seeded_and_never_contain_an_accepted_answer(tmp_path):
    rows = [question(number) for number in range(8)]
    # The passages of towns 1 to 4 hold this answer of town 0 once normalised.
    rows[0]["answers"] = ["name0x", "The MAYOR is name1x", "Name2x.", "Name3x", "name-4x"]
    write(tmp_path / "nq-open-oracle.jsonl", rows)
    for seed in range(5):
        made = MdqaTask(4).examples(DataRequest(folder=tmp_path, positions=(0.0,), seed=seed))
        (first,) = [example for example in made if example.details["question"] == rows[0]["question"]]
        for number in (1, 2, 3, 4):
            assert f"Name{number}x" not in first.prompt
    again = MdqaTask(4).examples(DataRequest(folder=tmp_path, positions=(0.0,), seed=4))
    other = MdqaTask(4).examples(DataRequest(folder=tmp_path, positions=(0.0,), seed=3))
    assert again == made
    assert [example.prompt for example in other] != [example.prompt for example in made]
    with pytest.raises(
        TaskError, match=r"5 passages without an accepted answer of line 1 of .* but the file has 3"
    ):
        MdqaTask(6).examples(DataRequest(folder=tmp_path, positions=(0.0,)))


def test_a_file_with_distractors_is_preferred_and_its_first_ones_are_shown(oracle):
    rows = [question(number, others=9) for number in range(4)]
    write(oracle / "nq-open-10_total_documents_gold_at_4.jsonl.gz", rows)
    write(oracle / "nq-open-10_total_documents_gold_at_0.jsonl.gz", rows)
    made = MdqaTask(10).examples(DataRequest(folder=oracle, positions=(1.0,)))
    assert len(made) == 4
    assert "Document [9](Title: Other 0) Distractor 8.\nDocument [10](Title: Town 0)" in made[0].prompt
    fewer = MdqaTask(3).examples(DataRequest(folder=oracle, positions=(0.0,), limit=1))[0]
    assert "Distractor 1.\n\nQuestion" in fewer.prompt
    assert "Distractor" not in MdqaTask(3, built=True).examples(DataRequest(folder=oracle, limit=1))[0].prompt
    assert "Distractor" not in MdqaTask(11).examples(DataRequest(folder=oracle, limit=1))[0].prompt


def test_an_answer_that_normalises_to_nothing_is_warned_about(tmp_path):
    write(
        tmp_path / "nq-open-oracle.jsonl",
        [question(number, ["The"] if number else None) for number in range(3)],
    )
    task = MdqaTask(2)
    made = task.examples(DataRequest(folder=tmp_path, positions=(0.0, 1.0)))
    (warning,) = task.check(made)
    assert "2 accepted answers are empty" in warning
    assert "'The' of 'who is mayor of town 1'" in warning
    assert task.check([example for example in made if example.answers != ("The",)]) == []
    assert task.score("whatever", made[1]) == (1.0,)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"answers": []}, r"line 2 of .*list of texts in the field 'answers'"),
        ({"question": " "}, r"line 2 of .*text in the field 'question'"),
        ({"ctxs": []}, r"line 2 of .*one document with isgold true, but it has 0"),
        ({"ctxs": [{"title": "T", "text": "", "isgold": True}]}, r"document 1 of line 2 of .*field 'text'"),
        ({"ctxs": "x"}, r"line 2 of .*list of documents"),
        (
            {"question": "who is mayor of town 0"},
            r"every question of .* once, but line 2 .*repeats that of line 1",
        ),
    ],
)
def test_a_malformed_question_is_named_with_its_line(tmp_path, change, match):
    write(tmp_path / "nq-open-oracle.jsonl", [question(0), question(1) | change, question(2)])
    with pytest.raises(TaskError, match=match):
        MdqaTask(2).examples(DataRequest(folder=tmp_path))


def test_distractors_of_bm25_share_words_with_the_question_and_none_has_an_answer(tmp_path):
    pytest.importorskip("rank_bm25", reason="the extra [eval] is not installed")
    rows = [question(number) for number in range(12)]
    texts = {
        3: "The mayor of the old town 0 is unknown.",
        5: "Who is mayor of a town? Name0x is mayor of town 0.",
        8: "Town records.",
    }
    for number, text in texts.items():
        rows[number]["ctxs"][0] |= {"title": "Page", "text": text}
    for number in set(range(1, 12)) - set(texts):
        rows[number]["ctxs"][0] |= {"title": "Fish", "text": f"Salmon {number} swim."}
    write(tmp_path / "nq-open-oracle.jsonl", rows)

    task = MdqaTask(3, built=True, bm25=True)
    assert task.name == "mdqa:3+built+bm25"
    made = task.examples(DataRequest(folder=tmp_path, positions=(1.0,)))
    lines = made[0].prompt.split("\n")
    assert lines[2] == f"Document [1](Title: Page) {texts[3]}"
    assert lines[3] == f"Document [2](Title: Page) {texts[8]}"
    other_seed = task.examples(DataRequest(folder=tmp_path, positions=(1.0,), seed=1))
    assert [example.prompt for example in other_seed] == [example.prompt for example in made]


def test_bm25_without_built_distractors_is_refused():
    with pytest.raises(TaskError, match=r"Expected \+bm25 with \+built"):
        MdqaTask(3, bm25=True)


def test_bm25_that_is_not_installed_is_one_line(oracle, monkeypatch):
    monkeypatch.setitem(sys.modules, "rank_bm25", None)
    with pytest.raises(
        TaskError, match="Expected the package rank_bm25 to rank passages, but it is not installed"
    ):
        MdqaTask(3, built=True, bm25=True).examples(DataRequest(folder=oracle))


def test_real_distractors_of_bm25_share_more_words_with_the_question_than_random_ones(real_data):
    pytest.importorskip("rank_bm25", reason="the extra [eval] is not installed")
    shared = []
    for bm25 in (False, True):
        made = MdqaTask(5, built=True, bm25=bm25).examples(
            DataRequest(folder=real_data, positions=(0.0,), limit=40)
        )
        counts = []
        for example in made:
            rest = metrics.normalize_answer(example.prompt[example.gold[1] : example.cut[1]])
            answers = [metrics.normalize_answer(answer) for answer in example.answers]
            assert not any(answer and answer in rest for answer in answers), example.id
            counts.append(
                len(set(metrics.normalize_answer(example.details["question"]).split()) & set(rest.split()))
            )
        shared.append(sum(counts))
    assert shared[1] > 1.3 * shared[0]


def test_a_wrong_number_of_documents_and_missing_files_are_one_line(tmp_path):
    with pytest.raises(TaskError, match="number of documents of mdqa to be an integer from 2"):
        MdqaTask(1)
    with pytest.raises(TaskError, match=r"nq-open-oracle\.jsonl.* for the task mdqa:20, but it does not"):
        MdqaTask().examples(DataRequest(folder=tmp_path))


def test_real_questions_give_ten_documents_without_a_leak(real_data):
    made = MdqaTask(10).examples(DataRequest(folder=real_data, positions=(0.5,)))
    assert len(made) == 300
    for example in made:
        start, end = example.gold
        rest = metrics.normalize_answer(
            example.prompt[example.cut[0] : start] + example.prompt[end : example.cut[1]]
        )
        answers = [metrics.normalize_answer(answer) for answer in example.answers]
        assert not any(answer and answer in rest for answer in answers), example.id
        assert example.prompt.count("\nDocument [") == 10


@pytest.mark.parametrize("answers", [[""], ["Name1x", " "]])
def test_an_empty_answer_is_refused_since_every_output_contains_it(tmp_path, answers):
    write(tmp_path / "nq-open-oracle.jsonl", [question(0), question(1, answers)])
    message = "line 2 of .*nq-open-oracle.jsonl to hold no empty text in the field 'answers', but number"
    with pytest.raises(TaskError, match=f"{message} {len(answers)} is empty"):
        MdqaTask(2).examples(DataRequest(folder=tmp_path))
