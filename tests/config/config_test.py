import pytest
import yaml

from lpes_evo.config import RunConfig, SearchSettings, load_config, preset_names
from lpes_evo.errors import ConfigError


def test_defaults_are_valid_and_round_trip_through_yaml(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(RunConfig().model_dump(mode="json")))
    assert load_config(file=file) == RunConfig()


def test_every_preset_loads():
    assert preset_names() == ["demo", "gradient", "paper"]
    for name in preset_names():
        assert isinstance(load_config(preset=name), RunConfig)


def test_the_paper_preset_keeps_what_is_published():
    config = load_config(preset="paper")
    assert config.curve.n_points == 4
    assert 195 <= len(config.examples.positions) * config.examples.n_per_position <= 205
    assert len(config.report.positions) * config.report.n_per_position == 500


def test_the_gradient_preset_is_what_was_measured():
    config = load_config(preset="gradient")
    assert config.search.algorithm == "gradient"
    assert (config.curve.curve, config.curve.y_step) == ("free", None)
    assert (config.search.total_variation, config.search.learning_rate) == (0.03, 0.1)
    assert config.search.gradient_steps * config.search.generations == 15


def test_overrides_win_over_file_and_file_over_preset(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("search: {generations: 7, offspring_size: 5}\nprovenance: {device: cpu}\n")
    config = load_config(preset="demo", file=file, overrides={"search.generations": 3, "seed": 9})
    assert config.search.generations == 3
    assert config.search.offspring_size == 5
    assert config.model.name == "tiny"
    assert config.seed == 9


def test_another_task_brings_its_own_options():
    config = load_config(preset="demo", overrides={"task.options": {"n_pairs": 5}, "task.name": "kv"})
    assert config.task.options == {}
    config = load_config(preset="demo", overrides={"task.name": "kv", "task.options.n_pairs": 5})
    assert config.task.options == {"n_pairs": 5}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"serach.generations": 3},
            "known configuration key, but got 'serach'.*Known keys there: model, task",
        ),
        ({"search.generation": 3}, "but got 'search.generation'. Known keys there: algorithm"),
        (
            {"search.generations": -1},
            "configuration key search.generations, but got -1: .*greater than or equal to 0",
        ),
        ({"search.generations": "many"}, "configuration key search.generations, but got 'many': .*integer"),
        (
            {"search.algorithm": "best"},
            "key search.algorithm, but got 'best': .*'ga', 'steady-state', 'nsga2', 'random' or 'gradient'",
        ),
        (
            {"search.n_constants": 100},
            r"^Expected n_constants to be less than population_size = 24, but got 100.*\(configuration key search\)\.$",
        ),
        ({"examples.positions": [0, 2]}, "position to lie between 0 and 1, but got 2"),
        ({"examples.positions": []}, "examples.positions"),
        ({"curve.y_min": 0}, "curve.y_min, but got 0"),
        ({"curve.y_min": float("nan")}, "curve.y_min, but got nan"),
        ({"search.generations": True}, "configuration key search.generations, but got True: .*integer"),
        ({"seed": 1.5}, "configuration key seed, but got 1.5"),
        ({"model": "tiny"}, "configuration key model, but got 'tiny'"),
    ],
)
def test_a_wrong_value_gives_one_line_that_names_it(overrides, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(overrides=overrides)
    assert "\n" not in str(caught.value)


def test_settings_made_in_python_are_checked_the_same_way():
    with pytest.raises(ConfigError, match="configuration key generations, but got -1"):
        SearchSettings(generations=-1)
    with pytest.raises(ConfigError, match="but got 'population'.*Known keys there: .*population_size"):
        SearchSettings(population=3)


def test_unknown_presets_and_bad_files_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="Expected a preset out of demo, gradient, paper.*but got 'big'"):
        load_config(preset="big")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config(file=tmp_path / "none.yaml")
    for text, message in (
        ("a: [", "to be YAML"),
        ("- 1", "to be a mapping"),
        ("1: 2", "every key of .* to be text, but got 1"),
        ("search: {1: 2}", "every key of .* to be text"),
        ("[" * 5000, "to be YAML"),
        ("a: 2020-99-99", "to be YAML"),
    ):
        file = tmp_path / "bad.yaml"
        file.write_text(text)
        with pytest.raises(ConfigError, match=message):
            load_config(file=file)
    (tmp_path / "bad.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(file=tmp_path / "bad.yaml")


def test_a_rule_about_the_whole_configuration_names_no_key():
    with pytest.raises(ConfigError, match=r"^Expected task\.metric to be log_probability"):
        load_config(overrides={"search.algorithm": "gradient", "task.metric": "accuracy"})
