"""The command ``lpes-evo train-moice``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lpes_evo import config as settings_package
from lpes_evo.cli._options import FILES, DeviceOption, ModelArgument
from lpes_evo.cli._settings import SettingOptions, add_command
from lpes_evo.methods import moice
from lpes_evo.reporting import say

TRAINING = SettingOptions(lambda: moice.TrainingSettings, "The training")
DTYPE = SettingOptions(lambda: settings_package.ModelSettings, "The training", only=("dtype",))


def add_training_command(app: typer.Typer) -> None:
    """Add the command of this module to the command line."""
    add_command(app, train_moice, TRAINING, DTYPE)


def train_moice(
    model: ModelArgument,
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            help="JSON lines with text, with prompt and answer, or with conversations.",
            rich_help_panel=FILES,
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", help="New file of routers.", rich_help_panel=FILES)
    ] = Path("moice-routers.safetensors"),
    device: DeviceOption = "auto",
    **given: Any,
) -> None:
    """Train the routers of MoICE for a model, and leave the model as it is."""
    from lpes_evo.methods.moice import TrainingSettings, read_sequences, save_routers, train_routers
    from lpes_evo.models import load_model, refuse_group
    from lpes_evo.storage import check_new_file

    settings = TrainingSettings(**TRAINING.chosen(given))
    check_new_file(output)
    refuse_group(device, "the training of routers")
    loaded = load_model(model, device=device, **DTYPE.chosen(given))

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
