"""Every method, put to every promise on the families that every supported transformers has."""

from functools import lru_cache
from typing import Any

import pytest
import transformers

from lpes_evo.errors import UnsupportedModelError
from method_promises import CASES, PROMISES, enter, model_of
from rope_families import CONFIG_MAPPING

FAMILIES = ["llama", "qwen3", "mistral", "gemma2", "gemma3_text", "phi3", "gpt_neox", "smollm3"]
FEWER = ["mistral", "gemma3_text"]
UNUSUAL = ["deepseek_v2", "llama4_text", "cohere_compass_text", "granite_swa", "lfm3"]
"""Complex tables, positions of several axes, and decoders that read attributes of their rotary modules."""
REFUSED = {
    ("lfm3", "ntk"): "is of type proportional",
    ("lfm3", "yarn"): "is of type proportional",
}
if transformers.__version__.startswith("4."):
    REFUSED["llama4_text", "yarn"] = "does not have Llama4TextRotaryEmbedding in that type"


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


@pytest.mark.parametrize("name", ["pi", "ntk", "yarn", "attention-buckets"])
@pytest.mark.parametrize("model_type", UNUSUAL)
def test_unusual_rotary_modules_keep_every_promise_or_are_refused(
    model_type: str, name: str, tmp_path: Any
) -> None:
    if model_type not in CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {model_type}")
    model = built(model_type)
    if (model_type, name) in REFUSED:
        with pytest.raises(UnsupportedModelError, match=REFUSED[model_type, name]):
            enter(CASES[name].method(model, tmp_path), model)
        return
    for promise in PROMISES.values():
        promise(model, CASES[name], tmp_path)
