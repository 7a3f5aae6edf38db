"""RunJob: what a worker of a run holds; and JobFacts: what the process that drives the run knows of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lpes_evo.accelerators import device_kind
from lpes_evo.config import RunConfig, settings_hash
from lpes_evo.errors import TaskError
from lpes_evo.execution import ProblemFacts, with_less_memory
from lpes_evo.models import LoadedModel, device_name, load_model, weights_hash
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import (
    AnswerScores,
    DataRequest,
    Example,
    ModelProblem,
    Split,
    Task,
    check_disjoint,
    examples_of,
    make_task,
)

Measure = Literal["accuracy", "log_probability", "score"]
"""The number that a report compares: whether greedy decoding gives an accepted answer, the log-probability of a text,
or the score of the task itself."""


@dataclass(frozen=True)
class RunJob:
    """What a worker of a run holds.

    Attributes:
        config: The configuration.
        loaded: The model.
        search_problem: The problem on the examples that steer the search.
        report_problem: The problem on the held-out examples.
    """

    config: RunConfig
    loaded: LoadedModel
    search_problem: ModelProblem
    report_problem: ModelProblem


@dataclass(frozen=True)
class JobSpec:
    """A recipe that makes the job in each worker, so that the configuration alone crosses to it.

    Attributes:
        config: The configuration.
    """

    config: RunConfig

    def __call__(self, device: str) -> RunJob:
        """Load the model on a device, see `prepare`."""
        return prepare(self.config, device)


@dataclass(frozen=True)
class JobFacts:
    """The facts of a job that the process that drives the run needs.

    Attributes:
        config: The configuration.
        model: Name of the model.
        revision: Revision on the hub that was asked for.
        n_layers: Number of decoder layers.
        max_length: Window in tokens.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: Kind of device, ``cpu``, ``cuda`` or ``mps``.
        device_name: The name that its maker gives to the device.
        attention: Attention backend in use.
        weights: SHA-256 of the weights.
        notes: Repairs that were made while the model was loaded, one sentence each.
        search: The problem on the examples that steer the search.
        report: The problem on the held-out examples.
        base: Name of the base model where the model is an adapter on top of one, else ``None``.
        measure: The number that the report of held-out examples compares.
        measure_name: Its name for readers, such as ``best-subspan exact match``.
    """

    config: RunConfig
    model: str
    revision: str | None
    n_layers: int
    max_length: int
    dtype: str
    device: str
    device_name: str
    attention: str
    weights: str
    notes: tuple[str, ...]
    search: ProblemFacts
    report: ProblemFacts
    base: str | None = None
    measure: Measure = "accuracy"
    measure_name: str = "accuracy"

    @property
    def space(self) -> CurveSpace:
        """The curves that are searched."""
        return self.config.curve.space(self.n_layers)

    @property
    def n_objectives(self) -> int:
        """Number of fitness values of an evaluation."""
        return len(set(self.search.groups)) if self.config.search.objectives == "groups" else 1

    @property
    def sharing(self) -> list[str]:
        """Whether examples about one text share the run over it, and why or why not, in lines for people."""
        lines = [f"Search examples: {self.search.sharing}"]

        # Both usually share for the same reason, which need not be told twice.
        if bool(self.report.sharing) != bool(self.search.sharing):
            lines.append(f"Held-out examples: {self.report.sharing}")
        return lines

    @property
    def identity(self) -> dict[str, Any]:
        """The values that two starts must share to belong to one run: configuration, data, weights, arithmetic."""
        return {
            "config": settings_hash(self.config),
            "search_data": self.search.data_hash,
            "report_data": self.report.data_hash,
            "weights": self.weights,
            "dtype": self.dtype,
            "attention": self.attention,
            "device": self.device,
        }


def describe(job: RunJob) -> JobFacts:
    """Read the facts off a job, in the worker that holds it."""
    loaded, task = job.loaded, make_run_task(job.config)
    measure: Measure = "accuracy"
    if job.config.task.metric == "score":
        measure = "score"
    elif task.kind == "likelihood":
        measure = "log_probability"
    names = {
        "accuracy": "accuracy",
        "log_probability": "log-probability, nats per token",
        "score": task.metric,
    }

    return JobFacts(
        config=job.config,
        model=loaded.name,
        revision=loaded.revision,
        n_layers=loaded.n_layers,
        max_length=loaded.max_length,
        dtype=loaded.dtype,
        device=device_kind(loaded.device),
        device_name=device_name(loaded.device),
        attention=loaded.attention,
        weights=weights_hash(loaded.model),
        notes=loaded.notes,
        search=ProblemFacts.of(job.search_problem),
        report=ProblemFacts.of(job.report_problem),
        base=loaded.base,
        measure=measure,
        measure_name=names[measure],
    )


def search_problem(job: RunJob) -> ModelProblem:
    """Return the problem that the search scores."""
    return job.search_problem


def measure_vector(job: RunJob, scales: npt.NDArray[np.float64]) -> tuple[AnswerScores, int]:
    """Score one vector of scales, ``(n_layers,)``, on the held-out examples.

    Returns:
        The scores, and how often the batch was halved for want of memory.
    """
    return with_less_memory(job.report_problem, lambda problem: problem.evaluate(scales))


def prepare(config: RunConfig, device: str = "auto") -> RunJob:
    """Load the model, draw the examples and build the problems.

    Everything that needs no model is checked first, because a large model takes minutes to load.

    Args:
        config: The configuration.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.

    Returns:
        The job.

    Raises:
        TaskError: The task or its data are not valid, or the search and the held-out data overlap.
        CurveError: The curve settings do not fit each other.
        ModelError: The model cannot be loaded or used.
    """
    search_examples, report_examples = draw_examples(config)

    model = config.model
    loaded = load_model(
        model.name,
        revision=model.revision,
        dtype=model.dtype,
        device=device,
        attention=model.attention,
        trust_remote_code=model.trust_remote_code,
    )

    return RunJob(
        config=config,
        loaded=loaded,
        search_problem=_problem(loaded, search_examples, config),
        report_problem=_problem(loaded, report_examples, config),
    )


def draw_examples(config: RunConfig) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Draw the examples of a run, and check whatever else needs no model.

    Args:
        config: The configuration.

    Returns:
        The examples that steer the search, and the held-out ones.

    Raises:
        TaskError: The task or its data are not valid, or the search and the held-out data overlap.
        CurveError: The curve settings do not fit each other.
    """
    search_examples = task_examples(config, "search")
    report_examples = task_examples(config, "report")
    check_disjoint(search_examples, report_examples)

    _refuse_one_objective(config, search_examples)

    # The depth of the model is not known yet, and the settings of a curve fit each other at any depth or at none.
    config.curve.space(n_layers=2)
    return search_examples, report_examples


def task_examples(config: RunConfig, split: Split) -> tuple[Example, ...]:
    """Draw the examples of one split of the task of a run.

    Args:
        config: The configuration.
        split: ``search`` for the examples that steer the search, ``report`` for the held-out ones.

    Returns:
        The examples.

    Raises:
        TaskError: The task or its data are not valid, or it has no such split.
    """
    task = make_run_task(config)
    settings = config.examples if split == "search" else config.report
    request = DataRequest(
        folder=None if config.task.data is None else Path(config.task.data),
        positions=settings.positions,
        limit=settings.n_per_position,
        seed=config.seed,
        split=split,
        exact=True,
    )
    return examples_of(task, request)


def make_run_task(config: RunConfig) -> Task:
    """Return the task of a run.

    Raises:
        TaskError: There is no such task, or it reads no data although a folder is given.
    """
    task = make_task(config.task.name, **config.task.options)
    if config.task.data is not None and not task.reads_data:
        raise TaskError(
            f"Expected no data folder for {task.name}, which reads none, but got {config.task.data}. Leave --data out."
        )
    return task


def _refuse_one_objective(config: RunConfig, examples: tuple[Example, ...]) -> None:
    """Refuse a search for several objectives on a task that places no fact, and so has one set.

    Raises:
        TaskError: It is such a search.
    """
    if config.search.objectives == "groups" and all(example.position is None for example in examples):
        raise TaskError(
            f"Expected a task that places its fact at the beginning, the middle and the end, the objectives of "
            f"{config.search.algorithm}, but {config.task.name} places none. Choose another algorithm or task."
        )


def _problem(loaded: LoadedModel, examples: tuple[Example, ...], config: RunConfig) -> ModelProblem:
    """Return the problem of some examples, scored as the configuration says."""
    task = config.task
    return ModelProblem(
        loaded,
        examples,
        task=make_run_task(config),
        metric=task.metric,
        chat_template=task.chat_template,
        over_length=task.over_length,
        batch_tokens=task.batch_tokens,
        share_prefixes=task.share_prefixes,
        checkpointing=task.checkpointing,
    )
