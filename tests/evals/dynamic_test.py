"""Evaluations of models whose frequencies follow the length of their input."""

import importlib.resources
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from lpes_evo.evals import EvalConfig, EvalFolder, run_evaluation
from lpes_evo.models import load_model
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import DataRequest, ModelProblem, make_task
from lpes_evo.scales import Scales

POINTS = ((0.0, 0.9), (0.0, 1.3), (5.0, 1.2), (5.0, 1.1))
TYPES = {
    "dynamic": {"factor": 4.0},
    "longrope": {
        "short_factor": [1.0] * 16,
        "long_factor": [2.0] * 16,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}


@pytest.fixture(params=TYPES)
def folder(request, tmp_path):
    """The embedded model as one of a type that extends a window of 64 tokens."""
    path = tmp_path / request.param
    shutil.copytree(Path(str(importlib.resources.files("lpes_evo.models.tiny"))), path)
    config = json.loads((path / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": request.param, "rope_theta": 10000.0} | TYPES[request.param]
    config["max_position_embeddings"] = 64 if request.param == "dynamic" else 256
    (path / "config.json").write_text(json.dumps(config))
    return path


def answers(config, path):
    folder = EvalFolder(path)
    folder.create(config)
    run_evaluation(config, folder, devices="in-process")
    lines = [json.loads(line) for line in (path / "answers.jsonl").read_text().splitlines()[1:]]
    return {line["key"]: {name: line.get(name) for name in ("output", "nats", "n_prompt")} for line in lines}


def test_an_answer_does_not_depend_on_the_tasks_before_it(folder, tmp_path):
    scales = CurveSpace(6, 4).decode([POINTS])[0]
    Scales(str(folder), tuple(scales.tolist()), POINTS, "recall", (-0.1,)).save(tmp_path / "scales.json")
    settings = {
        "model": {"name": str(folder)},
        "scales": str(tmp_path / "scales.json"),
        "limit": 12,
        "positions": (0.0, 0.5),
    }
    alone = answers(EvalConfig(tasks=("recall:40",), **settings), tmp_path / "alone")
    after = answers(EvalConfig(tasks=("recall:60", "recall:40"), **settings), tmp_path / "after")
    small = answers(EvalConfig(tasks=("recall:40",), batch_tokens=100, **settings), tmp_path / "small")
    assert len(alone) == 48
    assert {key: after[key] for key in alone} == alone == small


def test_a_search_scores_an_example_as_a_fresh_model_does(folder):
    task = make_task("recall", n_pairs=40)
    short = task.examples(DataRequest(positions=[0.0, 0.5], limit=3, seed=0, split="search"))
    longer = make_task("recall", n_pairs=60).examples(
        DataRequest(positions=[0.5], limit=2, seed=0, split="search")
    )
    curves = np.stack([np.ones(6), np.linspace(0.8, 1.2, 6)])
    expected = ModelProblem(load_model(folder, device="cpu"), short).score_many(curves)
    loaded = load_model(folder, device="cpu")
    ModelProblem(loaded, longer).score_many(curves)
    found = ModelProblem(loaded, short, batch_tokens=100).score_many(curves)
    np.testing.assert_allclose(found, expected, atol=1e-5)
