"""What a run is made of: every value that shapes its result, checked, with defaults that are ours.

The paper does not publish its population, generations, probabilities or scale range; the defaults below were chosen
by the authors of this package. The preset ``paper`` keeps what is published: a cubic curve and 200 search examples.
"""

import copy
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from lpes_evo._search_settings import SearchSettings
from lpes_evo._settings import Settings
from lpes_evo.errors import ConfigError
from lpes_evo.operators import CurveSpace

__all__ = [
    "NINE_POSITIONS",
    "CurveSettings",
    "ExampleSettings",
    "ModelSettings",
    "ReportSettings",
    "RunConfig",
    "SearchSettings",
    "TaskSettings",
    "load_config",
    "preset_names",
]

NINE_POSITIONS = tuple(index / 8 for index in range(9))


class ModelSettings(Settings):
    """Which model, and how it is loaded.

    Attributes:
        name: Hub id or local folder, also of a LoRA adapter; ``.gguf`` file; or ``tiny`` for the embedded model.
        revision: Revision on the hub.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
        attention: Attention backend of transformers, such as ``sdpa`` or ``eager``; its own choice when ``None``.
        trust_remote_code: Whether code that comes with the model may run.
    """

    name: str = "tiny"
    revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    attention: str | None = None
    trust_remote_code: bool = False


class TaskSettings(Settings):
    """Which task, and how its examples are scored.

    Attributes:
        name: Name of the task, see `lpes_evo.problems.make_task`.
        options: Options of the task, such as ``n_keys`` or ``data``.
        metric: What the search maximises: ``log_probability`` of the answer in nats per token, or ``accuracy``.
        chat_template: Whether the tokenizer's chat template is used where it has one.
        over_length: ``error`` refuses an example longer than the model's window, ``skip`` leaves it out and counts it.
        batch_tokens: Tokens of one forward pass, padding included; ``None`` for what suits the kind of device.
        candidates_per_pass: Candidates of a generation that share a forward pass, each under its own curve; ``None``
            for as many as fit into ``batch_tokens``.
        share_prefixes: Whether examples about one text share the run over it where the model allows it.
        checkpointing: Whether gradients compute the activations of a layer twice instead of keeping them.
    """

    name: str = "recall"
    options: dict[str, Any] = Field(default_factory=dict)
    metric: Literal["log_probability", "accuracy"] = "log_probability"
    chat_template: bool = True
    over_length: Literal["error", "skip"] = "error"
    batch_tokens: int | None = Field(default=None, ge=1, strict=True)
    candidates_per_pass: int | None = Field(default=None, ge=1, strict=True)
    share_prefixes: bool = True
    checkpointing: bool = False


class ExampleSettings(Settings):
    """Which examples are drawn from the task.

    Attributes:
        positions: Gold positions from 0 (beginning) to 1 (end).
        n_per_position: Examples at each position.
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
        curve: What the points draw: a ``bezier`` curve, ``linear`` pieces, a cubic ``spline``, or ``free`` scales,
            which have a point for every layer and only the bounds and the grid to keep.
        n_points: Control points; 4 make a cubic Bezier curve. Free scales have their own.
        y_min: Smallest scale.
        y_max: Largest scale.
        y_step: Grid step of the scales; ``None`` for no grid.
        max_delta: Largest difference of the scales of neighbouring control points; free scales have none.
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


class ReportSettings(ExampleSettings):
    """What is measured on held-out examples once the search has ended.

    Attributes:
        n_shuffles: Random shuffles of the found scales that are measured beside them: the same values in another
            order over the layers.
    """

    positions: tuple[float, ...] = Field(default=NINE_POSITIONS, min_length=1)
    n_per_position: int = Field(default=50, ge=1, strict=True)
    n_shuffles: int = Field(default=0, ge=0, strict=True)


class RunConfig(Settings):
    """Everything that shapes the result of a run.

    Attributes:
        model: The model.
        task: The task.
        examples: The examples the search sees.
        curve: The curves that are searched.
        search: The search.
        report: The measurement on held-out examples.
        seed: Seed of the examples, the search and the shuffles.
    """

    model: ModelSettings = ModelSettings()
    task: TaskSettings = TaskSettings()
    examples: ExampleSettings = ExampleSettings()
    curve: CurveSettings = CurveSettings()
    search: SearchSettings = SearchSettings()
    report: ReportSettings = ReportSettings()
    seed: int = Field(default=0, strict=True)

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
    folder = resources.files("lpes_evo") / "presets"
    return sorted(
        entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")
    )


def load_config(
    *, preset: str | None = None, file: Path | None = None, overrides: dict[str, Any] | None = None
) -> RunConfig:
    """Build a configuration: defaults, then preset, then file, then overrides.

    Args:
        preset: Name of a preset.
        file: A YAML file with any part of `RunConfig`; the ``config.yaml`` of a run is one.
        overrides: Values by dotted key, such as ``{"search.generations": 20}``.

    Returns:
        The configuration.

    Raises:
        ConfigError: The preset or file is unknown or malformed, a key is unknown, or a value is not valid.
    """
    values: dict[str, Any] = {}
    if preset is not None:
        if preset not in preset_names():
            raise ConfigError(f"Expected a preset out of {', '.join(preset_names())}, but got {preset!r}.")
        text = (resources.files("lpes_evo") / "presets" / f"{preset}.yaml").read_text(encoding="utf-8")
        _merge(values, _parse_yaml(text, f"preset {preset}"))
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise ConfigError(f"Expected a YAML file at {file}, but it cannot be read: {reason}.") from error
        _merge(values, _parse_yaml(text, str(file)))
    for dotted, value in (overrides or {}).items():
        nested: Any = value
        for key in reversed(dotted.split(".")):
            nested = {key: nested}
        _merge(values, nested)
    return RunConfig(**values)


def _parse_yaml(text: str, source: str) -> dict[str, Any]:
    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        # Impossible dates and endless nesting end in errors that are not YAML's own.
        reason = " ".join(str(error).split())
        raise ConfigError(f"Expected {source} to be YAML, but it is not: {reason}.") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(
            f"Expected {source} to be a mapping of keys to values, but got {type(values).__name__}."
        )
    _check_keys(values, source)
    # A run's own config.yaml also records where it ran, which shapes nothing.
    values.pop("provenance", None)
    return values


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
    """Put ``values`` over ``into``, mapping by mapping; another task brings its own options."""
    for key, value in values.items():
        present = into.get(key)
        if not (isinstance(value, dict) and isinstance(present, dict)):
            into[key] = copy.deepcopy(value)
            continue
        if key == "task" and value.get("name") not in (None, present.get("name")):
            present.pop("options", None)
        _merge(present, value)
