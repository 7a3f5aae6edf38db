"""The memory that lets methods and sizes of the comparison share what was forwarded."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from lpes_evo import Journal, load_model
from lpes_evo.problems import DataRequest, ModelProblem, make_task

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "smoothness.py"


@pytest.fixture(scope="module")
def script():
    specification = importlib.util.spec_from_file_location("smoothness", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPT.parent)
        specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def loaded():
    return load_model("tiny")


def examples(n):
    return make_task("recall", n_pairs=12).examples(
        DataRequest(positions=(0.0, 0.5, 1.0), limit=n, seed=3, split="search")
    )


def test_what_is_remembered_is_what_a_problem_says(script, loaded, tmp_path):
    plain = ModelProblem(loaded, examples(4))
    scales, ids = np.linspace(0.9, 1.1, 6), plain.example_ids[::3]
    weights = np.linspace(0.1, 0.4, len(ids))
    with Journal(tmp_path / "scores.jsonl", {}) as journal:
        problem = script.Remembered(loaded, examples(4), "search", journal)
        for _ in range(2):
            np.testing.assert_allclose(problem.score(scales), plain.score(scales), atol=1e-5)
            assert problem.evaluate(scales).correct.tolist() == plain.evaluate(scales).correct.tolist()
            for ours, theirs in zip(
                problem.gradient(scales, ids, weights), plain.gradient(scales, ids, weights), strict=True
            ):
                np.testing.assert_allclose(ours, theirs, atol=1e-5)
        assert not np.allclose(problem.gradient(scales, ids)[1], problem.gradient(scales, ids, weights)[1])


def test_a_text_is_forwarded_once_under_the_same_scales(script, loaded, tmp_path, monkeypatch):
    forwarded = []
    forward = loaded.model.forward

    def counting(*arguments, **options):
        forwarded.append(1)
        return forward(*arguments, **options)

    monkeypatch.setattr(loaded.model, "forward", counting)

    def n_of(ask):
        before = len(forwarded)
        ask()
        return len(forwarded) - before

    with Journal(tmp_path / "scores.jsonl", {}) as journal:
        large, small = (script.Remembered(loaded, examples(n), "search", journal) for n in (4, 2))
        other = script.Remembered(loaded, examples(2), "held-out", journal)
        ones = np.ones(6)
        assert n_of(lambda: large.score(ones)) > 0
        assert n_of(lambda: small.score(ones)) == 0
        assert n_of(lambda: other.score(ones)) > 0
        assert n_of(lambda: small.score(ones * 1.1)) > 0
        assert n_of(lambda: large.gradient(ones, small.example_ids)) > 0
        assert n_of(lambda: small.gradient(ones, small.example_ids)) == 0
    with Journal(tmp_path / "scores.jsonl", {}) as journal:
        assert n_of(lambda: script.Remembered(loaded, examples(4), "search", journal).score(ones)) == 0


def test_the_sizes_are_numbers_of_search_examples_and_share_their_first_texts(script):
    for size, n_texts in script.SIZES.items():
        assert size == n_texts * len(script.POSITIONS)
    few, many = (
        {
            example.source
            for example in make_task("needle", n_keys=8).examples(
                DataRequest(positions=script.POSITIONS, limit=n, seed=0, split="search")
            )
        }
        for n in (2, 33)
    )
    assert few < many
    assert len(few) == 2
    assert len(many) == 33
