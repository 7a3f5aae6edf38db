import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lpes_evo.models import load_model
from lpes_evo.models.tiny import TINY_DIRECTORY
from lpes_evo.problems import QUESTION, WORDS, DataRequest, ModelProblem, RecallTask

N_PAIRS_TRAINED = 20
N_PAIRS_DEMO = 64
POSITIONS = (0.0, 0.25, 0.5, 0.75, 1.0)
N_PER_POSITION = 32


@pytest.fixture(scope="module")
def tiny():
    return load_model("tiny", device="cpu")


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(TINY_DIRECTORY, local_files_only=True)


def accuracy_by_position(tiny, n_pairs, scales):
    examples = RecallTask(n_pairs).examples(
        DataRequest(positions=POSITIONS, limit=N_PER_POSITION, seed=7, split="report")
    )
    correct = ModelProblem(tiny, examples).evaluate(scales).correct
    return np.asarray(correct).reshape(len(POSITIONS), N_PER_POSITION).mean(axis=1)


def test_the_weights_are_small():
    assert (TINY_DIRECTORY / "model.safetensors").stat().st_size <= 4_000_000
    others = [path for path in TINY_DIRECTORY.iterdir() if path.suffix in {".json", ".jsonl", ".md"}]
    assert sum(path.stat().st_size for path in others) <= 50_000


def test_the_folder_has_what_a_model_folder_needs():
    names = {path.name for path in TINY_DIRECTORY.iterdir()}
    assert names >= {
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "training_log.jsonl",
    }


def test_the_folder_loads_without_a_network():
    model = AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY, local_files_only=True)
    assert type(model).__name__ == "LlamaForCausalLM"
    assert model.config.num_hidden_layers >= 6
    assert all(bool(torch.isfinite(weight).all()) for weight in model.parameters())


def test_the_first_rotary_frequency_is_one(tiny):
    frequencies = tiny.model.model.rotary_emb.inv_freq
    assert frequencies[0] == 1.0
    assert bool((frequencies.diff() < 0).all())


def test_every_word_of_the_task_is_one_known_token(tokenizer):
    ids = tokenizer(" ".join([*WORDS, QUESTION]), add_special_tokens=False)["input_ids"]
    assert len(set(ids)) == len(ids) == len(WORDS) + 1
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids[:3]) == "0 1 2"


def test_a_text_begins_with_the_beginning_token_and_unknown_words_are_marked(tokenizer):
    ids = tokenizer("3 mouse")["input_ids"]
    assert ids[0] == tokenizer.bos_token_id
    assert ids[2] == tokenizer.unk_token_id
    assert len(ids) == 3
    assert tokenizer.chat_template is None


def test_the_model_answers_prompts_as_long_as_those_it_was_trained_on(tiny):
    assert accuracy_by_position(tiny, N_PAIRS_TRAINED, np.ones(tiny.n_layers)).min() >= 0.95


def test_the_untouched_model_loses_at_least_twenty_points_over_the_positions_of_the_demo(tiny):
    accuracy = accuracy_by_position(tiny, N_PAIRS_DEMO, np.ones(tiny.n_layers))
    assert accuracy.max() - accuracy.min() >= 0.2


def test_larger_scales_in_the_later_layers_repair_it_and_one_scale_does_not(tiny):
    untouched = accuracy_by_position(tiny, N_PAIRS_DEMO, np.ones(tiny.n_layers)).mean()
    rising = accuracy_by_position(tiny, N_PAIRS_DEMO, np.array([1.0, *[2.5] * (tiny.n_layers - 1)])).mean()
    uniform = accuracy_by_position(tiny, N_PAIRS_DEMO, np.full(tiny.n_layers, 2.5)).mean()
    assert rising >= untouched + 0.1
    assert uniform <= untouched


def test_the_training_log_shows_what_the_training_cost_and_reached():
    lines = [json.loads(line) for line in (TINY_DIRECTORY / "training_log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == sorted(line["step"] for line in lines)
    assert lines[-1]["cpu_seconds"] <= 2 * 20 * 60
    assert lines[-1]["wall_seconds"] <= 20 * 60
    last = {line["lesson"]: line["accuracy"] for line in lines}
    assert last["recall"] >= 0.98
