"""`read_model`: a model's files, read by transformers with one-line errors and without random weights."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from lpes_evo.errors import ModelError
from lpes_evo.hub import hub_has_address
from lpes_evo.models._gguf import check_rope, read_rope, take_rope

ROPE_NOTE = "_lpes_rope_note"
"""Attribute of a model that names the rotary parameters which were put into its config."""
TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model", "*.tiktoken", "tekken.json")
NO_PICKLES = (
    "Pickles (.bin, .pt) are never read, since they can run code. Convert them to safetensors with "
    "model.save_pretrained."
)


def check_folder(path: Path, *, needs_weights: bool = True) -> None:
    """Check that a model folder has all parts.

    Where a part is missing, transformers would create it, or raise an error of many lines.

    Args:
        path: The folder.
        needs_weights: Whether weights must be there.

    Raises:
        ModelError: The config, the weights as safetensors, or the tokenizer is missing.
    """
    if not (path / "config.json").is_file():
        raise ModelError(f"Expected a model folder with a config.json at {path}, but it has none.")

    if needs_weights and not any(path.glob("*.safetensors")):
        pickles = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in path.glob(pattern))
        found = f"only {pickles[0]}. {NO_PICKLES}" if pickles else "it has no weights. Check the path."
        raise ModelError(f"Expected weights as .safetensors files in {path}, but found {found}")

    if not any(next(path.glob(pattern), None) for pattern in TOKENIZER_FILES):
        raise ModelError(
            f"Expected a tokenizer (tokenizer.json or the like) in {path}, but it has none. Save the model's "
            "tokenizer there with tokenizer.save_pretrained."
        )


def refuse_revision(name: str, revision: str) -> NoReturn:
    """Refuse a revision of a model on the local disk.

    Raises:
        ModelError: Always.
    """
    raise ModelError(
        f"Expected a revision only with a hub id, but got revision {revision!r} with {name!r}, which is on this disk. "
        "Leave the revision out."
    )


def read_model(
    source: str, name: str, options: dict[str, Any], model_options: dict[str, Any]
) -> tuple[Any, Any]:
    """Read a model and its tokenizer.

    Args:
        source: Folder or hub id.
        name: The name that the user gave, for messages.
        options: Options of transformers for every part; ``local_files_only`` marks a folder.
        model_options: Options of transformers for the model.

    Returns:
        The model and its tokenizer.

    Raises:
        ModelError: A part cannot be read, a package is missing, the weights are not those of the config, or a GGUF file
            states rotary parameters that transformers does not support, see `take_rope`.
        UnsupportedModelError: A GGUF file is of an architecture without rotary embedding.
    """
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    if "gguf_file" in options:
        if hasattr(transformers, "GgufConfig"):
            # Newer versions keep weights packed where possible, and would unpack them in every forward pass.
            model_options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    else:
        model_options["use_safetensors"] = True

    is_cached_only = "local_files_only" not in options and not hub_has_address()
    if is_cached_only:
        options["local_files_only"] = True

    with quiet():
        # The config is read first. It is the smallest part, and separates a wrong name or a damaged config from
        # other faults.
        config = _part("config", name, is_cached_only, lambda: AutoConfig.from_pretrained(source, **options))
        note, rope = None, None
        if "gguf_file" in options:
            rope = read_rope(Path(source) / options["gguf_file"])
            note = take_rope(config, rope)
            model_options["config"] = config

        tokenizer = _part(
            "tokenizer", name, is_cached_only, lambda: AutoTokenizer.from_pretrained(source, **options)
        )
        model, found = _part(
            "weights",
            name,
            is_cached_only,
            lambda: AutoModelForCausalLM.from_pretrained(
                # Weights of a wrong shape are refused by name below.
                source,
                **options,
                **model_options,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            ),
        )

    _check_weights(model, found, name)

    if rope is not None:
        check_rope(model, rope)

    setattr(model, ROPE_NOTE, note)
    return model, tokenizer


def read_tokenizer(source: str, name: str, options: dict[str, Any]) -> Any:
    """Read a tokenizer alone.

    Args:
        source: Folder or hub id.
        name: The name that the user gave, for messages.
        options: Options of transformers.

    Returns:
        The tokenizer.

    Raises:
        ModelError: The tokenizer cannot be read.
    """
    from transformers import AutoTokenizer

    with quiet():
        return _part("tokenizer", name, False, lambda: AutoTokenizer.from_pretrained(source, **options))


def read_outline(source: str, name: str, options: dict[str, Any], dtype: Any) -> tuple[Any, Any]:
    """Read the config and the tokenizer of a model, and build the model without values.

    Args:
        source: Folder or hub id.
        name: The name that the user gave, for messages.
        options: Options of transformers for every part; ``local_files_only`` marks a folder.
        dtype: Number format of the weights, as torch has it.

    Returns:
        The model on the meta device, which has no memory for weights, and its tokenizer.

    Raises:
        ModelError: The config or the tokenizer cannot be read, or the config describes no causal language model.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    is_cached_only = "local_files_only" not in options and not hub_has_address()
    if is_cached_only:
        options = options | {"local_files_only": True}

    with quiet():
        config = _part("config", name, is_cached_only, lambda: AutoConfig.from_pretrained(source, **options))
    tokenizer = read_tokenizer(source, name, options)

    def build() -> Any:
        with torch.device("meta"):
            trust = options.get("trust_remote_code", False)
            return AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=trust)

    with quiet():
        return _part("config", name, is_cached_only, build), tokenizer


def _part(part: str, name: str, is_cached_only: bool, load: Callable[[], Any]) -> Any:
    """Return what ``load`` returns, or raise `ModelError` with the part of the model that failed."""
    try:
        return load()
    except ImportError as error:
        raise ModelError(
            f"Loading the {part} of {name!r} needs a package that is missing: {one_line(error)}"
        ) from error
    except Exception as error:
        # transformers and the hub client raise many unrelated types for a wrong name, a missing network, a damaged
        # file or an unknown architecture.
        reason = one_line(error)
        if isinstance(error, OSError) and is_cached_only:
            reason = (
                "the hub cannot be reached and its files are not in the cache. Connect, or name a folder."
            )

        if (
            isinstance(error, OSError)
            and part == "weights"
            and (is_cached_only or "safetensors" in str(error))
        ):
            place = " in the cache, and the hub cannot be reached" if is_cached_only else ""
            reason = f"no safetensors file was found{place}. {NO_PICKLES}"

        raise ModelError(
            f"Expected a causal language model at {name!r} (hub id, folder, .gguf file or 'tiny'), but "
            f"loading failed at its {part}: {reason}"
        ) from error


def _check_weights(model: Any, found: dict[str, Any], name: str) -> None:
    """Refuse a model whose files lack weights, which transformers would replace by random numbers."""
    names = [weight for weight, _ in model.named_parameters()]
    decoder = {prefix for prefix, layer, _ in (weight.partition(".layers.") for weight in names) if layer}

    # Some checkpoints contain heads that the model does not use, but no checkpoint contains unused decoder layers.
    spare = [
        weight
        for weight in found["unexpected_keys"]
        if weight.partition(".layers.")[0] in decoder
        and not any(known.startswith(_layer_of(weight)) for known in names)
    ]

    # Some versions give tuples, which also hold the two shapes.
    wrong = [weight if isinstance(weight, str) else weight[0] for weight in found["mismatched_keys"]]
    for fault, weights in (
        ("are not in its files", found["missing_keys"]),
        ("have another shape in its files", wrong),
        ("of its files belong to layers that its config leaves out", spare),
    ):
        if weights:
            raise ModelError(
                f"Expected the files of {name!r} to hold the weights that its config asks for, but {len(weights)} "
                f"{fault}, first {min(weights)}. The files are incomplete or belong to another config.json."
            )


def _layer_of(weight: str) -> str:
    """Return the name of a weight up to and including the number of its layer."""
    prefix, layers, rest = weight.partition(".layers.")
    return f"{prefix}{layers}{rest.partition('.')[0]}."


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the hub client, which logs every retry, and transformers, which logs tables of weights.

    transformers also lists the weights that it would not split over several GPUs, although no split was asked for.
    """
    names = ("huggingface_hub", "transformers.modeling_utils", "transformers.distributed.tensor_parallel")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def one_line(error: BaseException) -> str:
    """Return the text of an error on one line of at most 300 characters."""
    text = " ".join(str(error).split())
    if not text or isinstance(error, LookupError):
        # The text of a LookupError is a bare value, such as the name of an activation that the config asks for.
        text = f"{type(error).__name__} {text}, perhaps a value of its config.json that transformers does not know"
    return text if len(text) <= 300 else f"{text[:297]}..."
