"""From a configuration to the objects of a run: model, search problem, held-out problem and curve space."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lpes_evo._files import to_json
from lpes_evo.config import RunConfig
from lpes_evo.models import LoadedModel, load_model, weights_hash
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import Example, ModelProblem, Task, check_disjoint, make_task


@dataclass(frozen=True)
class Job:
    """Everything a run works with.

    Attributes:
        config: The configuration.
        loaded: The model.
        space: The curves.
        search_problem: The problem on the examples that steer the search.
        report_problem: The problem on the held-out examples.
    """

    config: RunConfig
    loaded: LoadedModel
    space: CurveSpace
    search_problem: ModelProblem
    report_problem: ModelProblem

    @property
    def n_objectives(self) -> int:
        """Number of fitness values of an evaluation."""
        return len(set(self.search_problem.groups)) if self.config.search.objectives == "groups" else 1

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What two runs must share to be one: configuration, data, weights, and how the model computes."""
        return {
            "config": config_hash(self.config),
            "search_data": self.search_problem.data_hash,
            "report_data": self.report_problem.data_hash,
            "weights": weights_hash(self.loaded.model),
            "dtype": self.loaded.dtype,
            "attention": self.loaded.attention,
        }


def config_hash(config: RunConfig) -> str:
    """Return the SHA-256 of a configuration."""
    return hashlib.sha256(to_json(config.model_dump(mode="json")).encode()).hexdigest()


def prepare(config: RunConfig, device: str = "auto") -> Job:
    """Load the model, draw the examples and build the problems.

    What can be checked without the model is checked first, since a large model takes minutes to load.

    Args:
        config: The configuration.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Returns:
        The objects of the run.

    Raises:
        TaskError: The task or its data are not valid, or the search and the held-out data overlap.
        CurveError: The curve settings do not fit each other.
        ModelError: The model cannot be loaded or used.
    """
    task = make_task(config.task.name, **config.task.options)
    search_examples = _examples(task, config, "search")
    report_examples = _examples(task, config, "report")
    check_disjoint(search_examples, report_examples)
    config.curve.space(n_layers=2)
    model = config.model
    loaded = load_model(
        model.name,
        revision=model.revision,
        dtype=model.dtype,
        device=device,
        attention=model.attention,
        trust_remote_code=model.trust_remote_code,
    )
    return Job(
        config=config,
        loaded=loaded,
        space=config.curve.space(loaded.n_layers),
        search_problem=_problem(loaded, search_examples, config),
        report_problem=_problem(loaded, report_examples, config),
    )


def _examples(task: Task, config: RunConfig, split: Any) -> list[Example]:
    settings = config.examples if split == "search" else config.report
    return task.examples(
        positions=settings.positions, n_per_position=settings.n_per_position, seed=config.seed, split=split
    )


def _problem(loaded: LoadedModel, examples: list[Example], config: RunConfig) -> ModelProblem:
    task = config.task
    return ModelProblem(
        loaded,
        examples,
        metric=task.metric,
        chat_template=task.chat_template,
        over_length=task.over_length,
        batch_tokens=task.batch_tokens,
        share_prefixes=task.share_prefixes,
    )
