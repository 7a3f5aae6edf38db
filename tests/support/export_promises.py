"""Every family, exported to a folder and loaded from there by transformers alone, against the patch."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from lpes_evo.errors import UnsupportedModelError
from lpes_evo.rope import patch_rope
from lpes_evo.serving import modelling_code
from rope_promises import built, close, logits, profile, state


def write_folder(model: Any, scales: list[float], folder: Path) -> None:
    """Write a model under scales as an export does, without a tokenizer."""
    code = modelling_code(model)
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | code.config | {"lpes_scales": scales}))
    (folder / "modeling_lpes.py").write_text(code.source)


def read_folder(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32).eval()


@cache
def export_state(model_type: str) -> tuple[str, str]:
    """Return whether a family that the patch supports can be exported, and why not."""
    kind, reason = state(model_type)
    if kind != "supported":
        return kind, reason
    model = built(model_type)
    scales = profile(model)
    with TemporaryDirectory() as name:
        folder = Path(name) / f"exported_{model_type.replace('-', '_')}"
        try:
            write_folder(model, scales, folder)
        except UnsupportedModelError as error:
            return "refused", str(error)
        found = logits(read_folder(folder))
        with patch_rope(model, scales):
            expected = logits(model)
        if close(found, expected):
            return "exported", ""

        # Transformers may fill weights of its own class otherwise than they were saved.
        model.save_pretrained(folder.with_name("untouched"))
        reloaded = read_folder(folder.with_name("untouched"))
        with patch_rope(reloaded, scales):
            expected = logits(reloaded)
    if close(found, expected):
        return "exported", "transformers itself zeroes or changes a weight when it loads this family"
    return "broken", f"logits differ by {float((found - expected).abs().max()):.2g}"


def export_row(model_type: str) -> str:
    """Return a family's line of the table in docs/serving.md."""
    kind, reason = export_state(model_type)
    return f"| {model_type} | {kind} | {reason.replace('|', '/')} |"
