"""Every causal-LM family of transformers, put to every promise of the patch.

The lines of docs/models.md are compared with what is found here; ``python benchmarks/models_table.py`` writes them.
"""

from pathlib import Path

import pytest
import transformers

from rope_families import model_types
from rope_promises import PROMISES, outcome, state, table_row

TABLE = Path(__file__).parents[2] / "docs" / "models.md"

PINNED = f"transformers {transformers.__version__}" in TABLE.read_text(encoding="utf-8")


COMMON = (
    "llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "gpt_neox", "deepseek_v2",
)  # fmt: skip
"""Families that are tried in every run of the tests; the others are slow together."""


@pytest.mark.parametrize(
    "model_type",
    [
        name if name in COMMON else pytest.param(name, marks=pytest.mark.slow)
        for name in (model_types() if PINNED else [])
    ],
)
def test_family_keeps_every_promise_and_the_table_says_so(model_type: str) -> None:
    if state(model_type)[0] == "supported":
        broken = {
            name: found for name in PROMISES if (found := outcome(model_type, name)).startswith("broken")
        }
        assert not broken
    assert table_row(model_type) in TABLE.read_text(encoding="utf-8").splitlines()


@pytest.mark.skipif(not PINNED, reason="the table was made with another transformers")
def test_table_has_no_other_families() -> None:
    rows = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows[1:]] == model_types()


@pytest.mark.skipif(not PINNED, reason="the table was made with another transformers")
def test_at_least_a_hundred_families_are_supported() -> None:
    assert TABLE.read_text(encoding="utf-8").count(" | supported | ") >= 100
