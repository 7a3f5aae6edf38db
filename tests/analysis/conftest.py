"""Short inputs for tiny models."""

import numpy as np
import pytest

from lpes_evo.analysis import AnalysisInput


@pytest.fixture
def short_inputs():
    """Three inputs of different lengths, two of them of one source, for models that know 64 tokens."""
    generator = np.random.default_rng(0)
    return [
        AnalysisInput(
            id=str(number),
            source=source,
            token_ids=tuple(generator.integers(3, 60, size=length).tolist()),
            position=place,
            gold=gold,
        )
        for number, (source, length, place, gold) in enumerate(
            [("a", 13, 0.0, (2, 4)), ("a", 20, 1.0, (15, 18)), ("b", 9, None, None)]
        )
    ]
