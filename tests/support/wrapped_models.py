"""Wrappers around a model of transformers, and the model that each must equal."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rope_families import tiny_model


def adapted(model: Any, _folder: Path) -> Any:
    """Return a model of peft with random LoRA weights, the same every time."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(1)
    config = peft.LoraConfig(
        r=2, target_modules=["q_proj", "k_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )
    return peft.get_peft_model(model, config).eval()


def bare_adapted(model: Any, folder: Path) -> Any:
    """Return the tuner inside a model of peft."""
    return adapted(model, folder).base_model


def compiled(model: Any, _folder: Path) -> Any:
    """Return a compiled model; the backend runs the graphs that were traced as they are."""
    return torch.compile(model, backend="eager")


def dispatched(model: Any, folder: Path) -> Any:
    """Return a model whose middle layer is on the disk."""
    accelerate = pytest.importorskip("accelerate")
    places = dict.fromkeys(("model.embed_tokens", "model.rotary_emb", "model.norm", "lm_head"), "cpu")
    places |= {f"model.layers.{index}": "disk" if index == 1 else "cpu" for index in range(3)}
    return accelerate.dispatch_model(
        model, places, main_device="cpu", offload_dir=str(folder / "offloaded"), force_hooks=True
    )


def parallel(model: Any, _folder: Path) -> Any:
    """Return a model that would be spread over the GPUs, if there were several."""
    return torch.nn.DataParallel(model)


def compiled_and_adapted(model: Any, folder: Path) -> Any:
    """Return a wrapper in a wrapper."""
    return compiled(adapted(model, folder), folder)


WRAPPERS: dict[str, Callable[[Any, Path], Any]] = {
    wrapper.__name__: wrapper
    for wrapper in (adapted, bare_adapted, compiled, dispatched, parallel, compiled_and_adapted)
}


def wrapped_and_plain(name: str, folder: Path) -> tuple[Any, Any]:
    """Return a wrapped tiny model, and a model of its own without the wrapper that computes the same."""
    plain = tiny_model("llama")
    wrapped = WRAPPERS[name](copy.deepcopy(plain), folder)
    # The layers of an adapter stay in the model without its wrapper.
    return wrapped, adapted(plain, folder).get_base_model() if "adapted" in name else plain


def prompt_tuned(model: Any) -> Any:
    """Return a model of peft that puts three learned tokens in front of every prompt."""
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(model, peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))


def on_two_devices(model: Any) -> Any:
    """Return what DataParallel is on a machine with two GPUs."""
    found = torch.nn.DataParallel(model)
    found.device_ids = [0, 1]
    return found
