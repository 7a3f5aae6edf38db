import dataclasses
import sys

import pytest
import torch

from lpes_evo.accelerators import (
    as_float64,
    device_kind,
    empty_caches,
    free_memory,
    has_mps,
    is_gpu,
    is_out_of_memory,
    mps_fault,
    wait_for,
)
from lpes_evo.bench import peak_meter, run_bench
from lpes_evo.errors import ConfigError
from lpes_evo.evals import EvalConfig, EvalTarget, describe_target
from lpes_evo.models import load_model
from lpes_evo.problems import default_batch_tokens


class Apple:
    """Stands in for what torch says and does about Apple's GPU."""

    def __init__(self, monkeypatch, *, is_built=True, is_available=True):
        self.calls = []
        monkeypatch.setattr(torch.backends.mps, "is_built", lambda: is_built)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: is_available)
        for name in ("empty_cache", "synchronize"):
            monkeypatch.setattr(torch.mps, name, lambda name=name: self.calls.append(name))


def test_devices_are_told_apart_by_their_kind():
    assert [device_kind(name) for name in ("cpu", "cuda:3", "mps", "mps:0")] == ["cpu", "cuda", "mps", "mps"]
    assert [name for name in ("cpu", "cuda", "cuda:1", "mps", "meta") if is_gpu(name)] == [
        "cuda",
        "cuda:1",
        "mps",
    ]


def test_a_build_without_support_is_told_from_a_machine_without_the_gpu(monkeypatch):
    Apple(monkeypatch, is_built=False, is_available=False)
    assert "this build of torch" in mps_fault()
    Apple(monkeypatch, is_available=False)
    assert "this machine has none that torch can use" in mps_fault()
    assert not has_mps()
    Apple(monkeypatch)
    assert mps_fault() is None
    assert has_mps()


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("MPS backend out of memory (MPS allocated: 17.9 GB, max allowed: 18.1 GB)."),
        RuntimeError("Invalid buffer size: 24.00 GB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
        torch.OutOfMemoryError("CUDA out of memory."),
        MemoryError(),
    ],
)
def test_want_of_memory_is_recognised_on_every_device(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize("error", [RuntimeError("size mismatch"), ValueError("MPS backend out of memory")])
def test_other_errors_are_not_want_of_memory(error):
    assert not is_out_of_memory(error)


def test_the_caches_of_the_gpu_of_apple_are_emptied(monkeypatch):
    apple = Apple(monkeypatch)
    empty_caches()
    assert apple.calls == ["empty_cache"]
    apple = Apple(monkeypatch, is_available=False)
    empty_caches()
    assert apple.calls == []


def test_batches_on_the_gpu_of_apple_are_those_of_a_gpu():
    assert default_batch_tokens("mps") == default_batch_tokens("cuda") > default_batch_tokens("cpu")


def test_answers_on_the_gpu_of_apple_come_in_batches_of_a_gpu():
    loaded = dataclasses.replace(load_model("tiny", device="cpu"), device="mps")
    config = EvalConfig(model={"name": "tiny"}, tasks=["recall:8"])
    facts = describe_target(EvalTarget.of(loaded, config))
    assert (facts["device"], facts["default_batch_tokens"]) == ("mps", 16384)


def test_a_clock_waits_for_the_gpu_of_apple_and_not_for_the_cpu(monkeypatch):
    apple = Apple(monkeypatch)
    wait_for("cpu")
    assert apple.calls == []
    wait_for("mps:0")
    assert apple.calls == ["synchronize"]


def test_no_peak_of_memory_is_made_up_for_the_gpu_of_apple():
    meter = peak_meter("mps")
    meter.begin()
    assert meter.end() is None
    assert meter.how == "not measured: torch keeps no peak of the memory of Apple's GPU"


def test_the_clock_of_the_processor_is_refused_on_the_gpu_of_apple(monkeypatch):
    on_apple = dataclasses.replace(load_model("tiny", device="cpu"), device="mps")
    monkeypatch.setattr("lpes_evo.models.load_model", lambda *_arguments, **_options: on_apple)
    with pytest.raises(ConfigError, match="--clock processor on a CPU alone, but the model is on mps"):
        run_bench("tiny", None, device="mps", clock="processor")


def test_the_room_on_the_gpu_of_apple_is_what_the_system_recommends(monkeypatch):
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 100)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 30)
    assert free_memory("mps") == 70


def test_float64_is_computed_on_the_cpu_for_the_gpu_of_apple():
    class OnApple:
        device = torch.device("mps")

        def cpu(self):
            return torch.ones(2)

    assert as_float64(OnApple()).dtype == torch.float64
    assert as_float64(torch.ones(2, dtype=torch.float16)).dtype == torch.float64


def test_nobody_asks_for_the_gpu_of_apple_where_torch_is_not_loaded(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    empty_caches()
