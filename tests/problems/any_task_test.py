"""Searches on any task: several accepted answers, texts, outputs, and examples without a position."""

import dataclasses

import numpy as np
import pytest

from lpes_evo.config import RunConfig
from lpes_evo.errors import ConfigError, TaskError
from lpes_evo.evals import EvalConfig, EvalTarget, answer_batch, make_arms
from lpes_evo.models import load_model
from lpes_evo.problems import DataRequest, Example, ModelProblem, Task, check_disjoint, make_task
from lpes_evo.runs import draw_examples

CURVES = np.array([[1.0] * 6, [0.8, 1.2, 1.5, 1.6, 1.8, 2.0], [2.0, 1.7, 1.4, 1.0, 0.9, 0.7]])


@pytest.fixture(scope="module")
def tiny():
    return load_model("tiny", device="cpu")


def questions(*, answers=1):
    """Return questions of the recall task, some with several accepted answers."""
    made = make_task("recall:12").examples(DataRequest(positions=(0.0, 1.0), limit=3, split="search"))
    others = ("7", "11", "23")
    return [dataclasses.replace(one, answers=(*one.answers, *others)[:answers]) for one in made]


def with_answer(examples, number):
    return [dataclasses.replace(one, answers=(one.answers[number],)) for one in examples]


class Text(Task):
    name = "text"
    metric = "nats per token"
    kind = "likelihood"
    parts = ("nats", "tokens")
    larger_is_better = False

    def examples(self, request):
        return []

    def score(self, output, example):
        raise NotImplementedError


class Length(Task):
    """The score is the number of words of the output, of which fewer are better."""

    name = "length"
    metric = "words"
    larger_is_better = False

    def examples(self, request):
        return []

    def score(self, output, example):
        return (float(len(output.split())),)


@pytest.mark.parametrize("share", [True, False])
def test_of_several_answers_the_likeliest_counts(tiny, share):
    several = questions(answers=4)
    problem = ModelProblem(tiny, several, share_prefixes=share)
    alone = [ModelProblem(tiny, with_answer(several, number)).score_many(CURVES) for number in range(4)]
    np.testing.assert_allclose(problem.score_many(CURVES), np.max(alone, axis=0), atol=2e-5)
    correct = [
        ModelProblem(tiny, with_answer(several, number), metric="accuracy").score_many(CURVES)
        for number in range(4)
    ]
    accuracy = ModelProblem(tiny, several, metric="accuracy", share_prefixes=share).score_many(CURVES)
    np.testing.assert_array_equal(accuracy, np.max(correct, axis=0))


def test_answers_share_the_run_over_the_prompt(tiny):
    one, four = (ModelProblem(tiny, questions(answers=number)) for number in (1, 4))
    assert four.sharing
    assert four.n_tokens < 1.5 * one.n_tokens


def test_the_gradient_is_that_of_the_likeliest_answer(tiny):
    several, curve = questions(answers=3), CURVES[1]
    scores, gradient = ModelProblem(tiny, several).gradient(curve)
    alone = np.array([ModelProblem(tiny, with_answer(several, number)).score(curve) for number in range(3)])
    likeliest = [
        dataclasses.replace(one, answers=(one.answers[number],))
        for one, number in zip(several, alone.argmax(axis=0), strict=True)
    ]
    wanted, slope = ModelProblem(tiny, likeliest).gradient(curve)
    np.testing.assert_allclose(scores, wanted, atol=2e-5)
    np.testing.assert_allclose(gradient, slope, atol=1e-5)


def test_the_score_of_a_text_is_the_log_probability_of_all_its_tokens(tiny):
    words = " ".join(str(3 + number % 40) for number in range(tiny.max_length + 30))
    texts = [Example("short", "", (words[:60],), source="a"), Example("long", "", (words,), source="b")]
    problem = ModelProblem(tiny, texts, task=Text())
    target = EvalTarget.of(tiny, EvalConfig(model={"name": "tiny"}, tasks=["recall:8"]))
    (untouched,) = make_arms(None)
    answers = answer_batch(target, untouched, texts, "likelihood", 4096)
    wanted = [-answer.nats / answer.n_output for answer in answers]
    np.testing.assert_allclose(problem.score(CURVES[0]), wanted, rtol=1e-5)
    assert problem.groups == ("all", "all")

    scores, gradient = problem.gradient(CURVES[1])
    np.testing.assert_allclose(scores, problem.score(CURVES[1]), rtol=1e-5)
    step = 1e-3 * np.eye(6)[2]
    slope = (problem.score(CURVES[1] + step) - problem.score(CURVES[1] - step)).mean() / 2e-3
    np.testing.assert_allclose(gradient[2], slope, rtol=0.05, atol=1e-3)


def test_two_texts_without_prompts_are_two_materials():
    first, second = (Example(name, "", (f"{name} text",), source=name) for name in ("one", "two"))
    check_disjoint([first], [second])
    with pytest.raises(TaskError, match="to be disjoint"):
        check_disjoint([first], [dataclasses.replace(second, answers=first.answers)])


def test_the_metric_score_is_that_of_an_evaluation(tiny):
    examples = [dataclasses.replace(one, max_new_tokens=5) for one in questions()]
    task = make_task("recall:12")
    problem = ModelProblem(tiny, examples, task=task, metric="score")
    target = EvalTarget.of(tiny, EvalConfig(model={"name": "tiny"}, tasks=["recall:8"]))
    (untouched,) = make_arms(None)
    outputs = [answer.output for answer in answer_batch(target, untouched, examples, "generation", 4096)]
    wanted = [task.score(output, one)[0] for output, one in zip(outputs, examples, strict=True)]
    assert problem.score(CURVES[0]).tolist() == wanted
    assert problem.score_many(CURVES).shape == (3, len(examples))
    assert problem.evaluate(CURVES[0]).score.tolist() == wanted
    assert problem.n_tokens_of(problem.example_ids[:1]) == problem.n_tokens_of(problem.example_ids[-1:])


def test_a_score_of_which_less_is_better_turns_its_sign(tiny):
    examples = [dataclasses.replace(one, max_new_tokens=3) for one in questions()]
    scores = ModelProblem(tiny, examples, task=Length(), metric="score").score(CURVES[0])
    assert (scores <= 0).all()
    assert scores.min() >= -3


@pytest.mark.parametrize(
    ("task", "metric", "message"),
    [
        (None, "score", "the task of the examples with the metric score"),
        (Text(), "score", "the metric log_probability for text"),
        (Text(), "accuracy", "the metric log_probability for text"),
    ],
)
def test_a_metric_that_does_not_go_with_the_task_is_refused(tiny, task, metric, message):
    with pytest.raises(TaskError, match=message):
        ModelProblem(tiny, questions(), task=task, metric=metric)


def test_a_score_has_no_gradient():
    with pytest.raises(
        ConfigError, match="task.metric to be log_probability where the search takes gradients"
    ):
        RunConfig(task={"metric": "score"}, search={"algorithm": "gradient"})


def test_a_folder_for_a_task_that_reads_none_is_refused(tmp_path):
    with pytest.raises(TaskError, match="no data folder for recall, where no task reads one"):
        draw_examples(RunConfig(task={"data": str(tmp_path)}))
