"""How much answers change with each scale: numbers, picture, and the command."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from lpes_evo.analysis import AFTER, BEFORE, measure_sensitivity, plot_sensitivity, summarise_sensitivity
from lpes_evo.cli import app
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import DataRequest, ModelProblem, NeedleTask, TargetCurveProblem
from lpes_evo.scales import Scales


def test_the_derivative_is_taken_in_the_logarithm_of_each_scale():
    problem = TargetCurveProblem([1.0, 1.0, 1.0, 1.0])
    done = []
    values = measure_sensitivity(problem, [2.0, 1.0, 0.5, 1.5], on_example=done.append)
    np.testing.assert_allclose(values, np.diag([-2 * 2.0, 0, 0.5, -1.5]), atol=1e-12)
    assert done == [1, 2, 3, 4]


def test_gradients_of_single_examples_add_up_to_that_of_all(tiny_loaded):
    examples = NeedleTask(n_keys=3).examples(
        DataRequest(positions=(0.0, 1.0), limit=2, seed=0, split="report")
    )
    problem = ModelProblem(tiny_loaded, examples)
    scales = np.array([1.3, 0.8, 1.1])
    values = measure_sensitivity(problem, scales)
    together = problem.gradient(scales)[1] * scales
    np.testing.assert_allclose(values.mean(axis=0), together, atol=1e-4 * np.abs(together).max())


def test_the_summary_averages_sizes_by_set_and_the_picture_shows_both():
    problem = TargetCurveProblem(np.ones(6))
    rng = np.random.default_rng(0)
    derivatives = {BEFORE: rng.normal(size=(6, 6)), AFTER: rng.normal(size=(6, 6))}
    summary = summarise_sensitivity(problem, derivatives)
    assert list(summary["sensitivity"][AFTER]) == ["all", "begin", "middle", "end"]
    row = summary["sensitivity"][AFTER]["begin"][3]
    assert row["value"] == pytest.approx(np.abs(derivatives[AFTER][:2, 3]).mean())
    assert row["signed"] == pytest.approx(derivatives[AFTER][:2, 3].mean())
    assert row["low"] <= row["value"] <= row["high"]
    json.dumps(summary)
    figure = plot_sensitivity(summary)
    assert len(figure.axes) == 4
    drawn = figure.axes[0].lines[1].get_ydata()
    np.testing.assert_allclose(drawn, np.abs(derivatives[AFTER]).mean(axis=0))


@pytest.fixture
def scales_file(tmp_path):
    genome = CurveSpace(6).fit([1.0, 1.1, 1.2, 1.2, 1.1, 1.0])
    values = CurveSpace(6).decode([genome])[0]
    path = tmp_path / "scales.json"
    Scales("tiny", tuple(values.tolist()), tuple(genome), "recall", (0.0,)).save(path)
    return path


def test_the_command_writes_numbers_and_pictures(tmp_path, scales_file):
    config = tmp_path / "config.yaml"
    config.write_text("task: {name: recall, options: {n_pairs: 8}}\nreport: {positions: [0.0, 1.0]}\n")
    output = tmp_path / "out"
    arguments = [
        "sensitivity",
        "tiny",
        "--scales",
        str(scales_file),
        "--config",
        str(config),
        "--examples",
        "2",
    ]
    result = CliRunner().invoke(app, [*arguments, "--output", str(output)])
    assert result.exit_code == 0, result.output
    assert {path.name for path in output.iterdir() if not path.name.startswith(".")} == {
        "sensitivity.json",
        "sensitivity.png",
        "sensitivity.svg",
    }
    summary = json.loads((output / "sensitivity.json").read_text())
    assert (summary["format"], summary["n_examples"]) == ("lpes-evo/sensitivity", 4)
    for name in (BEFORE, AFTER):
        rows = summary["sensitivity"][name]["all"]
        assert len(rows) == 6
        assert max(row["value"] for row in rows) > 0
        assert f"{name}: mean |d log-probability" in result.output
