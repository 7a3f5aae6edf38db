"""Models that keep their scales: ``from_pretrained`` reads them beside the weights, ``save_pretrained`` writes them."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lpes_evo.errors import ModelError, ScalesError
from lpes_evo.hub import fetch_file, is_repository_name
from lpes_evo.scales import Scales, load_scales

_SCALES, _ADAPTER = "scales.json", "adapter_config.json"


def from_pretrained(
    name: str | Path,
    *,
    scales: Scales | Sequence[float] | str | Path | None = None,
    revision: str | None = None,
    **options: Any,
) -> Any:
    """Load a causal language model of transformers under its scales, which ``save_pretrained`` writes beside it.

    A folder or a repository that was written so is loaded again without ``scales``. An adapter of peft is put on its
    base, and keeps its scales likewise; so does an adapter that is put on the model later. The scales can be changed or
    taken off with `patch_rope` and `lpes_evo.rope.unpatch_rope`.

    Args:
        name: Hub id or folder of a model, or of an adapter of peft.
        scales: The scales, a run folder, a ``scales.json``, a repository with one, or one number for each layer. When
            ``None``, those that stand beside the weights.
        revision: Revision of the model on the hub.
        **options: Options of ``from_pretrained`` of transformers, such as ``dtype`` and ``device_map``.

    Returns:
        The model of transformers, or of peft, in evaluation mode.

    Raises:
        ScalesError: There are no scales, they cannot be read, or they are for another number of layers.
        ModelError: The model cannot be loaded, or was written by an export and has scales of its own.
        UnsupportedModelError: The architecture has no rotary embedding that can be scaled layer by layer.

    Example:
        >>> model = from_pretrained("Qwen/Qwen2.5-7B-Instruct", scales="runs/qwen")
        >>> model.save_pretrained("qwen-lpes")
        >>> model = from_pretrained("qwen-lpes")
    """
    from lpes_evo.rope import count_layers, patch_rope

    name = str(name)
    found = _read_scales(name, scales, revision)
    model = _load(name, revision, options)
    n_layers = count_layers(model)
    if not isinstance(found, Scales):
        found = _by_hand(name, found, n_layers)
    if found.n_layers != n_layers:
        raise ScalesError(
            f"Expected scales for a model of n_layers = {n_layers}, but got {found.n_layers} (found on {found.model}). "
            "Search scales for this model."
        )
    kept = found
    patch = patch_rope(model, kept.scales)
    patch.save_with(lambda folder: kept.save(folder / _SCALES))
    return model


def _read_scales(
    name: str, scales: Scales | Sequence[float] | str | Path | None, revision: str | None
) -> Scales | list[float]:
    """Return the scales that are given, or those beside the weights."""
    if isinstance(scales, Scales):
        return scales
    if isinstance(scales, (str, os.PathLike)):
        return load_scales(scales)
    if scales is not None:
        return [float(scale) for scale in scales]
    folder = Path(name).expanduser()
    if folder.is_dir() and not (folder / _SCALES).is_file():
        raise ScalesError(
            f"Expected scales beside the weights in {name}, but it has no {_SCALES}. Pass scales=, a run folder or a "
            "file."
        )
    return load_scales(folder if folder.is_dir() else name, revision=None if folder.is_dir() else revision)


def _by_hand(name: str, values: list[float], n_layers: int) -> Scales:
    """Return scales that no search has found: the curve goes from layer to layer in straight lines."""
    from lpes_evo.scales import check_scales

    checked = check_scales(values, n_layers).tolist()
    points = tuple((float(layer), scale) for layer, scale in enumerate(checked))
    return Scales(name, tuple(checked), points, "none", (), "linear")


def _load(name: str, revision: str | None, options: dict[str, Any]) -> Any:
    """Return a model of transformers, or an adapter of peft on its base."""
    kind: Any
    if _is_adapter(name, revision):
        import peft

        kind = peft.AutoPeftModelForCausalLM
    else:
        import transformers

        kind = transformers.AutoModelForCausalLM
        # Pickles are never read.
        options = {"use_safetensors": True} | options
    if revision is not None:
        options = options | {"revision": revision}
    try:
        return kind.from_pretrained(name, **options).eval()
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(
            f"Expected a causal language model at {name!r}, but loading failed: {reason:.300}"
        ) from error


def _is_adapter(name: str, revision: str | None) -> bool:
    """Return whether a folder or a repository holds an adapter of peft."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return (folder / _ADAPTER).is_file()
    if not is_repository_name(name):
        return False
    try:
        fetch_file(name, _ADAPTER, revision=revision, error=ModelError)
    except ModelError:
        return False
    return True
