"""RunConfig: every value that shapes the result of a run, checked, with its default and its description.

The paper does not publish its population, generations, probabilities or scale range. The authors of this package chose
the defaults below. The preset ``paper`` keeps what is published: a cubic curve and 200 search examples.
"""

import copy
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from lpes_evo.config._search_settings import SearchSettings
from lpes_evo.config._settings import Settings, hash_values, settings_from, settings_hash
from lpes_evo.errors import ConfigError, CurveError, JournalError
from lpes_evo.operators import CurveSpace
from lpes_evo.scales import Scales, load_scales
from lpes_evo.storage import parse_yaml, read_header, read_text

if TYPE_CHECKING:
    from lpes_evo.operators import BezierGenome

__all__ = [
    "NINE_POSITIONS",
    "CurveSettings",
    "ExampleSettings",
    "ModelSettings",
    "ReportSettings",
    "RunConfig",
    "SearchSettings",
    "StartCurve",
    "TaskSettings",
    "load_config",
    "nested",
    "preset_names",
]

NINE_POSITIONS = tuple(index / 8 for index in range(9))
"""Gold positions of the measurement on held-out examples."""


class ModelSettings(Settings):
    """The model, and how it is loaded.

    Attributes:
        name: Hub id or local folder, also of a LoRA adapter; ``.gguf`` file; or ``tiny`` for the embedded model.
        revision: Revision of the model on the hub.
        dtype: Number format of the weights; ``auto`` for what the device computes fast.
        attention: Attention backend of transformers, such as ``sdpa`` or ``eager``; ``None`` for its own choice.
        trust_remote_code: Whether code that comes with the model may run.
    """

    name: str = "tiny"
    revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    attention: str | None = None
    trust_remote_code: bool = False


class TaskSettings(Settings):
    """The task, and how its examples are scored.

    Attributes:
        name: Name of the task, such as ``needle``, ``kv`` or ``recall``, see `lpes_evo.problems.make_task`; or several
            with commas between, such as ``needle:8,kv:8*2``, where ``*2`` is a weight.
        options: Options of the task, such as ``n_keys``.
        data: Folder with the data files of the task; ``None`` for a task that draws its examples.
        metric: The score that the search maximises: ``log_probability`` of the answer in nats per token; ``accuracy``
            of greedy decoding; or ``score``, the metric of the task itself on what the model generates.
        chat_template: Whether the tokenizer's chat template is used where it has one.
        over_length: ``error`` refuses an example that is longer than the window of the model, ``skip`` leaves the
            example out and counts it, ``cut`` takes the middle out of its document, and leaves the example out where
            that is not enough.
        batch_tokens: Tokens of one forward pass, padding included; ``None`` for a number that suits the device.
        candidates_per_pass: Candidates of a generation that share a forward pass, each under its own curve; ``None``
            for as many as fit into ``batch_tokens``.
        share_prefixes: Whether examples about one text share the run over it where the model allows it.
        checkpointing: Whether gradients compute the activations of a layer twice instead of storing them.
    """

    PLACES: ClassVar[frozenset[str]] = frozenset({"data"})

    name: str = "recall"
    options: dict[str, Any] = Field(default_factory=dict)
    data: str | None = None
    metric: Literal["log_probability", "accuracy", "score"] = "log_probability"
    chat_template: bool = True
    over_length: Literal["error", "skip", "cut"] = "error"
    batch_tokens: int | None = Field(default=None, ge=1, strict=True)
    candidates_per_pass: int | None = Field(default=None, ge=1, strict=True)
    share_prefixes: bool = True
    checkpointing: bool = False


class ExampleSettings(Settings):
    """The examples that are drawn from the task.

    Attributes:
        positions: Gold positions from 0 (beginning) to 1 (end).
        n_per_position: Examples at each position; all examples of a task that places no fact.
    """

    positions: tuple[float, ...] = Field(default=(0.0, 0.5, 1.0), min_length=1)
    n_per_position: int = Field(default=32, ge=1, strict=True)

    @model_validator(mode="after")
    def _positions_are_fractions(self) -> "ExampleSettings":
        for position in self.positions:
            if not 0 <= position <= 1:
                raise ValueError(f"expected every position to lie between 0 and 1, but got {position}")
        return self


class CurveSettings(Settings):
    """The curves that are searched, see `lpes_evo.operators.CurveSpace`.

    Attributes:
        curve: Kind of curve that the control points draw: a ``bezier`` curve, ``linear`` pieces, a cubic ``spline``, or
            ``free`` scales. Free scales have a point for every layer and keep to the bounds and the grid alone.
        n_points: Number of control points; 4 points make a cubic Bezier curve. Free scales have as many as layers.
        y_min: Smallest scale.
        y_max: Largest scale.
        y_step: Grid step of the scales; ``None`` for no grid.
        max_delta: Largest difference of the scales of neighbouring control points; free scales have no such bound.
    """

    curve: Literal["bezier", "linear", "spline", "free"] = "bezier"
    n_points: int = Field(default=4, ge=2, le=32, strict=True)
    y_min: float = Field(default=0.5, gt=0)
    y_max: float = Field(default=2.0, gt=0)
    y_step: float | None = Field(default=0.02, gt=0)
    max_delta: float = Field(default=0.5, gt=0)

    def space(self, n_layers: int) -> CurveSpace:
        """Return the space of these curves over ``n_layers`` layers.

        Raises:
            CurveError: The values do not fit each other.
        """
        space = CurveSpace(
            n_layers,
            self.n_points,
            y_min=self.y_min,
            y_max=self.y_max,
            y_step=self.y_step,
            max_delta=self.max_delta,
            curve="linear" if self.curve == "free" else self.curve,
        )
        return space.free() if self.curve == "free" else space


class StartCurve(Settings):
    """A curve that a search starts from, as it was found on a model of any depth.

    Attributes:
        source: The file that holds the curve, for messages.
        n_layers: Number of layers of the model that the curve was found on.
        control_points: The control points of the curve, ``(n_points, 2)`` as (layer, scale).
        curve: Kind of curve that the control points draw.
    """

    source: str
    n_layers: int = Field(ge=1, strict=True)
    control_points: tuple[tuple[float, float], ...] = Field(min_length=2)
    curve: Literal["bezier", "linear", "spline"] = "bezier"

    @classmethod
    def from_scales(cls, source: Path) -> "StartCurve":
        """Return the curve of a ``scales.json`` or of a run folder.

        Raises:
            ScalesError: The file is missing, truncated or edited.
        """
        found = load_scales(source)
        return cls(
            source=str(source),
            n_layers=found.n_layers,
            control_points=found.control_points,
            curve=found.curve,
        )

    def values(self) -> npt.NDArray[np.float64]:
        """Return the scales on the model that the curve was found on, ``(n_layers,)``.

        Raises:
            CurveError: The control points draw no curve.
        """
        points = self.control_points
        values: npt.NDArray[np.float64] = CurveSpace(self.n_layers, len(points), curve=self.curve).draw(
            [points]
        )[0]
        return values

    def refuse_beyond(self, y_min: float, y_max: float, y_step: float | None) -> None:
        """Refuse a curve that leaves the scales of a search by more than half a step of their grid.

        Raises:
            ValueError: The curve leaves them; the message names the layer and the setting.
        """
        values, slack = self.values(), (y_step or 0.0) / 2 + 1e-9
        outside = np.flatnonzero((values < y_min - slack) | (values > y_max + slack))

        if outside.size:
            raise ValueError(
                f"expected start curves within the scales of the search, from {y_min:g} to {y_max:g}, but that of "
                f"{self.source} has {values[outside[0]]:.4g} at layer {outside[0]}. Widen curve.y_min or curve.y_max"
            )

    def genome(self, space: CurveSpace) -> "tuple[BezierGenome, float]":
        """Return the feasible genome that is nearest to this curve, stretched to the depth of a space.

        Args:
            space: The curves that are searched.

        Returns:
            The genome, and the largest difference between one of its scales and that of this curve.

        Raises:
            CurveError: The control points draw no curve.
            ScalesError: One of the depths is 1 and the other is not.
        """
        given = Scales(
            model="",
            scales=tuple(self.values().tolist()),
            control_points=self.control_points,
            task="",
            fitness=(),
            curve=self.curve,
        )
        wanted = np.array(given.at_depth(space.n_layers).scales)

        genome = space.fit(wanted)
        return genome, float(np.abs(space.decode([genome])[0] - wanted).max())


class ReportSettings(ExampleSettings):
    """The measurement on held-out examples after the search.

    Attributes:
        n_shuffles: Number of random shuffles of the found scales that are measured too. A shuffle has the same values
            in another order over the layers.
    """

    positions: tuple[float, ...] = Field(default=NINE_POSITIONS, min_length=1)
    n_per_position: int = Field(default=50, ge=1, strict=True)
    n_shuffles: int = Field(default=0, ge=0, strict=True)


class RunConfig(Settings):
    """Everything that shapes the result of a run.

    Attributes:
        model: The model.
        task: The task.
        examples: The examples that the search sees.
        curve: The curves that are searched.
        search: The search.
        report: The measurement on held-out examples.
        seed: Seed of the examples, the search and the shuffles.
        initial: Curves that the search starts from, beside the identity and the constant curves.
        guards: Tasks that must not become worse than on the untouched model, each as ``NAME`` or ``NAME:TOLERANCE`` in
            nats per token, see `lpes_evo.problems.TaskMix`.
    """

    ADDED: ClassVar[frozenset[str]] = frozenset({"initial", "guards"})

    model: ModelSettings = ModelSettings()
    task: TaskSettings = TaskSettings()
    examples: ExampleSettings = ExampleSettings()
    curve: CurveSettings = CurveSettings()
    search: SearchSettings = SearchSettings()
    report: ReportSettings = ReportSettings()
    seed: int = Field(default=0, strict=True)
    initial: tuple[StartCurve, ...] = ()
    guards: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _start_curves_are_in_range(self) -> "RunConfig":
        for start in self.initial:
            try:
                start.refuse_beyond(self.curve.y_min, self.curve.y_max, self.curve.y_step)
            except CurveError as error:
                raise ValueError(
                    f"expected start curves that can be drawn, but of {start.source}: {error}"
                ) from error
        return self

    @model_validator(mode="after")
    def _metric_has_gradients(self) -> "RunConfig":
        if self.search.takes_gradients and self.task.metric != "log_probability":
            raise ValueError(
                f"expected task.metric to be log_probability where the search takes gradients, but got "
                f"{self.task.metric!r}, which has none"
            )
        return self


def preset_names() -> list[str]:
    """Return the names of the presets that come with the package, sorted."""
    folder = resources.files("lpes_evo.config") / "presets"
    return sorted(
        entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")
    )


def load_config(
    *, preset: str | None = None, file: Path | None = None, overrides: dict[str, Any] | None = None
) -> RunConfig:
    """Build a configuration from the defaults, a preset, a file and overrides; later ones win.

    Args:
        preset: Name of a preset.
        file: A YAML file with any part of `RunConfig`, such as the ``config.yaml`` of a run.
        overrides: Values by dotted key, such as ``{"search.generations": 20}``.

    Returns:
        The configuration.

    Raises:
        ConfigError: The preset or file is unknown or malformed, a key is unknown, or a value is not valid.
        JournalError: The file is the ``config.yaml`` of a run, and the run was started with another one.
    """
    values: dict[str, Any] = {}

    if preset is not None:
        if preset not in preset_names():
            raise ConfigError(f"Expected a preset out of {', '.join(preset_names())}, but got {preset!r}.")
        text = (resources.files("lpes_evo.config") / "presets" / f"{preset}.yaml").read_text(encoding="utf-8")
        _merge(values, _parse_yaml(text, f"preset {preset}"))

    if file is not None:
        given = _parse_yaml(read_text(file, "a YAML file at", ConfigError, "Check the path."), str(file))
        _merge(values, _of_begun_run(file, given))

    # Overrides are applied one at a time: one that renames the task drops the options of the task before it.
    for key, value in (overrides or {}).items():
        _merge(values, nested({key: value}))
    return RunConfig(**values)


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by dotted key, such as ``{"search.generations": 20}``, as nested mappings; later ones win."""
    found: dict[str, Any] = {}
    for dotted, value in values.items():
        part: Any = value
        for key in reversed(dotted.split(".")):
            part = {key: part}
        _merge(found, part)
    return found


def _parse_yaml(text: str, source: str) -> dict[str, Any]:
    """Return the settings of a text in YAML, without the record of where a run was made."""
    values = parse_yaml(text, source, ConfigError, "Restore the file or mend the line.")
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(
            f"Expected {source} to be a mapping of keys to values, but got {type(values).__name__}."
        )
    _check_keys(values, source)

    # The config.yaml of a run also records where the run was made, which shapes no result.
    values.pop("provenance", None)
    return values


def _of_begun_run(file: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a file, and refuse those in a run folder that are not what its journal was begun with.

    A run that was begun before a field was added goes on with the field as the run knew it, whatever new runs take.

    Raises:
        JournalError: The file was edited or truncated, or the journal is damaged.
        ConfigError: A value is not valid.
    """
    if file.name != "config.yaml":
        return values

    recorded = read_header(file.with_name("journal.jsonl")).get("config")
    if recorded is None:
        return values

    # The values as they were written are compared too, since a later version may fill in other defaults.
    completed = _with_added(RunConfig, values)
    if recorded in (settings_hash(settings_from(file, RunConfig, completed)), hash_values(values)):
        return completed

    raise JournalError(
        f"Expected {file} to belong to this run, but its config is not the one that journal.jsonl beside it was begun "
        "with. The file was edited or truncated; restore it. For a run with other settings, change a copy elsewhere."
    )


def _with_added(kind: type[Settings], values: dict[str, Any]) -> dict[str, Any]:
    """Return values in which fields that a later version added stand at their default, at any depth."""
    added = {
        name: kind.model_fields[name].get_default(call_default_factory=True)
        for name in kind.ADDED - values.keys()
    }

    inner = {}
    for name, value in values.items():
        field = kind.model_fields.get(name)
        part = None if field is None else field.annotation
        if isinstance(value, dict) and isinstance(part, type) and issubclass(part, Settings):
            inner[name] = _with_added(part, value)
    return values | inner | added


def _check_keys(values: Any, source: str) -> None:
    """Refuse keys that are no text, at any depth."""
    if isinstance(values, dict):
        for key, value in values.items():
            if not isinstance(key, str):
                raise ConfigError(
                    f"Expected every key of {source} to be text, but got {key!r:.40}. Write it in quotes."
                )
            _check_keys(value, source)


def _merge(into: dict[str, Any], values: dict[str, Any]) -> None:
    """Put ``values`` over ``into``, mapping by mapping; the options of one task do not reach another."""
    for key, value in values.items():
        present = into.get(key)
        if not (isinstance(value, dict) and isinstance(present, dict)):
            into[key] = copy.deepcopy(value)
            continue

        if key == "task" and value.get("name") not in (None, present.get("name")):
            present.pop("options", None)
        _merge(present, value)
