"""Scales: the result of a search, one scale for each layer, and the ``scales.json`` file that holds it."""

import dataclasses
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from lpes_evo.errors import LpesError, ScalesError
from lpes_evo.hub import fetch_file, is_repository_name
from lpes_evo.operators import CurveKind, CurveSpace
from lpes_evo.storage import Record

_FILE = "scales.json"

SMALLEST_SCALE, LARGEST_SCALE = 1e-6, 1e6
"""The bounds of a scale. Beyond these bounds positions lose their meaning in float32, in which models compute angles:
neighbouring positions become equal far above 2**24, or the angles of a whole window vanish."""


def check_scales(scales: npt.ArrayLike, n_layers: int) -> npt.NDArray[np.float64]:
    """Return the scales as float64, after a check of shape and values.

    Args:
        scales: Position divisors, ``(n_layers,)`` or ``(batch, n_layers)``.
        n_layers: Number of layers of the model.

    Returns:
        The scales as a float64 array of the same shape.

    Raises:
        ScalesError: The values are not real numbers, the last axis is not ``n_layers`` long, there are more than two
            axes, or a value is not finite and positive, or lies outside `SMALLEST_SCALE` to `LARGEST_SCALE`.
    """
    try:
        given = np.asarray(scales)
        # numpy would read "1.5" and True as numbers, and drop imaginary parts.
        if given.dtype.kind in "bcSU":
            raise TypeError(f"got values of the type {given.dtype}")
        array = given.astype(np.float64)
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

    wrong = (array < SMALLEST_SCALE) | (array > LARGEST_SCALE)
    if wrong.any():
        where = tuple(int(index) for index in np.argwhere(wrong)[0])
        raise ScalesError(
            f"Expected every scale to lie between {SMALLEST_SCALE:g} and {LARGEST_SCALE:g}, but got {array[where]:g} "
            f"at layer {where[-1]}. Beyond these bounds rotated positions overflow or vanish in float32."
        )

    return array


class Guard(Record):
    """A task that a search was not to make worse.

    Attributes:
        name: Name of the task.
        tolerance: Nats per token that it may lose against the untouched model.
        change: Nats per token by which the found scales changed it on the search data, more is better.
    """

    name: str
    tolerance: float
    change: float


@dataclass(frozen=True)
class Scales:
    """The result of a search: one scale for each layer of a model.

    Attributes:
        model: Name of the model that the scales were found on.
        scales: Position divisor of each layer, ``(n_layers,)``.
        control_points: Control points of the curve of the scales, ``(n_points, 2)`` as (layer, scale).
        task: Name of the task that the scales were found on.
        fitness: Fitness values on the search data.
        curve: Kind of the curve: ``bezier``, ``linear`` or ``spline``, see `lpes_evo.operators.CurveSpace`.
        seen: Hashes (`lpes_evo.problems.source_hash`) of the sources of a file that the search saw, so that an
            evaluation can leave them out; none of a task that draws its data.
        guards: The guards of the search, and how much the scales changed them.
    """

    model: str
    scales: tuple[float, ...]
    control_points: tuple[tuple[float, float], ...]
    task: str
    fitness: tuple[float, ...]
    curve: CurveKind = "bezier"
    seen: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = ()

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.scales)

    def at_depth(self, n_layers: int) -> "Scales":
        """Return the scales of the same curve for another number of layers.

        The x of the control points are stretched from ``self.n_layers - 1`` to ``n_layers - 1``, so the scales at equal
        relative depth are unchanged.

        Args:
            n_layers: Number of layers of the other model.

        Returns:
            The scales, ``(n_layers,)``; this object if the depth is the same.

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

        # The last point is set exactly, without the rounding of a multiplication.
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
            ScalesError: The scales do not lie on the curve of the control points, or a value is of a wrong type.
        """
        values = {"format": "lpes-evo/scales", "version": 1, "n_layers": self.n_layers, **vars(self)}
        # Files without a choice of the user are the same as before there was one.
        if self.curve == "bezier":
            del values["curve"]
        if not self.seen:
            del values["seen"]
        values["guards"] = [guard.to_json() for guard in self.guards]
        if not self.guards:
            del values["guards"]
        ScalesFile.of(values, str(path)).save(path)


class ScalesFile(Record):
    """The file ``scales.json``, which holds the fields of `Scales` and the number of layers.

    Attributes:
        format: Name of the format.
        version: Version of the format.
        model: Name of the model that the scales were found on.
        n_layers: Number of layers of the model.
        scales: Position divisor of each layer, ``(n_layers,)``.
        control_points: Control points of the curve, as (layer, scale).
        task: Name of the task.
        fitness: Fitness values on the search data.
        curve: Kind of the curve.
        seen: Hashes of the sources that the search saw.
        guards: The guards of the search.
    """

    WHAT: ClassVar[str] = "a scales file"
    SOUGHT: ClassVar[str] = "a scales file at"
    ERROR: ClassVar[type[LpesError]] = ScalesError
    MISSING: ClassVar[str] = "Name a scales.json or the folder of a finished run."
    REMEDY: ClassVar[str] = "Write it again with 'lpes-evo search --resume'."

    format: Literal["lpes-evo/scales"] = "lpes-evo/scales"
    version: Literal[1] = 1
    model: str
    n_layers: int
    scales: tuple[float, ...]
    control_points: tuple[tuple[float, float], ...]
    task: str
    fitness: tuple[float, ...]
    curve: CurveKind = "bezier"
    seen: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = ()

    @model_validator(mode="after")
    def _scales_are_those_of_the_curve(self) -> "ScalesFile":
        check_scales(self.scales, self.n_layers)
        space = CurveSpace(self.n_layers, len(self.control_points), curve=self.curve)
        curve = space.draw([self.control_points])[0]
        wrong = np.flatnonzero(np.abs(curve - self.scales) > 1e-6)
        if wrong.size:
            layer = int(wrong[0])
            raise ValueError(
                f"its scales do not lie on the curve of its control points: layer {layer} has {self.scales[layer]} "
                f"instead of {curve[layer]:.6f}; scales of your own go to patch_rope as a list"
            )
        return self


def load_scales(
    path: str | Path, *, model: str | None = None, n_layers: int | None = None, revision: str | None = None
) -> Scales:
    """Read and check a ``scales.json`` file, the one of a run folder, or the one of a repository on the hub.

    Args:
        path: The file, a folder that holds it, or ``user/repository`` where there is no file or folder of this name.
        model: Name of the model that the scales will be used on; ``None`` to skip the comparison.
        n_layers: Number of layers of that model; ``None`` to skip the comparison.
        revision: Revision of the repository on the hub; the newest when ``None``.

    Returns:
        The scales.

    Raises:
        ScalesError: The file is missing, truncated or edited, or belongs to another model; the repository or its file
            is missing, or the hub cannot be reached and the file is not in the cache.
    """
    file = Path(path)

    # is_dir raises an OSError for a name that is too long. Reading the file then reports it.
    with suppress(OSError):
        file = file / _FILE if file.is_dir() else file
        if not file.exists() and is_repository_name(str(path)):
            file = fetch_file(str(path), _FILE, revision=revision, error=ScalesError)

    found = ScalesFile.load(file)
    scales = Scales(**{field.name: getattr(found, field.name) for field in dataclasses.fields(Scales)})
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
