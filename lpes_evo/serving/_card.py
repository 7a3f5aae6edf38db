"""The model card of an exported folder: what was done, on which data, and what it is worth on held-out examples."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lpes_evo.errors import JournalError
from lpes_evo.runs import LPES, UNTOUCHED, RunFolder, load_report, warnings_of
from lpes_evo.scales import Scales
from lpes_evo.storage import describe

_DATA = ("task", "examples", "report", "seed")
"""Parts of a configuration that say which examples were used."""


@dataclass(frozen=True)
class RunRecord:
    """What a finished run tells of its scales.

    Attributes:
        path: The run folder.
        config: The parts of its configuration that say which examples were used.
        provenance: Where and with what it was made; empty where it does not say.
        report: The measurement on held-out examples.
    """

    path: Path
    config: dict[str, Any]
    provenance: dict[str, Any]
    report: dict[str, Any]


def find_run(scales_path: str | Path, scales: Scales) -> RunRecord | None:
    """Return what the run that found some scales tells of them.

    Args:
        scales_path: The run folder, or its ``scales.json``.
        scales: The scales that were read there.

    Returns:
        The record; ``None`` where the scales are in no folder of a run.

    Raises:
        JournalError: The measurement in the folder is of other scales, or a file was edited.
        ConfigError: The configuration is not valid.
    """
    path = Path(scales_path)
    folder = RunFolder(path if path.is_dir() else path.parent)
    # A file under another name is no file of a run.
    if not path.is_dir() and path.name != folder.scales.name:
        return None
    if not (folder.config.is_file() and folder.report.is_file()):
        return None
    report = load_report(folder.report)
    if report["methods"][LPES]["scales"] != list(scales.scales):
        raise JournalError(
            f"Expected the scales of {folder.scales} to be those measured in {folder.report}, but they are others. "
            f"Write both again with: lpes-evo search --resume {shlex.quote(str(folder.path))}"
        )
    values = folder.load_config().model_dump(mode="json")
    config = {key: values[key] for key in _DATA if key in values}
    return RunRecord(folder.path, config, folder.load_record(), report)


def model_card(
    name: str,
    *,
    revision: str | None,
    scales: Scales,
    run: RunRecord | None,
    steps: list[str],
    difference: float,
    effect: float,
    base_on_hub: str | None,
) -> str:
    """Write the ``README.md`` of an exported folder.

    Args:
        name: Name of the model.
        revision: Its revision on the hub, where one was asked for.
        scales: The scales.
        run: The run that found them, where it is at hand.
        steps: What was done to the weights, as sentences.
        difference: Largest difference of a logit to the patched model, as the check found it.
        effect: Largest difference that the scales make to a logit of the check.
        base_on_hub: Hub id of the model, where it has one.

    Returns:
        The text, in Markdown.
    """
    head: dict[str, Any] = {"library_name": "transformers", "tags": ["lpes", "custom_code"]}
    if base_on_hub is not None:
        head = {"base_model": base_on_hub} | head
    now = describe()

    at = f" at revision `{revision}`" if revision else ""
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---",
        f"# {name} under layer-specific rotary scales",
        f"This is `{name}`{at}, in which decoder layer h rotates token position m as m / s_h. No weight was trained. "
        "The scales were found by an evolutionary search (LPES, arXiv 2606.27705). " + " ".join(steps),
        "## Use\n\n"
        "```python\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'model = AutoModelForCausalLM.from_pretrained("FOLDER", trust_remote_code=True)\n'
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER", trust_remote_code=True)\n'
        "```\n\n"
        "`modeling_lpes.py` in this folder applies the scales, which stand in `config.json` under `lpes_scales`; "
        "lpes-evo itself is not needed. Without `trust_remote_code=True` the folder does not load, because it would "
        "run without its scales.",
        "## Scales\n\n"
        f"{scales.n_layers} layers: `{' '.join(f'{scale:.4f}' for scale in scales.scales)}`\n\n"
        f"Found on `{scales.model}` with the task `{scales.task}`; curve: {scales.curve} of the control points "
        f"`{[[round(x, 4), round(y, 4)] for x, y in scales.control_points]}`.",
        _measurement(run),
        "## Check\n\n"
        "When the folder was written, it was loaded in a process without lpes-evo. Its logits differed by at most "
        f"{difference:.2g} from those of the patched model; the scales themselves change them by up to {effect:.2g}.",
        _provenance(run, now),
    ]
    return "\n\n".join(parts) + "\n"


def _measurement(run: RunRecord | None) -> str:
    """Return the chapter on held-out figures."""
    if run is None:
        return (
            "## Held-out figures\n\nThe scales were exported from a file without its run, so that no measurement on "
            "held-out examples is at hand."
        )

    methods = run.report["methods"]
    lines = [
        "## Held-out figures",
        "",
        f"Accuracy on {methods[LPES]['n']} examples that the search has not seen, by position of the fact, with 95 % "
        "intervals.",
        "",
        f"| position | n | {' | '.join(methods)} |",
        f"|---|---|{'---|' * len(methods)}",
    ]
    for index, row in enumerate(methods[LPES]["positions"]):
        cells = [_interval(method["positions"][index]) for method in methods.values()]
        lines.append(f"| {row['position']:.3f} | {row['n']} | {' | '.join(cells)} |")

    cells = [_interval(method) for method in methods.values()]
    lines += [f"| all | {methods[LPES]['n']} | {' | '.join(cells)} |", ""]
    for name, row in run.report["differences"].items():
        what = "the untouched model" if name == UNTOUCHED else name
        lines.append(
            f"- These scales less {what}, on the same examples: {row['difference']:+.3f} "
            f"[{row['low']:+.3f}, {row['high']:+.3f}]"
        )

    lines += [f"- {warning}" for warning in warnings_of(run.report)]
    data = yaml.safe_dump(run.config, sort_keys=False, allow_unicode=True)
    return "\n".join([*lines, "", "Data of the search and of the measurement:", "", f"```yaml\n{data}```"])


def _provenance(run: RunRecord | None, now: dict[str, Any]) -> str:
    """Return the chapter on commands and versions."""
    rows = [("export", now)]
    if run is not None and run.provenance:
        rows.insert(0, ("search", run.provenance))

    lines = ["## Commands and versions", ""]
    for what, record in rows:
        versions = ", ".join(f"{package} {version}" for package, version in record["versions"].items())
        lines += [f"- {what}: `{record['command']}`", f"  ({versions})"]

    if run is not None and run.provenance:
        record = run.provenance
        lines.append(
            f"- the search ran in {record['dtype']} on {record.get('device_name') or record['device']}; SHA-256 of its "
            f"search data `{record['search_data'][:16]}`, of its held-out data `{record['report_data'][:16]}`, of the "
            f"weights `{record['weights'][:16]}`"
        )
    return "\n".join(lines)


def _interval(row: dict[str, float]) -> str:
    return f"{row['accuracy']:.3f} [{row['low']:.2f}, {row['high']:.2f}]"
