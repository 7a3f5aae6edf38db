"""MethodHandle: the handle of a method in force on a model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lpes_evo.errors import ModelError


class MethodHandle:
    """The handle of a method that is in force on a model for the length of a ``with`` block.

    Attributes:
        prompt_lengths: Tokens of the prompt in each row, ``(batch,)``, while a caller states them; else ``None``.
        prompt_columns: Columns of the prompts, padding included, while ``generate`` of the model runs; else ``None``.
    """

    def __init__(self) -> None:
        self.prompt_lengths: tuple[int, ...] | None = None
        self.prompt_columns: int | None = None

    @contextmanager
    def prompts(self, lengths: Sequence[int]) -> Iterator[None]:
        """State where the prompts of the inputs end, for methods that choose something by the prompt.

        ``generate`` states this by itself. In teacher forcing, or in decoding by hand without a cache, one forward pass
        runs over prompt and answer together. With the lengths of the prompts it computes the same as generation.

        Args:
            lengths: Tokens of the prompt in each row, padding not counted, ``(batch,)``.

        Yields:
            Nothing; the lengths hold inside the block.

        Raises:
            ModelError: A length is not a positive integer.
        """
        wrong = [length for length in lengths if type(length) is not int or length < 1]
        if wrong or not lengths:
            raise ModelError(
                f"Expected one positive number of prompt tokens for each row, but got {list(lengths)!r:.80}."
            )

        before, self.prompt_lengths = self.prompt_lengths, tuple(lengths)
        try:
            yield
        finally:
            self.prompt_lengths = before
