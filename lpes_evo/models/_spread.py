"""Spread: which part of a model stands on which device of a worker, and `place_model`, which puts the parts there."""

import importlib.util
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from lpes_evo.accelerators import device_kind, devices_of, is_out_of_memory
from lpes_evo.errors import ModelError, install_command


def spread(model: Any, devices: Sequence[str]) -> dict[str, str]:
    """Return the device of each part of a model, so that every device holds about as many bytes of weights.

    Consecutive layers stay together, so that hidden states change the device once for each further device. The rotary
    modules and whatever else precedes the layers stand on the first device, which takes the input. What follows the
    layers stands on the last device. An output head that shares its weights with the embedding stands beside it.

    Args:
        model: A causal language model of transformers; it may be on the meta device.
        devices: The devices.

    Returns:
        The device of each part by the name of the module, in the order of the model.

    Raises:
        ModelError: There are more devices than layers.
        UnsupportedModelError: The model has no decoder layers that could be found.
    """
    from lpes_evo.rope import find_structure

    layers = find_structure(model).layers
    if len(devices) > len(layers):
        raise ModelError(
            f"Expected at most as many devices as layers, which are {len(layers)}, but got {len(devices)}. Give each "
            "worker fewer devices."
        )

    parts = _parts(model, layers)
    is_layer = {id(layer): number for number, layer in enumerate(layers)}
    numbers = [is_layer.get(id(part)) for part in parts.values()]
    last = max(place for place, number in enumerate(numbers) if number is not None)
    shared = _shared_weights(parts)

    # Weights of the two ends count where they will stand, beside the first and the last layer.
    beside = []
    sizes = [n_bytes(layer) for layer in layers]
    for place, (name, part) in enumerate(parts.items()):
        layer = numbers[place]
        if layer is None:
            is_first = place < last or _has_rotary(part) or name in shared
            layer = 0 if is_first else len(layers) - 1
            sizes[layer] += 0 if name in shared else n_bytes(part)
        beside.append(layer)

    groups = _cut(sizes, len(devices))
    return {name: devices[groups[layer]] for name, layer in zip(parts, beside, strict=True)}


def place_model(
    model: Any, device: str, on_progress: Callable[[int, int], None] = lambda _done, _whole: None
) -> None:
    """Put a model on its device, or spread it over the devices of a group.

    Args:
        model: A causal language model of transformers on the CPU.
        device: A device, or a group such as ``cuda:0+cuda:1``.
        on_progress: Called with the bytes that are in place, and with those of the whole model.

    Raises:
        ModelError: The memory does not suffice, accelerate is missing, or there are more devices than layers.
        UnsupportedModelError: The model has no decoder layers that could be found.
    """
    devices = devices_of(device)
    if len(devices) > 1:
        require_accelerate(device)
    places = spread(model, devices)
    whole = n_bytes(model)

    try:
        done = 0
        for name, place in places.items():
            part = model.get_submodule(name)
            part.to(place)
            done += n_bytes(part)
            on_progress(min(done, whole), whole)

        # Weights that a module around the layers holds itself are in no part.
        inside = tuple(f"{name}." for name in places)
        for name, weight in itertools.chain(model.named_parameters(), model.named_buffers()):
            if not name.startswith(inside):
                weight.data = weight.data.to(devices[0])

        if len(devices) > 1:
            _dispatch(model, places, devices)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise ModelError(
            f"Expected room for weights of {whole / 2**30:.1f} GiB on {device}, but the memory ran out. Give each "
            "worker more GPUs, as in --devices cuda:0+cuda:1; lpes-evo estimate says how many the model needs."
        ) from error


def require_accelerate(device: str) -> None:
    """Refuse a group of devices where accelerate is missing.

    Args:
        device: The group, for the message.

    Raises:
        ModelError: accelerate is not installed.
    """
    if importlib.util.find_spec("accelerate") is None:
        raise ModelError(
            f"Spreading a model over {device} needs accelerate, not installed here. Run in the clone: "
            f"{install_command('spread')}"
        )


def refuse_group(device: str, work: str) -> None:
    """Refuse a group of devices for work that is done on one.

    Args:
        device: The device or group.
        work: The work, for the message, such as ``a benchmark``.

    Raises:
        ModelError: It is a group.
    """
    if len(devices_of(device)) > 1:
        raise ModelError(
            f"Expected one device for {work}, but got the group {device!r:.80}. Name one of them."
        )


def n_bytes(module: Any) -> int:
    """Return the bytes of the weights and buffers of a module; shared weights count once."""
    return sum(weight.nbytes for weight in itertools.chain(module.parameters(), module.buffers()))


def _dispatch(model: Any, places: dict[str, str], devices: Sequence[str]) -> None:
    """Register the hooks of accelerate that move what passes from one device to the next."""
    from accelerate import dispatch_model

    logger = logging.getLogger("accelerate.big_modeling")
    level = logger.level
    if device_kind(devices[0]) == "cpu":
        # accelerate takes every weight on the CPU for one that is kept there for a GPU.
        logger.setLevel(logging.ERROR)
    try:
        dispatch_model(
            model,
            places,
            main_device=devices[0],
            skip_keys=getattr(model, "_skip_keys_device_placement", None),
            force_hooks=True,
        )
    finally:
        logger.setLevel(level)


def _parts(model: Any, layers: Sequence[Any]) -> dict[str, Any]:
    """Return the decoder layers, and the largest other modules that contain none, by name in the order of the model."""
    wanted = {id(layer) for layer in layers}
    parts: dict[str, Any] = {}

    def collect(module: Any, name: str) -> None:
        if id(module) in wanted or not any(id(inner) in wanted for inner in module.modules()):
            parts[name] = module
            return
        for own_name, child in module.named_children():
            collect(child, f"{name}.{own_name}" if name else own_name)

    collect(model, "")
    return parts


def _has_rotary(part: Any) -> bool:
    from lpes_evo.rope import is_rotary

    return any(map(is_rotary, part.modules()))


def _shared_weights(parts: dict[str, Any]) -> set[str]:
    """Return the parts that hold a weight of an earlier part."""
    owner: dict[int, str] = {}
    return {
        name
        for name, part in parts.items()
        for weight in part.parameters()
        if owner.setdefault(id(weight), name) != name
    }


def _cut(sizes: Sequence[int], n_groups: int) -> list[int]:
    """Cut a row of sizes into groups, so that the largest group is as small as possible.

    Args:
        sizes: The sizes, at least ``n_groups`` of them.
        n_groups: Number of groups, none of which is empty.

    Returns:
        The group of each entry.
    """

    def cut(limit: int) -> list[int]:
        groups, total = [0], sizes[0]
        for place, size in enumerate(sizes[1:], start=1):
            # So many entries are left that each of the missing groups gets one.
            is_short = len(sizes) - place == n_groups - 1 - groups[-1]
            if total + size > limit or is_short:
                groups.append(groups[-1] + 1)
                total = size
            else:
                groups.append(groups[-1])
                total += size
        return groups

    low, high = max(sizes), sum(sizes)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if cut(middle)[-1] < n_groups else (middle + 1, high)
    return cut(low)
