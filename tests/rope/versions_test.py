"""The promises on the families that every supported transformers has.

CI runs this file with the newest transformers and with the last 4.x, whose models pass positions differently.
"""

import pytest
import transformers

from rope_families import CONFIG_MAPPING
from rope_promises import PROMISES, outcome, state

FAMILIES = [
    "llama",
    "qwen2",
    "qwen3",
    "mistral",
    "gemma2",
    "gemma3_text",
    "phi3",
    "gpt_neox",
    "olmo2",
    "smollm3",
]


@pytest.mark.parametrize("model_type", FAMILIES)
def test_common_family_keeps_every_promise(model_type: str) -> None:
    if model_type not in CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {model_type}")
    assert state(model_type) == ("supported", "")
    broken = {name: found for name in PROMISES if (found := outcome(model_type, name)).startswith("broken")}
    assert not broken
