"""A small version of the search on a real model, from GGUF weights to scales."""

import json

import numpy as np

from lpes_evo.config import RunConfig
from lpes_evo.runs import RunFolder, run_search
from lpes_evo.scales import load_scales


def test_a_search_on_smollm2_ends_with_scales_that_are_no_worse_than_none(smollm2, tmp_path):
    config = RunConfig(
        model={"name": smollm2.name},
        task={"name": "needle", "batch_tokens": 2048},
        examples={"positions": (0.0, 0.5, 1.0), "n_per_position": 1},
        curve={"y_min": 0.7, "y_max": 1.1, "y_step": 0.1, "max_delta": 0.2},
        search={"population_size": 4, "n_constants": 2, "offspring_size": 2, "generations": 1},
        report={"positions": (0.25, 0.75), "n_per_position": 1},
    )
    folder = RunFolder(tmp_path / "run")
    folder.create(config)
    result = run_search(config, folder, devices="cpu")
    assert load_scales(folder.path, n_layers=30) == result.scales
    assert np.isfinite(result.scales.scales).all()
    records = [json.loads(line) for line in folder.journal.read_text().splitlines()[1:]]
    assert 4 <= len(records) <= 6
    assert all(record["status"] == "ok" for record in records)
    untouched = next(r for r in records if {y for _, y in r["control_points"]} == {1.0})
    assert result.scales.fitness[0] >= untouched["values"][0]
    # The curve in the file is the one that was scored.
    assert max(record["values"][0] for record in records) == result.scales.fitness[0]
    assert set(result.summary["methods"]) == {"untouched", "constant", "lpes"}
