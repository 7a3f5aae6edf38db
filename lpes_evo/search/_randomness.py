"""Random streams that are functions of a seed and a place in the search alone."""

import hashlib
import operator
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from lpes_evo.errors import ConfigError


def check_seed(seed: object) -> int:
    """Return a seed as a plain integer, so that equal seeds give equal streams whatever their type.

    Raises:
        ConfigError: The seed is not an integer.
    """
    try:
        return operator.index(seed)  # type: ignore[arg-type]
    except TypeError as error:
        raise ConfigError(f"Expected the seed to be an integer, but got {seed!r:.60}.") from error


@contextmanager
def isolated_random(seed: int, *place: int | str) -> Iterator[None]:
    """Run a block on its own stream of Python's and NumPy's global generators.

    DEAP and its operators draw from these generators. The generators are seeded for the block and afterwards restored
    to the state in which they were, also after an exception. The stream is a function of ``(seed, *place)`` alone, so
    nothing has to be saved to resume.

    Args:
        seed: Seed of the whole search.
        *place: The place of the block in the search, for example ``("generation", 3)``.

    Yields:
        Nothing.
    """
    digest = hashlib.sha256(repr((seed, *place)).encode()).digest()
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        random.seed(int.from_bytes(digest, "big"))
        np.random.seed(int.from_bytes(digest[:4], "big"))
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
