"""EvalConfig: the settings of an evaluation, every value that shapes its result."""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from lpes_evo.config import ModelSettings, Settings
from lpes_evo.errors import ConfigError
from lpes_evo.evals.harness import is_harness_task
from lpes_evo.problems import OverLength

_NOT_IN_HARNESS = ("positions", "teacher_forcing", "over_length", "max_length", "batch_tokens", "seed")
"""Settings of an evaluation that the harness has no counterpart for; its seed is a constant of its own."""


class EvalConfig(Settings):
    """Everything that shapes the result of an evaluation.

    Attributes:
        ADDED: Settings that files of earlier versions lack.
        model: The model.
        scales: File of scales, or folder of the run that found them; ``None`` for the untouched model alone.
        methods: Methods that are compared with the untouched model, such as ``lpes``, ``pi:1.5`` or ``yarn:4``, see
            `lpes_evo.methods.make_method`; ``None`` for the scales alone.
        tasks: Names of the tasks, such as ``kv``, ``mdqa`` or ``leval:tpo``, see `lpes_evo.problems.make_task`.
        positions: Gold positions from 0 (beginning) to 1 (end), for tasks that can place the gold fact.
        data: Folder with the data files; also with task files of lm-evaluation-harness.
        limit: Most examples of a task, at each position where it has positions; ``None`` for all there are.
        seed: Seed of every draw.
        shots: Solved examples in the prompts of lm-evaluation-harness; ``None`` for what a task file says, else 0.
        teacher_forcing: Whether one forward pass stands for generation where the metric of a task allows it.
        chat_template: Whether the tokenizer's chat template is used where it has one; lm-evaluation-harness goes
            without.
        over_length: ``error`` refuses an example longer than the window, ``skip`` leaves it out and counts it, ``cut``
            takes the middle out of its document, and leaves it out where that is not enough.
        max_length: A window in tokens that is smaller than the model's own.
        batch_tokens: Tokens of one batch, padding and room for the answers included; ``None`` for what suits the
            device.
        engine: What generates answers: ``transformers``, or ``vllm`` at serving speed, for the methods baseline and
            lpes, and for tasks that are answered by generation.
    """

    ADDED: ClassVar[frozenset[str]] = frozenset({"engine"})

    model: ModelSettings = ModelSettings()
    scales: str | None = None
    methods: tuple[str, ...] | None = Field(default=None, min_length=1)
    tasks: tuple[str, ...] = Field(min_length=1)
    positions: tuple[float, ...] = Field(default=(0.0, 0.25, 0.5, 0.75, 1.0), min_length=1)
    data: str | None = None
    limit: int | None = Field(default=None, ge=1, strict=True)
    seed: int = Field(default=0, strict=True)
    shots: int | None = Field(default=None, ge=0, strict=True)
    teacher_forcing: bool = False
    chat_template: bool = True
    over_length: OverLength = "error"
    max_length: int | None = Field(default=None, ge=2, strict=True)
    batch_tokens: int | None = Field(default=None, ge=1, strict=True)
    engine: Literal["transformers", "vllm"] = "transformers"

    @model_validator(mode="after")
    def _lists_are_sound(self) -> "EvalConfig":
        """Refuse positions out of range, values that come twice, and shots that no task takes."""
        for position in self.positions:
            if not 0 <= position <= 1:
                raise ValueError(f"expected every position to lie between 0 and 1, but got {position}")
        for name, values in (("position", self.positions), ("task", self.tasks)):
            if len(set(values)) < len(values):
                raise ValueError(f"expected no {name} twice, but got {', '.join(map(str, values))}")

        if not all(task.strip() for task in self.tasks):
            raise ValueError("expected names of tasks, but one is empty")
        if self.shots is not None and not any(map(is_harness_task, self.tasks)):
            raise ValueError(
                "expected shots only with mmlu, ceval-valid or an lm: task, since no other takes them"
            )
        return self

    def idle_in_harness(self) -> list[str]:
        """Return the options that were chosen and that lm-evaluation-harness does not take, as users write them."""
        return [
            f"--{name.replace('_', '-')}"
            for name in _NOT_IN_HARNESS
            if getattr(self, name) != type(self).model_fields[name].default
        ]

    def refuse_idle_options(self) -> None:
        """Refuse options that reach none of the tasks; evaluations of before may have them in their files.

        Raises:
            ConfigError: All tasks are those of lm-evaluation-harness, and an option does not reach them.
        """
        idle = self.idle_in_harness() if all(map(is_harness_task, self.tasks)) else []
        if idle:
            raise ConfigError(
                f"Expected options that have an effect on {', '.join(self.tasks)}, but lm-evaluation-harness takes no "
                f"{', '.join(idle)}. Leave them out."
            )
