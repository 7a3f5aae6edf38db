"""The end of a search that found nothing better than the untouched model, and of one whose result is worse held out."""

import io

import numpy as np
import pytest
from rich.console import Console

from lpes_evo.config import SearchSettings, load_config
from lpes_evo.errors import JournalError
from lpes_evo.execution import Evaluator, drive
from lpes_evo.operators import CurveSpace
from lpes_evo.page import write_page
from lpes_evo.problems import AnswerScores, TargetCurveProblem
from lpes_evo.reporting import Reporter
from lpes_evo.runs import (
    RunFolder,
    lines_of_outcome,
    load_report,
    outcome_of,
    run_search,
    show_run,
    show_scales,
    summarise,
    warnings_of,
)
from lpes_evo.search import Evaluation, Search
from samples import SMALL_RUN

SPACE = CurveSpace(8, y_min=0.5, y_max=1.5, y_step=0.05, max_delta=0.5)
SIZES = {"population_size": 6, "offspring_size": 4, "generations": 2, "n_constants": 3}
NOTHING = "The search found nothing better than the untouched model on the search examples"


def searched(target, space=SPACE, **settings):
    settings = SearchSettings(**SIZES | settings)
    search = Search(space, settings)
    drive(search, Evaluator(TargetCurveProblem(np.full(8, target)), space, settings))
    return search


def told(search, evaluate):
    while search.stop() is None:
        search.tell([evaluate(genome) for genome in search.ask()])
    return search


def is_identity(genome):
    return {y for _, y in genome} == {1.0}


def test_a_search_that_found_something_says_nothing_of_the_untouched_model():
    outcome = outcome_of(searched(1.2))
    assert outcome["best"] > outcome["untouched"]
    assert lines_of_outcome(outcome) == []


@pytest.mark.parametrize(
    ("algorithm", "advice"), [("ga", "--preset gradient"), ("gradient", "search.algorithm=ga")]
)
def test_a_search_around_an_optimum_says_that_it_found_nothing_better_and_what_to_try(algorithm, advice):
    search = searched(1.004, algorithm=algorithm, racing=False, learning_rate=0.2, gradient_steps=1)
    outcome = outcome_of(search)
    assert outcome["best"] == outcome["untouched"] < 0
    assert outcome["n_candidates"] == sum(one.status == "ok" for one in search.evaluations()) - 1 > 0
    happened, advised = lines_of_outcome(outcome)
    assert happened.startswith(NOTHING)
    assert f"{outcome['n_candidates']} were scored in full and were no better" in happened
    assert advice in advised
    assert "neither always right nor always wrong" in advised


def test_a_search_without_another_candidate_says_so():
    happened, _ = lines_of_outcome(outcome_of(searched(1.0, algorithm="gradient")))
    assert happened == f"{NOTHING}: no other candidate was evaluated."


def test_candidates_that_all_failed_send_to_their_tracebacks_alone():
    def evaluate(genome):
        if is_identity(genome):
            return Evaluation((0.5,), (0.5,), 0.0)
        return Evaluation((), (), 0.0, "failed", "no luck")

    outcome = outcome_of(told(Search(SPACE, SearchSettings(**SIZES, racing=False)), evaluate))
    assert outcome["n_failed"] == outcome["n_candidates"] > 0
    _, advised = lines_of_outcome(outcome)
    assert "tracebacks are in journal.jsonl" in advised
    assert "generations" not in advised


def test_candidates_that_all_raced_away_send_nearer_to_the_untouched_model():
    def evaluate(genome):
        if is_identity(genome):
            return Evaluation((0.5,), (0.5,), 0.0)
        return Evaluation((), (0.1,), 0.0, "raced", scored=(0,))

    outcome = outcome_of(told(Search(SPACE, SearchSettings(**SIZES)), evaluate))
    assert outcome["n_raced"] == outcome["n_candidates"] > 0
    _, advised = lines_of_outcome(outcome)
    assert "scales nearer to 1" in advised


@pytest.mark.parametrize(("accuracy", "advice"), [(1.0, "a harder task"), (0.0, "a simpler task")])
def test_an_accuracy_at_its_end_sends_to_another_task_first(accuracy, advice):
    _, advised = lines_of_outcome(outcome_of(searched(1.0)), accuracy)
    assert advised.startswith(f"What to try: {advice}")


def test_a_space_without_the_untouched_model_says_nothing_of_it():
    space = CurveSpace(8, y_min=1.1, y_max=1.5, y_step=0.05, max_delta=0.4)
    assert outcome_of(searched(1.0, space)) is None


class Heard(Reporter):
    def __init__(self):
        self.lines = []

    def stage(self, text):
        self.lines.append(text)


@pytest.mark.slow
def test_a_run_that_found_nothing_says_so_at_its_end_in_its_report_its_table_and_its_page(tmp_path):
    # The embedded model answers all prompts of this length, so that no accuracy is larger.
    changes = SMALL_RUN | {"task.options": {"n_pairs": 4}, "task.metric": "accuracy"}
    config, folder, heard = (
        load_config(preset="demo", overrides=changes),
        RunFolder(tmp_path / "run"),
        Heard(),
    )
    folder.create(config)
    result = run_search(config, folder, devices="in-process", reporter=heard)
    assert result.summary["outcome"]["best"] == result.summary["outcome"]["untouched"] == 1
    assert any(line.startswith(NOTHING) for line in heard.lines)
    assert any(line.startswith("What to try: ") for line in heard.lines)

    console = Console(file=io.StringIO(), width=400)
    show_run(folder.path, console)
    write_page(folder.path, tmp_path / "page.html", drift=None)
    for text in (console.file.getvalue(), (tmp_path / "page.html").read_text()):
        assert NOTHING in text
        assert "a harder task, since the untouched model is right on all of the held-out examples" in text

    text = folder.report.read_text()
    folder.report.write_text(text.replace('"n_failed": 0', '"n_failed": 9999'))
    with pytest.raises(JournalError, match="9999 failed"):
        load_report(folder.report)


class Facts:
    """Twelve held-out examples of as many texts."""

    mixture = None
    positions = (0.0, 1.0) * 6
    sources = tuple("abcdefghijkl")


@pytest.mark.parametrize(("n_lost", "is_worse"), [(8, True), (1, False), (0, False)])
def test_scales_that_are_certainly_worse_on_held_out_examples_are_called_so(n_lost, is_worse):
    correct = np.ones(12, dtype=bool)
    found = np.arange(12) >= n_lost
    scores = {
        "untouched": AnswerScores(np.zeros(12), correct),
        "lpes": AnswerScores(np.zeros(12), found),
    }
    summary = summarise(Facts(), scores, {"untouched": np.ones(4), "lpes": np.full(4, 0.8)})
    lines = warnings_of(summary)
    assert len(lines) == is_worse
    if is_worse:
        assert "worse than the untouched model on held-out examples: -0.667" in lines[0]
        assert "Do not use them" in lines[0]


def test_scales_that_stand_alone_and_change_nothing_say_so(tmp_path):
    changes = SMALL_RUN | {"task.options": {"n_pairs": 4}, "task.metric": "accuracy"}
    config, folder = load_config(preset="demo", overrides=changes), RunFolder(tmp_path / "run")
    folder.create(config)
    run_search(config, folder, devices="in-process")
    console = Console(file=io.StringIO(), width=200)
    show_scales(folder.scales, console)
    assert "nothing better than the untouched model: these scales are all 1" in console.file.getvalue()
