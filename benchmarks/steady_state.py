"""Compare the default search with smaller generations and with steady-state: how soon should a search learn?

Run with ``python benchmarks/steady_state.py --config docs/results/comparison/model.yaml``. The analytic arenas of
``lpes-evo compare`` are compared at equal evaluations, without racing. The model is searched as ``lpes-evo search``
does it, with racing, and compared at equal tokens: as many as the search of a seed forwards that needs the fewest.
Seeds are paired. Finished evaluations are kept in ``--output``, and a second start goes on there.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from common import parser

from lpes_evo import Journal, Search, SearchSettings, drive
from lpes_evo.comparison import ANALYTIC, Arena, ModelArena, Trace, read_trace, standings
from lpes_evo.config import load_config
from lpes_evo.execution import JOURNAL_FORMAT
from lpes_evo.reporting import Table, difference_text, interval_text
from lpes_evo.runs import JobSpec
from lpes_evo.workers import make_pool

_DEFAULT = "ga"
_VARIANTS: dict[str, dict[str, Any]] = {
    _DEFAULT: {},
    "ga, 8 offspring": {"offspring_size": 8},
    "ga, 4 offspring": {"offspring_size": 4},
    "steady-state": {"algorithm": "steady-state"},
    "steady-state, 1 in flight": {"algorithm": "steady-state", "in_flight": 1},
}
"""What differs from the default search."""


@contextmanager
def arena_of(name: str, config: Path | None) -> Iterator[Arena]:
    """Give an arena of ``lpes-evo compare``, for ``model`` with its model in this process."""
    if name in ANALYTIC:
        yield ANALYTIC[name]
        return
    with make_pool(JobSpec(load_config(file=config)), "in-process") as pool:
        yield ModelArena(pool)


def searched(arena: Arena, changes: Mapping[str, Any], seed: int, n_evaluations: int, path: Path) -> Trace:
    """Run a search with a journal and return its trace."""
    base = SearchSettings(**changes)
    generations = -((base.population_size - n_evaluations) // base.offspring_size)
    settings = base.model_copy(
        update={"generations": generations, "racing": isinstance(arena, ModelArena) and base.racing}
    )
    search = Search(arena.space, settings, seed=seed)

    header = {
        "format": JOURNAL_FORMAT,
        "version": 1,
        **arena.identity(),
        "seed": seed,
        "changes": dict(changes),
    }

    path.parent.mkdir(parents=True, exist_ok=True)
    with Journal(path, header) as journal:
        drive(search, arena.evaluator(arena.space, settings, seed), journal)
    return read_trace(path).first(n_evaluations)


def main() -> None:
    """Print a table for each arena."""
    options = parser(__doc__)
    options.add_argument("--arenas", default="target,rough,brachistochrone,model", help="with commas between")
    options.add_argument("--config", type=Path, help="settings of the model and its task as YAML")
    options.add_argument("--seeds", type=int, default=20, help="searches of each kind")
    options.add_argument("--evaluations", type=int, default=80, help="of every search, raced ones among them")
    options.add_argument(
        "--output", type=Path, default=Path("runs/steady-state"), help="folder of the journals"
    )
    arguments = options.parse_args()

    for name in arguments.arenas.split(","):
        traces: dict[str, list[Trace]] = {variant: [] for variant in _VARIANTS}
        with arena_of(name, arguments.config) as arena:
            for seed in range(arguments.seeds):
                for variant, changes in _VARIANTS.items():
                    file = f"{variant.replace(', ', '-').replace(' ', '-')}-{seed}.jsonl"
                    path = arguments.output / name / file
                    traces[variant].append(searched(arena, changes, seed, arguments.evaluations, path))

        # A model is compared at the tokens of the search of a seed that needs the fewest.
        cost = f"{arguments.evaluations} evaluations"
        if name not in ANALYTIC:
            budgets = np.min(
                [[trace.tokens[-1] for trace in searches] for searches in traces.values()], axis=0
            )
            traces = {
                variant: [
                    trace.first(int(np.searchsorted(trace.tokens, budget, side="right")))
                    for trace, budget in zip(searches, budgets, strict=True)
                ]
                for variant, searches in traces.items()
            }
            cost = f"{np.median(budgets):.0f} tokens (median)"

        print(f"\n{name} ({arena.unit}), {arguments.seeds} seeds, {cost}\n")
        columns = ["search", "best fitness [95 %]", f"minus {_DEFAULT} [95 %]", "verdict", "ahead / behind"]
        table = Table("", columns)
        for row in standings(traces, arguments.evaluations, _DEFAULT):
            table.add_row(
                row.name,
                interval_text(row.mean, row.low, row.high, ".4g"),
                difference_text(row.difference, row.difference_low, row.difference_high, ".3g"),
                row.verdict,
                f"{row.n_ahead} / {row.n_behind}",
            )
        print(table.to_markdown(), flush=True)


if __name__ == "__main__":
    main()
