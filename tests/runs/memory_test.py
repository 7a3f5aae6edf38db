"""What `estimate` says of the memory of GPUs, from a config alone."""

import pytest
import transformers

from lpes_evo.config import load_config
from lpes_evo.errors import ModelError
from lpes_evo.models import outline
from lpes_evo.runs import MemoryNeed, memory_need
from samples import build_tokenizer

GIB = 2**30


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the config and the tokenizer of a model with layers as in one of 70 billion, without weights."""
    path = tmp_path_factory.mktemp("model")
    transformers.LlamaConfig(
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=16,
        num_attention_heads=64,
        num_key_value_heads=8,
        vocab_size=128256,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
    ).save_pretrained(path)
    build_tokenizer().save_pretrained(path)
    return str(path)


def need(folder, **overrides):
    given = {
        "model.name": folder,
        "task.name": "needle",
        "examples.n_per_position": 2,
        "report.n_per_position": 2,
    }
    return memory_need(load_config(overrides=given | overrides))


def test_the_weights_of_a_config_are_counted_without_a_file_of_weights(folder):
    found = need(folder)
    layer = 2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192
    assert found.n_weights == 16 * layer + 2 * 128256 * 8192 + 8192
    # Two bytes each, and the rotary frequencies in float32.
    assert 0 <= found.shares[0] - 2 * found.n_weights < 4096
    assert found.dtype == "bfloat16"
    assert need(folder, **{"model.dtype": "float32"}).n_weights == found.n_weights


def test_a_group_halves_the_weights_up_to_a_layer(folder):
    found = need(folder)
    layer = 2 * (2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192)
    assert found.shares[0] / 2 <= found.shares[1] <= found.shares[0] / 2 + layer
    assert list(found.shares) == sorted(found.shares, reverse=True)
    assert len(found.shares) == 16


def test_gradients_and_larger_passes_need_more(folder):
    plain = need(folder, **{"task.batch_tokens": 4096})
    assert plain.gradients == 0
    assert need(folder, **{"task.batch_tokens": 8192}).activations > plain.activations
    assert (
        need(folder, **{"task.batch_tokens": 4096, "model.attention": "eager"}).activations
        > plain.activations
    )
    steep = {"task.batch_tokens": 4096, "search.algorithm": "gradient", "search.gradient_steps": 5}
    kept = need(folder, **steep).gradients
    assert 0 < need(folder, **steep, **{"task.checkpointing": True}).gradients < kept


def test_the_embedded_model_shares_its_embedding_with_its_head():
    model, _ = outline("tiny", None, "float32")
    found = memory_need(load_config(overrides={"model.name": "tiny"}))
    assert found.n_weights == sum(weight.numel() for weight in model.parameters())
    assert all(weight.is_meta for weight in model.parameters())


def sample(n_layers=4):
    """The need of a model of 20 GiB whose every pass takes another 2 GiB."""
    shares = tuple(20 * GIB // n for n in range(1, n_layers + 1))
    return MemoryNeed("bfloat16", 10**10, shares, 4096, 1024, GIB, GIB)


@pytest.mark.parametrize(("memory", "n"), [(80, 1), (26, 1), (25, 2), (15, 2), (11, 3), (9, 4), (8, None)])
def test_the_smallest_group_leaves_a_reserve(memory, n):
    assert sample().n_gpus(memory * GIB) == n


@pytest.mark.parametrize(
    ("memory", "n_found", "text"),
    [
        (None, 0, "none is here; --gpu-memory GIB tells"),
        (80, 0, "1 of 80.0 GiB for each worker: --devices auto"),
        (24, 0, "2 of 24.0 GiB for each worker: --devices cuda:0+cuda:1"),
        (80, 8, "1 of 80.0 GiB for each worker: --devices auto makes 8 workers"),
        (24, 4, "2 of 24.0 GiB for each worker: --devices auto:2 makes 2 workers"),
        (24, 5, "--devices cuda:0+cuda:1,cuda:2+cuda:3 leaves 1 out"),
        (24, 1, "2 of 24.0 GiB for each worker, but 1 are here"),
        (4, 8, "4.0 GiB each do not suffice, even with one layer on each of 4"),
    ],
)
def test_groups_are_suggested_for_the_memory_and_the_gpus(memory, n_found, text):
    line = sample().lines(None if memory is None else memory * GIB, n_found)[-1]
    assert text in line


def test_a_config_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"^Expected a model folder with a config\.json"):
        need(str(tmp_path))
