"""A comparison in one folder: searches with their journals, standings, tables and pictures; it can be resumed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from lpes_evo.comparison._arenas import ANALYTIC, MODEL, Arena, ModelArena
from lpes_evo.comparison._config import ComparisonConfig, ComparisonFolder
from lpes_evo.comparison._contestants import CONTESTANTS, Contestant, ablations
from lpes_evo.comparison._held_out import measure_held_out
from lpes_evo.comparison._optimisers import OPTIMISERS
from lpes_evo.comparison._pictures import plot_diversity, plot_searches, plot_standings, plot_tried_points
from lpes_evo.comparison._standings import standings
from lpes_evo.comparison._tables import to_markdown
from lpes_evo.comparison._traces import Axis, Trace, read_trace
from lpes_evo.config import settings_hash
from lpes_evo.errors import ConfigError
from lpes_evo.execution import JOURNAL_FORMAT, drive
from lpes_evo.reporting import Reporter, save_pictures
from lpes_evo.runs import JobSpec
from lpes_evo.search import Search
from lpes_evo.storage import Journal, make_folder, provenance, to_json, write_atomic
from lpes_evo.workers import make_pool

_FORMAT = "lpes-evo/comparison"


def run_comparison(
    config: ComparisonConfig,
    folder: ComparisonFolder,
    *,
    devices: str = "auto",
    reporter: Reporter | None = None,
) -> dict[str, Any]:
    """Run every search of a comparison, or resume it, and write the results.

    Every search has a journal of its own, so that a comparison that was stopped goes on where it was: finished
    evaluations are answered from the journals.

    Args:
        config: The comparison; for a folder that holds a comparison, the configuration that it was started with.
        folder: The folder; it must exist.
        devices: The devices on which the model computes, see `lpes_evo.workers.make_pool`.
        reporter: Is told of the progress.

    Returns:
        The content of ``results.json``: the standings of every arena.

    Raises:
        LpesError: Bad input, a missing package, a full disk, or too many failed evaluations; the message says which.
    """
    reporter = reporter if reporter is not None else Reporter()
    # A missing package or a contestant that does not fit is reported before any work.
    planned = {name: _contestants(config, ANALYTIC[name]) for name in config.arenas if name != MODEL}
    with folder.locked(), ExitStack() as stack:
        results: dict[str, Any] = {
            "format": _FORMAT,
            "version": 1,
            "kind": config.kind,
            "reference": config.reference,
            "n_evaluations": config.n_evaluations,
            "n_seeds": config.n_seeds,
            "command": provenance.command_line(),
            "versions": provenance.package_versions(),
            "arenas": {},
        }

        for name in config.arenas:
            arena: Arena
            if name == MODEL:
                arena = stack.enter_context(_model_arena(config, devices, reporter))
                planned[name] = _contestants(config, arena)
            else:
                arena = ANALYTIC[name]

            results["versions"] |= _optimiser_versions(planned[name].values())
            results["arenas"][name] = _meet(config, arena, planned[name], folder, reporter)
            write_atomic(folder.results, to_json(results, indent=1) + "\n")
            write_atomic(folder.markdown, to_markdown(results))
    return results


@contextmanager
def _model_arena(config: ComparisonConfig, devices: str, reporter: Reporter) -> Iterator[ModelArena]:
    """Hold the workers of the arena of a model for the time of a block."""
    reporter.stage(f"Loading {config.run.model.name}")
    with make_pool(JobSpec(config.run), devices, on_event=reporter.stage) as pool:
        arena = ModelArena(pool)
        for line in arena.job.sharing:
            reporter.stage(line)
        yield arena


def _contestants(config: ComparisonConfig, arena: Arena) -> dict[str, Contestant]:
    """Return the contestants of an arena, the reference first.

    Raises:
        ConfigError: A name is unknown there, a package is missing, or there are too few evaluations.
        CurveError: A space cannot be made from that of the arena.
    """
    known = CONTESTANTS if config.kind == "compare" else ablations(arena.space)
    unknown = [name for name in config.contestants if name not in known]
    if unknown:
        raise ConfigError(
            f"Expected contestants of {arena.name} among {', '.join(known)}, but got {', '.join(unknown)}."
        )

    names = config.contestants or tuple(known)
    chosen = {config.reference: known[config.reference]} | {name: known[name] for name in names}
    for contestant in chosen.values():
        contestant.search(arena.space, config.search, config.n_evaluations, seed=0, groups=("any",))
    return chosen


def _optimiser_versions(contestants: Iterable[Contestant]) -> dict[str, str]:
    """Return the versions of the packages of the optimisers."""
    optimisers = (OPTIMISERS.get(contestant.algorithm) for contestant in contestants)
    packages = sorted({optimiser.package for optimiser in optimisers if optimiser and optimiser.package})
    return {package: metadata.version(package) for package in packages}


def _meet(
    config: ComparisonConfig,
    arena: Arena,
    contestants: Mapping[str, Contestant],
    folder: ComparisonFolder,
    reporter: Reporter,
) -> dict[str, Any]:
    """Run the searches of all contestants in an arena, and return and draw the results."""
    traces: dict[str, list[Trace]] = {name: [] for name in contestants}
    vectors = {}
    for seed in range(config.n_seeds):
        for name, contestant in contestants.items():
            path = folder.journal(arena.name, name, seed)
            search = _search(config, arena, contestant, seed, path, reporter)
            trace = read_trace(path).first(config.n_evaluations)
            traces[name].append(trace)
            if isinstance(arena, ModelArena):
                best = trace.points[int(np.nanargmax(trace.fitness))]
                vectors[f"{name} {seed}"] = search.space.decode([best])[0]
            reporter.stage(
                f"{arena.name}, seed {seed}: {name} {trace.best[-1]:.6g} ({len(trace)} evaluations)"
            )

    found = standings(traces, config.n_evaluations, config.reference)
    result: dict[str, Any] = {
        "unit": arena.unit,
        "identity": arena.identity(),
        "standings": [standing.to_json() for standing in found],
        "tokens": {name: sum(float(trace.tokens[-1]) for trace in traces[name]) for name in traces},
        "seconds": {name: sum(float(trace.seconds[-1]) for trace in traces[name]) for name in traces},
    }

    if isinstance(arena, ModelArena):
        reporter.stage("Measuring held-out examples")
        with Journal(folder.held_out(arena.name), _header(arena), on_event=reporter.stage) as journal:
            result["held_out"] = measure_held_out(arena, vectors, config.reference, journal)

    save_pictures(
        plot_standings(found, config.reference, arena.unit, title=arena.name),
        folder.picture(f"{arena.name}-standings"),
    )
    if config.kind == "compare":
        _draw_searches(config, arena, contestants, traces, folder)
    return result


def _search(
    config: ComparisonConfig,
    arena: Arena,
    contestant: Contestant,
    seed: int,
    path: Path,
    reporter: Reporter,
) -> Search:
    """Run one search to its end; its journal answers what is known."""
    make_folder(path.parent)
    space = contestant.space_of(arena.space)
    settings = contestant.settings(config.search, config.n_evaluations)
    evaluator = arena.evaluator(space, settings, seed)
    search = contestant.search(
        arena.space, config.search, config.n_evaluations, seed=seed, groups=evaluator.facts.groups
    )

    header = {
        **_header(arena),
        "contestant": contestant.name,
        "seed": seed,
        "evaluations": config.n_evaluations,
        "settings": settings_hash(settings),
    }
    with Journal(path, header, on_event=reporter.stage) as journal:
        drive(search, evaluator, journal)
    return search


def _header(arena: Arena) -> dict[str, Any]:
    """Return the entries in the header of every journal of an arena."""
    return {"format": JOURNAL_FORMAT, **arena.identity()}


def _draw_searches(
    config: ComparisonConfig,
    arena: Arena,
    contestants: Mapping[str, Contestant],
    traces: Mapping[str, Sequence[Trace]],
    folder: ComparisonFolder,
) -> None:
    """Draw convergence, diversity, and the control points that the reference tried."""
    labels = {name: contestant.label for name, contestant in contestants.items()}
    labelled = {labels[name]: searches for name, searches in traces.items()}
    spaces = {labels[name]: contestants[name].space_of(arena.space) for name in contestants}

    costs: tuple[Axis, ...] = ("evaluations",)
    if isinstance(arena, ModelArena):
        costs = ("evaluations", "tokens", "seconds")
    for against in costs:
        figure = plot_searches(labelled, arena.unit, against=against, title=arena.name)
        save_pictures(figure, folder.picture(f"{arena.name}-{against}"))

    size = config.search.population_size
    save_pictures(plot_diversity(labelled, spaces, size), folder.picture(f"{arena.name}-diversity"))
    tried = plot_tried_points(traces[config.reference], f"{arena.name}, {labels[config.reference]}")
    save_pictures(tried, folder.picture(f"{arena.name}-control-points"))
