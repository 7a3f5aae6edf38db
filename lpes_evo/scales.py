"""Per-layer scales: how a vector is checked, and the ``scales.json`` file."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo._files import to_json, write_atomic
from lpes_evo.errors import CurveError, ScalesError
from lpes_evo.operators import CurveKind, CurveSpace

_FORMAT = "lpes-evo/scales"
_VERSION = 1


def check_scales(scales: npt.ArrayLike, n_layers: int) -> npt.NDArray[np.float64]:
    """Return the scales as float64 after checking shape and values.

    Args:
        scales: Position divisors, ``(n_layers,)`` or ``(batch, n_layers)``.
        n_layers: Number of layers of the model.

    Returns:
        The scales as a float64 array of the same shape.

    Raises:
        ScalesError: The values are not numbers, the last axis is not ``n_layers`` long, there are more than two
            axes, or a value is not finite and positive.
    """
    try:
        array = np.asarray(scales, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ScalesError(
            f"Expected scales to be numbers, but got {scales!r:.80}. Pass one number per layer."
        ) from error
    if array.ndim not in (1, 2) or array.shape[-1] != n_layers or array.size == 0:
        raise ScalesError(
            f"Expected scales of shape (n_layers,) = ({n_layers},) or (batch, n_layers), but got {array.shape}. "
            "Pass one scale for each layer of the model."
        )
    wrong = ~(np.isfinite(array) & (array > 0))
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ScalesError(
            f"Expected every scale to be finite and positive, but got {array[where]} at layer {where[-1]}. "
            "A scale divides positions; 1.0 leaves a layer untouched."
        )
    return array


@dataclass(frozen=True)
class Scales:
    """The result of a search: one scale for each layer of a model.

    Attributes:
        model: Name of the model the scales were found on.
        scales: Position divisor of each layer, ``(n_layers,)``.
        control_points: The curve the scales are read off, ``(n_points, 2)`` as (layer, scale).
        task: Name of the task they were found on.
        fitness: Fitness values on the search data.
        curve: What the control points draw: ``bezier``, ``linear`` or ``spline``, see `lpes_evo.operators.CurveSpace`.
    """

    model: str
    scales: tuple[float, ...]
    control_points: tuple[tuple[float, float], ...]
    task: str
    fitness: tuple[float, ...]
    curve: CurveKind = "bezier"

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.scales)

    def at_depth(self, n_layers: int) -> "Scales":
        """Return the same curve read off at another number of layers.

        The x of the control points are stretched from ``self.n_layers - 1`` to ``n_layers - 1``; the scales at equal
        relative depth stay what they are.

        Args:
            n_layers: Number of layers of the other model.

        Returns:
            The scales, ``(n_layers,)``; these very scales where the depth is the same.

        Raises:
            ScalesError: One of the depths is 1, so that there is no curve to stretch.
        """
        if n_layers == self.n_layers:
            return self
        if min(n_layers, self.n_layers) < 2:
            raise ScalesError(
                f"Expected models of at least 2 layers to carry a curve from one to the other, but got {self.n_layers} "
                f"and {n_layers}. Search scales for this model."
            )
        last, new_last = self.n_layers - 1, n_layers - 1
        points = tuple((new_last if x == last else x * new_last / last, y) for x, y in self.control_points)
        scales = CurveSpace(n_layers, len(points), curve=self.curve).draw([points])[0]
        return dataclasses.replace(self, scales=tuple(scales.tolist()), control_points=points)

    def save(self, path: Path) -> None:
        """Write ``scales.json``.

        Args:
            path: The file.

        Raises:
            StorageError: The file cannot be written.
        """
        values = {
            "format": _FORMAT,
            "version": _VERSION,
            "model": self.model,
            "n_layers": self.n_layers,
            "scales": list(self.scales),
            "control_points": [list(point) for point in self.control_points],
            "task": self.task,
            "fitness": list(self.fitness),
        } | ({} if self.curve == "bezier" else {"curve": self.curve})
        write_atomic(path, to_json(values, indent=1) + "\n")


def load_scales(path: str | Path, *, model: str | None = None, n_layers: int | None = None) -> Scales:
    """Read and check a ``scales.json`` file, or the one of a run folder.

    Args:
        path: The file, or a run folder that holds it.
        model: Name of the model the scales will be used on; not compared when ``None``.
        n_layers: Number of layers of that model; not compared when ``None``.

    Returns:
        The scales.

    Raises:
        ScalesError: The file is missing, truncated or edited, or belongs to another model.
    """
    file = Path(path)
    try:
        file = file / "scales.json" if file.is_dir() else file
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScalesError(
            f"Expected a scales file at {file}, but it cannot be read: {error.strerror}. "
            "Name a scales.json or the folder of a finished run."
        ) from error
    except (ValueError, RecursionError) as error:
        raise ScalesError(
            f"Expected {file} to be JSON, but it is not: {error}. The file is truncated or edited; "
            "write it again with 'lpes-evo search --resume'."
        ) from error
    scales = _parse(values, file)
    if n_layers is not None and scales.n_layers != n_layers:
        raise ScalesError(
            f"Expected scales for a model of n_layers = {n_layers}, but {file} has {scales.n_layers} "
            f"(found on {scales.model}). Search scales for this model."
        )
    if model is not None and scales.model != model:
        raise ScalesError(
            f"Expected scales found on {model}, but those of {file} were found on {scales.model}. "
            "Search scales for this model, or leave out the model name to use them all the same."
        )
    return scales


def _parse(values: Any, file: Path) -> Scales:
    """Check every field of a parsed ``scales.json``."""
    if (
        not isinstance(values, dict)
        or values.get("format") != _FORMAT
        or values.get("version") is not _VERSION
    ):
        found = (
            (values.get("format"), values.get("version"))
            if isinstance(values, dict)
            else type(values).__name__
        )
        raise ScalesError(f"Expected {file} to have format {_FORMAT!r}, version {_VERSION}, but got {found}.")
    try:
        scales = Scales(
            model=values["model"],
            scales=tuple(_numbers(values["scales"])),
            control_points=tuple((x, y) for x, y in map(_numbers, values["control_points"])),
            task=values["task"],
            fitness=tuple(_numbers(values["fitness"])),
            curve=values.get("curve", "bezier"),
        )
        if type(values["n_layers"]) is not int:
            raise ScalesError(
                f"Expected n_layers to be {scales.n_layers}, the number of its scales, but got "
                f"{values['n_layers']!r:.40}. The file was edited; write it again with 'lpes-evo search --resume'."
            )
        check_scales(scales.scales, values["n_layers"])
    except ScalesError as error:
        raise ScalesError(f"{file}: {error}") from error
    except KeyError as error:
        raise ScalesError(f"Expected {file} to have the field {error}, but it is missing.") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise ScalesError(
            f"Expected the fields of {file} to be numbers and names, but got: {error}."
        ) from error
    if not isinstance(scales.model, str) or not isinstance(scales.task, str):
        raise ScalesError(
            f"Expected model and task of {file} to be names, but got {scales.model!r}, {scales.task!r}."
        )
    if not np.isfinite(
        [*scales.fitness, *(value for point in scales.control_points for value in point)]
    ).all():
        raise ScalesError(f"Expected finite control points and fitness in {file}, but one is not.")
    try:
        space = CurveSpace(scales.n_layers, len(scales.control_points), curve=scales.curve)
        curve = space.draw([scales.control_points])[0]
    except CurveError as error:
        raise ScalesError(
            f"Expected the control points of {file} to draw a curve over its layers: {error}"
        ) from error
    wrong = np.flatnonzero(np.abs(curve - scales.scales) > 1e-6)
    if wrong.size:
        raise ScalesError(
            f"Expected the scales of {file} to lie on the curve of its control points, but layer {wrong[0]} has "
            f"{scales.scales[wrong[0]]} instead of {curve[wrong[0]]:.6f}. The file was edited; write it again with "
            "'lpes-evo search --resume', or pass scales of your own to patch_rope as a list."
        )
    return scales


def _numbers(values: Any) -> list[float]:
    """Return the numbers of a JSON array as floats."""
    if not isinstance(values, list):
        raise TypeError(f"{values!r:.40} is not an array")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{value!r:.40} is not a number")
    return [float(value) for value in values]
