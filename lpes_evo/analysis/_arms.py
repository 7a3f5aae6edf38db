"""What a curve is compared with: other vectors of scales, each of which keeps a property of the curve and loses one."""

import random

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import ConfigError
from lpes_evo.scales import check_scales

CURVE, SHUFFLES, NOISE, CONSTANT, RANDOM = "curve", "shuffles", "noise", "constant", "random"


def drift_arms(
    scales: npt.ArrayLike, *, n_draws: int = 20, low: float = 0.5, high: float = 2.0, seed: int = 0
) -> dict[str, npt.NDArray[np.float64]]:
    """Name the vectors of scales whose drift is compared.

    * ``curve``: the scales themselves.
    * ``shuffles``: the same scales in random orders over the layers.
    * ``noise``: the scales times ``exp(e)``, where ``e`` is normal and independent in each layer, with the variance
      that the logarithms of the scales have over the layers. In logarithms, so that scales stay positive.
    * ``constant``: the mean of the scales in every layer.
    * ``random``: every layer on its own, uniform from ``low`` to ``high``.

    Args:
        scales: The curve's scales, ``(n_layers,)``.
        n_draws: Vectors of each random arm.
        low: Smallest scale of ``random``.
        high: Largest scale of ``random``.
        seed: Seed of the draws; equal arguments give equal vectors on every platform.

    Returns:
        The vectors of each arm, ``(n_vectors, n_layers)``: one of ``curve`` and ``constant``, ``n_draws`` of the
        others.

    Raises:
        ScalesError: The scales are not one vector of finite positive numbers.
        ConfigError: ``n_draws`` is not positive, or the range is not one of positive numbers.
    """
    curve = check_scales(scales, np.size(scales)).reshape(-1)
    if n_draws < 1 or not 0 < low <= high < np.inf:
        raise ConfigError(
            f"Expected at least one draw of each random arm and scales from a range of positive numbers, but got "
            f"{n_draws} draws from {low} to {high}."
        )
    spread = float(np.log(curve).std())
    # The streams of Python's own generator are the same everywhere.
    streams = {name: random.Random(f"{seed}/drift/{name}") for name in (SHUFFLES, NOISE, RANDOM)}
    n_layers = len(curve)

    def vectors(rows: list[list[float]]) -> npt.NDArray[np.float64]:
        return np.array(rows, dtype=np.float64)

    return {
        CURVE: curve[None],
        SHUFFLES: vectors([streams[SHUFFLES].sample(curve.tolist(), n_layers) for _ in range(n_draws)]),
        NOISE: curve
        * np.exp(vectors([[streams[NOISE].gauss(0, spread) for _ in curve] for _ in range(n_draws)])),
        CONSTANT: np.full((1, n_layers), curve.mean()),
        RANDOM: vectors([[streams[RANDOM].uniform(low, high) for _ in curve] for _ in range(n_draws)]),
    }
