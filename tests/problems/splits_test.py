"""The division of the sources of a file into those of the search and those of the report."""

import json

import pytest

from lpes_evo.errors import TaskError
from lpes_evo.problems import DataRequest, check_disjoint, divide, examples_of, make_task, source_hash

FILE_TASKS = ("mdqa:4", "leval:tpo", "zeroscrolls:qasper", "perplexity:3")


def parts(items, seed=0, **changes):
    """Return the two parts of items that are pairs of a source and its texts."""
    return [
        divide(
            items,
            DataRequest(seed=seed, split=split, **changes),
            "the task",
            source=lambda item: item[0],
            texts=lambda item: item[1],
        )
        for split in ("search", "report")
    ]


def numbered(n, first=0):
    return [(f"source {number}", (f"text {number}",)) for number in range(first, first + n)]


@pytest.fixture
def data(tmp_path):
    """Small files of every task that reads some."""
    rows = [
        {
            "question": f"who rules {n}",
            "answers": [f"Name{n}x"],
            "ctxs": [{"title": f"T{n}", "text": f"Name{n}x rules.", "isgold": True}],
        }
        for n in range(30)
    ]
    (tmp_path / "nq-open-oracle.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    documents = [
        {
            "instructions": ["Q1", "Q2"],
            "outputs": ["A", "B"],
            "input": f"Document {n}",
            "source": "x",
            "evaluation": "exam",
        }
        for n in range(30)
    ]
    (tmp_path / "tpo.jsonl").write_text("".join(json.dumps(row) + "\n" for row in documents))
    (tmp_path / "qasper").mkdir()
    papers = [
        {
            "id": f"{n}/{question}",
            "input": f"Paper {n}. Question {question}",
            "output": "yes",
            "document_start_index": 0,
            "document_end_index": len(f"Paper {n}."),
        }
        for n in range(30)
        for question in "ab"
    ]
    (tmp_path / "qasper" / "validation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in papers))
    for n in range(20):
        (tmp_path / f"{n}.txt").write_text(f"one two {n} four five {n}")
    return tmp_path


@pytest.mark.parametrize("seed", range(5))
def test_the_parts_are_disjoint_and_together_all_of_it(seed):
    items = numbered(40)
    search, report = parts(items, seed)
    assert sorted(search + report) == sorted(items)
    assert not set(search) & set(report)
    assert search == [item for item in items if item in search]


def test_the_sides_depend_on_the_seed_and_not_on_the_order_or_on_added_rows():
    items = numbered(200)
    search, report = map(set, parts(items))
    assert list(map(set, parts(items[::-1]))) == [search, report]
    more = list(map(set, parts([*numbered(100, 200), *items])))
    assert search < more[0]
    assert report < more[1]
    assert set(parts(items, seed=1)[0]) != search
    assert 70 <= len(search) <= 130


@pytest.mark.parametrize("seed", range(20))
def test_sources_with_a_text_in_common_fall_on_one_side(seed):
    # The first pair differs in case and white space, and the last three hang together in a chain.
    alike = [
        ("a", ("The Same  text.",)),
        ("b", ("the same\ntext. ",)),
        ("c", ("one", "question")),
        ("d", ("two", "Question")),
        ("e", ("two", "another")),
    ]
    search, _ = parts([*numbered(30), *alike], seed)
    names = {name for name, _ in search}
    assert len(names & {"a", "b"}) in (0, 2)
    assert len(names & {"c", "d", "e"}) in (0, 3)


def test_an_empty_side_is_refused_with_its_remedy():
    with pytest.raises(
        TaskError, match=r"for both the search and the report, but its 1 different texts .*seed 0\. Use"
    ):
        parts([("a", ("same",)), ("b", ("Same",))])


def test_sources_left_out_go_with_all_that_has_their_text():
    items = [*numbered(4), ("copy", ("TEXT 1",))]
    request = DataRequest(leave_out=frozenset({source_hash("source 1"), source_hash("elsewhere")}))

    def left(request):
        return divide(items, request, "it", source=lambda item: item[0], texts=lambda item: item[1])

    assert [name for name, _ in left(request)] == ["source 0", "source 2", "source 3"]
    everything = frozenset(source_hash(name) for name, _ in items)
    with pytest.raises(
        TaskError, match="sources of it that the search did not see, but it saw all 4 different"
    ):
        left(DataRequest(leave_out=everything))


@pytest.mark.parametrize("spec", FILE_TASKS)
def test_a_file_task_divides_its_sources(spec, data):
    task = make_task(spec)
    assert task.splits_sources
    found = {
        split: examples_of(task, DataRequest(folder=data, positions=(0.0,), split=split))
        for split in ("search", "report", "all")
    }
    check_disjoint(found["search"], found["report"])
    ids = {split: {(row.source, row.id.rpartition("/")[2]) for row in rows} for split, rows in found.items()}
    assert ids["search"] | ids["report"] == ids["all"]
    for split in ("search", "report"):
        limited = examples_of(task, DataRequest(folder=data, positions=(0.0,), split=split, limit=2))
        assert {example.source for example in limited} <= {example.source for example in found[split]}


def test_the_distractors_of_a_split_are_passages_of_that_split(data):
    found = {
        split: make_task("mdqa:4").examples(DataRequest(folder=data, positions=(0.0,), split=split))
        for split in ("search", "report")
    }
    for split, other in (("search", "report"), ("report", "search")):
        golds = [example.answers[0] for example in found[other]]
        assert not [gold for example in found[split] for gold in golds if f"{gold} rules" in example.prompt]


def test_one_text_alone_cannot_be_searched_by_its_perplexity(tmp_path):
    (tmp_path / "a.txt").write_text("one two three four five six")
    task = make_task("perplexity:2")
    assert len(task.examples(DataRequest(folder=tmp_path))) == 3
    with pytest.raises(TaskError, match="its 1 different texts all fall to one"):
        task.examples(DataRequest(folder=tmp_path, split="search"))


@pytest.mark.parametrize("spec", ["kv:4", "needle:3", "passkey:3", "recall:5"])
def test_all_examples_of_a_task_that_draws_are_those_of_the_report(spec):
    task = make_task(spec)
    assert not task.splits_sources
    assert task.examples(DataRequest(limit=2)) == task.examples(DataRequest(limit=2, split="report"))
    check_disjoint(task.examples(DataRequest(limit=2, split="search")), task.examples(DataRequest(limit=2)))


def test_real_files_are_divided(real_data):
    for spec, least in (("mdqa:5", 100), ("leval:tpo", 1)):
        search, report = (
            {
                example.source
                for example in make_task(spec).examples(
                    DataRequest(folder=real_data, positions=(0.5,), split=split, seed=1)
                )
            }
            for split in ("search", "report")
        )
        assert not search & report
        assert min(len(search), len(report)) >= least
