import importlib.util
import json

import pytest

from lpes_evo.errors import ConfigError
from lpes_evo.evals import EvalConfig, check_engine, make_arms

GENERATION = {"recall:16": "generation"}


def config(**values):
    return EvalConfig(tasks=("recall:16",), **{"engine": "vllm"} | values)


@pytest.fixture
def with_vllm(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


def test_vllm_that_is_not_installed_is_refused_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"not installed. Install it: pip install '.\[vllm\]'"):
        check_engine(config(), make_arms(None), GENERATION)


@pytest.mark.parametrize(
    ("methods", "modes", "values", "message"),
    [
        (["baseline", "pi:1.5"], GENERATION, {}, "methods baseline and lpes .* but got pi:1.5"),
        (None, {"perplexity": "likelihood"}, {}, r"by generation .* but got perplexity \(likelihood\)"),
        (None, {"recall:16": "teacher forcing"}, {}, r"recall:16 \(teacher forcing\)"),
        (None, GENERATION | {"mmlu": "harness"}, {}, r"but got mmlu \(harness\)"),
        (None, GENERATION, {"model": {"attention": "eager"}}, "no --attention"),
    ],
)
def test_what_vllm_cannot_do_is_refused_before_a_model_is_loaded(with_vllm, methods, modes, values, message):
    with pytest.raises(ConfigError, match=message):
        check_engine(config(**values), make_arms(None, methods), modes)


def test_nothing_is_refused_without_vllm():
    check_engine(config(engine="transformers"), make_arms(None, ["pi:1.5"]), {"mmlu": "harness"})


def test_the_engine_is_part_of_what_an_evaluation_is():
    from lpes_evo.config import settings_hash

    assert settings_hash(config()) != settings_hash(config(engine="transformers"))
    assert "engine" not in json.loads(EvalConfig(tasks=("recall",)).model_dump_json(exclude=EvalConfig.ADDED))
