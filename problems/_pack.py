"""Packs: rows that begin alike and share one run over their common beginning.

Several questions about one text cost the text once. The row of a pack is the shared prefix, followed by each question
with its answer as a segment of its own. A segment sees the prefix and itself, and takes the positions that follow the
prefix.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from lpes_evo.problems._checks import check_count
from lpes_evo.problems._encode import EncodedExample

LengthKey = Callable[[int], Hashable]
"""A function that gives lengths of texts the same value where a model rotates them alike."""


@dataclass(frozen=True)
class Pack:
    """Rows that are forwarded as one.

    Attributes:
        n_prefix: Tokens that the rows share; 0 for a row alone.
        rows: The rows.
        indices: Where each row stands among the rows that were packed.
    """

    n_prefix: int
    rows: tuple[EncodedExample, ...]
    indices: tuple[int, ...]

    @property
    def n_tokens(self) -> int:
        """Tokens that are forwarded."""
        return self.n_prefix + sum(row.n_tokens - self.n_prefix for row in self.rows)

    @property
    def longest(self) -> int:
        """Tokens of the longest row by itself, and so its positions."""
        return max(row.n_tokens for row in self.rows)


def pack_rows(
    rows: Sequence[EncodedExample], *, share_prefixes: bool, length_key: LengthKey | None = None
) -> list[Pack]:
    """Put rows together that share at least half of their tokens.

    Args:
        rows: The rows.
        share_prefixes: Whether to share at all; else every row is a pack of its own.
        length_key: For a model whose frequencies follow the length: rows of equal keys alone go together, see
            `lpes_evo.rope.forget_lengths`.

    Returns:
        The packs, longest first, so that a device too small for the longest says so at once.
    """
    # In the order of their ids, rows with a long common prefix are neighbours.
    order = (
        sorted(range(len(rows)), key=lambda index: rows[index].prompt_ids)
        if share_prefixes
        else range(len(rows))
    )

    groups: list[tuple[int, list[int]]] = []
    for index in order:
        if share_prefixes and groups:
            n_prefix, members = groups[-1]
            shared = min(n_prefix, _n_common(rows[members[0]].prompt_ids, rows[index].prompt_ids))
            longest = max(rows[index].n_tokens, *(rows[member].n_tokens for member in members))
            alike = length_key is None or length_key(rows[index].n_tokens) == length_key(
                rows[members[0]].n_tokens
            )
            if 2 * shared >= longest and alike:
                groups[-1] = shared, [*members, index]
                continue
        # The logits at the last token of a prompt predict the answer, so that token stays out of the prefix.
        groups.append((len(rows[index].prompt_ids) - 1, [index]))

    packs = [
        Pack(n_prefix if len(members) > 1 else 0, tuple(rows[member] for member in members), tuple(members))
        for n_prefix, members in groups
    ]
    return sorted(packs, key=lambda pack: -pack.n_tokens)


@dataclass(frozen=True)
class Batch:
    """One forward pass: every one of its packs under the curve of every one of its candidates.

    Attributes:
        packs: The packs.
        candidates: Numbers of the candidates.
    """

    packs: tuple[Pack, ...]
    candidates: range


def batches(
    packs: Sequence[Pack], batch_tokens: int, n_candidates: int = 1, *, length_key: LengthKey | None = None
) -> Iterator[Batch]:
    """Yield the forward passes that score packs under the curves of some candidates.

    Every candidate meets a pack in batches of one shape. So candidates stay comparable in half precision,
    where the shape of a batch shows in its results.

    Args:
        packs: The packs, longest first.
        batch_tokens: Tokens of one batch, padding included; a longer pack is a batch of its own.
        n_candidates: Number of candidates.
        length_key: Key that lengths must have in common to go together, see `pack_rows`.

    Yields:
        Packs of similar length, longest first, and as many candidates as go with them.

    Raises:
        TaskError: ``batch_tokens`` is not a positive integer.
    """
    check_count("batch_tokens", batch_tokens)

    start = 0
    while start < len(packs):
        n_entries = max(1, batch_tokens // packs[start].n_tokens)
        # Only a divisor gives all candidates equal company.
        n_together = max(n for n in range(1, min(n_candidates, n_entries) + 1) if n_candidates % n == 0)
        n_packs = n_entries // n_together
        if length_key is not None:
            keys = [length_key(pack.longest) for pack in packs[start : start + n_packs]]
            n_packs = next((number for number, key in enumerate(keys) if key != keys[0]), len(keys))

        for first in range(0, n_candidates, n_together):
            yield Batch(tuple(packs[start : start + n_packs]), range(first, first + n_together))
        start += n_packs


def _n_common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many tokens two prompts share at the front, short of the last of either."""
    limit = min(len(first), len(second)) - 1
    return next((place for place in range(limit) if first[place] != second[place]), limit)
