import pytest

from lpes_evo.errors import TaskError
from lpes_evo.problems import QUESTION, WORDS, DataRequest, RecallTask, check_disjoint, data_hash, make_task

POSITIONS = (0.0, 0.25, 0.5, 0.75, 1.0)


def test_examples_are_the_same_on_every_platform():
    examples = RecallTask(n_pairs=5).examples(
        DataRequest(positions=(0, 0.5, 1), limit=2, seed=0, split="search")
    )
    assert examples[0].prompt == "40 52 28 132 136 57 17 171 188 92 ? 40"
    assert data_hash(examples) == "55c584c0a336c8a0ab6830488692925dabb8a7cdd4d9d6b3f06257ef9429ceab"


def test_the_prompt_lists_pairs_and_asks_for_the_key_at_the_gold_position():
    n_pairs = 17
    for example in RecallTask(n_pairs).examples(
        DataRequest(positions=POSITIONS, limit=3, seed=1, split="report")
    ):
        *words, question, key = example.prompt.split(" ")
        gold = round(example.position * (n_pairs - 1))
        assert question == QUESTION
        assert len(words) == 2 * n_pairs
        assert (key, example.answer) == (words[2 * gold], words[2 * gold + 1])


def test_no_word_occurs_twice_among_the_pairs():
    for example in RecallTask(len(WORDS) // 2).examples(
        DataRequest(positions=(0.5,), limit=4, seed=3, split="search")
    ):
        assert sorted(example.prompt.split(" ")[:-2]) == sorted(WORDS)


def test_examples_are_ordered_by_position_and_have_ids_of_their_own():
    examples = RecallTask(8).examples(DataRequest(positions=(1.0, 0.0), limit=3, seed=0, split="search"))
    assert [example.position for example in examples] == [1.0] * 3 + [0.0] * 3
    assert len({example.id for example in examples}) == 6
    assert len({example.prompt for example in examples}) == 6


def test_an_example_does_not_depend_on_how_many_are_drawn():
    task = RecallTask(8)
    few = task.examples(DataRequest(positions=(0.5,), limit=2, seed=4, split="search"))
    many = task.examples(DataRequest(positions=(0.0, 0.5), limit=5, seed=4, split="search"))
    assert set(few) < set(many)


def test_splits_and_seeds_share_no_example():
    task = RecallTask(12)
    search = task.examples(DataRequest(positions=POSITIONS, limit=20, seed=0, split="search"))
    report = task.examples(DataRequest(positions=POSITIONS, limit=20, seed=0, split="report"))
    other = task.examples(DataRequest(positions=POSITIONS, limit=20, seed=1, split="search"))
    check_disjoint(search, report)
    check_disjoint(search, other)
    with pytest.raises(TaskError, match="to be disjoint, but 100 report examples are made of"):
        check_disjoint(search, search)


@pytest.mark.parametrize(
    ("n_pairs", "message"),
    [
        (1, r"n_pairs to be an integer from 2 to 96, but got 1\."),
        (97, r"n_pairs to be an integer from 2 to 96, but got 97\."),
        (8.0, r"n_pairs to be an integer from 2 to 96, but got 8\.0\."),
        (True, r"n_pairs to be an integer from 2 to 96, but got True\."),
    ],
)
def test_an_unusable_number_of_pairs_is_refused(n_pairs, message):
    with pytest.raises(TaskError, match=message):
        RecallTask(n_pairs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positions": (1.5,)}, r"every position to lie between 0 and 1, but got 1\.5"),
        ({"positions": (float("nan"),)}, "every position to lie between 0 and 1, but got nan"),
        ({"positions": ()}, "at least one position and none of them twice"),
        ({"positions": (0.5, 0.5)}, "at least one position and none of them twice"),
        ({"limit": 0}, "limit of examples to be an integer from 1 to 100000, but got 0"),
        ({"split": "train"}, "split to be one of search, report, all, but got 'train'"),
    ],
)
def test_an_unusable_draw_is_refused(change, message):
    arguments = {"positions": (0.5,), "limit": 1, "seed": 0, "split": "search"}
    with pytest.raises(TaskError, match=message):
        RecallTask().examples(DataRequest(**(arguments | change)))


def test_the_task_is_known_by_its_name():
    assert isinstance(make_task("recall", n_pairs=9), RecallTask)
    with pytest.raises(TaskError, match="options of the task 'recall' to be among n_pairs, but got pairs"):
        make_task("recall", pairs=9)
