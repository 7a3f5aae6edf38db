"""The drift of a run's scales: measured on its model, or read from where it was kept."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lpes_evo._files import make_folder
from lpes_evo.analysis._arms import CONSTANT, CURVE, NOISE, RANDOM, RANDOM_CURVES, SHUFFLES
from lpes_evo.errors import ConfigError, ScalesError
from lpes_evo.page._run import RunContents

DRIFT_FOLDER = "drift"
"""Where the drift that a page measured is kept, within the folder of the run."""

_FILE = "drift.json"
_N_DRAWS = 20
_Entry = TypeVar("_Entry")
_Number = Annotated[float, Field(allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class _Interval(_Part):
    value: _Number
    low: _Number
    high: _Number


class _ByMeasure(_Part, Generic[_Entry]):
    relative_l2: _Entry
    cosine: _Entry
    cka: _Entry


class _Accumulation(_Part):
    half_at_layer: int


class _Retrieval(_Part):
    log_probability: _Interval
    accuracy: _Interval


class _Arm(_Part):
    n_vectors: Annotated[int, Field(ge=1)]
    drift: _ByMeasure[_Interval]
    last_layer: _ByMeasure[_Interval]
    layers: _ByMeasure[list[_Interval]]
    accumulation: _ByMeasure[_Accumulation]
    log_probability: _Interval | None = None
    accuracy: _Interval | None = None


class _Vector(_Part):
    arm: str
    drift: _ByMeasure[_Number]
    log_probability: _Number | None = None
    accuracy: _Number | None = None


class _Comparison(_Interval):
    n_more: int
    n_vectors: int
    p_sources: _Number
    p_corrected: _Number
    p_vectors: _Number | None
    curve_drifts: Literal["less", "more", "not shown"]


class _Difference(_Interval):
    p_value: _Number


class _Correlation(_Difference):
    n: int


class _Correlations(_Part):
    log_probability: _Correlation | None
    accuracy: _Correlation | None


class _Summary(_Part):
    """What is read of a ``drift.json``."""

    format: Literal["lpes-evo/drift"]
    version: Literal[1]
    model: str
    scales: list[_Number]
    command: str
    n_inputs: int
    n_sources: int
    n_tokens: int
    arms: dict[str, _Arm]
    vectors: list[_Vector]
    comparisons: _ByMeasure[dict[str, _Comparison]]
    claim: _ByMeasure[Literal["holds", "fails", "not shown"]]
    smoothness: dict[str, _Difference]
    untouched: _Retrieval | None
    retrieval: _ByMeasure[dict[str, _Correlations]] | None


def load_drift(path: Path, run: RunContents) -> dict[str, Any]:
    """Read what ``lpes-evo drift`` measured of the scales of a run.

    Args:
        path: A folder of ``lpes-evo drift``, or its ``drift.json``.
        run: The run.

    Returns:
        What `lpes_evo.analysis.summarise_drift` gave, with the facts of the analysis.

    Raises:
        ConfigError: The file is missing, damaged or edited.
        ScalesError: It is about other scales, or the run has none yet.
    """
    if run.scales is None:
        raise ScalesError(
            f"Expected a run with scales to show the drift of, but the search in {run.folder.path} has not ended. "
            f"Leave out --drift, or finish it with: lpes-evo search --resume {shlex.quote(str(run.folder.path))}"
        )
    file = path / _FILE if path.is_dir() else path
    try:
        summary = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"Expected a folder of 'lpes-evo drift' with {file}, but it cannot be read: {error.strerror}. "
            f"Make one with 'lpes-evo drift {run.config.model.name} --scales {run.folder.path} --output FOLDER'."
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"Expected {file} to be JSON, but it is not: {error}. Measure the drift again."
        ) from error
    try:
        _Summary.model_validate(summary)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f"Expected {file} to be what 'lpes-evo drift' writes, but at {place or 'its root'}: {first['msg']}. "
            "The file was edited; measure the drift again."
        ) from error
    _check_shapes(summary, file)
    if summary["scales"] != list(run.scales.scales):
        raise ScalesError(
            f"Expected the drift in {file} to be that of the scales of {run.folder.path}, but it is that of others. "
            "Move the file away, or name another --drift."
        )
    return summary  # type: ignore[no-any-return]


def kept_drift(run: RunContents) -> Path | None:
    """Return the folder with the drift that a page of this run measured before; ``None`` where there is none."""
    folder = run.folder.path / DRIFT_FOLDER
    return folder if (folder / _FILE).is_file() else None


def measure_drift_of(
    run: RunContents, *, device: str = "auto", on_input: Callable[[int, int], None] | None = None
) -> Path:
    """Measure the drift of a finished run's scales on its model, as ``lpes-evo drift`` does, and keep it in the run.

    Args:
        run: The run.
        device: Device of the model.
        on_input: Hears the number of inputs that are done, and of all.

    Returns:
        The folder that holds it.

    Raises:
        LpesError: The model cannot be loaded or is of another depth, another process works in the run folder, or a file
            cannot be written.
    """
    from lpes_evo.analysis._reports import report_drift
    from lpes_evo.analysis._request import AnalysisRequest, prepare

    folder = run.folder.path / DRIFT_FOLDER
    with run.folder.locked():
        # Another page may have measured it in the meantime.
        if kept_drift(run) is None:
            request = AnalysisRequest(model=run.config.model.name, scales=run.folder.path, device=device)
            subject = prepare(request)
            make_folder(folder)

            def hear(n_done: int) -> None:
                if on_input is not None:
                    on_input(n_done, len(subject.inputs))

            report_drift(subject, folder, n_draws=_N_DRAWS, on_input=hear)
    return folder


def _check_shapes(summary: dict[str, Any], file: Path) -> None:
    """Refuse parts that are sound one by one and do not fit together."""
    n_layers, arms = len(summary["scales"]), summary["arms"]
    named = {entry["arm"] for entry in summary["vectors"]}
    fits = (
        {CURVE} < set(arms) <= {CURVE, SHUFFLES, NOISE, CONSTANT, RANDOM, RANDOM_CURVES}
        and named == set(arms)
        and all(len(rows) == n_layers for arm in arms.values() for rows in arm["layers"].values())
        and all(set(rows) < set(arms) for rows in summary["comparisons"].values())
        and set(summary["smoothness"]) <= set(summary["comparisons"])
    )
    if fits and summary["retrieval"] is not None:
        scored = [*arms.values(), *summary["vectors"]]
        fits = summary["untouched"] is not None and all(
            entry.get(name) is not None for entry in scored for name in ("log_probability", "accuracy")
        )
        fits = fits and all("all" in groups for groups in summary["retrieval"].values())
    if not fits:
        raise ConfigError(
            f"Expected the parts of {file} to belong to the same arms and layers, but they do not. "
            "The file was edited; measure the drift again."
        )
