"""Sources of an export: the files of a model that go into the folder as they are, or what is written anew."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lpes_evo.errors import ModelError, StorageError
from lpes_evo.hub import hub_has_address
from lpes_evo.models import DTYPES, LoadedModel, find_adapter
from lpes_evo.models.tiny import TINY_DIRECTORY
from lpes_evo.storage import parse_json, read_text, to_json, write_atomic

_BESIDE = (
    "tokenizer*.json", "tokenizer.model", "*.tiktoken", "tekken.json", "vocab.*", "merges.txt", "spiece.model",
    "sentencepiece*.model", "added_tokens.json", "special_tokens_map.json", "chat_template*", "generation_config.json",
    "preprocessor_config.json", "processor_config.json", "LICENSE*", "NOTICE*", "USE_POLICY*",
)  # fmt: skip
"""Files that go with the weights of a model."""
_TEMPLATES = "additional_chat_templates"
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"


@dataclass(frozen=True)
class ModelSource:
    """Where the files of a model are.

    Attributes:
        name: What the user asked for.
        revision: Revision on the hub.
        folder: Folder with its files on this disk; ``None`` where they are written anew.
        kind: ``folder``, ``gguf`` or ``adapter``.
        base: Hub id of the model, or of the base of an adapter; ``None`` for what is on this disk.
    """

    name: str
    revision: str | None
    folder: Path | None
    kind: str
    base: str | None

    @property
    def local(self) -> Path | None:
        """Folder or file that the user named, ``None`` for a hub id."""
        return None if self.kind == "folder" and self.base is not None else Path(self.name).expanduser()


def find_source(name: str, revision: str | None) -> ModelSource:
    """Return where the files of a model are; those of one on the hub may still have to be fetched.

    Args:
        name: Hub id, folder, LoRA adapter, ``.gguf`` file, or ``tiny``.
        revision: Revision on the hub.

    Raises:
        ModelError: An adapter is damaged or of another kind than LoRA.
    """
    adapter = find_adapter(name, revision)
    if adapter is not None:
        return ModelSource(name, revision, None, "adapter", adapter.base if adapter.base_is_on_hub else None)
    if name.endswith(".gguf"):
        return ModelSource(name, revision, None, "gguf", None)
    if name == "tiny":
        return ModelSource(name, revision, TINY_DIRECTORY, "folder", None)
    folder = Path(name).expanduser()
    return (
        ModelSource(name, revision, folder, "folder", None)
        if folder.is_dir()
        else ModelSource(name, revision, None, "folder", name)
    )


def stored_dtype(source: ModelSource) -> str:
    """Return the number format in which the weights are kept: that of the config, and float32 where it says none."""
    from transformers import AutoConfig

    if source.kind == "gguf":
        return "float32"
    place: Any = source.folder or source.base
    if source.kind == "adapter":
        adapter = find_adapter(source.name, source.revision)
        place = None if adapter is None else adapter.base
        if place is None or place.endswith(".gguf"):
            return "float32"
        place = TINY_DIRECTORY if place == "tiny" else place
    try:
        config = AutoConfig.from_pretrained(
            place, revision=source.revision if source.kind == "folder" else None
        )
    except Exception:
        # What is wrong is told where the model is loaded.
        return "float32"
    stated = getattr(config, "dtype", None) or getattr(config.get_text_config(), "dtype", None)
    dtype = str(stated).removeprefix("torch.")
    return dtype if dtype in DTYPES else "float32"


def put_model(source: ModelSource, loaded: LoadedModel, folder: Path, *, copy: bool) -> list[str]:
    """Put weights, tokenizer and settings of a model into a folder.

    Args:
        source: Where its files are.
        loaded: The model; an adapter on it is merged.
        folder: An empty folder.
        copy: Whether weights are copied where they could be linked.

    Returns:
        What was done, as sentences.

    Raises:
        StorageError: A file cannot be written.
        ModelError: The files of the model are not as transformers writes them.
    """
    if source.kind != "folder":
        return _write(source, loaded, folder)

    files = source.folder or _fetched(source)
    weights = _weight_files(files)
    for name in weights:
        _link((files / name).resolve(), folder / name, copy=copy)
    if len(weights) > 1 or ((files / _INDEX).is_file() and not (files / _SINGLE).is_file()):
        shutil.copyfile(files / _INDEX, folder / _INDEX)

    for pattern in _BESIDE:
        for file in files.glob(pattern):
            if file.is_file():
                shutil.copyfile(file, folder / file.name)
    if (files / _TEMPLATES).is_dir():
        shutil.copytree(files / _TEMPLATES, folder / _TEMPLATES)
    shutil.copyfile(files / "config.json", folder / "config.json")
    _name_tokenizer(loaded.tokenizer, folder)
    return ["The weights are those of the model, unchanged."]


def merge_adapter(model: Any) -> None:
    """Merge LoRA weights into the layers that they are on, and put these back in place.

    Args:
        model: The model of transformers; it is changed.

    Raises:
        ModelError: The merged weights are not finite.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [(path, module) for path, module in model.named_modules() if isinstance(module, BaseTunerLayer)]
    for path, layer in layers:
        try:
            layer.merge(safe_merge=True)
        except ValueError as error:
            raise ModelError(
                f"Expected an adapter that can be merged into its base, but of {path} peft says: {error!s:.200}"
            ) from error
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, layer.get_base_layer())
    for name in ("peft_config", "_hf_peft_config_loaded"):
        if name in vars(model):
            delattr(model, name)


def set_config(folder: Path, values: dict[str, Any]) -> None:
    """Put entries into the ``config.json`` of a folder.

    Args:
        folder: The folder.
        values: The entries.

    Raises:
        ModelError: The file is not JSON.
        StorageError: It cannot be written.
    """
    file = folder / "config.json"
    remedy = "Fetch the model anew."
    text = read_text(file, "a model folder with", ModelError, remedy)
    write_atomic(file, to_json(parse_json(text, str(file), ModelError, remedy) | values, indent=2) + "\n")


def _write(source: ModelSource, loaded: LoadedModel, folder: Path) -> list[str]:
    """Write a model that has no files of its own as transformers reads them."""
    from safetensors import SafetensorError

    config = loaded.model.config
    if (loaded.base or source.name).endswith(".gguf") and hasattr(config, "quantization_config"):
        # The weights of GGUF files are dequantized when they are read.
        del config.quantization_config
    try:
        loaded.model.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)
    except SafetensorError as error:
        raise StorageError(
            f"Expected to write the weights, but the system said: {error!s:.200}. Nothing was left there. Free some "
            "space, then run the same command again."
        ) from error
    done = {
        "gguf": f"The weights were read from the GGUF file and are written in {loaded.dtype}.",
        "adapter": f"The LoRA adapter was merged into its base `{loaded.base}`, in {loaded.dtype}.",
    }
    return [done[source.kind], *loaded.notes]


def _fetched(source: ModelSource) -> Path:
    """Return the folder of the cache with the files of a model on the hub."""
    from huggingface_hub import snapshot_download

    patterns = [*_BESIDE, f"{_TEMPLATES}/*", "config.json", _INDEX, "model*.safetensors"]
    offline = not hub_has_address()
    return Path(
        snapshot_download(
            source.name, revision=source.revision, allow_patterns=patterns, local_files_only=offline
        )
    )


def _weight_files(files: Path) -> list[str]:
    """Return the names of the files with weights that transformers reads."""
    if (files / _SINGLE).is_file():
        return [_SINGLE]
    remedy = "Fetch the model anew, or save it with save_pretrained."
    text = read_text(files / _INDEX, "weights in model.safetensors or listed in", ModelError, remedy)
    names = sorted(set(parse_json(text, str(files / _INDEX), ModelError, remedy)["weight_map"].values()))
    strange = [name for name in names if Path(name).name != name or not (files / name).is_file()]
    if strange:
        raise ModelError(f"Expected the weights {strange[0]!r} in {files}, but there are none. {remedy}")
    return names


def _link(file: Path, target: Path, *, copy: bool) -> None:
    """Link a file, or copy it where that is asked for or a link is not possible."""
    if not copy:
        try:
            os.link(file, target)
        except OSError:
            # Another disk, or a file system without links.
            pass
        else:
            return
    shutil.copyfile(file, target)


def _name_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Name the class of the tokenizer where the files leave that to the model type, which is another one now."""
    file = folder / "tokenizer_config.json"
    values = (
        parse_json(
            read_text(file, "a tokenizer with", ModelError, "Fetch it anew."), str(file), ModelError, ""
        )
        if file.is_file()
        else {}
    )
    if "tokenizer_class" not in values:
        write_atomic(file, to_json(values | {"tokenizer_class": type(tokenizer).__name__}, indent=2) + "\n")
