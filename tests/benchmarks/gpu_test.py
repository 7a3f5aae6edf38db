"""The measurement of a GPU, on a tiny shape on the CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.sh"


@pytest.mark.slow
def test_the_measurement_of_a_gpu_runs_on_the_cpu_with_a_tiny_shape(tmp_path):
    result = subprocess.run(
        ["bash", SCRIPT, "--small"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHON": sys.executable},
    )
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    assert [line["what"] for line in lines] == [
        "device",
        "throughput",
        *["candidates"] * 4,
        "prefill",
        "decode",
        "spread",
    ]
    device, throughput, *passes, prefill, decode, spread = lines
    assert device["parameters"] > device["parameters_of_layers"] > 0
    assert 0 < throughput["low"] <= throughput["fitness_over_bare"] <= throughput["high"]
    assert 0 < throughput["flop_utilisation"] < 1
    assert [line["candidates_per_pass"] for line in passes] == [1, 2, 4, 8]
    # In float32 the company of other candidates changes no more than the rounding.
    assert all(line["largest_difference_nats"] < 1e-5 < line["spread_of_scores_nats"] for line in passes)
    assert spread["devices"] == "cpu+cpu"
    assert spread["largest_difference_nats"] < 1e-5
    for line in (prefill, decode):
        assert 0 < line["low"] <= line["patched_over_untouched"] <= line["high"]
    assert device["device"] in result.stdout.splitlines()[len(lines)]


def test_without_a_gpu_it_says_so(tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    result = subprocess.run(
        ["bash", SCRIPT],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHON": sys.executable},
    )
    assert result.returncode == 1
    assert "Expected a CUDA device, but torch sees none. Run with --small" in result.stderr
