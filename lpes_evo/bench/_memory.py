"""PeakMeter: the peak memory of some work beyond what was held before it, as the device or the kernel counts it."""

import ctypes
import gc
from abc import ABC, abstractmethod
from pathlib import Path

from lpes_evo.accelerators import device_kind, is_gpu

_PROCESS = Path("/proc/self")
_MMAP_THRESHOLD = -3
"""The option M_MMAP_THRESHOLD of mallopt(3)."""


class PeakMeter(ABC):
    """Measures the peak memory between `begin` and `end`.

    Attributes:
        how: The quantity that is counted, as text for readers of a result.
    """

    how: str

    @abstractmethod
    def begin(self) -> None:
        """Start from the memory that is held now."""

    @abstractmethod
    def end(self) -> int | None:
        """Return the peak since `begin` in bytes, beyond what was held then; ``None`` if it is not known."""


class _GpuMeter(PeakMeter):
    """The peak of the allocator of torch on an NVIDIA GPU."""

    how = "torch.cuda.max_memory_allocated, beyond what was allocated before the method"

    def __init__(self, device: str) -> None:
        self._device = device
        self._before = 0

    def begin(self) -> None:
        import torch

        gc.collect()
        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        self._before = torch.cuda.memory_allocated(self._device)

    def end(self) -> int:
        import torch

        return int(torch.cuda.max_memory_allocated(self._device)) - self._before


class _ResidentMeter(PeakMeter):
    """The peak of the resident memory of this process on Linux."""

    how = (
        "the kernel's peak of resident memory of the process (VmHWM, set back each time) beyond what was resident "
        "before the method, in runs of their own in which freed memory goes back to the system"
    )

    def __init__(self) -> None:
        self._before = 0
        library = ctypes.CDLL(None)
        self._trim = getattr(library, "malloc_trim", None)
        self._set_option = getattr(library, "mallopt", None)

    def begin(self) -> None:
        gc.collect()
        if self._set_option is not None:
            # Otherwise the C library would keep freed blocks, and often take new ones beside them.
            self._set_option(_MMAP_THRESHOLD, 64 * 1024)
        if self._trim is not None:
            self._trim(0)

        # 5 sets the peak back to what is resident now, see proc_pid_clear_refs(5).
        (_PROCESS / "clear_refs").write_text("5")
        self._before = _status("VmRSS")

    def end(self) -> int:
        peak = max(0, _status("VmHWM") - self._before)
        if self._set_option is not None:
            # This is where the own choice of the C library ends up in a process with large blocks.
            self._set_option(_MMAP_THRESHOLD, 32 * 2**20)
        return peak


class _NoMeter(PeakMeter):
    """The meter where no peak can be measured."""

    def __init__(self, reason: str) -> None:
        self.how = f"not measured: {reason}"

    def begin(self) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Return ``None``."""


def peak_meter(device: str) -> PeakMeter:
    """Return the meter of a device.

    Args:
        device: ``cpu``, ``cuda:N`` or ``mps``.

    Returns:
        The meter. On Apple's GPU, whose allocator keeps no peak, and on a system whose kernel cannot reset the peak of
        a process, it measures nothing and says why.
    """
    if device_kind(device) == "cuda":
        return _GpuMeter(device)
    if is_gpu(device):
        return _NoMeter("torch keeps no peak of the memory of Apple's GPU")
    if not (_PROCESS / "clear_refs").exists():
        return _NoMeter("on a CPU it takes /proc/self/clear_refs of Linux, which is not here")

    try:
        meter = _ResidentMeter()
        # Without this end, timed runs would run under the option of the C library that the begin sets.
        meter.begin()
        meter.end()
    except OSError as error:
        return _NoMeter(f"/proc/self/clear_refs cannot be used here: {error.strerror}")
    return meter


def _status(field: str) -> int:
    """Return a size of /proc/self/status in bytes."""
    for line in (_PROCESS / "status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise OSError(0, f"no {field} in /proc/self/status")
