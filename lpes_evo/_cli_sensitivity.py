"""The command ``lpes-evo sensitivity``."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpes_evo._cli_analysis import (
    AttentionOption,
    ConfigOption,
    DeviceOption,
    DtypeOption,
    ExamplesOption,
    ModelArgument,
    OutputOption,
    ScalesOption,
    SeedOption,
    TaskOption,
    _analyse,
    _print_files,
)
from lpes_evo._consoles import console

if TYPE_CHECKING:
    from lpes_evo.analysis._request import Subject

_N_NAMED = 5


def sensitivity(
    model: ModelArgument,
    scales: ScalesOption,
    task: TaskOption = None,
    config: ConfigOption = None,
    examples: ExamplesOption = None,
    seed: SeedOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = "auto",
    attention: AttentionOption = None,
    output: OutputOption = None,
) -> None:
    """Measure how much answers change with the scale of each layer, untouched and under scales."""
    from lpes_evo.analysis._sensitivity import report_sensitivity

    options = {
        "task": task,
        "config": config,
        "n_examples": examples,
        "seed": seed,
        "dtype": dtype,
        "device": device,
        "attention": attention,
    }

    def work(subject: "Subject", folder: Path, on_input: Callable[[int], None]) -> dict[str, Any]:
        return report_sensitivity(subject, folder, on_input=on_input)

    summary, folder = _analyse("sensitivity", model, scales, options, output, work, n_passes=2)
    for name, groups in summary["sensitivity"].items():
        rows = groups["all"]
        order = sorted(range(len(rows)), key=lambda layer: -rows[layer]["value"])
        largest = ", ".join(f"{layer} ({rows[layer]['value']:.4f})" for layer in order[:_N_NAMED])
        console.print(
            f"{name}: mean |d log-probability / d log scale| is largest in layers {largest} nats per token",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
    _print_files(folder)
