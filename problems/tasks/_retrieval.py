"""RetrievalTask: the base of tasks whose output must contain one known value."""

from lpes_evo.problems._example import Example
from lpes_evo.problems._task import Task
from lpes_evo.problems.metrics import contains_value


class RetrievalTask(Task):
    """A task whose output must contain the answer."""

    metric = "accuracy"
    teacher_forcing = True

    def score(self, output: str, example: Example) -> tuple[float, ...]:
        """Return 1 if the output contains the answer, case aside, else 0; see `Task.score`."""
        return (contains_value(output, example.answer),)
