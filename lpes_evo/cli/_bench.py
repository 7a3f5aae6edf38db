"""The command ``lpes-evo bench``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lpes_evo import bench as bench_package, config as settings_package
from lpes_evo.cli._options import FILES, DeviceOption
from lpes_evo.cli._settings import SettingOptions, add_command
from lpes_evo.reporting import console, error_console, say

SIZES = SettingOptions(
    lambda: bench_package.BenchSettings,
    "What is measured",
    extra={"prompt_tokens": {"show_default": "4096 on a GPU, 512 on a CPU"}},
)
DTYPE = SettingOptions(lambda: settings_package.ModelSettings, "What is measured", only=("dtype",))


def add_bench_command(app: typer.Typer) -> None:
    """Add the command of this module to the command line."""
    add_command(app, bench, SIZES, DTYPE)


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
            metavar="NAME,...",
            help="Methods such as lpes,yarn:4,ms-poe; by default one of each. lpes and moice need no file here.",
            rich_help_panel="What is measured",
        ),
    ] = None,
    device: DeviceOption = "auto",
    output: Annotated[
        Path | None,
        typer.Option("--output", help="New JSON file with every measurement.", rich_help_panel=FILES),
    ] = None,
    **given: Any,
) -> None:
    """Measure what methods cost beside the untouched model: seconds, memory and forward passes."""
    from rich.progress import Progress

    from lpes_evo.bench import print_bench, run_bench
    from lpes_evo.storage import check_new_file, to_json, write_atomic

    if output is not None:
        check_new_file(output)
    specs = None if methods is None else tuple(part.strip() for part in methods.split(","))

    with Progress(console=error_console, transient=True) as progress:
        bar = progress.add_task("bench", total=None)
        report = run_bench(
            model,
            specs,
            device=device,
            on_pair=lambda n_pairs: progress.update(bar, total=n_pairs, advance=1),
            **DTYPE.chosen(given),
            **SIZES.chosen(given),
        )

    print_bench(report, console)
    if output is not None:
        write_atomic(output, to_json(report.to_json(), indent=1) + "\n")
        say(f"File: {output}")
