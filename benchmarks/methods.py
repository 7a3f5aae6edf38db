"""Choose the free setting of every method on the search data of a run, for a comparison on other data.

``python benchmarks/methods.py data CONFIG --output FILE`` writes the search examples of a configuration as lines of
prompt and answer, on which ``lpes-evo train-moice`` trains routers.

``python benchmarks/methods.py choose CONFIG SPEC...`` scores these examples under every spec (see docs/methods.md) and
prints nats per token of the right answers and accuracy, by method the best one by nats, and the ``--methods`` of an
evaluation of them all. Scores are kept in ``--output``, so it can be stopped and started again, also with more specs.

``python benchmarks/methods.py pairs FOLDER`` reads a finished evaluation of one task and prints LPES minus every other
method with the paired 95 % bootstrap interval over texts.
"""

import argparse
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from common import parser

from lpes_evo import Journal, load_config, load_model
from lpes_evo.methods import make_method, score_row_by_row
from lpes_evo.problems import encode_examples, score_answers, sharing_is_sound
from lpes_evo.reporting import Table, difference_text
from lpes_evo.runs import draw_examples
from lpes_evo.statistics import paired_difference
from lpes_evo.storage import read_journal

SPECS = [
    "baseline",
    *(f"pi:{factor}" for factor in (0.7, 0.8, 0.9, 1.1, 1.25, 1.5, 2)),
    *(f"ntk:2:length={length}" for length in (8192, 9216, 10240, 12288, 16384)),
    *(f"yarn:{factor}" for factor in (1.25, 1.5, 2, 4, 8, 16)),
    *(
        f"attention-buckets:{bases}:combine={kind}"
        for bases in ("tool", "rag")
        for kind in ("logits", "probs")
    ),
    "attention-buckets:100000/175000",
    *(f"ms-poe:order={order}" for order in ("rank", "released", "normal")),
    "ms-poe:smallest=1:largest=1.2",
    "ms-poe:smallest=0.8:largest=1.2",
]
"""What is tried without specs: published settings, milder and stronger ones."""

TIE = 1e-3
"""Nats per token that no 60 examples can tell apart."""


def write_data(options: argparse.Namespace) -> None:
    """Write the search examples as texts to train on."""
    examples, _ = draw_examples(load_config(file=options.config))
    lines = [
        json.dumps({"prompt": example.prompt, "answer": example.answer_prefix + example.answer})
        for example in examples
    ]
    options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} texts: {options.output}")


def choose(options: argparse.Namespace) -> None:
    """Score the search examples under every spec, and print which is the best of each method."""
    config = load_config(file=options.config)
    examples, _ = draw_examples(config)
    loaded = load_model(config.model.name)
    rows = encode_examples(examples, loaded.tokenizer).rows

    rows_of: dict[str, list[dict[str, Any]]] = {}
    print("| spec | nats per token | accuracy |\n|---|---|---|", flush=True)
    with Journal(options.output, {"model": loaded.name, "ids": [row.id for row in rows]}) as journal:
        for spec in options.specs or SPECS:
            record = journal.get(spec)
            if record is None:
                record = {"spec": spec, **score(loaded.model, spec, rows)}
                journal.append(spec, record)
            print(f"| `{spec}` | {-record['fitness']:.4f} | {record['accuracy']:.3f} |", flush=True)
            rows_of.setdefault(spec.partition(":")[0], []).append(record)

    best = [cheapest_of_the_best(records) for records in rows_of.values()]
    print(f"n = {len(rows)}. The best of each method: --methods {','.join(best)}")


def cheapest_of_the_best(records: list[dict[str, Any]]) -> str:
    """Return the best setting of a method; of those that are as good, within `TIE`, one with fewest streams."""
    best = max(record["fitness"] for record in records)
    level = [record for record in records if record["fitness"] >= best - TIE]
    return str(
        min(level, key=lambda record: (make_method(record["spec"]).streams, -record["fitness"]))["spec"]
    )


def score(model: Any, spec: str, rows: Any) -> dict[str, float]:
    """Return the mean log-probability of the right answers, nats per token, and accuracy."""
    method = make_method(spec)
    with method.apply(model) as applied:
        if method.chooses_by_prompt:
            scores = score_row_by_row(applied, model, rows, prompts_end=True)
        else:
            scores = score_answers(model, rows, share_prefixes=sharing_is_sound(model, rows).is_sound)
    return {"fitness": float(scores.log_probability.mean()), "accuracy": float(scores.correct.mean())}


def pairs(options: argparse.Namespace) -> None:
    """Print LPES minus every other arm of an evaluation of one task, on the same examples."""
    scores: dict[str, dict[str, float]] = {}
    for record in read_journal(options.folder / "answers.jsonl").records.values():
        arm, _, example = record["key"].split("/", 2)
        scores.setdefault(unquote(arm), {})[example] = record["score"][0]
    table = Table("", ["LPES minus", "difference", "n"])
    ours = scores.pop("lpes")
    for arm, theirs in scores.items():
        ids = sorted(ours)
        # The last part of an id is the position; what stands before it is the text.
        difference = paired_difference(
            [ours[id_] for id_ in ids], [theirs[id_] for id_ in ids], [id_.rpartition("/")[0] for id_ in ids]
        )
        table.add_row(f"`{arm}`", difference_text(*difference), len(ids))
    print(table.to_markdown())


def main() -> None:
    """Read the command line."""
    command_line = parser(__doc__)
    commands = command_line.add_subparsers(required=True)
    for name, work, output in (("data", write_data, "moice-data.jsonl"), ("choose", choose, "choice.jsonl")):
        command = commands.add_parser(name)
        command.set_defaults(work=work)
        command.add_argument("config", type=Path, help="YAML file of the search")
        command.add_argument("--output", type=Path, default=Path(output))
        if name == "choose":
            command.add_argument("specs", nargs="*", help="methods to try; a list of common ones by default")

    command = commands.add_parser("pairs")
    command.set_defaults(work=pairs)
    command.add_argument("folder", type=Path, help="folder of the evaluation")

    options = command_line.parse_args()
    options.work(options)


if __name__ == "__main__":
    main()
