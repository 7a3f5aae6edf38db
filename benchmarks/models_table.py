"""Write docs/models.md: what the rotary patch makes of every causal-LM family of the installed transformers.

Run as ``python benchmarks/models_table.py`` (about five minutes on one core).
"""

import sys
from collections import Counter
from pathlib import Path

import torch
import transformers

ROOT = Path(__file__).parents[1]

HEADER = """# Model families

## What loading makes of a config

**Window.** `max_position_embeddings` means different things, and the rotary type says which:

- `default`, `llama3`, `longrope`, and parameters by layer type (Gemma 3, OLMo 3): it is the window after extension.
- `yarn`: the window is the larger one of it and `factor * original_max_position_embeddings`.
- `linear`, `dynamic`: it is the window before extension, and the window is `factor` times as large.

Some published configs of the type `linear` state the window after extension all the same, so there a further statement
bounds the product from above: `max_sequence_length`, `model_max_length` or the like in the config, else the tokenizer's
`model_max_length`. Where the window comes out too small, state `max_sequence_length` in config.json; where it comes out
too large, pass `--max-length`. A sliding window of attention is no bound.

**Types that follow the length** (`dynamic`, `longrope`, PhiMoE's own). The type `dynamic` of transformers keeps the
base of the longest input so far, and all three choose by the longest row of a batch. Here every request has the
frequencies that a lone run on a fresh model would have, with and without scales, so no score depends on what ran
before or beside it: where known answers are scored, the length is that of prompt and answer without the last token; in
generation it is that of prompt and tokens so far, and cached keys keep the rotation they were given, as in a lone
`generate`. Only rows of one length share a forward pass, and none share a prefix, so such models take longer.
lm-evaluation-harness pads its batches, so it takes them with `batch_size=1` alone. `patch_rope` by itself leaves a
model as transformers made it; `lpes_evo.rope.forget_lengths(model)` does this part.

**GGUF files.** Transformers reads the base of most architectures, and little else of the rotation. Here the rest is
put into the config: `rope_freqs.weight` (as type `llama3` where the factors are those of Llama 3, else as a `longrope`
whose short and long factors are the same), `rope_factors_short` and `rope_factors_long`, `rope.scaling` of the types
linear, yarn and longrope, the share of a head that is rotated, and bases that were dropped. What no config can say
(`yarn_log_multiplier`, `alpha`, unknown keys and the like) is refused with its key. A note in the output and in the
record of a run says what was put in, and the hash of the weights counts it.

## Families

INTRODUCTION = """
What `lpes_evo.rope.patch_rope` makes of every causal language model family of transformers {version}, tried on tiny
random models. The table is written by `python benchmarks/models_table.py`; a test fails when it is not true.

- *supported*: keeps every promise of `tests/rope/rope_promises.py`. A note names a promise that the untouched model
  itself breaks, so that the patch cannot keep it either; everything else holds.
- *refused*: `patch_rope`, or the first forward, raises `UnsupportedModelError` with this reason.
- *no rope*: the family has no rotary embedding; `patch_rope` raises `UnsupportedModelError`.
- *not built*: uses rotary embeddings, but no tiny model could be made to try it on.

{counts}.

| family | state | note |
|---|---|---|
"""

REST = "\n## Wrapped models\n"
"""What follows the table begins with this, is written by hand, and stays."""


def main() -> None:
    """Try every family and write the table; what stands below it on the page stays."""
    sys.path.insert(0, str(ROOT / "tests" / "rope"))
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
    text = HEADER.format(version=transformers.__version__, counts=summary) + "\n".join(rows) + "\n"
    page = ROOT / "docs" / "models.md"
    _, begin, rest = page.read_text(encoding="utf-8").partition(REST)
    page.write_text(text + begin + rest, encoding="utf-8")
    print(summary)


if __name__ == "__main__":
    main()
