"""Arms of the drift analysis: vectors of scales that keep one property of a curve and lose another."""

import random
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import ConfigError
from lpes_evo.operators import CurveSpace, init_random_walk
from lpes_evo.scales import check_scales
from lpes_evo.search import isolated_random

CURVE, SHUFFLES, NOISE, CONSTANT, RANDOM = "curve", "shuffles", "noise", "constant", "random"
RANDOM_CURVES = "random curves"


def drift_arms(
    scales: npt.ArrayLike, space: CurveSpace, *, n_draws: int = 20, seed: int = 0
) -> dict[str, npt.NDArray[np.float64]]:
    """Return the vectors of scales whose drift is compared.

    * ``curve``: the scales themselves.
    * ``shuffles``: the same scales in random orders over the layers.
    * ``noise``: the scales times ``exp(e)``, where ``e`` is normal and independent in each layer, with the variance
      that the logarithms of the scales have over the layers. The noise is added to logarithms, so that scales stay
      positive.
    * ``constant``: the mean of the scales in every layer.
    * ``random``: every layer on its own, uniform from the smallest to the largest scale of the space.
    * ``random curves``: curves of the space that were drawn at random. They are as smooth as the curve and, like
      ``random``, were not chosen by a search. So the difference between the two is the effect of smoothness alone.

    Args:
        scales: The curve's scales, ``(n_layers,)``.
        space: The space of the random curves, and the range of the random scales.
        n_draws: Number of vectors of each random arm.
        seed: Seed of the draws; equal arguments give equal vectors on every platform.

    Returns:
        The vectors of each arm, ``(n_vectors, n_layers)``: one for ``curve`` and for ``constant``, and ``n_draws`` for
        each other arm.

    Raises:
        ScalesError: The scales are not one finite positive number for each layer of the space.
        ConfigError: ``n_draws`` is not positive.
    """
    curve = check_scales(scales, space.n_layers).reshape(-1, space.n_layers)
    if n_draws < 1 or len(curve) != 1:
        raise ConfigError(
            f"Expected one curve and at least one draw of each random arm, but got {len(curve)} and {n_draws}."
        )

    values = curve[0].tolist()
    spread = float(np.log(curve).std())

    def draw(name: str, row: Callable[[random.Random], list[float]]) -> npt.NDArray[np.float64]:
        # Python's own generator gives the same stream everywhere.
        stream = random.Random(f"{seed}/drift/{name}")
        return np.array([row(stream) for _ in range(n_draws)], dtype=np.float64)

    with isolated_random(seed, "drift", RANDOM_CURVES):
        random_curves = space.decode([init_random_walk(space) for _ in range(n_draws)])

    return {
        CURVE: curve,
        SHUFFLES: draw(SHUFFLES, lambda stream: stream.sample(values, len(values))),
        NOISE: curve * np.exp(draw(NOISE, lambda stream: [stream.gauss(0, spread) for _ in values])),
        CONSTANT: np.full_like(curve, curve.mean()),
        RANDOM: draw(RANDOM, lambda stream: [stream.uniform(space.y_min, space.y_max) for _ in values]),
        RANDOM_CURVES: random_curves,
    }
