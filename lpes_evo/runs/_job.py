"""RunJob: what a worker of a run holds; and JobFacts: what the process that drives the run knows of it."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lpes_evo.accelerators import device_kind
from lpes_evo.config import RunConfig, settings_hash
from lpes_evo.errors import TaskError
from lpes_evo.execution import FitnessRule, ProblemFacts, with_less_memory
from lpes_evo.models import LoadedModel, device_name, load_model, weights_hash
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import AnswerScores, Example, MixtureProblem, ModelProblem, Split, check_disjoint
from lpes_evo.runs._tasks import examples_by_task, mix_of, problem_of, tasks_of

_TaskExamples = dict[str, tuple[Example, ...]]
"""Examples by the name of their task."""

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
    search_problem: ModelProblem | MixtureProblem
    report_problem: ModelProblem | MixtureProblem


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
    def rule(self) -> FitnessRule:
        """How scores become fitness values and violations of guards."""
        return FitnessRule(self.search, self.config.search)

    @property
    def n_objectives(self) -> int:
        """Number of fitness values of an evaluation."""
        return self.rule.n_objectives

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
    loaded = job.loaded
    measure, measure_name = _measure(job.config)

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
        measure_name=measure_name,
    )


def _measure(config: RunConfig) -> tuple[Measure, str]:
    """Return the number that the report of a run compares, and its name; several tasks have accuracies in common."""
    searched = [task for name, task in tasks_of(config).items() if name in mix_of(config).weights]
    if config.task.metric == "score" and len(searched) == 1:
        return "score", searched[0].metric
    if all(task.kind == "likelihood" for task in searched):
        return "log_probability", "log-probability, nats per token"
    return "accuracy", "accuracy"


def search_problem(job: RunJob) -> ModelProblem | MixtureProblem:
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
    search_examples, report_examples = _draw_by_task(config)

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
        search_problem=problem_of(loaded, search_examples, config),
        report_problem=problem_of(loaded, report_examples, config),
    )


def draw_examples(config: RunConfig) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Draw the examples of a run, those of guards included, and check whatever else needs no model.

    Args:
        config: The configuration.

    Returns:
        The examples that steer the search, and the held-out ones.

    Raises:
        TaskError: A task or its data are not valid, or the search and the held-out data overlap.
        CurveError: The curve settings do not fit each other.
    """
    search_examples, report_examples = _draw_by_task(config)
    return _joined(search_examples), _joined(report_examples)


def _draw_by_task(config: RunConfig) -> tuple[_TaskExamples, _TaskExamples]:
    """Draw the examples of each task, see `draw_examples`."""
    search_examples = examples_by_task(config, "search")
    report_examples = examples_by_task(config, "report")
    for name, examples in search_examples.items():
        check_disjoint(examples, report_examples[name])

    _refuse_one_objective(config, _joined(search_examples))

    # The depth of the model is not known yet, and the settings of a curve fit each other at any depth or at none.
    config.curve.space(n_layers=2)
    return search_examples, report_examples


def _joined(examples: _TaskExamples) -> tuple[Example, ...]:
    """Return the examples of all tasks in one tuple; where there are several tasks, ids begin with their names."""
    if len(examples) == 1:
        (rows,) = examples.values()
        return rows
    return tuple(
        replace(example, id=f"{task}/{example.id}") for task, rows in examples.items() for example in rows
    )


def task_examples(config: RunConfig, split: Split) -> tuple[Example, ...]:
    """Draw the examples of one split of the tasks of a run, guards included.

    Args:
        config: The configuration.
        split: ``search`` for the examples that steer the search, ``report`` for the held-out ones.

    Returns:
        The examples.

    Raises:
        TaskError: The task or its data are not valid, or it has no such split.
    """
    return _joined(examples_by_task(config, split))


def _refuse_one_objective(config: RunConfig, examples: tuple[Example, ...]) -> None:
    """Refuse a search for several objectives on one task that places no fact, and so has one set.

    Raises:
        TaskError: It is such a search.
    """
    is_one = len(mix_of(config).weights) == 1 and all(example.position is None for example in examples)
    if config.search.objectives == "groups" and is_one:
        raise TaskError(
            f"Expected a task that places its fact at the beginning, the middle and the end, the objectives of "
            f"{config.search.algorithm}, but {config.task.name} places none. Choose another algorithm or task."
        )
