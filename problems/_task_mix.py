"""TaskMix: the tasks of a search and its guards, as a user writes them."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from lpes_evo.errors import TaskError
from lpes_evo.problems._mixture import DEFAULT_TOLERANCE

_COMMA = re.compile(r"(?<!\\),")


@dataclass(frozen=True)
class TaskMix:
    """The tasks that a search improves, and the guards that it must not make worse.

    Attributes:
        weights: Weight of each searched task in the fitness, by its name for `lpes_evo.problems.make_task`.
        tolerances: Nats per token that each guard may lose, by its name.
    """

    weights: dict[str, float]
    tolerances: dict[str, float]

    @classmethod
    def parse(cls, tasks: str, guards: Sequence[str] = ()) -> "TaskMix":
        """Read tasks such as ``mdqa:5,kv:8*2,needle:8`` and guards such as ``perplexity`` or ``kv:8:0.05``.

        Commas divide tasks, and ``*NUMBER`` behind a task is its weight. A comma within a name, such as that of a file,
        is written with a backslash before it. The tolerance of a guard is the number behind its last colon if it has a
        decimal point, or if the name has another colon before; so ``kv:8`` is a guard of 8 pairs.

        Args:
            tasks: The tasks.
            guards: The guards.

        Returns:
            The tasks and guards.

        Raises:
            TaskError: A name is empty or comes twice, or a weight or a tolerance is no number in range.
        """
        weights: dict[str, float] = {}
        for part in _COMMA.split(tasks):
            name, weight = _weighted(part.replace("\\,", ",").strip(), tasks)
            _add(weights, name, weight, "task", tasks)

        tolerances: dict[str, float] = {}
        for guard in guards:
            name, tolerance = _tolerated(guard.strip())
            _add(tolerances, name, tolerance, "guard", guard)
            if name in weights:
                raise TaskError(
                    f"Expected guards other than the tasks of the search, but got {name!r:.80} as both. Leave it out "
                    "of one of the two."
                )
        return cls(weights, tolerances)

    @property
    def is_single(self) -> bool:
        """Whether there is one task and no guard."""
        return len(self.weights) == 1 and not self.tolerances

    @property
    def names(self) -> list[str]:
        """All names, the searched tasks first."""
        return [*self.weights, *self.tolerances]


def _add(found: dict[str, float], name: str, number: float, what: str, text: str) -> None:
    """Put a name and its number into a mapping.

    Raises:
        TaskError: The name is empty or there already.
    """
    if not name or name in found:
        problem = f"{name!r:.80} twice" if name else "an empty name"
        raise TaskError(
            f"Expected each {what} once, with commas between, but got {problem} in {text!r:.80}. A comma within a name "
            "is written with a backslash before it."
        )
    found[name] = number


def _weighted(text: str, whole: str) -> tuple[str, float]:
    """Return the name and the weight of a task.

    Raises:
        TaskError: What stands behind a star is no weight.
    """
    name, star, weight = text.rpartition("*")
    if not star:
        return text, 1.0
    number = _number(weight)
    if number is None or number <= 0:
        raise TaskError(
            f"Expected a weight above 0 behind the star, such as kv:8*2, but got {weight!r:.40} in {whole!r:.80}."
        )
    return name.strip(), number


def _tolerated(text: str) -> tuple[str, float]:
    """Return the name and the tolerance of a guard.

    Raises:
        TaskError: The tolerance is below 0 or not finite.
    """
    name, colon, last = text.rpartition(":")
    number = _number(last)
    is_tolerance = colon and number is not None and ("." in last or "e" in last.lower() or ":" in name)
    if not is_tolerance or number is None:
        if colon and last.startswith("-"):
            raise TaskError(
                f"Expected a tolerance of at least 0 nats per token, but got {last!r:.40} in the guard {text!r:.80}."
            )
        return text, DEFAULT_TOLERANCE
    if number < 0:
        raise TaskError(
            f"Expected a tolerance of at least 0 nats per token, but got {last!r:.40} in the guard {text!r:.80}."
        )
    return name, number


def _number(text: str) -> float | None:
    """Return a text as a finite number; ``None`` where it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
