"""Models as folders, scales as files, and folders loaded where lpes-evo cannot be imported."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from lpes_evo import Scales
from lpes_evo.operators import CurveSpace
from rope_families import tiny_model
from samples import CHAT_TEMPLATE, build_tokenizer

RUN = Path(__file__).parents[1] / "version_1" / "search"
"""A finished run on the embedded model, 6 layers."""


def save_model(model_type: str, folder: Path, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    """Write a tiny model of a family with a tokenizer and a chat template, and return the model."""
    model = tiny_model(model_type, dtype=dtype, vocab_size=258)
    model.save_pretrained(folder, **options)
    build_tokenizer(CHAT_TEMPLATE).save_pretrained(folder)
    return model


def save_scales(
    file: Path, model: str | Path, n_layers: int = 3, low: float = 0.7, high: float = 1.6
) -> Scales:
    """Write scales that rise in a straight line over the depth of a model."""
    points = ((0.0, low), (n_layers - 1.0, high))
    values = CurveSpace(n_layers, 2, curve="linear").draw([points])[0]
    scales = Scales(str(model), tuple(values.tolist()), points, "recall", (0.0,), "linear")
    scales.save(file)
    return scales


ALONE = """
import json, sys
sys.modules["lpes_evo"] = None
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True).eval()
ids = torch.tensor(json.loads(sys.argv[2]))
"""
"""Begins a program that loads a folder where lpes-evo cannot be imported."""


def run_alone(program: str, folder: Path, ids: torch.Tensor) -> Any:
    """Run a program that prints JSON after `ALONE`, and return what it printed."""
    surroundings = {
        "HF_MODULES_CACHE": str(folder.parent / "modules"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    result = subprocess.run(
        [sys.executable, "-c", ALONE + program, str(folder), json.dumps(ids.tolist())],
        capture_output=True,
        text=True,
        cwd=folder.parent,
        env=os.environ | surroundings,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout.splitlines()[-1])
