"""Write the table of docs/serving.md: which families of the installed transformers can be exported under scales.

Run as ``python benchmarks/serving_table.py`` (about five minutes on one core).
"""

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADING = "## Families\n"

INTRODUCTION = """
What `lpes-evo export` makes of every family that `patch_rope` supports (see [models.md](models.md)), in transformers
{version}, tried on tiny random models: each is exported, loaded by transformers, and its logits are compared with those
under `patch_rope`. The table is written by `python benchmarks/serving_table.py`; a test fails when it is not true.

{counts}.

| family | state | reason |
|---|---|---|
"""


def main() -> None:
    """Export every family and put the table into the page."""
    # Generated code is cached where no user's models are; transformers reads this when it is imported.
    os.environ["HF_MODULES_CACHE"] = tempfile.mkdtemp()
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    import torch
    import transformers

    from export_promises import export_row, export_state
    from rope_families import model_types
    from rope_promises import state

    torch.set_num_threads(1)
    families = [model_type for model_type in model_types() if state(model_type)[0] == "supported"]
    rows = [export_row(model_type) for model_type in families]
    counts = Counter(export_state(model_type)[0] for model_type in families)
    page = ROOT / "docs" / "serving.md"
    head = page.read_text(encoding="utf-8").partition(HEADING)[0]
    text = INTRODUCTION.format(
        version=transformers.__version__,
        counts=", ".join(f"{number} {kind}" for kind, number in counts.most_common()),
    )
    page.write_text(head + HEADING + text + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
