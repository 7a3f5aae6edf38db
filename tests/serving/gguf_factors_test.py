"""GGUF files with a rotary factor for each layer, for a llama.cpp with a changed loader."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpes_evo.errors import ConfigError, ModelError, ScalesError
from lpes_evo.serving import write_factors
from serving_samples import save_scales

gguf = pytest.importorskip("gguf")


def write_file(file: Path, *, factors: bool = False, alignment: int | None = None) -> None:
    """Write a GGUF file of three layers and heads of 8, which no program could run."""
    writer = gguf.GGUFWriter(file, "llama")
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    writer.add_block_count(3)
    writer.add_rope_dimension_count(8)
    writer.add_token_list(["a", "b"])
    writer.add_tensor("token_embd.weight", np.arange(32, dtype=np.float32).reshape(2, 16))
    quantized = gguf.quantize(
        np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32), gguf.GGMLQuantizationType.Q8_0
    )
    writer.add_tensor("output.weight", quantized, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    if factors:
        writer.add_tensor("rope_freqs.weight", np.array([1, 2, 4, 8], dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write(folder: Path, **options: Any) -> Any:
    save_scales(folder / "scales.json", "model.gguf", low=0.5, high=1.5)
    write_factors(
        folder / "model.gguf",
        folder / "scales.json",
        folder / "out.gguf",
        **{"for_changed_loader": True} | options,
    )
    return gguf.GGUFReader(folder / "out.gguf")


@pytest.mark.parametrize("alignment", [None, 64])
def test_everything_is_kept_and_every_layer_has_factors(tmp_path: Path, alignment: int | None) -> None:
    write_file(tmp_path / "model.gguf", alignment=alignment)
    original, found = gguf.GGUFReader(tmp_path / "model.gguf"), write(tmp_path)
    for name, field in original.fields.items():
        if not name.startswith("GGUF."):
            assert found.fields[name].contents() == field.contents()
    tensors = {tensor.name: tensor for tensor in found.tensors}
    for tensor in original.tensors:
        assert np.array_equal(tensors.pop(tensor.name).data, tensor.data)
    assert {name: tensor.data.tolist() for name, tensor in tensors.items()} == {
        f"blk.{layer}.rope_freqs.weight": [scale] * 4 for layer, scale in enumerate((0.5, 1.0, 1.5))
    }
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_factors_of_the_whole_model_are_multiplied(tmp_path: Path) -> None:
    write_file(tmp_path / "model.gguf", factors=True)
    tensors = {tensor.name: tensor.data.tolist() for tensor in write(tmp_path).tensors}
    assert tensors["rope_freqs.weight"] == [1, 2, 4, 8]
    assert tensors["blk.2.rope_freqs.weight"] == [1.5, 3, 6, 12]


def test_what_is_wrong_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    write_file(tmp_path / "model.gguf")
    with pytest.raises(
        ConfigError, match="as it is released refuses a file with rotary factors for each layer"
    ):
        write(tmp_path, for_changed_loader=False)
    save_scales(tmp_path / "deep.json", "model.gguf", n_layers=4)
    save_scales(tmp_path / "foreign.json", "other.gguf")
    (tmp_path / "damaged.gguf").write_bytes(b"GGUF")
    cases: list[Any] = [
        ("model.gguf", "deep.json", "out.gguf", ScalesError, "n_layers = 3, but got 4"),
        ("model.gguf", "foreign.json", "out.gguf", ScalesError, "found on other.gguf.*--accept-other-model"),
        ("model.gguf", "scales.json", "model.gguf", ConfigError, "Expected a new file ending in .gguf"),
        ("tiny", "scales.json", "out.gguf", ConfigError, "Expected a .gguf file for --gguf"),
        ("damaged.gguf", "foreign.json", "out.gguf", ModelError, "it cannot be read"),
    ]
    for model, scales, out, error, message in cases:
        other = model == "damaged.gguf"
        with pytest.raises(error, match=message):
            write_factors(
                tmp_path / model,
                tmp_path / scales,
                tmp_path / out,
                for_changed_loader=True,
                accept_other_model=other,
            )
    write(tmp_path)
    (tmp_path / "out.gguf").rename(tmp_path / "twice.gguf")
    with pytest.raises(ModelError, match=r"has blk.0.rope_freqs.weight"):
        write_factors(
            tmp_path / "twice.gguf",
            tmp_path / "scales.json",
            tmp_path / "out.gguf",
            for_changed_loader=True,
            accept_other_model=True,
        )
    assert not (tmp_path / "out.gguf").exists()
