import json
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest
from typer.testing import CliRunner

from lpes_evo.cli import app
from lpes_evo.comparison import ANALYTIC, ComparisonConfig, ComparisonFolder, run_comparison
from lpes_evo.config import load_config
from lpes_evo.errors import ConfigError, JournalError, LpesError
from lpes_evo.problems import BrachistochroneProblem
from samples import rewrite_journal

SEARCH = {"population_size": 8, "n_constants": 4, "offspring_size": 6, "preselection": 4}
RUN = load_config(
    preset="demo",
    overrides={
        "search": SEARCH,
        "task.options.n_pairs": 8,
        "examples.n_per_position": 2,
        "report.n_per_position": 2,
        "report.positions": [0.0, 1.0],
    },
)


def config(**changes):
    values = {"arenas": ("target",), "contestants": ("random", "cma-es"), "n_evaluations": 20, "n_seeds": 2}
    return ComparisonConfig(run=RUN.model_copy(update={"search": RUN.search}), **values | changes)


def run(path, settings):
    folder = ComparisonFolder(path)
    folder.create(settings)
    return run_comparison(settings, folder, devices="in-process")


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("comparison") / "run"
    return path, run(path, config())


def test_a_comparison_writes_tables_journals_and_pictures_in_both_formats(finished):
    path, results = finished
    assert json.loads((path / "results.json").read_text()) == results
    names = [row["name"] for row in results["arenas"]["target"]["standings"]]
    assert sorted(names) == ["cma-es", "ga", "random"]
    assert results["versions"]["cma"] == metadata.version("cma")
    assert "optuna" not in results["versions"]
    markdown = (path / "results.md").read_text()
    assert all(f"| {name} |" in markdown for name in names)
    for picture in ("standings", "evaluations", "diversity", "control-points"):
        assert (path / f"target-{picture}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (path / f"target-{picture}.svg").read_text()
    assert len(list((path / "journals" / "target").glob("*.jsonl"))) == 6


def test_a_comparison_that_goes_on_comes_to_the_same_and_writes_nothing_twice(finished):
    path, results = finished
    journals = {file: file.read_bytes() for file in (path / "journals" / "target").glob("*.jsonl")}
    (torn, data), *_ = journals.items()
    torn.write_bytes(data[: len(data) // 2])
    folder = ComparisonFolder(path)
    again = run_comparison(folder.load_config(), folder)
    assert again["arenas"]["target"]["standings"] == results["arenas"]["target"]["standings"]
    lines = {file: len(file.read_bytes().splitlines()) for file in journals}
    assert lines == {file: len(content.splitlines()) for file, content in journals.items()}


def test_the_ablation_compares_with_the_default_curve(tmp_path):
    settings = config(kind="ablate", contestants=("linear-4", "x-free"))
    results = run(tmp_path / "run", settings)
    names = [row["name"] for row in results["arenas"]["target"]["standings"]]
    assert sorted(names) == ["default", "linear-4", "x-free"]


def test_a_model_is_searched_and_measured_on_held_out_examples(tmp_path):
    settings = config(arenas=("model",), contestants=("nsga2", "free-ga"), n_evaluations=10)
    results = run(tmp_path / "run", settings)
    arena = results["arenas"]["model"]
    assert all(tokens > 0 for tokens in arena["tokens"].values())
    held_out = arena["held_out"]
    assert held_out["n_examples"] == 4
    assert set(held_out["contestants"]) == {"ga", "nsga2", "free-ga"}
    assert held_out["contestants"]["ga"]["accuracy"]["difference"] == 0
    assert (tmp_path / "run" / "model-tokens.svg").exists()
    (tmp_path / "run" / "journals" / "model" / "held-out.jsonl").read_text()


def test_a_comparison_of_other_length_does_not_go_on_with_the_journals(finished):
    path, _ = finished
    other = config().model_copy(update={"n_evaluations": 26})
    with pytest.raises(JournalError, match="its evaluations is 20 and this run's is 26"):
        run_comparison(other, ComparisonFolder(path))


def test_the_analytic_arenas_have_a_problem_for_every_seed_that_the_space_can_come_close_to():
    for name, arena in ANALYTIC.items():
        first, again, other = (arena.problem(seed) for seed in (0, 0, 1))
        curve = np.linspace(0.6, 1.2, arena.space.n_layers)
        assert (first.score(curve) == again.score(curve)).all()
        assert (first.score(curve) != other.score(curve)).any()
        for seed in range(20):
            problem = arena.problem(seed)
            best = problem.cycloid_depths() if isinstance(problem, BrachistochroneProblem) else problem.target
            assert arena.space.y_min <= best.min(), name
            assert best.max() <= arena.space.y_max, name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arenas": ("nowhere",)}, "Expected arenas to be distinct names out of target, rough"),
        ({"arenas": ("target", "target")}, "Expected arenas to be distinct names"),
        ({"contestants": ("nobody",)}, "Expected contestants to be distinct names out of ga, plain-ga"),
        ({"n_seeds": 1}, "configuration key n_seeds, but got 1"),
        ({"n_evaluations": 7}, "at least search.population_size = 8, but got 7"),
        ({"n_evaluations": 20.5}, "configuration key n_evaluations"),
    ],
)
def test_a_comparison_that_makes_no_sense_is_refused_in_one_line(changes, message):
    with pytest.raises(ConfigError, match=message) as raised:
        config(**changes)
    assert "\n" not in str(raised.value)


def test_an_unknown_variant_is_refused_before_any_search(tmp_path):
    with pytest.raises(ConfigError, match="Expected contestants of target among default, bezier-2"):
        run(tmp_path / "run", config(kind="ablate", contestants=("bezier-99",)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "--arenas", "nowhere"], "Expected arenas"),
        (["compare", "--optimisers", "adam"], "Expected contestants"),
        (["compare", "--evaluations", "3"], "population_size"),
        (["compare", "--seeds", "0"], "n_seeds"),
        (["compare", "--preset", "none"], "Expected a preset"),
        (["compare", "--resume", "nothing-here"], "Expected a comparison with comparison.yaml"),
        (["compare", "--resume", "x", "--seeds", "3"], "Expected --resume alone"),
        (["ablate", "--arenas", "target", "--variants", "odd"], "Expected contestants of target"),
        (["convergence", "nothing-here"], "Expected a run folder"),
    ],
)
def test_wrong_input_on_the_command_line_gives_one_clear_line(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments)
    assert isinstance(result.exception, LpesError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_folder_in_use_is_refused(finished):
    path, _ = finished
    result = invoke("compare", "--arenas", "target", "--output", path)
    assert isinstance(result.exception, JournalError)
    assert "is in use" in str(result.exception)
    result = invoke("ablate", "--resume", path)
    assert isinstance(result.exception, ConfigError)
    assert "Use that command" in str(result.exception)


@pytest.mark.parametrize("text", ["[1]", "kind: [", "arenas: [nowhere]", "other: 1"])
def test_a_damaged_configuration_is_refused_in_one_line(text, tmp_path):
    (tmp_path / "comparison.yaml").write_text(text)
    with pytest.raises(LpesError, match="Expected") as raised:
        ComparisonFolder(tmp_path).load_config()
    assert "\n" not in str(raised.value)


def test_the_command_line_says_who_is_best(finished):
    path, _ = finished
    result = invoke("compare", "--resume", path)
    assert result.exit_code == 0, result.output
    assert "target: " in result.output
    assert "is best" in result.output


def test_the_convergence_of_a_run_is_drawn_from_its_folder(finished, tmp_path):
    from lpes_evo.runs import RunFolder

    source = finished[0] / "journals" / "target"
    for seed in (0, 1):
        folder = RunFolder(tmp_path / f"run-{seed}")
        folder.create(load_config(overrides={"seed": seed}))
        folder.journal.write_bytes((source / f"ga-{seed}.jsonl").read_bytes())
        rewrite_journal(folder.journal, lambda records: [record | {"tokens": 7} for record in records])
    output = tmp_path / "pictures"
    result = invoke("convergence", tmp_path / "run-0", tmp_path / "run-1", "--output", output)
    assert result.exit_code == 0, result.output
    names = {
        "control-points",
        "convergence-evaluations",
        "convergence-seconds",
        "convergence-tokens",
        "diversity",
    }
    assert (
        {file.stem for file in output.glob("*.png")} == {file.stem for file in output.glob("*.svg")} == names
    )
    RunFolder(tmp_path / "other").create(load_config(overrides={"search.generations": 3}))
    result = invoke("convergence", tmp_path / "run-0", tmp_path / "other")
    assert "differ only in their seed" in str(result.exception)
    result = invoke("convergence", tmp_path / "run-0", tmp_path / "run-0", "--output", output)
    assert "Expected every run to have a seed of its own, but got 0, 0" in str(result.exception)


def test_nothing_heavy_is_loaded_before_it_is_used(tmp_path):
    code = (
        "import sys, lpes_evo.cli, lpes_evo.comparison\n"
        "from lpes_evo.comparison import CONTESTANTS, read_trace, standings, OptimiserSearch\n"
        "print({'torch', 'matplotlib', 'cma', 'optuna'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "set()"


def test_every_public_name_can_be_imported():
    import lpes_evo.comparison

    for name in lpes_evo.comparison.__all__:
        assert getattr(lpes_evo.comparison, name) is not None
