"""The command ``lpes-evo bench``."""

from pathlib import Path
from typing import Annotated

import typer

from lpes_evo.reporting import console, error_console, say


def bench(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Hub id, folder, .gguf file or 'tiny'; or random weights: shape:qwen2.5-7b, shape:vicuna-7b, "
            "shape:tiny, with :layers=N behind it for N of its layers.",
        ),
    ],
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            help="Methods with commas between, such as lpes,yarn:4,ms-poe; by default one of each. lpes and moice need "
            "no file here.",
        ),
    ] = None,
    prompt_tokens: Annotated[
        int | None,
        typer.Option(
            "--prompt-tokens", help="Tokens of the prompt; 4096 on a GPU and 512 on a CPU by default."
        ),
    ] = None,
    new_tokens: Annotated[
        int | None, typer.Option("--new-tokens", help="Tokens decoded after it; 16 by default.")
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats", help="Pairs of each method and the untouched model; 9 by default, at least 6."
        ),
    ] = None,
    clock: Annotated[
        str | None,
        typer.Option(
            "--clock",
            help="Seconds on a CPU: wall by default, or processor, without waiting for other programs.",
        ),
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda:N or mps.")] = "auto",
    output: Annotated[
        Path | None, typer.Option("--output", help="New JSON file with every measurement.")
    ] = None,
) -> None:
    """Measure what methods cost beside the untouched model: seconds, memory and forward passes."""
    from rich.progress import Progress

    from lpes_evo.bench import print_bench, run_bench
    from lpes_evo.storage import check_new_file, to_json, write_atomic

    if output is not None:
        check_new_file(output)
    given = {"prompt_tokens": prompt_tokens, "new_tokens": new_tokens, "repeats": repeats, "clock": clock}
    specs = None if methods is None else tuple(part.strip() for part in methods.split(","))
    with Progress(console=error_console, transient=True) as progress:
        bar = progress.add_task("bench", total=None)
        report = run_bench(
            model,
            specs,
            dtype=dtype,
            device=device,
            on_pair=lambda n_pairs: progress.update(bar, total=n_pairs, advance=1),
            **{name: value for name, value in given.items() if value is not None},
        )
    print_bench(report, console)
    if output is not None:
        write_atomic(output, to_json(report.to_json(), indent=1) + "\n")
        say(f"File: {output}")
