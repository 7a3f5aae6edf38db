"""BenchSettings: how the costs of methods are measured."""

from typing import Literal

from pydantic import Field

from lpes_evo.config import Settings


class BenchSettings(Settings):
    """How costs are measured.

    Attributes:
        prompt_tokens: Tokens of the prompt, one row.
        new_tokens: Tokens that are decoded after it with the cache, greedily.
        repeats: Pairs of each method and the untouched model; 6 are the fewest with an interval of 95 %.
        clock: What seconds are on a CPU: ``wall``, or ``processor`` for those that the process computed, all its
            threads together, so that waiting for other programs on the machine does not count. A GPU has events.
    """

    prompt_tokens: int = Field(default=512, ge=2)
    new_tokens: int = Field(default=16, ge=1)
    repeats: int = Field(default=9, ge=6)
    clock: Literal["wall", "processor"] = "wall"
