"""Write the table of docs/models.md: what the rotary patch makes of every causal-LM family of transformers.

Run as ``python benchmarks/models_table.py`` (about five minutes on one core).
"""

import sys
from collections import Counter
from pathlib import Path

import torch
import transformers

ROOT = Path(__file__).parents[1]

FAMILIES = "## Families\n"
"""The heading of what is written here; what stands above it on the page is written by hand, and stays."""

INTRODUCTION = """
What `lpes_evo.rope.patch_rope` makes of every causal language model family of transformers {version}, tried on tiny
random models. The table is written by `python benchmarks/models_table.py`; a test fails when it is not true.

- *supported*: keeps every promise of `tests/support/rope_promises.py`. A note names a promise that the untouched model
  itself breaks, so that the patch cannot keep it either; everything else holds.
- *refused*: `patch_rope`, or the first forward, raises `UnsupportedModelError` with this reason.
- *no rope*: the family has no rotary embedding; `patch_rope` raises `UnsupportedModelError`.
- *not built*: uses rotary embeddings, but no tiny model could be made to try it on.

{counts}.

| family | state | note |
|---|---|---|
"""

REST = "\n## Wrapped models\n"
"""The heading of what follows the table, which is written by hand, and stays."""


def main() -> None:
    """Try every family and write the table into the page."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from rope_families import model_types
    from rope_promises import PROMISES, outcome, state, table_row

    torch.set_num_threads(1)
    rows = []
    counts: Counter[str] = Counter()
    for model_type in model_types():
        kind = state(model_type)[0]
        broken = [
            name
            for name in PROMISES
            if kind == "supported" and outcome(model_type, name).startswith("broken")
        ]
        rows.append(table_row(model_type))
        counts[kind] += 1
        print(rows[-1], *(f"BROKEN {name}: {outcome(model_type, name)}" for name in broken), flush=True)
    summary = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    introduction = INTRODUCTION.format(version=transformers.__version__, counts=summary)
    page = ROOT / "docs" / "models.md"
    before, heading, found = page.read_text(encoding="utf-8").partition(FAMILIES)
    _, begin, rest = found.partition(REST)
    table = introduction + "\n".join(rows) + "\n"
    page.write_text(before + heading + table + begin + rest, encoding="utf-8")
    print(summary)


if __name__ == "__main__":
    main()
