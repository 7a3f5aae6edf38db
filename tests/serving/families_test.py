"""Every family that the patch supports, exported: the lines of docs/serving.md are what is found here.

``python benchmarks/serving_table.py`` writes them.
"""

from pathlib import Path

import pytest
import transformers

from export_promises import export_row, export_state
from rope_families import model_types

TABLE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
ROWS = [
    line for line in TABLE.partition("| family | state | reason |\n")[2].splitlines() if line.startswith("| ")
]
FAMILIES = [row.split(" | ")[0].removeprefix("| ") for row in ROWS]
PINNED = f"transformers\n{transformers.__version__}" in TABLE
COMMON = ("llama", "mistral", "qwen2", "gemma3", "mixtral", "llama4_text", "falcon_h1")
"""Of every kind one: plain, several rotary sets, converted weights, complex tables, buffers that are filled late."""


@pytest.mark.skipif(not PINNED, reason="the table was made with another transformers")
@pytest.mark.parametrize(
    "model_type",
    [name if name in COMMON else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES],
)
def test_family_is_exported_or_refused_as_the_table_says(model_type: str) -> None:
    assert export_state(model_type)[0] in ("exported", "refused")
    assert export_row(model_type) in ROWS


@pytest.mark.skipif(not PINNED, reason="the table was made with another transformers")
def test_the_table_has_every_family_that_the_patch_supports() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    supported = [name for name in model_types() if f"\n| {name} | supported |" in page]
    assert supported == FAMILIES
