"""DriftReport: the record of the file ``drift.json``."""

from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from lpes_evo.analysis._arms import CONSTANT, CURVE, NOISE, RANDOM, RANDOM_CURVES, SHUFFLES
from lpes_evo.errors import ConfigError, LpesError
from lpes_evo.storage import Record

_ARMS = {CURVE, SHUFFLES, NOISE, CONSTANT, RANDOM, RANDOM_CURVES}
_Entry = TypeVar("_Entry")


class _Interval(Record):
    """A value with the limits of its 95 % interval."""

    value: float
    low: float
    high: float


class _ByMeasure(Record, Generic[_Entry]):
    """An entry for each measure of drift."""

    relative_l2: _Entry
    cosine: _Entry
    cka: _Entry


class _Accumulation(Record):
    """Drift that each layer adds, and the first layer with half of the largest drift."""

    added: tuple[float, ...]
    half_at_layer: NonNegativeInt


class _Retrieval(Record):
    """Scores of the answers to the inputs."""

    log_probability: _Interval
    accuracy: _Interval


class _Arm(Record):
    """Drift and retrieval of the vectors of an arm."""

    n_vectors: PositiveInt
    drift: _ByMeasure[_Interval]
    last_layer: _ByMeasure[_Interval]
    layers: _ByMeasure[tuple[_Interval, ...]]
    accumulation: _ByMeasure[_Accumulation]
    log_probability: _Interval | None = None
    accuracy: _Interval | None = None


class _Vector(Record):
    """Drift and retrieval of one vector of scales."""

    arm: str
    scales: tuple[float, ...]
    drift: _ByMeasure[float]
    log_probability: float | None = None
    accuracy: float | None = None


class _Comparison(_Interval):
    """An arm against the curve, see `lpes_evo.statistics.paired_comparison`."""

    n_more: NonNegativeInt
    n_less: NonNegativeInt
    n_vectors: PositiveInt
    p_sources: float
    p_vectors: float | None
    p_value: float
    p_corrected: float
    curve_drifts: Literal["less", "more", "not shown"]


class _Difference(_Interval):
    """A difference of two arms with its p-value."""

    p_value: float


class _Correlation(_Difference):
    """A rank correlation over vectors of scales."""

    n: PositiveInt


class _Correlations(Record):
    """Rank correlations of drift with each score."""

    log_probability: _Correlation | None
    accuracy: _Correlation | None


class DriftReport(Record):
    """The measurement of ``lpes-evo drift``.

    Attributes:
        format: Name of the format.
        version: Version of the format.
        model: Name of the model.
        dtype: Its number format.
        device: Device that held the model.
        attention: Attention backend.
        scales: The scales, ``(n_layers,)``.
        found_on: Name of the model the scales were found on.
        found_with_task: Name of the task they were found on.
        task: Settings of the task whose prompts are the inputs; ``None`` for a text.
        text: Name of the text file; ``None`` for a task.
        data: SHA-256 of the inputs, where they are examples of a task.
        seed: Seed of every draw.
        curves: Settings of the curves that random ones were drawn from.
        command: The command that made the file.
        versions: Versions of Python and of packages, by name.
        n_inputs: Number of inputs.
        n_sources: Number of independent sources that the inputs are made of.
        n_tokens: Number of tokens of all inputs.
        n_layers: Number of layers.
        arms: Drift and retrieval by name of the arm.
        untouched: Retrieval of the untouched model; ``None`` for inputs without answers.
        comparisons: Every arm against the curve.
        claim: Whether the curve drifts less than every rival.
        smoothness: Smooth random curves against random scales, by measure.
        retrieval: Correlation of drift and retrieval over vectors; ``None`` for inputs without answers.
        vectors: Drift and retrieval of every vector of scales.
    """

    WHAT: ClassVar[str] = "what 'lpes-evo drift' writes"
    SOUGHT: ClassVar[str] = "a folder of 'lpes-evo drift' with"
    ERROR: ClassVar[type[LpesError]] = ConfigError
    REMEDY: ClassVar[str] = "Measure the drift again."

    format: Literal["lpes-evo/drift"] = "lpes-evo/drift"
    version: Literal[1] = 1
    model: str
    dtype: str
    device: str
    attention: str
    scales: Annotated[tuple[float, ...], Field(min_length=1)]
    found_on: str
    found_with_task: str
    task: dict[str, Any] | None
    text: str | None
    data: str | None
    seed: int
    curves: dict[str, Any]
    command: str
    versions: dict[str, str]
    n_inputs: PositiveInt
    n_sources: PositiveInt
    n_tokens: PositiveInt
    n_layers: PositiveInt
    arms: dict[str, _Arm]
    untouched: _Retrieval | None
    comparisons: _ByMeasure[dict[str, _Comparison]]
    claim: _ByMeasure[Literal["holds", "fails", "not shown"]]
    smoothness: dict[str, _Difference]
    retrieval: _ByMeasure[dict[str, _Correlations]] | None
    vectors: tuple[_Vector, ...]

    @model_validator(mode="after")
    def _parts_belong_together(self) -> "DriftReport":
        """Refuse parts that are each valid and do not fit together."""
        measures = tuple(_ByMeasure.model_fields)
        n_layers, arms = len(self.scales), set(self.arms)

        fits = (
            {CURVE} < arms <= _ARMS
            and {entry.arm for entry in self.vectors} == arms
            and all(
                len(getattr(arm.layers, name)) == n_layers for arm in self.arms.values() for name in measures
            )
            and all(set(getattr(self.comparisons, name)) < arms for name in measures)
            and set(self.smoothness) <= set(measures)
            and self.n_layers == n_layers
        )

        if fits and self.retrieval is not None:
            scored: list[_Arm | _Vector] = [*self.arms.values(), *self.vectors]
            fits = self.untouched is not None and all(
                entry.log_probability is not None and entry.accuracy is not None for entry in scored
            )
            fits = fits and all("all" in getattr(self.retrieval, name) for name in measures)

        if not fits:
            raise ValueError("its parts do not belong to the same arms and layers")
        return self
