"""The check that an evaluation asks nothing that the search of its scales has seen."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lpes_evo.config import load_config
from lpes_evo.errors import JournalError, LpesError, TaskError
from lpes_evo.problems import Example, seen_examples
from lpes_evo.runs import task_examples


def check_unseen(scales: Path, examples: Mapping[str, Sequence[Example]]) -> str:
    """Check that no example was seen by the search, as far as its run folder tells.

    Args:
        scales: The file of scales, or the run folder that holds it.
        examples: Examples of each task by its name.

    Returns:
        A line that says what was checked, or why nothing could be.

    Raises:
        TaskError: An example is made of material that the search used.
        JournalError: The configuration in the run folder is not the one that the search was started with.
    """
    run = scales if scales.is_dir() else scales.parent
    if not (run / "config.yaml").is_file():
        return f"Not checked whether the search saw these examples: {run} has no config.yaml of a search"

    try:
        config = load_config(file=run / "config.yaml")
        used = task_examples(config, "search")
    except JournalError:  # the run folder is damaged, which a note among others must not hide
        raise
    except LpesError as error:
        return f"Not checked whether the search saw these examples: {error}"

    for name, rows in examples.items():
        shared = seen_examples(used, rows)
        if shared:
            raise TaskError(
                f"Expected examples that the search of {run} did not see, but {len(shared)} of {len(rows)} of the task "
                f"{name!r} are made of material it used, first {shared[0].id!r}. Choose another --seed or other data."
            )
    return f"None of the {len(used)} examples of the search (task {config.task.name}) is evaluated here"
