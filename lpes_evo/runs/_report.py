"""Report: accuracies of the found scales on held-out examples by gold position, beside those of their rivals."""

import dataclasses
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import JournalError
from lpes_evo.execution import ProblemFacts
from lpes_evo.problems import AnswerScores
from lpes_evo.runs._job import Measure, measure_vector
from lpes_evo.runs._report_record import CONSTANT, LPES, UNTOUCHED, MeasuredLine
from lpes_evo.search import Evaluation, isolated_random
from lpes_evo.statistics import mean_interval, paired_difference, wilson_interval
from lpes_evo.storage import Journal
from lpes_evo.workers import Pool

_SHUFFLE = "shuffle-"


def candidates(
    lpes: npt.NDArray[np.float64], constant: float | None, *, n_shuffles: int, seed: int
) -> dict[str, npt.NDArray[np.float64]]:
    """Name the vectors of scales that are measured side by side.

    Args:
        lpes: The found scales, ``(n_layers,)``.
        constant: The best single scale on the search data; ``None`` where none was searched.
        n_shuffles: Random orders of the found scales to add.
        seed: Seed of the shuffles.

    Returns:
        ``untouched``, ``constant``, ``lpes`` and the shuffles, each ``(n_layers,)``.
    """
    vectors = {UNTOUCHED: np.ones_like(lpes)}
    if constant is not None:
        vectors[CONSTANT] = np.full_like(lpes, constant)
    vectors[LPES] = lpes

    with isolated_random(seed, "shuffles"):
        for number in range(n_shuffles):
            vectors[f"{_SHUFFLE}{number + 1:02d}"] = np.array(random.sample(lpes.tolist(), len(lpes)))
    return vectors


def measure(
    pool: Pool, vectors: dict[str, npt.NDArray[np.float64]], n_examples: int, journal: Journal
) -> Iterator[tuple[str, AnswerScores]]:
    """Score every vector on the held-out examples; scores that the journal holds are not measured again.

    Args:
        pool: A pool whose workers hold the job of the run.
        vectors: The scales by name, each ``(n_layers,)``.
        n_examples: Number of held-out examples.
        journal: The journal of finished scores.

    Yields:
        The name and the scores of each vector, as they are finished.

    Raises:
        JournalError: The journal holds other scales under one of the names, or scores of another length.
        StorageError: The journal cannot be written.
        EvaluationError: A vector could not be scored.
    """
    # All vectors are given to the workers before the first score is waited for.
    names = {}
    for name, scales in vectors.items():
        record = journal.get(name)
        if record is None:
            names[pool.submit(measure_vector, scales, label=name, limited=False)] = name
        else:
            yield name, _from_record(record, scales, n_examples, journal.path)

    for _ in range(len(names)):
        completion = pool.wait()
        name = names[completion.ticket]
        if completion.failure is not None:
            raise completion.failure.to_error()

        scores, n_halvings = completion.value
        record = {
            "scales": vectors[name].tolist(),
            "log_probability": scores.log_probability.tolist(),
            "correct": scores.correct.astype(int).tolist(),
            **({} if scores.score is None else {"score": scores.score.tolist()}),
        }
        journal.append(name, record | ({"halvings": n_halvings} if n_halvings else {}))
        yield name, scores


def smaller_batches(evaluations: Sequence[Evaluation], journal: Journal) -> dict[str, Any]:
    """Return which scores come from smaller batches than the rest, because a device ran out of memory.

    Args:
        evaluations: The evaluations of the search.
        journal: The journal that `measure` kept.

    Returns:
        A mapping that `json` can write: ``n_candidates`` of the search, whether the ``best`` is among them, and the
        ``methods`` on the held-out examples.
    """
    worst = (-np.inf, -np.inf)
    standings = [entry.standing if entry.status == "ok" else worst for entry in evaluations]
    return {
        "n_candidates": sum(entry.halvings > 0 for entry in evaluations),
        "best": evaluations[standings.index(max(standings))].halvings > 0,
        "methods": [
            line.key for line in (_read(record, journal.path) for record in journal) if line.halvings
        ],
    }


def _read(record: dict[str, Any], path: Path) -> MeasuredLine:
    return MeasuredLine.of(record, f"the line of key {record['key']!r:.80} in {path}")


def _from_record(
    record: dict[str, Any], scales: npt.NDArray[np.float64], n_examples: int, path: Path
) -> AnswerScores:
    """Read the scores of a line of the journal, and refuse those of other scales or of other examples."""
    line = _read(record, path)

    if line.scales != tuple(scales.tolist()):
        raise JournalError(
            f"Expected the scores of {line.key!r} in {path} to belong to the scales of this run, but they "
            "belong to others. Move the file away and run again with --resume."
        )
    score = line.correct if line.score is None else line.score
    if not len(line.log_probability) == len(line.correct) == len(score) == n_examples:
        raise JournalError(
            f"Expected {n_examples} log-probabilities and as many 0 or 1 under {line.key!r} in {path}, but got "
            f"{len(line.log_probability)} and {len(line.correct)}. {MeasuredLine.REMEDY}"
        )
    return AnswerScores(
        np.array(line.log_probability, dtype=np.float64),
        np.array(line.correct, dtype=bool),
        None if line.score is None else np.array(line.score, dtype=np.float64),
    )


def summarise(
    problem: ProblemFacts,
    scores: dict[str, AnswerScores],
    vectors: dict[str, npt.NDArray[np.float64]],
    measure: Measure = "accuracy",
) -> dict[str, Any]:
    """Condense scores to means with 95 % intervals, overall and by gold position.

    At one position every example has a text of its own, so the interval of an accuracy is Wilson's. Over all positions
    examples can share texts, so the interval is a bootstrap over texts, as is that of every other number.

    Args:
        problem: The facts of the problem that gave the scores.
        scores: Scores by name.
        vectors: Scales by name.
        measure: The number that is compared.

    Returns:
        A mapping that `json` can write: ``methods`` by name, ``differences`` of LPES to every other method on the
        same examples, and ``shuffles`` with the median over all shuffles. Where there are several tasks or guards,
        these are of the examples of all searched tasks, and ``tasks`` has the scores of each task and guard.
    """
    if problem.mixture is not None:
        mixture = problem.mixture
        tasks = np.array(mixture.tasks)
        # A text is neither right nor wrong, so that it has no part in an accuracy.
        texts = mixture.texts if measure == "accuracy" else ()
        searched = np.isin(tasks, [name for name in mixture.weights if name not in texts])
        return summarise(*_of_rows(problem, scores, searched), vectors, measure) | {
            "tasks": {
                name: {
                    **({"weight": mixture.weights[name]} if name in mixture.weights else {}),
                    **({"tolerance": mixture.guards[name]} if name in mixture.guards else {}),
                    **_task_row(*_of_rows(problem, scores, tasks == name), is_text=name in mixture.texts),
                }
                for name in (*mixture.weights, *mixture.guards)
            }
        }

    values = {name: _measured(score, measure) for name, score in scores.items()}
    methods = {name: _method(problem, scores[name], values[name], vectors[name]) for name in scores}
    shuffles = {name: methods.pop(name) for name in list(methods) if name.startswith(_SHUFFLE)}

    summary: dict[str, Any] = {"format": "lpes-evo/report", "version": 1, "methods": methods}
    summary["differences"] = {
        name: _interval(*paired_difference(values[LPES], values[name], problem.sources), "difference")
        for name in methods
        if name != LPES
    }

    if shuffles:
        accuracies = [shuffle["accuracy"] for shuffle in shuffles.values()]
        mean_values = np.mean([values[name] for name in shuffles], axis=0)
        summary["shuffles"] = {
            "n_shuffles": len(shuffles),
            "median_accuracy": float(np.median(accuracies)),
            "least_accuracy": min(accuracies),
            "largest_accuracy": max(accuracies),
            "accuracies": accuracies,
            "positions": [
                {"position": position, "accuracy": float(mean_values[here].mean())}
                for position, here in _by_position(problem)
            ],
        }
    return summary


def _of_rows(
    problem: ProblemFacts, scores: dict[str, AnswerScores], rows: npt.NDArray[np.bool_]
) -> tuple[ProblemFacts, dict[str, AnswerScores]]:
    """Return the facts and the scores of some examples, as those of a problem of one task."""
    numbers = np.flatnonzero(rows)
    part = dataclasses.replace(
        problem,
        example_ids=tuple(problem.example_ids[number] for number in numbers),
        groups=tuple(problem.groups[number] for number in numbers),
        sources=tuple(problem.sources[number] for number in numbers),
        positions=tuple(problem.positions[number] for number in numbers),
        mixture=None,
    )

    return part, {
        name: AnswerScores(
            of.log_probability[numbers],
            of.correct[numbers],
            None if of.score is None else of.score[numbers],
        )
        for name, of in scores.items()
    }


def _task_row(problem: ProblemFacts, scores: dict[str, AnswerScores], *, is_text: bool) -> dict[str, Any]:
    """Return the scores of every method but the shuffles on one task, and how LPES differs; texts have no accuracy."""
    methods = {name: of for name, of in scores.items() if not name.startswith(_SHUFFLE)}

    def difference(name: str, metric: str) -> dict[str, float]:
        found, other = getattr(methods[LPES], metric), getattr(methods[name], metric)
        return _interval(*paired_difference(found, other, problem.sources), "difference")

    return {
        "n": len(problem.example_ids),
        "methods": {
            name: {
                **({} if is_text else _interval(*mean_interval(of.correct, problem.sources), "accuracy")),
                "log_probability": float(of.log_probability.mean()),
            }
            for name, of in methods.items()
        },
        "differences": {
            name: {
                **({} if is_text else {"accuracy": difference(name, "correct")}),
                "log_probability": difference(name, "log_probability"),
            }
            for name in methods
            if name != LPES
        },
    }


def _by_position(problem: ProblemFacts) -> Iterator[tuple[float, npt.NDArray[np.bool_]]]:
    """Yield each gold position with the mask of its examples; nothing where no example has a position."""
    for position in sorted({place for place in problem.positions if place is not None}):
        yield float(position), np.array([place == position for place in problem.positions])


def _measured(scores: AnswerScores, measure: Measure) -> npt.NDArray[Any]:
    """Return the number of each example that is compared, ``(n_examples,)``."""
    if measure == "score" and scores.score is not None:
        return scores.score
    return scores.log_probability if measure == "log_probability" else scores.correct


def _method(
    problem: ProblemFacts,
    scores: AnswerScores,
    values: npt.NDArray[Any],
    scales: npt.NDArray[np.float64],
) -> dict[str, Any]:
    """Return the means of one vector of scales."""
    rows = []
    for position, here in _by_position(problem):
        n = int(here.sum())
        if values.dtype == np.bool_:
            n_correct = int(values[here].sum())
            interval = n_correct / n, *wilson_interval(n_correct, n)
        else:
            sources = [source for source, is_here in zip(problem.sources, here, strict=True) if is_here]
            interval = mean_interval(values[here], sources)
        rows.append(
            {
                "position": position,
                "n": n,
                **_interval(*interval, "accuracy"),
                "log_probability": float(scores.log_probability[here].mean()),
            }
        )

    return {
        "scales": scales.tolist(),
        "n": len(values),
        **_interval(*mean_interval(values, problem.sources), "accuracy"),
        "log_probability": float(scores.log_probability.mean()),
        "positions": rows,
    }


def _interval(value: float, low: float, high: float, name: str) -> dict[str, float]:
    """Return a value under its name, with the ends of its interval."""
    return {name: value, "low": low, "high": high}
