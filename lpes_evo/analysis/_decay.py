"""Long-term decay of rotary embeddings: the bound on an attention score as a function of distance, for each layer."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import ConfigError, UnsupportedModelError

if TYPE_CHECKING:
    import torch


def layer_frequencies(model: Any) -> tuple[npt.NDArray[np.float64] | None, ...]:
    """Return the rotary frequencies that every layer uses now.

    Args:
        model: A causal language model of transformers. Rotary types that follow the length of the input (dynamic,
            longrope) have the frequencies of the last input, or those of short inputs before the first one.

    Returns:
        For each layer the frequencies in radians per position, ``(n_pairs,)``, or ``None`` where it does not rotate.

    Raises:
        UnsupportedModelError: The model has no rotary embedding, or the frequencies of a layer cannot be identified.
    """
    from lpes_evo.rope import find_structure, frequencies_in_use, rotary_layers

    structure = find_structure(model)
    rotating = set(rotary_layers(model))

    own: dict[int, torch.nn.Module] = {}
    for module, layer in structure.own:
        own.setdefault(layer, module)

    kinds = getattr(getattr(structure.decoder, "config", None), "layer_types", None)
    found: list[npt.NDArray[np.float64] | None] = []
    for layer in range(len(structure.layers)):
        if layer not in rotating:
            found.append(None)
            continue

        modules = [own[layer]] if layer in own else list(structure.shared)
        buffers = [
            (name, buffer) for module in modules for name, buffer in frequencies_in_use(module).items()
        ]
        # Families with several kinds of layers name the frequencies after the kind.
        if len(buffers) > 1 and kinds:
            buffers = [(name, buffer) for name, buffer in buffers if name.startswith(f"{kinds[layer]}_")]
        if len(buffers) != 1:
            raise UnsupportedModelError(
                f"Expected one set of rotary frequencies for layer {layer}, but {type(structure.decoder).__name__} has "
                f"{len(buffers)} and its config does not tell which is meant. Pass frequencies to decay_curve instead."
            )

        found.append(_frequencies(*buffers[0]))
    return tuple(found)


def decay_curve(
    frequencies: npt.ArrayLike, distances: npt.ArrayLike, scale: float = 1.0
) -> npt.NDArray[np.float64]:
    """Return the bound on attention scores at given distances, as a share of the bound at distance 0.

    Let ``S_j = sum over i < j of exp(1j * distance / scale * theta_i)``. The score of a query and a key at that
    distance is at most ``sum over j of |S_j|`` times a factor that depends on the two alone (RoFormer, arXiv
    2104.09864, section 3.4.3, equations 35 to 37). The paper draws the mean of ``|S_j|`` over ``j = 1 .. d / 2``. Here
    that mean is divided by its value at distance 0, ``(d / 2 + 1) / 2``, so that the curve begins at 1 whatever the
    width.

    Args:
        frequencies: ``theta``, in radians per position, ``(n_pairs,)``, in the order of the pairs.
        distances: Relative distances in positions, ``(n_distances,)``.
        scale: Position divisor of the layer.

    Returns:
        The relative bound, ``(n_distances,)``, from 0 to 1.

    Raises:
        ConfigError: There are no frequencies, or the scale is not a positive number.
    """
    theta = np.atleast_1d(np.asarray(frequencies, dtype=np.float64))
    if theta.ndim != 1 or not theta.size or not np.isfinite(scale) or scale <= 0:
        raise ConfigError(
            f"Expected frequencies (n_pairs,) and a positive scale, but got {theta.shape} and {scale}."
        )

    angles = np.multiply.outer(np.asarray(distances, dtype=np.float64) / scale, theta)
    bound: npt.NDArray[np.float64] = np.abs(np.cumsum(np.exp(1j * angles), axis=-1)).mean(axis=-1)
    return bound / ((theta.size + 1) / 2)


def _frequencies(name: str, buffer: "torch.Tensor") -> npt.NDArray[np.float64]:
    """Return the frequencies that a buffer of a rotary module holds."""
    values = buffer.detach().cpu().double().numpy()
    if name != "embed_positions":
        return np.asarray(values, dtype=np.float64).reshape(-1)

    # The buffer is a table of sines, then cosines. Its row of position 1 holds the frequencies, none of them above 1.
    sines, cosines = np.split(values[1], 2)
    return np.asarray(np.arctan2(sines, cosines), dtype=np.float64)
