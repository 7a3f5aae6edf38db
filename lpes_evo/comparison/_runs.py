"""Runs: the searches of run folders that differ in their seed, and pictures of their convergence."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lpes_evo.comparison._pictures import plot_diversity, plot_searches, plot_tried_points
from lpes_evo.comparison._traces import Axis, Trace, read_trace
from lpes_evo.errors import ConfigError, CurveError, JournalError
from lpes_evo.operators import CurveSpace
from lpes_evo.reporting import save_pictures
from lpes_evo.runs import UNITS, RunFolder


@dataclass(frozen=True)
class Runs:
    """Runs of one configuration under different seeds.

    Attributes:
        traces: The search of each run.
        space: The curves that are searched.
        population_size: Number of parents that survive.
        unit: Unit of the fitness.
    """

    traces: tuple[Trace, ...]
    space: CurveSpace
    population_size: int
    unit: str


def read_runs(paths: Sequence[Path]) -> Runs:
    """Read the searches of run folders, also while they are running.

    Args:
        paths: The folders, of runs that differ only in their seed.

    Returns:
        The runs.

    Raises:
        ConfigError: There are no folders, they differ in more than the seed, or two have the same seed.
        JournalError: A folder holds no run, or its journal no evaluation, or curves over other layers than those of
            the run's model.
    """
    folders = [RunFolder(path) for path in paths]
    configs = [folder.load_config() for folder in folders]
    if not configs or any(
        config.model_copy(update={"seed": configs[0].seed}) != configs[0] for config in configs
    ):
        raise ConfigError(
            f"Expected at least one run folder, and runs that differ only in their seed, but got {len(paths)} with "
            "other differences. Draw them one by one, or compare them with 'lpes-evo compare'."
        )

    seeds = [config.seed for config in configs]
    if len(set(seeds)) != len(seeds):
        raise ConfigError(
            f"Expected every run to have a seed of its own, but got {', '.join(map(str, seeds))}. "
            "The same search twice would narrow the intervals; name each run once."
        )

    traces = tuple(read_trace(folder.journal, folder.path.name) for folder in folders)
    # The last control point is pinned to the last layer.
    depths = {int(trace.points[0, -1, 0]) + 1 for trace in traces}
    if len(depths) != 1:
        raise JournalError(
            f"Expected runs on models of one depth, but got {', '.join(map(str, sorted(depths)))} layers. "
            "Draw them one by one."
        )

    config, n_layers = configs[0], depths.pop()
    space = config.curve.space(n_layers)
    for folder, trace in zip(folders, traces, strict=True):
        _check_curves(folder, trace, space)

    return Runs(
        traces,
        space,
        config.search.population_size,
        UNITS[config.task.metric],
    )


def _check_curves(folder: RunFolder, trace: Trace, space: CurveSpace) -> None:
    """Refuse a journal whose control points draw no curves over the layers of the model of the run.

    Raises:
        JournalError: The control points, or the number of layers in the configuration, do not fit.
    """
    n_layers = folder.load_record().get("n_layers", space.n_layers)
    if n_layers != space.n_layers:
        raise JournalError(
            f"Expected the curves in {folder.journal} to be over {n_layers} layers, as {folder.config} says of the "
            f"model, but they are over {space.n_layers}. One of the files was edited; restore it."
        )

    try:
        space.decode(trace.points)
    except CurveError as error:
        raise JournalError(
            f"Expected the control points in {folder.journal} to draw curves over {n_layers} layers: {error}"
        ) from error


def draw_runs(runs: Runs, output: Path) -> list[Path]:
    """Draw convergence against evaluations, tokens and seconds, diversity, and the control points that were tried.

    Args:
        runs: The runs.
        output: The folder of the pictures; it must exist.

    Returns:
        The files; each picture is there as PNG and as SVG.

    Raises:
        StorageError: A file cannot be written.
    """
    traces = {"search": runs.traces}
    files = []
    costs: tuple[Axis, ...] = ("evaluations", "tokens", "seconds")
    for against in costs:
        figure = plot_searches(
            traces,
            runs.unit,
            against=against,
            population_size=runs.population_size,
        )
        files += save_pictures(figure, output / f"convergence-{against}")

    figure = plot_diversity(traces, {"search": runs.space}, runs.population_size)
    files += save_pictures(figure, output / "diversity")
    return files + save_pictures(plot_tried_points(runs.traces), output / "control-points")
