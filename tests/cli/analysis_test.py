import csv
import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from commands import run_here
from lpes_evo import Scales
from lpes_evo.cli import app
from lpes_evo.errors import LpesError
from lpes_evo.operators import CurveSpace
from lpes_evo.storage import WorkFolder

POINTS = ((0.0, 0.8), (0.0, 2.7), (0.0, 3.0), (5.0, 3.0))


@pytest.fixture
def scales(tmp_path):
    path = tmp_path / "scales.json"
    save_scales(path, 6, POINTS)
    return path


def save_scales(path, n_layers, points):
    values = CurveSpace(n_layers, len(points)).draw([points])[0]
    Scales("tiny", tuple(values.tolist()), points, "recall", (-0.1,)).save(path)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(*arguments):
    """The one line that a user sees."""
    error = run(*arguments).exception
    assert isinstance(error, LpesError), error
    assert "\n" not in str(error)
    assert error.exit_code == 2 or isinstance(error, OSError)
    return str(error)


def check_pictures(folder, names):
    for name in names:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (folder / f"{name}.svg").read_text()


def test_drift_of_the_embedded_model_is_printed_and_saved(scales, tmp_path):
    folder = tmp_path / "out"
    config = tmp_path / "config.yaml"
    config.write_text("task: {name: recall, options: {n_pairs: 16}}\nreport: {positions: [0, 1]}\n")
    result = run("drift", "tiny", "--scales", scales, "--config", config, "--examples", 3, "--draws", 4,
                 "--output", folder)  # fmt: skip
    assert result.exit_code == 0, result.output
    for words in (
        "Smooth drifts least, by relative L2",
        "shuffled curve",
        "Spearman",
        "n = 6 inputs",
        "drift.json",
    ):
        assert words in result.output
    summary = json.loads((folder / "drift.json").read_text())
    assert [arm["n_vectors"] for arm in summary["arms"].values()] == [1, 4, 4, 1, 4, 4]
    assert len(summary["vectors"]) == 18
    assert summary["task"]["options"] == {"n_pairs": 16}
    assert summary["versions"]["torch"]
    with (folder / "drift.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 18 * 6
    of_curve = [float(row["cka"]) for row in rows if row["arm"] == "curve"]
    assert np.mean(of_curve) == pytest.approx(summary["arms"]["curve"]["drift"]["cka"]["value"])
    check_pictures(folder, ["drift_by_layer", "drift_of_arms", "drift_retrieval"])
    assert "holds files" in refused("drift", "tiny", "--scales", scales, "--examples", 1, "--output", folder)


def test_two_analyses_do_not_share_a_folder(scales, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    with WorkFolder(folder).locked():
        line = refused("drift", "tiny", "--scales", scales, "--examples", 1, "--output", folder)
    assert "another process works in it" in line
    assert [file.name for file in folder.iterdir()] == [".lock"]


def test_drift_on_a_text_has_no_retrieval(scales, tmp_path):
    text = tmp_path / "numbers.txt"
    text.write_text(" ".join(str(number % 192) for number in range(100)))
    folder = tmp_path / "out"
    result = run("drift", "tiny", "--scales", scales, "--text", text, "--length", 30, "--draws", 2,
                 "--output", folder)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "Retrieval" not in result.output
    assert json.loads((folder / "drift.json").read_text())["retrieval"] is None
    assert not (folder / "drift_retrieval.png").exists()


def test_attention_of_the_embedded_model_is_printed_and_saved(scales, tmp_path):
    folder = tmp_path / "out"
    result = run("attention", "tiny", "--scales", scales, "--examples", 1, "--output", folder)
    assert result.exit_code == 0, result.output
    for words in ("gold span", "9 with a known gold span", "layers run sdpa as before", "position"):
        assert words in result.output
    summary = json.loads((folder / "attention.json").read_text())
    # The second layer of the embedded model looks up the pair that is asked for.
    assert summary["gold_layer"] == 1
    assert len(summary["frequencies"]) == 6
    with (folder / "decay.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["before"] == rows[0]["after"] == "1.0"
    with (folder / "attention.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 6 * 5
    check_pictures(folder, ["attention", "gold_attention", "decay"])


def test_wrong_input_gives_one_clear_line(scales, tmp_path):
    unfinished = tmp_path / "run"
    unfinished.mkdir()
    (unfinished / "config.yaml").write_text("seed: 1\n")
    deep = tmp_path / "deep.json"
    save_scales(deep, 8, ((0.0, 0.8), (3.0, 0.9), (7.0, 1.0)))
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    for command in ("drift", "attention"):
        for arguments, message in (
            (("--scales", unfinished), "the folder of a finished run"),
            (("--scales", deep), "a model of n_layers = 6"),
            (("--scales", scales, "--text", empty), "but it is empty"),
            (("--scales", scales, "--task", "nothing"), "a task among kv"),
            (("--scales", scales, "--task", "recall", "--text", empty), "got both"),
            (("--scales", scales, "--length", 9), "--length only with --text"),
            (("--scales", scales, "--output", scales), "is a file"),
            (("--scales", scales, "--config", tmp_path / "none.yaml"), "cannot be read"),
        ):
            assert message in refused(command, "tiny", *arguments)


def test_the_line_is_printed_alone_and_the_exit_code_is_two(tmp_path):
    result = run_here("drift", "tiny", "--scales", "nowhere", cwd=tmp_path, check=2)
    assert result.stderr.startswith("Error: Expected a scales file at nowhere")
    assert len(result.stderr.strip().splitlines()) == 1


def test_importing_the_package_loads_nothing_heavy(tmp_path):
    script = (
        "import lpes_evo.analysis, lpes_evo.cli._analysis, sys\n"
        "from lpes_evo.analysis import summarise_drift, plot_drift_by_layer, decay_curve, drift_arms\n"
        "print([name for name in ('torch', 'transformers', 'matplotlib') if name in sys.modules])\n"
        "import lpes_evo.analysis as package\n"
        "assert all(getattr(package, name) is not None for name in package.__all__)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert result.stdout.strip() == "[]"
