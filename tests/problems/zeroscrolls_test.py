"""ZeroSCROLLS: reading of zips, folders and Parquet, references, cuts and scores."""

import json
import zipfile

import numpy as np
import pytest

from lpes_evo.errors import TaskError
from lpes_evo.problems import DataRequest
from lpes_evo.problems.tasks import ZEROSCROLLS_TASKS, ZeroScrollsTask

REFERENCES = {"quality": "(B) The moon", "space_digest": "62%", "book_sum_sort": "2, 1, 3"}
PERFECT = {"quality": "B", "space_digest": "62%", "book_sum_sort": "2, 1, 3"}


def row(name, number, **changes):
    head, document, tail = (
        "Read this.\n\nDocument:\n",
        f"Long text {number}. " * 5,
        "\n\nQuestion:\nWhat?\n\nAnswer:\n",
    )
    return {
        "id": f"q{number}",
        "pid": f"q{number}_0",
        "input": head + document + tail,
        "output": REFERENCES.get(name, "the red dog runs home"),
        "document_start_index": len(head),
        "document_end_index": len(head + document),
        "query_start_index": len(head + document) + 2,
        "query_end_index": len(head + document) + 18,
        "truncation_seperator": "... [The rest of the text is omitted]\n\n",
    } | changes


def write_zip(folder, name, rows, split="validation"):
    with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
        archive.writestr(f"{name}/{split}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("name", ZEROSCROLLS_TASKS)
def test_every_task_reads_its_zip_and_gives_a_perfect_answer_all_points(tmp_path, name):
    if name not in REFERENCES and "ROUGE" in ZeroScrollsTask(name).metric:
        pytest.importorskip("rouge_score", reason="the extra [eval] is not installed")
    write_zip(tmp_path, name, [row(name, number) for number in range(3)])
    task = ZeroScrollsTask(name)
    made = task.examples(DataRequest(folder=tmp_path))
    assert [example.id for example in made] == ["q0", "q1", "q2"]
    example = made[0]
    start, end = example.cut
    assert example.prompt[:start] == "Read this.\n\nDocument:\n"
    assert example.prompt[end:] == "\n\nQuestion:\nWhat?\n\nAnswer:\n"
    assert example.max_new_tokens == ZEROSCROLLS_TASKS[name][1]
    perfect = task.score(PERFECT.get(name, "the red dog runs home"), example)
    assert perfect == pytest.approx((100.0,) * len(task.parts))
    assert task.headline(np.array([perfect, task.score("", example)])) == pytest.approx(50.0)


def test_rows_of_one_id_are_references_of_one_question(tmp_path):
    rows = [row("qasper", 1), row("qasper", 2), row("qasper", 1, pid="q1_1", output="a blue cat")]
    write_zip(tmp_path, "qasper", rows)
    made = ZeroScrollsTask("qasper").examples(DataRequest(folder=tmp_path))
    assert [example.answers for example in made] == [
        ("the red dog runs home", "a blue cat"),
        ("the red dog runs home",),
    ]
    assert ZeroScrollsTask("qasper").score("blue cat", made[0]) == (100.0,)


def test_questions_about_one_document_share_their_source(tmp_path):
    first = row("qasper", 1)
    rows = [first, first | {"id": "other", "pid": "other_0"}, row("qasper", 2)]
    write_zip(tmp_path, "qasper", rows)
    sources = [example.source for example in ZeroScrollsTask("qasper").examples(DataRequest(folder=tmp_path))]
    assert sources[0] == sources[1] != sources[2]


def test_parquet_and_json_lines_in_a_folder_are_read_too(tmp_path):
    rows = [row("musique", number) for number in range(4)]
    folder = tmp_path / "plain" / "musique"
    folder.mkdir(parents=True)
    (folder / "validation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = ZeroScrollsTask("musique").examples(DataRequest(folder=tmp_path / "plain"))
    assert len(made) == 4
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra [eval] is not installed")
    import pyarrow

    shards = tmp_path / "shards" / "musique"
    shards.mkdir(parents=True)
    for number in (0, 1):
        table = pyarrow.Table.from_pylist(rows[2 * number : 2 * number + 2])
        parquet.write_table(table, shards / f"validation-0000{number}-of-00002.parquet")
    assert ZeroScrollsTask("musique").examples(DataRequest(folder=tmp_path / "shards")) == made


@pytest.mark.parametrize("output", [None, "", "  "])
def test_missing_labels_are_an_error_and_not_a_zero(tmp_path, output):
    write_zip(tmp_path, "qmsum", [row("qmsum", 1), row("qmsum", 2, output=output)], split="test")
    with pytest.raises(
        TaskError, match=r"line 2 of .*test\.jsonl to have text as its output.*released without labels"
    ):
        ZeroScrollsTask("qmsum", test=True).examples(DataRequest(folder=tmp_path))


@pytest.mark.parametrize(
    ("name", "output", "match"),
    [
        ("quality", "the moon", "a letter from A to D"),
        ("space_digest", "most", "a percentage such as 62%"),
        ("book_sum_sort", "1, 3", "an order of the numbers from 1 on"),
    ],
)
def test_a_reference_that_the_metric_cannot_use_is_an_error(tmp_path, name, output, match):
    write_zip(tmp_path, name, [row(name, 1, output=output)])
    with pytest.raises(TaskError, match=match):
        ZeroScrollsTask(name).examples(DataRequest(folder=tmp_path))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"document_start_index": 40, "document_end_index": 40}, "A document that is empty"),
        ({"document_end_index": 10**6}, "document_end_index <="),
        ({"document_start_index": "3"}, "it has '3' and"),
        ({"input": ""}, "text in the field 'input'"),
        ({"id": 7}, "text in the field 'id'"),
    ],
)
def test_a_malformed_row_is_named_with_its_line(tmp_path, changes, match):
    write_zip(tmp_path, "qasper", [row("qasper", 1), row("qasper", 2, **changes)])
    with pytest.raises(TaskError, match=f"line 2 of .*{match}"):
        ZeroScrollsTask("qasper").examples(DataRequest(folder=tmp_path))


def test_one_id_with_two_inputs_is_an_error(tmp_path):
    write_zip(tmp_path, "qasper", [row("qasper", 1), row("qasper", 2, id="q1")])
    with pytest.raises(TaskError, match="line 2 of .*the input of the other rows with the id 'q1'"):
        ZeroScrollsTask("qasper").examples(DataRequest(folder=tmp_path))


def test_a_missing_file_says_what_is_looked_for(tmp_path):
    with pytest.raises(TaskError, match=r"qasper\.zip or qasper/validation\.jsonl or .*parquet"):
        ZeroScrollsTask("qasper").examples(DataRequest(folder=tmp_path))


@pytest.mark.parametrize(
    ("name", "output", "lack"),
    [
        ("qasper", "The", "word but articles"),
        ("gov_report", "\u5e74\u5ea6", "word of Latin letters or digits"),
    ],
)
def test_references_that_no_output_matches_are_counted_in_a_warning(tmp_path, name, output, lack):
    rows = [row(name, 0), row(name, 1, output=output), row(name, 2, output=output)]
    # A second reference that can be matched helps.
    write_zip(tmp_path, name, [*rows, row(name, 2, pid="q2_1")])
    task = ZeroScrollsTask(name)
    made = task.examples(DataRequest(folder=tmp_path))
    assert task.check(made) == [
        f"1 of 3 questions have references without a {lack}, so that every output scores 0: first q1"
    ]
    assert not task.check(made[:1])
