"""The command ``lpes-evo train-moice``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lpes_evo.reporting import say


def train_moice(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Hub id, folder, LoRA adapter, .gguf file, or 'tiny'.")
    ],
    data: Annotated[
        Path,
        typer.Option("--data", help="JSON lines with text, with prompt and answer, or with conversations."),
    ],
    output: Annotated[Path, typer.Option("--output", help="New file of routers.")] = Path(
        "moice-routers.safetensors"
    ),
    steps: Annotated[
        int | None, typer.Option("--steps", help="Steps of the optimiser; 7 by default.")
    ] = None,
    sequences: Annotated[
        int | None, typer.Option("--sequences", help="Sequences of each step; 128 by default.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option("--learning-rate", help="Of AdamW, constant; 1e-4 by default.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", help="Bases that count for a token; all by default.")
    ] = None,
    bases: Annotated[
        str | None,
        typer.Option("--bases", help="Rotary bases with commas between; the published seven by default."),
    ] = None,
    auxiliary: Annotated[
        float | None, typer.Option("--auxiliary", help="Factor of the balancing loss; 0.3 by default.")
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", help="Tokens after which a sequence is cut; 4608 by default."),
    ] = None,
    held_out: Annotated[
        int | None, typer.Option("--held-out", help="Sequences that measure the training; 16 by default.")
    ] = None,
    checkpointing: Annotated[
        bool | None,
        typer.Option("--checkpointing/--no-checkpointing", help="Compute activations twice to save memory."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of weights and order.")] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda:N or mps.")] = "auto",
) -> None:
    """Train the routers of MoICE for a model, and leave the model as it is."""
    from lpes_evo.methods.moice import TrainingSettings, read_sequences, save_routers, train_routers
    from lpes_evo.models import load_model
    from lpes_evo.storage import check_new_file

    given: dict[str, Any] = {
        "steps": steps,
        "sequences": sequences,
        "learning_rate": learning_rate,
        "top_k": top_k,
        "bases": None if bases is None else bases.split(","),
        "auxiliary": auxiliary,
        "max_length": max_length,
        "held_out": held_out,
        "checkpointing": checkpointing,
        "seed": seed,
    }
    settings = TrainingSettings(**{name: value for name, value in given.items() if value is not None})
    check_new_file(output)
    loaded = load_model(model, dtype=dtype, device=device)
    texts = read_sequences(data, loaded.tokenizer)
    say(f"{len(texts)} sequences from {data}; {loaded.dtype} on {loaded.device}")

    def report(step: int, loss: float) -> None:
        say(f"step {step + 1} of {settings.steps}: loss {loss:.4f} nats per token")

    trained = train_routers(loaded.model, loaded.name, texts, settings, on_step=report)
    say(
        f"Nats per token of {settings.held_out} sequences held out: untouched model {trained.untouched:.4f}, routers "
        f"before {trained.before:.4f}, after {trained.after:.4f}"
    )
    save_routers(trained.routers, output)
    say(f"Routers: {output}; use them with --methods moice:{output}")
