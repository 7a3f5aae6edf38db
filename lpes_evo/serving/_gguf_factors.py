"""GGUF files with rotary factors for each layer, for a llama.cpp whose loader reads them."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import ConfigError, ModelError, ScalesError, install_command
from lpes_evo.scales import Scales, load_scales
from lpes_evo.serving._new_folder import new_file

_GLOBAL = "rope_freqs.weight"
_OTHERS = ("rope_factors_short.weight", "rope_factors_long.weight")


def write_factors(
    model: str | Path,
    scales: str | Path,
    out: Path,
    *,
    for_changed_loader: bool = False,
    accept_other_model: bool = False,
) -> None:
    """Copy a GGUF file, and add the tensor ``blk.N.rope_freqs.weight`` to each layer ``N``.

    llama.cpp divides the frequencies of a layer by such factors, so that a factor of ``s_h`` rotates position ``m`` as
    ``m / s_h``. Released versions read one tensor ``rope_freqs.weight`` for all layers and refuse a file with more.

    Args:
        model: The ``.gguf`` file.
        scales: Run folder, ``scales.json``, or hub id of a repository with one.
        out: The new file.
        for_changed_loader: Must be true: it says that the file is for a loader that was changed.
        accept_other_model: Whether the scales may have been found on another model of the same depth.

    Raises:
        ConfigError: ``for_changed_loader`` is false, the model is no GGUF file, or the new file exists.
        ScalesError: The scales cannot be read, or were found on a model of another depth or name.
        ModelError: The GGUF file cannot be read, or has factors that follow the length of the input.
        StorageError: The file cannot be written.
    """
    if not for_changed_loader:
        raise ConfigError(
            "Expected --for-changed-loader beside --gguf: llama.cpp as it is released refuses a file with rotary "
            "factors for each layer ('wrong number of tensors'), and its loader must be changed first; docs/serving.md "
            "says how. For servers on transformers or vLLM, export a folder instead."
        )
    file = Path(model).expanduser()
    if file.suffix != ".gguf" or not file.is_file():
        raise ConfigError(
            f"Expected a .gguf file for --gguf, but got {str(model)!r:.200}. Name a file on this disk."
        )
    if out.exists() or out.suffix != ".gguf":
        raise ConfigError(
            f"Expected a new file ending in .gguf, but got {out}. Move it away or name another one."
        )
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(
            f"Writing {out.name} needs gguf, not installed here. Run in the clone: {install_command('gguf')}"
        )
    found = load_scales(scales)
    if not accept_other_model and Path(found.model).name != file.name:
        raise ScalesError(
            f"Expected scales that were found on {file.name}, but these were found on {found.model}. Search scales for "
            "this model, or say --accept-other-model."
        )

    reader = _read(file)
    factors = _factors(reader, file, found)
    with new_file(out) as unfinished:
        _write(reader, factors, unfinished)


def _read(file: Path) -> Any:
    """Return a reader of a GGUF file."""
    from gguf import GGUFReader

    try:
        return GGUFReader(file)
    except Exception as error:
        # The reader raises many unrelated types for a damaged file.
        raise ModelError(f"Expected a GGUF file at {file}, but it cannot be read: {error!s:.200}") from error


def _factors(reader: Any, file: Path, scales: Scales) -> dict[str, npt.NDArray[np.float32]]:
    """Return the factors of each layer, ``(n_frequencies,)``, by the name of their tensor."""
    from gguf import dequantize

    architecture = reader.fields["general.architecture"].contents()

    def value(key: str) -> Any:
        field = reader.fields.get(f"{architecture}.{key}")
        return None if field is None else field.contents()

    n_layers = value("block_count")
    if n_layers != scales.n_layers:
        raise ScalesError(
            f"Expected scales for a model of n_layers = {n_layers}, but got {scales.n_layers} (found on "
            f"{scales.model}). Search scales for this model."
        )
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    strange = [name for name in tensors if name in _OTHERS or name.endswith(f".{_GLOBAL}")]
    if strange:
        raise ModelError(
            f"Expected a GGUF file with one set of rotary factors at most, but {file.name} has {strange[0]}. Its "
            "factors follow the length of the input, or were written for each layer before."
        )
    width = value("rope.dimension_count") or value("embedding_length") // value("attention.head_count")
    shared = np.ones(width // 2)
    if _GLOBAL in tensors:
        tensor = tensors[_GLOBAL]
        shared = dequantize(tensor.data, tensor.tensor_type).astype(np.float64).ravel()
    return {
        f"blk.{layer}.{_GLOBAL}": (shared * scale).astype(np.float32)
        for layer, scale in enumerate(scales.scales)
    }


def _write(reader: Any, factors: dict[str, npt.NDArray[np.float32]], file: Path) -> None:
    """Write a copy of a GGUF file with more tensors."""
    from gguf import GGUFValueType, GGUFWriter

    architecture = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(file, architecture, endianess=reader.endianess)
    writer.data_alignment = reader.alignment
    for name, field in reader.fields.items():
        # The writer counts and names these itself.
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        writer.add_key_value(
            name,
            field.contents(),
            kind,
            sub_type=field.types[-1] if kind == GGUFValueType.ARRAY else None,
        )
    for tensor in reader.tensors:
        writer.add_tensor_info(
            tensor.name, tensor.data.shape, tensor.data.dtype, tensor.data.nbytes, tensor.tensor_type
        )
    for name, values in factors.items():
        writer.add_tensor_info(name, values.shape, values.dtype, values.nbytes)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in reader.tensors:
            writer.write_tensor_data(tensor.data, tensor_endianess=reader.endianess)
        for values in factors.values():
            writer.write_tensor_data(values)
    finally:
        writer.close()
