import json

import numpy as np
import pytest

from lpes_evo.comparison import Trace, band, read_trace, standings
from lpes_evo.errors import ConfigError, JournalError
from lpes_evo.operators import CurveSpace

HEADER = {"format": "lpes-evo/journal", "version": 1}


def line(key, value, tokens=10, status="ok", y=1.0, **more):
    record = {
        "key": key,
        "control_points": [[0.0, y], [3.0, y]],
        "status": status,
        "values": [] if value is None else [value],
        "scores": [],
        "seconds": 0.5,
        "tokens": tokens,
    }
    return json.dumps(record | more)


def journal(path, *lines, header=HEADER, torn=""):
    path.write_text("\n".join([json.dumps(header), *lines, torn]))
    return path


def trace(fitness, name="t", tokens=10.0, ys=None):
    n = len(fitness)
    points = np.array([[[0.0, y], [3.0, y]] for y in (ys or [1.0] * n)])
    return Trace(
        name, np.array(fitness, dtype=float), np.arange(1, n + 1) * tokens, np.arange(1.0, n + 1), points
    )


def test_a_journal_is_read_as_it_was_written_and_left_as_it_is(tmp_path):
    path = journal(
        tmp_path / "j.jsonl",
        line("a", -2.0),
        line("failed 1: b", None, status="failed", error="x"),
        line("b", None, tokens=4, status="failed", error="x"),
        line("c", -1.0),
        torn=line("d", 0.0)[:30],
    )
    before = path.read_bytes()
    found = read_trace(path)
    assert path.read_bytes() == before
    assert found.name == "j"
    np.testing.assert_array_equal(found.fitness, [-2, np.nan, -1])
    np.testing.assert_array_equal(found.best, [-2, -2, -1])
    np.testing.assert_array_equal(found.tokens, [10, 14, 24])
    np.testing.assert_array_equal(found.seconds, [0.5, 1.0, 1.5])
    assert found.points.shape == (3, 2, 2)
    assert len(found.first(2)) == 2


def test_a_gradient_is_no_evaluation_but_its_cost_counts_for_the_next(tmp_path):
    curve = [[float(layer), 1.0] for layer in range(6)]
    probe = line("gradient 0: x", None, 30, "sampled", control_points=curve, gradient=[0.1] * 6)
    failed = line("gradient 1: x", None, 4, "failed", control_points=curve, error="x")
    found = read_trace(
        journal(tmp_path / "j.jsonl", line("a", -2.0), probe, failed, line("b", -1.0), torn="")
    )
    assert found.fitness.tolist() == [-2.0, -1.0]
    assert found.tokens.tolist() == [10.0, 54.0]
    assert found.seconds.tolist() == [0.5, 2.0]
    assert found.points.shape == (2, 2, 2)


@pytest.mark.parametrize(
    ("lines", "header", "message"),
    [
        ([], HEADER, "it holds 0 evaluations"),
        ([line("a", 1.0)], {"format": "other"}, "line 1 of .* to be of a journal of format"),
        (["nonsense"], HEADER, "line 2 of .* but got b'nonsense'"),
        ([line("a", 1.0, control_points=[[0.0]])], HEADER, "control_points.0.1', but it is missing"),
        (
            [line("a", 1.0, control_points=[[0, float("nan")], [3, 1]])],
            HEADER,
            "but got nan at control_points.0.1",
        ),
        ([line("a", 1.0, y=10**400)], HEADER, "to be finite and within the range of a float, but got 10"),
        ([line("a", 1.0, y=1e7)], HEADER, "control_points.0.1 is 10000000.0: input should be less"),
        ([line("a", 1.0, tokens=10**400)], HEADER, "within the range of a float, but got 10+.* at tokens"),
        ([line("a", 1.0, tokens=10**16)], HEADER, "tokens and seconds of at most .* under key 'a'"),
        ([line("a", 1.0, seconds=1e300)], HEADER, "tokens and seconds of at most .* under key 'a'"),
        ([line("a", 1.0, status="odd")], HEADER, "key 'a' in .* status is 'odd': input should be 'ok'"),
        (
            [line("a", 1.0), line("b", 1.0, control_points=[[0, 1], [1, 1], [3, 1]])],
            HEADER,
            "equally many control points",
        ),
    ],
)
def test_a_file_that_is_no_journal_of_a_search_is_refused_in_one_line(tmp_path, lines, header, message):
    path = journal(tmp_path / "j.jsonl", *lines, header=header)
    with pytest.raises(JournalError, match=message) as raised:
        read_trace(path)
    assert "\n" not in str(raised.value)


def test_a_missing_journal_is_refused(tmp_path):
    with pytest.raises(JournalError, match="Expected a journal at .* but it cannot be read"):
        read_trace(tmp_path / "none.jsonl")


def test_the_population_is_the_best_so_far_and_its_median_theirs():
    found = trace([3.0, np.nan, 1.0, 5.0, 4.0])
    assert list(found.populations(2)) == [[0], [0], [0, 2], [3, 0], [3, 4]]
    np.testing.assert_array_equal(found.population_median(2), [3, 3, 2, 4, 4.5])
    np.testing.assert_array_equal(trace([np.nan, 1.0]).population_median(2), [np.nan, 1.0])


def test_diversity_is_the_mean_distance_of_log_curves():
    space = CurveSpace(4, 2)
    found = trace([1.0, 2.0, 3.0], ys=[1.0, 2.0, 0.5])
    two = np.log(2)
    # Pairs at distances log 2, log 2 and 2 log 2; of the best two, 0.5 and 2.0 are left.
    np.testing.assert_allclose(found.diversity(space, 3), [0, two, 4 / 3 * two])
    np.testing.assert_allclose(found.diversity(space, 2), [0, two, 2 * two])


def test_a_band_over_evaluations_has_the_mean_of_the_searches_and_ends_with_the_first():
    searches = [trace([0.0, 2.0, 4.0]), trace([2.0, 2.0])]
    found = band(searches, [search.best for search in searches])
    np.testing.assert_array_equal(found.x, [1, 2])
    np.testing.assert_array_equal(found.mean, [1, 2])
    assert (found.low[0], found.high[0], found.n) == (0, 2, 2)
    np.testing.assert_array_equal([found.low[1], found.high[1]], [2, 2])


def test_a_band_over_tokens_takes_the_last_evaluation_that_was_paid_for():
    searches = [trace([0.0, 1.0, 2.0], tokens=10), trace([0.0, 1.0, 2.0], tokens=20)]
    found = band(searches, [search.best for search in searches], "tokens")
    assert (found.x[0], found.x[-1]) == (20, 30)
    # At 20 tokens: two evaluations of the first, one of the second; at 30: three and one.
    assert (found.mean[0], found.mean[-1]) == (0.5, 1.0)


def test_a_band_that_makes_no_sense_is_refused():
    with pytest.raises(ConfigError, match="at least one trace"):
        band([], [])
    free = trace([1.0, 2.0], tokens=0.0)
    with pytest.raises(ConfigError, match="evaluations that cost tokens, but these cost none"):
        band([free], [free.best], "tokens")


def test_standings_pair_the_seeds_and_count_only_equal_evaluations():
    ours = [trace([0.0, seed, 100.0]) for seed in range(8)]
    better = [trace([0.0, seed + 1.0, -5.0]) for seed in range(8)]
    noisy = [trace([seed + 0.5 * (-1) ** seed, 0.0, 0.0]) for seed in range(8)]
    found = {row.name: row for row in standings({"ga": ours, "b": better, "c": noisy}, 2, "ga")}
    assert [row.name for row in standings({"ga": ours, "b": better}, 2, "ga")] == ["b", "ga"]
    assert (found["b"].difference, found["b"].difference_low, found["b"].difference_high) == (1, 1, 1)
    assert (found["b"].verdict, found["b"].n_ahead, found["b"].n_behind, found["b"].n) == ("better", 8, 0, 8)
    assert (found["b"].mean, found["ga"].mean) == (4.5, 3.5)
    assert (found["c"].verdict, found["c"].n_ahead, found["c"].n_behind) == ("level", 4, 4)
    assert found["ga"].verdict == "level"
    # c reaches the result of ga at once with every second seed, and never with the others.
    assert (found["c"].n_reached, found["c"].median_cost) == (4, 1.5)
    assert standings({"ga": better, "b": ours}, 2, "ga")[1].verdict == "worse"


def test_few_seeds_give_no_verdict():
    few = {"ga": [trace([0.0])] * 5, "b": [trace([1.0])] * 5}
    assert {row.verdict for row in standings(few, 1, "ga")} == {"too few seeds"}


@pytest.mark.parametrize(
    ("traces", "message"),
    [
        ({"b": [trace([0.0])] * 2}, "Expected the reference 'ga'"),
        ({"ga": [trace([0.0])]}, "at least two seeds"),
        ({"ga": [trace([0.0])] * 2, "b": [trace([0.0])] * 3}, "equally many"),
        ({"ga": [trace([0.0])] * 2, "b": [trace([np.nan])] * 2}, "but b has one without"),
    ],
)
def test_standings_that_make_no_sense_are_refused(traces, message):
    with pytest.raises(ConfigError, match=message):
        standings(traces, 1, "ga")
