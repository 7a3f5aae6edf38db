"""What an evaluator makes of genomes: blocks, races, groups, padding, failures and want of memory."""

import dataclasses
import io
import math
import re
import weakref

import numpy as np
import pytest
import torch
from rich.console import Console

from lpes_evo.config import SearchSettings
from lpes_evo.errors import ConfigError, TaskError
from lpes_evo.execution import Evaluator, drive
from lpes_evo.models import load_model
from lpes_evo.operators import CurveSpace, init_constants, init_random_walk
from lpes_evo.problems import DataRequest, ModelProblem, NeedleTask, aggregate, make_task
from lpes_evo.reporting import TerminalReporter
from lpes_evo.rope import repair_frequencies
from lpes_evo.search import Search, is_worse
from lpes_evo.storage import Journal
from lpes_evo.workers import LocalPool, Usage
from samples import build_llama
from sheet import N_LAYERS, Sheet

N_TEXTS = 8
N_EXAMPLES = 3 * N_TEXTS
# Offspring enough for every size of group that is tried here.
SETTINGS = SearchSettings(race_block=2, race_level=0.05, offspring_size=160)
PLAIN = SearchSettings(racing=False, offspring_size=160)
SPACE = CurveSpace(N_LAYERS, y_min=0.5, y_max=1.5, y_step=0.05, max_delta=0.5)


def genomes(n, space=SPACE, seed=0):
    """Return n genomes of different curves."""
    import random

    state = random.getstate()
    random.seed(seed)
    drawn = [*init_constants(space, 3), *(init_random_walk(space) for _ in range(n - 3))]
    random.setstate(state)
    return drawn[:n]


def evaluated(source, group_sizes, settings=SETTINGS, reference=None, space=SPACE, pool=None, **options):
    """Evaluate one genome after another in groups of these sizes; return the evaluations in order."""
    evaluator = Evaluator(pool or source, space, settings, **options)
    drawn = iter(genomes(sum(group_sizes), space))
    numbers = [
        evaluator.submit([next(drawn) for _ in range(size)], reference and reference) for size in group_sizes
    ]
    assert evaluator.n_pending == len(numbers)
    done = dict(evaluator.wait() for _ in numbers)
    assert evaluator.n_pending == 0
    return [evaluation for number in numbers for evaluation in done[number]], evaluator


def reference_of(problem, space=SPACE):
    """Return the scores of a good curve, against which most others are worse."""
    return tuple(problem.score(np.ones(space.n_layers)).tolist())


def without_seconds(evaluations):
    return [dataclasses.replace(evaluation, seconds=0.0) for evaluation in evaluations]


def test_the_blocks_are_the_same_for_every_candidate_and_hold_whole_sources():
    problem = Sheet()
    evaluations, _ = evaluated(problem, [1] * 6)
    orders = {}
    for scales, ids in problem.calls:
        orders.setdefault(scales.tobytes(), []).append(ids)
    assert len(orders) == 6
    (blocks,) = set(map(tuple, orders.values()))
    assert len(blocks) == N_TEXTS // SETTINGS.race_block
    assert sorted(sum(blocks, ())) == sorted(Sheet().example_ids)
    homes = [{name.partition("/")[0] for name in block} for block in blocks]
    assert sum(map(len, homes)) == N_TEXTS
    assert all(evaluation.status == "ok" for evaluation in evaluations)


def test_racing_that_drops_nothing_and_no_racing_give_exactly_the_plain_scores():
    expected = [Sheet().score(curve) for curve in SPACE.decode(genomes(6))]
    for settings in (PLAIN, SETTINGS):
        evaluations, _ = evaluated(Sheet(), [1] * 6, settings)
        for evaluation, scores in zip(evaluations, expected, strict=True):
            assert evaluation.scores == tuple(scores.tolist())
            assert evaluation.values == aggregate(scores, Sheet().groups, "mean")
            assert (evaluation.tokens, evaluation.scored, evaluation.halvings) == (240, (), 0)
    # A reference is of no account when racing is off.
    evaluations, _ = evaluated(Sheet(), [1] * 6, PLAIN, reference_of(Sheet()))
    assert [evaluation.scores for evaluation in evaluations] == [tuple(scores) for scores in expected]


def test_a_raced_out_evaluation_is_partial_marked_and_stops_at_the_first_block_that_says_so():
    problem = Sheet()
    reference = reference_of(problem)
    evaluations, evaluator = evaluated(problem, [1] * 8, reference=reference)
    raced = [evaluation for evaluation in evaluations if evaluation.status == "raced"]
    assert 2 < len(raced) < 8
    for evaluation, curve in zip(evaluations, SPACE.decode(genomes(8)), strict=True):
        blocks = [ids for scales, ids in problem.calls if (scales == curve).all()]
        assert evaluation.tokens == 10 * sum(map(len, blocks))
        ends = np.cumsum([len(block) for block in blocks])
        numbers = [problem.example_ids.index(name) for block in blocks for name in block]
        scores = problem.score(curve)[numbers]
        verdicts = [
            is_worse(scores[:end], numbers[:end], reference, problem.groups, "mean", 0.05)
            for end in ends
            if end < len(reference)
        ]
        if evaluation.status == "ok":
            assert not any(verdicts)
            continue
        assert verdicts == [False] * (len(ends) - 1) + [True]
        assert evaluation.values == ()
        assert evaluation.scored == tuple(numbers)
        assert evaluation.scores == tuple(scores.tolist())
        assert len(evaluation.scored) < len(reference)
    cost = evaluator.cost
    assert cost.tokens == sum(evaluation.tokens for evaluation in evaluations)
    assert cost.scored == sum(len(evaluation.scores) for evaluation in evaluations)
    assert cost.unraced == 8 * 24
    (line, busy) = evaluator.account([Usage("worker 0 on cpu", 8, 3.0, 4.0)])
    assert f"{cost.tokens} tokens forwarded, {100 * cost.scored / cost.unraced:.0f} %" in line
    assert busy == "worker 0 on cpu was busy 75.0 % of the time"


@pytest.mark.parametrize("how", ["ga", "nsga2"])
def test_groups_give_the_scores_of_one_by_one(how):
    settings = SETTINGS.model_copy(update={"algorithm": how})
    reference = reference_of(Sheet())
    single = Sheet()
    alone, _ = evaluated(single, [1] * 9, settings, reference)
    problem = Sheet(n_fit=4)
    together, evaluator = evaluated(problem, [4, 4, 1], settings, reference)
    assert evaluator.n_candidates == 4
    assert without_seconds(together) == without_seconds(alone)
    assert {evaluation.status for evaluation in alone} == {"ok", "raced"}
    assert sum(len(scales) for scales, _ in problem.calls) == len(single.calls) >= 2 * len(problem.calls)
    assert evaluated(Sheet(n_fit=4), [2] * 4, settings, reference, n_candidates=2)[1].n_candidates == 2


def test_results_come_from_workers_in_any_order_and_stay_with_their_group():
    class Backwards(LocalPool):
        def _work(self):
            self._queue.reverse()
            super()._work()

    expected, _ = evaluated(Sheet(), [1] * 9, reference=reference_of(Sheet()))
    problem = Sheet(n_fit=4)
    found, _ = evaluated(
        problem, [4, 4, 1], reference=reference_of(problem), pool=Backwards(lambda _device: problem)
    )
    assert without_seconds(found) == without_seconds(expected)


def test_what_is_scored_can_be_a_part_of_what_workers_hold():
    problem = Sheet()
    pool = LocalPool(lambda _device: {"problem": problem})
    found, _ = evaluated(None, [1] * 3, pool=pool, problem_of=lambda target: target["problem"])
    assert without_seconds(found) == without_seconds(evaluated(Sheet(), [1] * 3)[0])


@pytest.mark.parametrize("size", [0, 3])
def test_a_group_of_a_wrong_size_is_refused(size):
    evaluator = Evaluator(Sheet(n_fit=2), SPACE)
    with pytest.raises(ConfigError, match=f"from 1 to n_candidates = 2 genomes.* but got {size}"):
        evaluator.submit(genomes(5)[:size])
    assert evaluator.n_pending == 0


def test_in_a_steady_state_search_every_candidate_has_its_own_passes():
    steady = SETTINGS.model_copy(update={"algorithm": "steady-state"})
    problem = Sheet(n_fit=4, is_exact=False)
    evaluator = Evaluator(problem, SPACE, steady)
    assert evaluator.n_candidates == 1
    evaluator.submit(genomes(1))
    evaluator.wait()
    assert {len(scales) for scales, _ in problem.calls} == {1}
    with pytest.raises(ConfigError, match="n_candidates = 1 with the algorithm 'steady-state', but got 4"):
        Evaluator(problem, SPACE, steady, n_candidates=4)
    with pytest.raises(ConfigError, match="n_candidates of at least 1, but got 0"):
        Evaluator(problem, SPACE, n_candidates=0)


# Half precision


def test_where_the_shape_of_a_batch_shows_every_pass_has_the_same_number_of_curves():
    problem = Sheet(n_fit=4, is_exact=False)
    evaluations, evaluator = evaluated(problem, [4, 4, 1], reference=reference_of(problem))
    assert {evaluation.status for evaluation in evaluations} == {"ok", "raced"}
    assert {len(scales) for scales, _ in problem.calls} == {4}
    assert without_seconds(evaluations) == without_seconds(
        evaluated(Sheet(), [1] * 9, reference=reference_of(problem))[0]
    )
    # What fills the passes up is forwarded too.
    assert evaluator.cost.tokens == sum(4 * 10 * len(ids) for _, ids in problem.calls)
    assert evaluator.cost.tokens > sum(evaluation.tokens for evaluation in evaluations)


def model_problem(loaded, dtype="float32", n_texts=4, **options):
    drawn = NeedleTask(n_keys=2).examples(
        DataRequest(positions=(0.0, 0.5, 1.0), limit=n_texts, seed=0, split="search")
    )
    if dtype != "float32":
        half = build_llama().to(getattr(torch, dtype))
        repair_frequencies(half)
        loaded = dataclasses.replace(loaded, model=half, dtype=dtype)
    return ModelProblem(loaded, drawn, **options)


TINY = CurveSpace(3, y_min=0.5, y_max=1.5, y_step=0.05, max_delta=0.5)


@pytest.mark.parametrize("share_prefixes", [True, False])
def test_in_half_precision_a_score_is_bitwise_the_same_in_any_company(tiny_loaded, share_prefixes):
    problem = model_problem(tiny_loaded, "bfloat16", n_texts=2, share_prefixes=share_prefixes)
    drawn = genomes(5, TINY)

    def scores(groups):
        settings = SETTINGS.model_copy(update={"race_block": 1})
        evaluator = Evaluator(problem, TINY, settings, n_candidates=3)
        return [
            evaluation.scores
            for group in groups
            for evaluation in (evaluator.submit(group), evaluator.wait()[1])[1]
        ]

    a, b, c, d, e = drawn
    alone = scores([[a], [b], [c], [d], [e]])
    assert scores([[a, b, c], [d, e]]) == alone
    # Its neighbours and its place in the batch are of no account.
    assert scores([[e, d, b], [c], [a]]) == [alone[4], alone[3], alone[1], alone[2], alone[0]]
    assert len(set(alone)) == 5


def test_in_half_precision_a_race_changes_no_score(tiny_loaded):
    problem = model_problem(tiny_loaded, "bfloat16")
    settings = SETTINGS.model_copy(update={"race_level": 0.3})
    full, _ = evaluated(problem, [3, 3], settings, space=TINY, n_candidates=3)
    reference = max(full, key=lambda evaluation: evaluation.values).scores
    raced, _ = evaluated(problem, [3, 3], settings, reference, space=TINY, n_candidates=3)
    assert "raced" in {evaluation.status for evaluation in raced}
    for whole, part in zip(full, raced, strict=True):
        numbers = part.scored or range(len(whole.scores))
        assert part.scores == tuple(whole.scores[number] for number in numbers)


@pytest.mark.parametrize("batch_tokens", [1, 4000, 100_000])
def test_groups_on_a_model_give_the_scores_of_one_by_one(tiny_loaded, batch_tokens):
    problem = model_problem(tiny_loaded, batch_tokens=batch_tokens)
    alone, _ = evaluated(model_problem(tiny_loaded), [1] * 7, space=TINY, n_candidates=1)
    together, _ = evaluated(problem, [3, 3, 1], space=TINY, n_candidates=3)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(other.scores, one.scores, rtol=0, atol=1e-5)
        assert (one.status, one.tokens) == (other.status, other.tokens) == ("ok", problem.n_tokens)


def test_groups_on_the_embedded_model_give_the_scores_of_one_by_one():
    loaded = load_model("tiny", device="cpu")
    drawn = make_task("recall", n_pairs=16).examples(
        DataRequest(positions=(0.0, 0.5, 1.0), limit=4, seed=0, split="search")
    )
    problem = ModelProblem(loaded, drawn, batch_tokens=2000)
    space = CurveSpace(problem.n_layers, y_min=0.6, y_max=1.4, y_step=0.1, max_delta=0.4)
    alone, _ = evaluated(problem, [1] * 6, space=space, n_candidates=1)
    together, evaluator = evaluated(problem, [3, 3], space=space, n_candidates=3)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(other.scores, one.scores, rtol=0, atol=1e-5)
    assert evaluator.cost.tokens == 6 * problem.n_tokens
    assert Evaluator(problem, space, SETTINGS).n_candidates == min(
        problem.n_candidates_that_fit(ids) for ids in evaluator._block_ids
    )


@pytest.mark.parametrize(("dtype", "every"), [("float32", 1), ("bfloat16", 4)])
def test_a_resumed_group_is_scored_in_the_company_it_had_and_gives_the_same_bits(
    tiny_loaded, tmp_path, dtype, every
):
    problem = model_problem(tiny_loaded, dtype, n_texts=2, batch_tokens=4000)
    settings = SearchSettings(
        population_size=7, offspring_size=5, generations=1, n_constants=3, race_block=1, race_level=0.2
    )

    def searched(path):
        search = Search(TINY, settings, seed=3)
        with Journal(path, {}) as journal:
            drive(search, Evaluator(problem, TINY, settings, n_candidates=3), journal)
            records = {record["key"]: record | {"seconds": 0} for record in journal}
        return records, list(search.logbook)

    expected = searched(tmp_path / "straight.jsonl")
    assert {record["status"] for record in expected[0].values()} == {"ok", "raced"}
    lines = (tmp_path / "straight.jsonl").read_bytes().splitlines(keepends=True)
    # A group of three is written line by line, so some of these ends lie in the middle of one.
    for n_lines in range(1, len(lines), every):
        path = tmp_path / f"{n_lines}.jsonl"
        path.write_bytes(b"".join(lines[:n_lines]))
        assert searched(path) == expected


# Failures


class OneBad(Sheet):
    """Has trouble with one curve, in its second block."""

    def __init__(self, bad, fault, **options):
        super().__init__(**options)
        self.bad, self.fault = bad, fault

    def score_many(self, scales, example_ids=None):
        scores = super().score_many(scales, example_ids)
        hit = (scales == self.bad).all(axis=1)
        if not hit.any() or "2/b" not in example_ids:
            return scores
        if self.fault == "raise":
            raise RuntimeError("out of luck")
        if self.fault == "shape":
            return scores[:, 1:]
        scores = scores.astype(complex if self.fault == 1j else float)
        scores[hit, 1] = self.fault
        return scores


@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (math.nan, r"^EvaluationError: Expected finite real scores, but got \[nan\]\.$"),
        (-math.inf, r"^EvaluationError: Expected finite real scores, but got \[-inf\]\.$"),
        (1j, r"Expected real scores of shape .*, but got complex128 of shape \(\d, 6\)\."),
        ("shape", r"Expected real scores of shape \(n_candidates, n_examples\) = \(\d, 6\), but got float64"),
        ("raise", r"(?s)^Traceback .*RuntimeError: out of luck"),
    ],
)
def test_one_bad_candidate_of_a_group_fails_alone(fault, message, is_exact):
    bad = SPACE.decode(genomes(5))[1]
    problem = OneBad(bad, fault, n_fit=3, is_exact=is_exact)
    evaluations, _ = evaluated(problem, [3, 2])
    statuses = [evaluation.status for evaluation in evaluations]
    assert statuses == ["ok", "failed", "ok", "ok", "ok"]
    failed = evaluations.pop(1)
    assert re.search(message, failed.error), failed.error
    assert (failed.values, failed.scores, failed.scored, failed.tokens) == ((), (), (), 60)
    expected = without_seconds(evaluated(Sheet(), [1] * 5)[0])
    assert without_seconds(evaluations) == expected[:1] + expected[2:]
    if not is_exact:
        assert {len(scales) for scales, _ in problem.calls} == {3}


def test_a_curve_that_fails_for_a_while_is_tried_again():
    class Moody(Sheet):
        n_errors = 0

        def score_many(self, scales, example_ids=None):
            if self.n_errors < 2:
                self.n_errors += 1
                raise OSError("the link is down")
            return super().score_many(scales, example_ids)

    found, _ = evaluated(Moody(), [1] * 2)
    assert without_seconds(found) == without_seconds(evaluated(Sheet(), [1] * 2)[0])


# Want of memory (A7)


class Hungry(Sheet):
    """Needs memory in proportion to its batch, and its scores show the batch, as in half precision."""

    def __init__(self, batch=8, room=4, error=torch.cuda.OutOfMemoryError, least=1, curve=None, trace=None):
        super().__init__()
        self.batch, self.room, self.error, self.least, self.curve = batch, room, error, least, curve
        self.trace = trace if trace is not None else {"batches": [], "tensors": []}

    def score_many(self, scales, example_ids=None):
        self.trace["batches"].append(self.batch)
        self.trace["alive"] = [reference() for reference in self.trace["tensors"] if reference() is not None]
        tensor = torch.zeros(1000 * self.batch)
        self.trace["tensors"].append(weakref.ref(tensor))
        needs_more = self.curve is None or (scales == self.curve).all()
        if self.batch > self.room and needs_more:
            # As in a real frame: the tensor, and a cycle that only the collector breaks.
            cycle = [tensor]
            cycle.append(cycle)
            raise self.error("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return super().score_many(scales, example_ids) + 1e-4 * self.batch

    def smaller(self):
        if self.batch <= self.least:
            return None
        return Hungry(self.batch // 2, self.room, self.error, self.least, self.curve, self.trace)


@pytest.mark.parametrize(
    ("error", "room"), [(torch.cuda.OutOfMemoryError, 4), (MemoryError, 4), (torch.cuda.OutOfMemoryError, 1)]
)
def test_out_of_memory_halves_the_batch_and_gives_the_fitness_of_a_clean_run_with_it(error, room):
    n_halvings = int(math.log2(8 // room))
    hungry = Hungry(room=room, error=error)
    found, _ = evaluated(hungry, [1, 1], PLAIN)
    clean, _ = evaluated(Hungry(batch=room), [1, 1], PLAIN)
    assert [evaluation.halvings for evaluation in found] == [n_halvings] * 2
    assert [dataclasses.replace(entry, halvings=0) for entry in without_seconds(found)] == without_seconds(
        clean
    )
    assert hungry.trace["batches"] == [8 // 2**halving for halving in range(n_halvings + 1)] * 2
    # Before each retry everything that the failed try held was freed.
    assert hungry.trace["alive"] == []


def test_smaller_batches_are_recorded_in_the_journal_and_told_to_the_user(tmp_path):
    curve = SPACE.decode(genomes(3))[1]
    settings = SearchSettings(population_size=4, n_constants=3, generations=0, racing=False)
    console = Console(file=io.StringIO(), width=200)
    search = Search(SPACE, settings)
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        drive(search, Evaluator(Hungry(curve=curve), SPACE, settings), journal, TerminalReporter(console))
        assert sorted(record.get("halvings", 0) for record in journal) == [0, 0, 0, 1]
        halved = next(record for record in journal if record.get("halvings"))
        assert SPACE.decode(np.array([halved["control_points"]]))[0].tolist() == curve.tolist()
    told = console.file.getvalue()
    assert told.count("ran out of memory, and an evaluation took 1/2 of the batch") == 1
    assert sorted(evaluation.halvings for evaluation in search.evaluations()) == [0, 0, 0, 1]


def test_only_the_candidate_that_ran_out_of_memory_is_marked():
    curve = SPACE.decode(genomes(3))[1]
    found, _ = evaluated(Hungry(curve=curve), [1] * 3, SETTINGS)
    assert [evaluation.halvings for evaluation in found] == [0, 1, 0]


def test_the_memory_of_a_real_model_is_freed_before_the_retry(tiny_loaded):
    problem = model_problem(tiny_loaded, batch_tokens=8000, share_prefixes=False)
    held, alive = [], []

    def fill_memory(_layer, _arguments, output):
        hidden = output if isinstance(output, torch.Tensor) else output[0]
        alive.append(sum(reference() is not None for reference in held))
        held.append(weakref.ref(hidden))
        if hidden.shape[0] * hidden.shape[1] > 4000:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    handle = tiny_loaded.model.model.layers[1].register_forward_hook(fill_memory)
    try:
        found, _ = evaluated(problem, [3], PLAIN, space=TINY, n_candidates=3)
    finally:
        handle.remove()
    clean, _ = evaluated(
        model_problem(tiny_loaded, batch_tokens=4000, share_prefixes=False),
        [3],
        PLAIN,
        space=TINY,
        n_candidates=3,
    )
    assert [evaluation.halvings for evaluation in found] == [1] * 3
    assert [evaluation.scores for evaluation in found] == [evaluation.scores for evaluation in clean]
    assert alive[1] == 0


def test_torchs_own_allocator_of_the_cpu_is_understood_too():
    class Greedy(Sheet):
        size = 1 << 60

        def score_many(self, scales, example_ids=None):
            torch.empty(self.size, dtype=torch.uint8)
            return super().score_many(scales, example_ids)

        def smaller(self):
            half = Greedy()
            half.size = 1 << 10
            return half

    (evaluation,), _ = evaluated(Greedy(), [1], PLAIN)
    assert (evaluation.status, evaluation.halvings) == ("ok", 1)


def test_what_cannot_be_halved_any_more_fails_with_its_traceback():
    hungry = Hungry(room=1, least=2)
    found, _ = evaluated(hungry, [1], PLAIN)
    (evaluation,) = found
    assert evaluation.status == "failed"
    assert evaluation.error.startswith("Traceback")
    assert "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB." in evaluation.error
    assert set(hungry.trace["batches"]) == {8, 4, 2}


def test_another_runtime_error_is_no_want_of_memory():
    hungry = Hungry(error=lambda _text: RuntimeError("size mismatch"))
    found, _ = evaluated(hungry, [1], PLAIN)
    assert found[0].status == "failed"
    assert set(hungry.trace["batches"]) == {8}


class Odd(Sheet):
    """Says of itself what it is told to."""

    def __init__(self, **says):
        super().__init__()
        self.says = says

    def __getattribute__(self, name):
        says = object.__getattribute__(self, "__dict__").get("says", {})
        return says[name] if name in says else super().__getattribute__(name)


@pytest.mark.parametrize(
    ("says", "error", "message"),
    [
        ({"n_layers": N_LAYERS + 1}, ConfigError, rf"^Expected a space of the {N_LAYERS + 1} layers"),
        ({"n_layers": None}, ConfigError, r"^Expected a space of the None layers"),
        ({"example_ids": ()}, TaskError, r"of one length of at least 1, but got 0"),
        ({"groups": ("begin",)}, TaskError, r"^Expected example_ids, groups and sources of one length"),
        ({"groups": (None,) * N_EXAMPLES}, TaskError, r"to hold text, but got None"),
        ({"example_ids": ("a",) * N_EXAMPLES}, TaskError, rf"but {N_EXAMPLES} are called 'a'"),
        ({"n_candidates_that_fit": lambda _ids: -1}, TaskError, r"at least 1, but got -1"),
        ({"n_candidates_that_fit": lambda _ids: 2.5}, TaskError, r"at least 1, but got 2\.5"),
    ],
)
@pytest.mark.parametrize("settings", [SETTINGS, PLAIN])
def test_a_problem_that_contradicts_itself_or_the_space_is_refused_before_any_work(
    says, error, message, settings
):
    with pytest.raises(error, match=message):
        Evaluator(Odd(**says), SPACE, settings)


@pytest.mark.parametrize("source", [5, print, object()])
def test_what_is_no_problem_is_refused(source):
    with pytest.raises(TaskError, match=r"^Expected a problem, but got .* lpes_evo\.problems\.Problem"):
        Evaluator(source, SPACE)


@pytest.mark.parametrize("number", [0, -1, 2.5, "2", True])
def test_a_number_of_candidates_that_is_none_is_refused(number):
    with pytest.raises(ConfigError, match=r"^Expected n_candidates of at least 1, but got"):
        Evaluator(Sheet(), SPACE, n_candidates=number)


def test_a_generation_is_several_groups_however_many_candidates_fit():
    class Roomy(Sheet):
        def n_candidates_that_fit(self, example_ids):
            return 100

    assert Evaluator(Roomy(), SPACE, SearchSettings(offspring_size=32)).n_candidates == 4
    assert Evaluator(Roomy(), SPACE, SearchSettings(offspring_size=3)).n_candidates == 1
    assert Evaluator(Roomy(), SPACE, SearchSettings(offspring_size=3), n_candidates=50).n_candidates == 50


@pytest.mark.parametrize("given", [{"reference": (1.0,)}, {"labels": ("a", "b")}])
def test_a_reference_or_labels_of_another_length_are_refused(given):
    evaluator = Evaluator(Sheet(), SPACE, SETTINGS)
    with pytest.raises(ConfigError, match=rf"^Expected {N_EXAMPLES} reference scores and 1 labels"):
        evaluator.submit(genomes(1), **given)
