"""Windows of local text, and the sum over the sum."""

import numpy as np
import pytest

from lpes_evo.errors import TaskError
from lpes_evo.problems import DataRequest
from lpes_evo.problems.tasks import PerplexityTask

TEXT = "  one two\n three  four five\nsix seven "


def test_windows_of_words_give_the_text_back(tmp_path):
    (tmp_path / "b.txt").write_text(TEXT)
    (tmp_path / "a.txt").write_text("eins zwei")
    made = PerplexityTask(3).examples(DataRequest(folder=tmp_path))
    assert [example.id for example in made] == [
        "perplexity:3/a.txt/0",
        "perplexity:3/b.txt/0",
        "perplexity:3/b.txt/1",
        "perplexity:3/b.txt/2",
    ]
    assert "".join(example.answers[0] for example in made[1:]) == TEXT.lstrip()
    assert [len(example.answers[0].split()) for example in made] == [2, 3, 3, 1]
    assert made[1].source == made[2].source != made[0].source
    assert {example.prompt for example in made} == {""}
    assert len(PerplexityTask(3).examples(DataRequest(folder=tmp_path, limit=2))) == 2


def test_the_headline_is_the_sum_of_nats_over_the_sum_of_tokens():
    task = PerplexityTask()
    assert task.headline(np.array([[10.0, 10.0], [90.0, 30.0]])) == pytest.approx(2.5)
    assert not task.larger_is_better
    assert task.kind == "likelihood"
    with pytest.raises(TaskError, match="perplexity has none"):
        task.score("text", None)


@pytest.mark.parametrize(
    ("content", "match"), [(b" \n", "b.txt to hold text, but it is empty"), (b"\xff\xfe", "text in UTF-8")]
)
def test_a_file_that_is_no_text_is_one_line(tmp_path, content, match):
    (tmp_path / "b.txt").write_bytes(content)
    with pytest.raises(TaskError, match=match):
        PerplexityTask().examples(DataRequest(folder=tmp_path))


def test_a_folder_without_text_is_one_line(tmp_path):
    with pytest.raises(TaskError, match=r"to hold \*\.txt for the task perplexity:1024"):
        PerplexityTask().examples(DataRequest(folder=tmp_path))
