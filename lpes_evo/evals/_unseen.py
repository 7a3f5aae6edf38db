"""What the search of the scales has seen: left out of an evaluation, or checked not to be in it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lpes_evo.config import load_config
from lpes_evo.errors import JournalError, LpesError, TaskError
from lpes_evo.evals._arms import Arm
from lpes_evo.evals._plan import DrawnTask
from lpes_evo.problems import DataRequest, Example, examples_of, seen_examples, source_hash
from lpes_evo.runs import task_examples
from lpes_evo.scales import Scales, load_scales


def seen_sources(arms: Sequence[Arm]) -> frozenset[str]:
    """Return the hashes of all sources that the searches of the scales of some arms saw, as far as these keep them."""
    return frozenset(key for arm in arms if arm.found is not None for key in arm.found.seen)


def tell_left_out(arms: Sequence[Arm], drawn: Sequence[DrawnTask], folder: Path | None) -> list[str]:
    """Return what was left out of each task that reads files, and whether its data are those of the search.

    Args:
        arms: The arms, whose scales keep what their searches saw.
        drawn: The tasks with the examples that are left.
        folder: The folder with the data.

    Returns:
        One line for each task and each search.

    Raises:
        TaskError: The data cannot be read.
    """
    searches = dict.fromkeys(arm.found for arm in arms if arm.found is not None and arm.found.seen)
    notes = []
    for name, task in ((drawn_task.task.name, drawn_task.task) for drawn_task in drawn if searches):
        if not task.splits_sources:
            notes.append(f"{name}: not made of the sources that the search saw")
            continue
        # One position and no limit: every source of the data comes once.
        every = examples_of(task, DataRequest(folder=folder, positions=(0.0,), split="all"))
        there = {source_hash(example.source) for example in every}
        notes += [f"{name}: {_left_out(found, there)}" for found in searches]
    return notes


def _left_out(found: Scales, there: set[str]) -> str:
    """Return how many of the sources that a search saw are there, and were left out."""
    n_seen, n_left_out = len(found.seen), len(there.intersection(found.seen))
    search = f"the search (task {found.task})"
    if not n_left_out:
        return f"nothing left out, since none of the {n_seen} sources that {search} saw is in these data"

    told = f"left out {n_left_out} of {len(there)} sources, which {search} saw"
    if n_left_out < n_seen:
        told += f"; the other {n_seen - n_left_out} that it saw are not in these data: the file is another, or changed"
    return told


def check_unseen(scales: Path, examples: Mapping[str, Sequence[Example]]) -> str | None:
    """Check that no example was seen by the search, as far as its run folder tells.

    Scales that keep what their search saw need no check, since it was left out, see `tell_left_out`.

    Args:
        scales: The file of scales, or the run folder that holds it.
        examples: Examples of each task by its name.

    Returns:
        A line that says what was checked, or why nothing could be; ``None`` where nothing had to be.

    Raises:
        TaskError: An example is made of material that the search used.
        JournalError: The configuration in the run folder is not the one that the search was started with.
    """
    if _keeps_seen(scales):
        return None
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


def _keeps_seen(path: Path) -> bool:
    """Return whether a file of scales keeps what its search saw; one that is gone, as in a resumed evaluation, not."""
    try:
        return bool(load_scales(path).seen)
    except LpesError:
        return False
