"""Accelerators: names of devices, and the differences in torch between NVIDIA's GPUs, Apple's and the CPU."""

import gc
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = [
    "as_float64",
    "device_kind",
    "devices_of",
    "empty_caches",
    "free_memory",
    "has_mps",
    "input_device",
    "is_gpu",
    "is_out_of_memory",
    "mps_fault",
    "wait_for",
]

# torch has an error class for the memory of CUDA devices only. Its allocators for the CPU and for Apple's GPU, and
# libraries with their own allocators, raise plain runtime errors.
_SIGNS_OF_NO_MEMORY = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "MPS backend out of memory",
    "Invalid buffer size",
)


def device_kind(device: str) -> str:
    """Return the kind of a device, such as ``cuda`` for ``cuda:1``; the devices of a group are of one kind."""
    return devices_of(device)[0].partition(":")[0]


def devices_of(device: str) -> tuple[str, ...]:
    """Return the devices of a group such as ``cuda:0+cuda:1``; a single device is a group of one."""
    return tuple(device.split("+"))


def input_device(model: Any) -> "torch.device":
    """Return the device that takes the input of a model, which is that of its embedding.

    The layers and the output head of a model that is spread over several devices may be elsewhere. accelerate moves
    what passes from one part of the model to the next.

    Args:
        model: A model of transformers, or its decoder.
    """
    import torch

    try:
        embedding = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    except NotImplementedError:  # code that is shipped with a model may not name its embedding
        embedding = None
    place: torch.device = next((model if embedding is None else embedding).parameters()).device

    # Weights that accelerate keeps on the disk stand on the meta device between two passes.
    hook = getattr(embedding, "_hf_hook", None)
    if place.type == "meta" and hook is not None:
        return torch.device(hook.execution_device)
    return place


def is_gpu(device: str) -> bool:
    """Return whether a device, or a kind of device, is a GPU."""
    return device_kind(device) in ("cuda", "mps")


def has_mps() -> bool:
    """Return whether torch can compute on Apple's GPU here."""
    return mps_fault() is None


def mps_fault() -> str | None:
    """Return the reason, for a message, why torch cannot compute on Apple's GPU here; ``None`` if it can."""
    import torch

    if not torch.backends.mps.is_built():
        return f"this build of torch ({torch.__version__}) has no support for it, which builds for macOS have"
    if not torch.backends.mps.is_available():
        return "this machine has none that torch can use, which takes Apple silicon and macOS 12.3 or later"
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that a device, or the machine, has no memory left.

    Args:
        error: The error.
    """
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS_OF_NO_MEMORY)


def empty_caches() -> None:
    """Free the memory of all devices that is no longer used.

    Call this function where no frame holds tensors of a failed attempt.
    """
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    if has_mps():
        torch.mps.empty_cache()


def free_memory(device: str) -> int:
    """Return the free memory of a GPU, or the memory of the machine, in bytes.

    Args:
        device: ``cpu``, ``cuda:N`` or ``mps``.
    """
    import torch

    if device_kind(device) == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if is_gpu(device):
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def wait_for(device: str) -> None:
    """Wait until a device has done the work that it was given; a GPU works later than it is called.

    Args:
        device: ``cpu``, which has done its work whenever it returns, ``cuda:N`` or ``mps``.
    """
    import torch

    if device_kind(device) == "cuda":
        torch.cuda.synchronize(device)
    elif is_gpu(device):
        torch.mps.synchronize()


def as_float64(values: "torch.Tensor") -> "torch.Tensor":
    """Return values in float64, on the CPU where they are on Apple's GPU, which has no float64."""
    return (values.cpu() if values.device.type == "mps" else values).double()
