"""Adapter: LoRA weights that peft puts on a base model, found in a folder or on the hub."""

import importlib.util
import json
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lpes_evo.errors import ModelError, install_command
from lpes_evo.hub import hub_has_address
from lpes_evo.models._loading import (
    NO_PICKLES,
    TOKENIZER_FILES,
    one_line,
    quiet,
    read_tokenizer,
    refuse_revision,
)

__all__ = ["Adapter", "find_adapter", "own_tokenizer", "put_adapter_on"]

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_VIRTUAL = ("PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "CPT", "CARTRIDGE")
_MERGE = (
    "merge it into its base with merge_and_unload of peft, save that with its tokenizer, and name the folder"
)


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter whose files are on the local disk.

    Attributes:
        name: The name that the user gave.
        folder: Folder with the config of the adapter.
        weights: File with the weights of the adapter.
        base: Hub id, folder or file of the base model, as the config of the adapter states it.
        base_revision: Revision of the base on the hub; ``None`` for the newest.
        tokenizer: Folder or hub id of the adapter's own tokenizer; ``None`` for the tokenizer of the base.
        revision: Revision of the adapter on the hub.
    """

    name: str
    folder: Path
    weights: Path
    base: str
    base_revision: str | None
    tokenizer: str | None
    revision: str | None = None

    @property
    def base_is_on_hub(self) -> bool:
        """Whether the base is looked up on the hub, where models have revisions."""
        return (
            self.base != "tiny"
            and not self.base.endswith(".gguf")
            and not Path(self.base).expanduser().is_dir()
        )


def find_adapter(name: str, revision: str | None) -> Adapter | None:
    """Return the adapter that a name stands for.

    Args:
        name: Folder or hub id.
        revision: Revision on the hub; only for a hub id.

    Returns:
        The adapter, or ``None`` if the name stands for something else, or for nothing.

    Raises:
        ModelError: The adapter is not a LoRA adapter, lacks weights, names no base, or lies beside a whole model or
            other adapters; or peft is not installed.
    """
    try:
        is_folder = Path(name).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):
        return None

    if name == "tiny" or name.endswith(".gguf") or not name:
        return None
    return _in_folder(name, revision) if is_folder else _on_hub(name, revision)


def _in_folder(name: str, revision: str | None) -> Adapter | None:
    folder = Path(name).expanduser()
    if not (folder / _CONFIG).is_file():
        _refuse_several(name, folder)
        return None

    if revision is not None:
        refuse_revision(name, revision)
    values = _checked_config(name, folder / _CONFIG)
    others = [file.name for file in folder.glob("*.safetensors") if not file.name.startswith("adapter_model")]
    _refuse_whole_model(name, bool(others) and (folder / "config.json").is_file())

    if not (folder / _WEIGHTS).is_file():
        raise _without_weights(name, (folder / "adapter_model.bin").is_file())

    has_tokenizer = any(next(folder.glob(pattern), None) for pattern in TOKENIZER_FILES)
    return _adapter(name, values, folder, folder / _WEIGHTS, str(folder) if has_tokenizer else None)


def _on_hub(name: str, revision: str | None) -> Adapter | None:
    from transformers.utils import cached_file

    def find(file: str) -> Path | None:
        with quiet():
            path = cached_file(
                name,
                file,
                revision=revision,
                local_files_only=not hub_has_address(),
                _raise_exceptions_for_gated_repo=False,
                _raise_exceptions_for_missing_entries=False,
                _raise_exceptions_for_connection_errors=False,
            )
        return None if path is None else Path(path)

    try:
        config = find(_CONFIG)
        if config is None:
            return None
        values = _checked_config(name, config)
        _refuse_whole_model(name, find("config.json") is not None)
        weights = find(_WEIGHTS)
        has_tokenizer = find("tokenizer_config.json") is not None
    except (OSError, ValueError):
        # A fault of the name is reported when the model itself is loaded.
        return None

    if weights is None:
        raise _without_weights(name, False)

    tokenizer = name if has_tokenizer else None
    return replace(_adapter(name, values, config.parent, weights, tokenizer), revision=revision)


def _refuse_several(name: str, folder: Path) -> None:
    inside = sorted(path.parent.name for path in folder.glob(f"*/{_CONFIG}"))
    if inside and not (folder / "config.json").is_file():
        raise ModelError(
            f"Expected a model or one adapter in {name}, but it holds folders of adapters: {', '.join(inside)}. Name "
            f"the folder of one, such as {folder / inside[0]}."
        )


def _refuse_whole_model(name: str, is_there: bool) -> None:
    if is_there:
        raise ModelError(
            f"Expected a model or an adapter in {name!r}, but it holds both, and it cannot be told which is meant. "
            f"Keep {_CONFIG} and {_WEIGHTS} in a folder of their own."
        )


def _without_weights(name: str, has_pickle: bool) -> ModelError:
    found = f"only adapter_model.bin. {NO_PICKLES}" if has_pickle else "none. Check that it is complete."
    return ModelError(f"Expected the weights of the adapter {name!r} in {_WEIGHTS}, but found {found}")


def _checked_config(name: str, path: Path) -> dict[str, Any]:
    """Return the config of an adapter, after a check that the adapter changes weights alone.

    Raises:
        ModelError: The config cannot be read, or the adapter is of another kind.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"Expected the config of an adapter in {_CONFIG} of {name!r}, but it cannot be read: {one_line(error)}"
        ) from error

    if not isinstance(values, dict) or not isinstance(values.get("peft_type"), str):
        raise ModelError(
            f"Expected {_CONFIG} of {name!r} to state the peft_type of an adapter, but it does not. It is damaged, or "
            "of another program."
        )

    kind = values["peft_type"]
    if kind in _VIRTUAL or values.get("num_virtual_tokens"):
        raise ModelError(
            f"Expected a LoRA adapter in {name!r}, but it is of the type {kind}, which puts virtual tokens in front of "
            "every prompt and so shifts the positions of the text. Use an adapter that changes weights alone."
        )

    if kind != "LORA":
        raise ModelError(
            f"Expected a LoRA adapter in {name!r}, but it is of the type {kind:.40}. Other kinds are not loaded: "
            f"{_MERGE}."
        )

    if values.get("alora_invocation_tokens"):
        raise ModelError(
            f"Expected a LoRA adapter in {name!r} that is always on, but it waits for certain tokens of the prompt "
            "(alora_invocation_tokens). It is not supported."
        )

    base, revision = values.get("base_model_name_or_path"), values.get("revision")
    if not isinstance(base, str) or not base or not isinstance(revision, (str, type(None))):
        raise ModelError(
            f"Expected {_CONFIG} of {name!r} to name its base in base_model_name_or_path, but got {base!r:.80}. Write "
            "the hub id or the path of the base there."
        )

    return values


def _adapter(
    name: str, values: dict[str, Any], folder: Path, weights: Path, tokenizer: str | None
) -> Adapter:
    if importlib.util.find_spec("peft") is None:
        raise ModelError(
            f"{name!r} is a LoRA adapter, and loading it needs peft, not installed here. Run in the clone: "
            f"{install_command('peft')}; or {_MERGE}."
        )

    # An empty text stands for no revision.
    revision = values.get("revision") or None
    return Adapter(name, folder, weights, values["base_model_name_or_path"], revision, tokenizer)


def put_adapter_on(model: Any, adapter: Adapter) -> None:
    """Put an adapter on its base; the weights are not merged, so that no weight is rounded.

    The model gets no wrapper of peft. Only its linear layers are replaced.

    Args:
        model: The base.
        adapter: The adapter.

    Raises:
        ModelError: The adapter is damaged, or was made for another base.
    """
    import peft
    from safetensors.torch import load_file

    before = {id(weight) for weight in model.parameters()}
    dtype = next(model.parameters()).dtype

    try:
        with warnings.catch_warnings():
            # Most faults that peft warns of are refused below, or do not matter without training. Settings that peft
            # drops do matter.
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", message="Unexpected keyword arguments")
            config = peft.PeftConfig.from_pretrained(str(adapter.folder))
            config.inference_mode = True
            wrapped = peft.PeftModel(model, config, autocast_adapter_dtype=False)
            found = peft.set_peft_model_state_dict(wrapped, load_file(adapter.weights))
    except Exception as error:
        # peft and safetensors raise many unrelated types for a damaged file, a wrong setting, or a base of another
        # shape.
        raise _unfit(adapter, one_line(error)) from error

    own = {name: weight for name, weight in wrapped.named_parameters() if id(weight) not in before}
    for fault, names in (
        ("are not in its file", own.keys() & set(found.missing_keys)),
        ("of its file have no place in the base", set(found.unexpected_keys)),
    ):
        if names:
            raise _unfit(adapter, f"{len(names)} weights {fault}, first {min(names)}")

    for weight in own.values():
        weight.data = weight.data.to(dtype)


def _unfit(adapter: Adapter, reason: str) -> ModelError:
    return ModelError(
        f"Expected the adapter {adapter.name!r} to fit its base {adapter.base!r}, but {reason}. The adapter is "
        f"damaged, or base_model_name_or_path in its {_CONFIG} names another model than it was trained on."
    )


def own_tokenizer(adapter: Adapter, n_embeddings: int) -> Any:
    """Return the tokenizer that an adapter brings with it.

    Args:
        adapter: An adapter with its own tokenizer.
        n_embeddings: Number of tokens that the base embeds.

    Returns:
        The tokenizer.

    Raises:
        ModelError: The tokenizer cannot be read, or has tokens that the base does not embed.
    """
    options: dict[str, Any] = {"revision": adapter.revision}
    if Path(str(adapter.tokenizer)).is_dir():
        options = {"local_files_only": True}

    found = read_tokenizer(str(adapter.tokenizer), adapter.name, options)
    if len(found) > n_embeddings:
        raise _unfit(adapter, f"its tokenizer has {len(found)} tokens and the base embeds {n_embeddings}")
    return found
