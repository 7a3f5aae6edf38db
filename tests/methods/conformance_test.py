"""Every method, put to every promise on the families that every supported transformers has."""

from functools import lru_cache
from typing import Any

import pytest
import transformers
from method_promises import CASES, PROMISES, model_of
from rope_families import CONFIG_MAPPING

FAMILIES = ["llama", "qwen3", "mistral", "gemma2", "gemma3_text", "phi3", "gpt_neox", "smollm3"]
FEWER = ["mistral", "gemma3_text"]


@lru_cache(maxsize=1)
def built(model_type: str) -> Any:
    return model_of(model_type)


@pytest.mark.parametrize(
    ("model_type", "name"),
    [
        (model_type, name)
        for model_type in FAMILIES
        for name, case in CASES.items()
        if not case.variant or model_type in FEWER
    ],
)
def test_method_keeps_every_promise(model_type: str, name: str, tmp_path: Any) -> None:
    if model_type not in CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {model_type}")
    model = built(model_type)
    for promise in PROMISES.values():
        promise(model, CASES[name], tmp_path)
