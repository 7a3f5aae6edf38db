"""The commands ``lpes-evo export`` and ``lpes-evo vllm-args``."""

from pathlib import Path
from typing import Annotated

import typer

from lpes_evo.errors import ConfigError
from lpes_evo.reporting import say


def add_export_commands(app: typer.Typer) -> None:
    """Add the commands that hand scales over to servers.

    Args:
        app: The command line.
    """
    app.command()(export)
    app.command("vllm-args")(vllm_args)


def export(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Hub id, folder, LoRA adapter, .gguf file, or 'tiny'.")
    ],
    out: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="New folder; left out with --gguf.")
    ] = None,
    scales: Annotated[
        str,
        typer.Option(
            "--scales", metavar="RUN_OR_FILE", help="Run folder, scales.json, or hub id of a repository."
        ),
    ] = ...,  # type: ignore[assignment]
    revision: Annotated[
        str | None, typer.Option("--revision", help="Revision of the model on the hub.")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            help="Format of weights that are written anew (of a GGUF file or a merged adapter): float32, bfloat16 or "
            "float16.",
        ),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="Where the folder is checked: auto, cpu, cuda:N or mps.")
    ] = "auto",
    copy: Annotated[bool, typer.Option("--copy", help="Copy weights in place of hard links.")] = False,
    accept_other_model: Annotated[
        bool,
        typer.Option(
            "--accept-other-model", help="Take scales that were found on another model of this depth."
        ),
    ] = False,
    gguf: Annotated[
        Path | None,
        typer.Option(
            "--gguf", metavar="FILE", help="Write a GGUF file with a rotary factor for each layer instead."
        ),
    ] = None,
    for_changed_loader: Annotated[
        bool,
        typer.Option(
            "--for-changed-loader",
            help="With --gguf: the file is for a llama.cpp whose loader was changed; no released one loads it.",
        ),
    ] = False,
) -> None:
    """Write a model folder that transformers alone loads with the scales in force."""
    from lpes_evo.serving import export_model, write_factors

    if (out is None) == (gguf is None):
        raise ConfigError("Expected a folder OUT or --gguf FILE, and not both. Name one of them.")
    if gguf is not None:
        write_factors(
            model, scales, gguf, for_changed_loader=for_changed_loader, accept_other_model=accept_other_model
        )
        say(
            f"Exported: {gguf}, which llama.cpp loads only after the change of its loader in docs/serving.md."
        )
        return
    if for_changed_loader:
        raise ConfigError("Expected --for-changed-loader only with --gguf. Leave it out.")
    result = export_model(
        model,
        scales,
        str(out),
        revision=revision,
        dtype=dtype,
        device=device,
        copy=copy,
        accept_other_model=accept_other_model,
    )
    say(
        f"Checked without lpes-evo, in {result.dtype}: logits differ by at most {result.difference:.2g} from those of "
        f"the patched model; the scales change them by up to {result.effect:.2g}."
    )
    say(f"Exported: {result.path}")


def vllm_args(
    scales: Annotated[
        str, typer.Argument(metavar="RUN_OR_FILE", help="Run folder, scales.json, or hub id of a repository.")
    ],
) -> None:
    """Print the arguments with which 'vllm serve' applies scales, through the plugin of this package."""
    from lpes_evo.scales import load_scales
    from lpes_evo.serving import vllm_arguments

    say(vllm_arguments(load_scales(scales)))
