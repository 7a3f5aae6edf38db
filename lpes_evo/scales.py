"""Per-layer scales: how a vector is checked, and the ``scales.json`` file."""

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import ScalesError


def check_scales(scales: npt.ArrayLike, n_layers: int) -> npt.NDArray[np.float64]:
    """Return the scales as float64 after checking shape and values.

    Args:
        scales: Position divisors, ``(n_layers,)`` or ``(batch, n_layers)``.
        n_layers: Number of layers of the model.

    Returns:
        The scales as a float64 array of the same shape.

    Raises:
        ScalesError: The values are not numbers, the last axis is not ``n_layers`` long, there are more than two
            axes, or a value is not finite and positive.
    """
    try:
        array = np.asarray(scales, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ScalesError(f"Expected scales to be numbers, but got {scales!r:.80}. Pass one number per layer.") from error
    if array.ndim not in (1, 2) or array.shape[-1] != n_layers or array.size == 0:
        raise ScalesError(
            f"Expected scales of shape (n_layers,) = ({n_layers},) or (batch, n_layers), but got {array.shape}. "
            "Pass one scale for each layer of the model."
        )
    wrong = ~(np.isfinite(array) & (array > 0))
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ScalesError(
            f"Expected every scale to be finite and positive, but got {array[where]} at layer {where[-1]}. "
            "A scale divides positions; 1.0 leaves a layer untouched."
        )
    return array
