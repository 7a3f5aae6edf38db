"""Splits: the division of the sources of a file into those of the search and those of the report."""

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from lpes_evo.errors import TaskError
from lpes_evo.problems._task import DataRequest

T = TypeVar("T")

SEARCH_SHARE = 0.5
"""Share of the sources that the search split has, on average over seeds."""


def source_hash(source: str) -> str:
    """Return the hash by which a source is known again, 16 hexadecimal digits."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def divide(
    items: Sequence[T],
    request: DataRequest,
    task: str,
    *,
    source: Callable[[T], str],
    texts: Callable[[T], Sequence[str]],
) -> list[T]:
    """Return the items of the split that a request asks for, without those that it leaves out.

    Items that have a text in common, case and white space aside, are one group, and a group is never divided. The side
    of a group is a hash of the seed and of its texts. So it depends neither on the order of the items nor on other
    groups: added rows move no row, save where a new row has texts of two groups and joins them.

    Args:
        items: The items, such as questions or documents.
        request: The split, the seed, and the sources to leave out with all of their groups.
        task: Name of the task, for errors.
        source: Gives the source of an item, see `Example.source`.
        texts: Gives the texts of an item. The first names its group, and all of them join groups.

    Returns:
        The items, in their order, at least one.

    Raises:
        TaskError: One of the two splits is empty, or the request leaves everything out.
    """
    groups = _groups([texts(item) for item in items])
    kept = list(zip(items, groups, strict=True))

    if request.split != "all":
        searched = {group for group in groups if _draw(group, request.seed) < SEARCH_SHARE}
        if not 0 < len(searched) < len(set(groups)):
            raise TaskError(
                f"Expected sources of {task} for both the search and the report, but its {len(set(groups))} different "
                f"texts all fall to one of them with the seed {request.seed}. Use more texts or another seed."
            )
        kept = [(item, group) for item, group in kept if (group in searched) == (request.split == "search")]

    seen = {group for item, group in kept if source_hash(source(item)) in request.leave_out}
    left = [item for item, group in kept if group not in seen]
    if not left:
        raise TaskError(
            f"Expected sources of {task} that the search did not see, but it saw all {len(set(groups))} different "
            "texts. Use other data."
        )
    return left


def _groups(texts: Sequence[Sequence[str]]) -> list[str]:
    """Return the name of the group of each item."""
    parents = list(range(len(texts)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    first: dict[str, int] = {}
    for index, parts in enumerate(texts):
        for part in parts:
            parents[root(index)] = root(first.setdefault(_plain(part), index))

    # The smallest hash does not depend on the order of the items.
    names: dict[int, str] = {}
    for index, parts in enumerate(texts):
        name = source_hash(_plain(parts[0]))
        names[root(index)] = min(name, names.get(root(index), name))
    return [names[root(index)] for index in range(len(texts))]


def _plain(text: str) -> str:
    """Return a text without the differences that make no other text."""
    return " ".join(text.casefold().split())


def _draw(group: str, seed: int) -> float:
    """Return a number that is uniform on [0, 1) and the same on every platform."""
    digest = hashlib.sha256(f"split/{seed}/{group}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
