"""Accelerators: the differences in torch between NVIDIA's GPUs (``cuda``), Apple's (``mps``) and the CPU."""

import gc
import sys

__all__ = ["device_kind", "empty_caches", "has_mps", "is_gpu", "is_out_of_memory", "mps_fault"]

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
    """Return the kind of a device, such as ``cuda`` for ``cuda:1``."""
    return device.partition(":")[0]


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
    """Free the memory that is no longer used. Call this function where no frame holds tensors of a failed attempt."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    if has_mps():
        torch.mps.empty_cache()
