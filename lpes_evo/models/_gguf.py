"""GgufRope: the rotary parameters of a GGUF file, of which transformers reads few; the rest is added to the config."""

import copy
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import ModelError

_FACTORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
_NEUTRAL = {
    "scaling.attn_factor": (1.0,),
    "scaling.yarn_attn_factor": (1.0,),
    "scaling.yarn_ext_factor": (1.0, -1.0),
    "scaling.yarn_log_multiplier": (0.0,),
    "scaling.alpha": (0.0, 1.0),
}
"""Keys that no config of transformers can express, with the values that have no effect."""
_READ = {
    *_NEUTRAL,
    "freq_base",
    "freq_base_swa",
    "dimension_count",
    "dimension_count_swa",
    "dimension_sections",
    "scale_linear",
    "scaling.type",
    "scaling.factor",
    "scaling.original_context_length",
    "scaling.yarn_beta_fast",
    "scaling.yarn_beta_slow",
    # This key describes the training of the model, and has no effect.
    "scaling.finetuned",
}
_DEFAULT_BASE = 10000.0
"""The base of a file that states none, as defined by the program that the format belongs to."""
_NEVER = 1e29
"""A factor beyond this value disables a frequency."""
_KEPT = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")
"""Rotary parameters of a config that do not belong to its type."""


@dataclass(frozen=True)
class GgufRope:
    """The rotary parameters that a GGUF file states.

    Attributes:
        file: Name of the file, for messages.
        stated: Values under ``ARCHITECTURE.rope.``, by the rest of their keys.
        factors: Divisors of the frequencies, ``(n_frequencies,)``, by the name of their tensor.
    """

    file: str
    stated: dict[str, Any]
    factors: dict[str, npt.NDArray[np.float64]]


def read_rope(path: Path) -> GgufRope:
    """Read the rotary parameters of a GGUF file.

    Args:
        path: The file.

    Returns:
        The values and factors.

    Raises:
        ModelError: The file cannot be read, a key is unknown, a value is not a number, or no config can express it.
    """
    from gguf import GGUFReader, dequantize

    try:
        reader = GGUFReader(path)
        prefix = f"{reader.fields['general.architecture'].contents()}.rope."
        stated = {
            name.removeprefix(prefix): field.contents()
            for name, field in reader.fields.items()
            if name.startswith(prefix)
        }
        factors = {
            tensor.name: dequantize(tensor.data, tensor.tensor_type).astype(np.float64).ravel()
            for tensor in reader.tensors
            if tensor.name in _FACTORS
        }
    except Exception as error:
        # The reader raises many unrelated types for a damaged file.
        raise ModelError(f"Expected a GGUF file at {path}, but it cannot be read: {error!s:.200}") from error

    unknown = sorted(set(stated) - _READ)
    if unknown:
        raise _refused(path.name, f"{unknown[0]} = {stated[unknown[0]]!r:.60}, which is unknown here")

    for name, value in stated.items():
        is_number = isinstance(value, (int, float)) and math.isfinite(value)
        if not is_number and name not in ("scaling.type", "dimension_sections"):
            raise _refused(path.name, f"{name} = {value!r:.60}, which is no number")

    for name, neutral in _NEUTRAL.items():
        # For LongRoPE the attention factor is an ordinary parameter.
        is_read = name == "scaling.attn_factor" and len(factors) > 0
        if name in stated and stated[name] not in neutral and not is_read:
            raise _refused(path.name, f"{name} = {stated[name]:g}")

    for name, values in factors.items():
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ModelError(
                f"Expected positive factors of frequencies in {name} of {path.name}, but some are not. The file is "
                "damaged; fetch it anew."
            )

    return GgufRope(path.name, stated, factors)


def take_rope(config: Any, rope: GgufRope) -> str | None:
    """Put the rotary parameters of a GGUF file into the config that transformers made of it.

    transformers reads the base of most architectures and little else. It silently drops the factors of Llama 3.1
    (`rope_freqs.weight`), those of LongRoPE, linear scaling and YaRN. This function expresses them by the types
    ``linear``, ``yarn``, ``llama3`` or ``longrope`` of a config. Factors of no known type become a ``longrope`` with
    equal short and long factors.

    Args:
        config: The config, which is changed.
        rope: The rotary parameters of the file, see `read_rope`.

    Returns:
        One sentence that names the parameters put into the config; ``None`` if nothing was missing.

    Raises:
        ModelError: The file states rotary parameters that the config cannot express, or contradicts itself.
    """
    stated, factors = rope.stated, rope.factors
    if not stated and not factors:
        return None

    text = config.get_text_config()
    sets = _sets(text)
    full = sets["full_attention"]
    before = copy.deepcopy(sets)

    # Parameters of the rotary type that the config had before must not remain beside those of the new type.
    wanted = _wanted(stated, factors, text, full, rope.file)
    for name in [name for name in full if name not in (*_KEPT, *wanted)]:
        del full[name]
    full.update(wanted)

    # Layers with a sliding window have their own base, and are never scaled.
    base_of_sliding = stated.get("freq_base_swa")
    if base_of_sliding is not None:
        if "sliding_attention" in sets:
            sets["sliding_attention"]["rope_theta"] = float(base_of_sliding)
        elif base_of_sliding != full["rope_theta"]:
            raise _refused(
                rope.file, f"freq_base_swa = {base_of_sliding:g}, for layers with a sliding window"
            )

    if sets == before:
        return None

    _store(text, sets)
    changed = {name: value for name, value in full.items() if value != before["full_attention"].get(name)}
    said = (
        ", ".join(f"{name} {_brief(value)}" for name, value in changed.items())
        or "a base for sliding windows"
    )

    return f"{rope.file} states rotary parameters that transformers leaves unread, and they are in force: {said}."


def check_rope(model: Any, rope: GgufRope) -> None:
    """Check that a model has the rotary parameters of its GGUF file.

    Args:
        model: The model, built from the config that `take_rope` changed.
        rope: The rotary parameters of the file.

    Raises:
        ModelError: The family of the model does not support the rotary type, or has another number of frequencies.
    """
    from lpes_evo.rope import find_structure

    text = model.config.get_text_config()
    kinds = {name: entry.get("rope_type", "default") for name, entry in _sets(text).items()}
    for module in find_structure(model).rotary_modules:
        own = getattr(module, "rope_type", "default")
        found = own if isinstance(own, dict) else {"full_attention": own}
        for name, kind in kinds.items():
            if found.get(name) != kind:
                raise _refused(
                    rope.file, f"a rotary type ({kind}) that {type(module).__name__} does not have"
                )

        for layer_type in found:
            name = f"{layer_type}_inv_freq" if isinstance(own, dict) else "inv_freq"
            frequencies = getattr(module, name, None)
            count = rope.stated.get("dimension_count")
            if layer_type == "sliding_attention":
                count = rope.stated.get("dimension_count_swa", count)

            if frequencies is not None and count is not None and 2 * len(frequencies) != count:
                raise _refused(
                    rope.file, f"{count} rotated dimensions, where the model has {2 * len(frequencies)}"
                )


def _wanted(
    stated: dict[str, Any],
    factors: dict[str, npt.NDArray[np.float64]],
    config: Any,
    current: dict[str, Any],
    name: str,
) -> dict[str, Any]:
    """Return the rotary parameters that a file states for layers with full attention.

    Raises:
        ModelError: The parameters contradict each other, or cannot be expressed by a config.
    """
    window = int(config.max_position_embeddings)
    original = int(stated.get("scaling.original_context_length") or window)
    scale = float(stated.get("scaling.factor") or stated.get("scale_linear") or 1.0)

    # A file with a factor and no type means linear scaling.
    kind = str(stated.get("scaling.type") or "linear")
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise _refused(name, f"scaling.type = {kind!r:.40}, which is unknown here")
    if scale <= 0:
        raise _refused(name, f"scaling.factor = {scale:g}")

    wanted = {"rope_theta": _base(stated, current, name)} | _width(stated, config, current, name)
    n_frequencies = _n_frequencies(stated, config, current | wanted)
    for tensor, values in factors.items():
        if len(values) != n_frequencies and current.get("rope_type") != "proportional":
            raise _refused(name, f"{len(values)} factors in {tensor} for {n_frequencies} frequencies")

    _check_sections(stated, current, name)

    of_all = factors.get("rope_freqs.weight")
    if current.get("rope_type") == "proportional":
        _check_proportional(of_all, current, name)
        if kind in ("yarn", "longrope") or (kind == "linear" and scale != 1):
            raise _refused(name, f"scaling of the type {kind} beside a rotary type of its own")
        return wanted | {"rope_type": "proportional"}

    # Factors of 1 have no effect.
    if of_all is not None and (of_all == 1).all():
        of_all = None

    short, long = (factors.get(f"rope_factors_{which}.weight") for which in ("short", "long"))
    if (short is None) != (long is None):
        raise _refused(name, "only one of rope_factors_short and rope_factors_long")

    if (kind == "longrope") > (short is not None) or (
        short is not None and (kind == "yarn" or scale != 1 or of_all is not None)
    ):
        raise _refused(name, f"scaling.type = {kind!r} with factors of frequencies that do not belong to it")

    if short is not None and long is not None:
        attention = float(stated.get("scaling.attn_factor", 1.0))
        return wanted | _longrope(short, long, original, attention, config)

    if kind == "yarn":
        if of_all is not None:
            raise _refused(name, "scaling.type = 'yarn' beside the factors of rope_freqs.weight")

        betas = {
            beta: float(stated[f"scaling.yarn_{beta}"])
            for beta in ("beta_fast", "beta_slow")
            if f"scaling.yarn_{beta}" in stated
        }

        return wanted | {
            "rope_type": "yarn",
            "factor": scale,
            "original_max_position_embeddings": original,
            **betas,
            **_truncation(config),
        }

    if kind == "none":
        scale = 1.0

    if of_all is not None:
        if (of_all > _NEVER).any():
            raise _refused(name, "factors in rope_freqs.weight that switch frequencies off")
        every = of_all * scale
        return wanted | (
            _llama3(every, config, current, wanted) or _longrope(every, every, window, 1.0, config)
        )

    if scale != 1:
        return wanted | {"rope_type": "linear", "factor": scale}
    return wanted | {"rope_type": "default"}


def _base(stated: dict[str, Any], current: dict[str, Any], name: str) -> float:
    """Return the base of the frequencies."""
    if "freq_base" in stated:
        return float(stated["freq_base"])

    base = float(current["rope_theta"])
    if base != _DEFAULT_BASE:
        raise ModelError(
            f"Expected {name} to state rope.freq_base, but it does not, and the config of its architecture has "
            f"{base:g} where the format has {_DEFAULT_BASE:g}. Convert the model anew, or load its folder."
        )

    return base


def _width(stated: dict[str, Any], config: Any, current: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the share of a head that is rotated, if the config has such a parameter."""
    known = "partial_rotary_factor" in current or hasattr(config, "partial_rotary_factor")
    if "dimension_count" not in stated or not known or current.get("rope_type") == "proportional":
        return {}

    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    share = stated["dimension_count"] / head
    if not 0 < share <= 1:
        raise _refused(name, f"dimension_count = {stated['dimension_count']} for heads of {head} dimensions")
    if int(head * float(current.get("partial_rotary_factor") or 1)) == stated["dimension_count"]:
        return {}

    if hasattr(config, "partial_rotary_factor"):
        config.partial_rotary_factor = share

    return {"partial_rotary_factor": share}


def _n_frequencies(stated: dict[str, Any], config: Any, parameters: dict[str, Any]) -> int:
    """Return the number of frequencies of a rotary module."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    width = stated.get("dimension_count") or head * float(parameters.get("partial_rotary_factor") or 1)
    return int(width) // 2


def _truncation(config: Any) -> dict[str, Any]:
    """Return the architecture's setting for rounding the bounds of YaRN, which no file states.

    GPT-OSS does not round them.
    """
    parameters = getattr(type(config)(), "rope_parameters", None) or {}
    return {"truncate": parameters["truncate"]} if "truncate" in parameters else {}


def _check_sections(stated: dict[str, Any], current: dict[str, Any], name: str) -> None:
    """Refuse sections of a head for text, height and width that differ from those of the config."""
    sections = [section for section in stated.get("dimension_sections", ()) if section]
    if len(sections) > 1 and sections != list(current.get("mrope_section") or ()):
        raise _refused(name, f"dimension_sections = {sections}")


def _check_proportional(factors: npt.NDArray[np.float64] | None, current: dict[str, Any], name: str) -> None:
    """Refuse factors with another effect than to disable the frequencies that the config leaves unrotated."""
    if factors is None:
        return
    rotated = int(float(current.get("partial_rotary_factor", 1.0)) * len(factors))
    if not ((factors[:rotated] == 1).all() and (factors[rotated:] > _NEVER).all()):
        raise _refused(name, "factors in rope_freqs.weight beside a rotary type of its own")


def _llama3(
    factors: npt.NDArray[np.float64], config: Any, current: dict[str, Any], wanted: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the parameters of the type ``llama3`` if they give the same factors, else ``None``."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    if any(isinstance(entry, dict) for entry in (getattr(config, "rope_parameters", None) or {}).values()):
        return None

    parameters = {
        "rope_type": "llama3",
        "factor": round(float(factors.max()), 4),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }

    tried = copy.deepcopy(config)
    kept = {name: value for name, value in current.items() if name in _KEPT}
    _store(tried, {"full_attention": kept | wanted | parameters})
    frequencies = ROPE_INIT_FUNCTIONS["llama3"](tried, "cpu")[0].double().numpy()

    base, width = wanted["rope_theta"], 2 * len(frequencies)
    plain = base ** -(np.arange(0, width, 2) / width)
    matches = len(factors) == len(plain) and np.allclose(plain / factors, frequencies, rtol=1e-4, atol=0)

    return parameters if matches else None


def _longrope(
    short: npt.NDArray[np.float64],
    long: npt.NDArray[np.float64],
    original: int,
    attention: float,
    config: Any,
) -> dict[str, Any]:
    if hasattr(config, "original_max_position_embeddings"):
        # transformers prefers this field to the one in the rotary parameters.
        config.original_max_position_embeddings = original

    return {
        "rope_type": "longrope",
        "short_factor": short.tolist(),
        "long_factor": long.tolist(),
        "original_max_position_embeddings": original,
        "attention_factor": attention,
    }


def _sets(config: Any) -> dict[str, dict[str, Any]]:
    """Return copies of the rotary parameters of a config by layer type; a single set counts as full attention."""
    parameters = getattr(config, "rope_parameters", None)
    if not isinstance(parameters, dict):
        # transformers 4 keeps the base and the type in separate fields.
        scaling = dict(getattr(config, "rope_scaling", None) or {})
        theta = getattr(config, "rope_theta", _DEFAULT_BASE)
        return {"full_attention": {"rope_type": "default", "rope_theta": theta} | scaling}

    nested = {name: dict(entry) for name, entry in parameters.items() if isinstance(entry, dict)}
    return nested or {"full_attention": dict(parameters)}


def _store(config: Any, sets: dict[str, dict[str, Any]]) -> None:
    """Put rotary parameters into a config, in the form in which `_sets` found them."""
    parameters = getattr(config, "rope_parameters", None)
    full = dict(sets["full_attention"])
    if not isinstance(parameters, dict):
        config.rope_theta = full.pop("rope_theta")
        config.rope_scaling = None if full["rope_type"] == "default" else full
    elif any(isinstance(entry, dict) for entry in parameters.values()):
        config.rope_parameters = parameters | sets
    else:
        config.rope_parameters = full


def _brief(value: Any) -> str:
    if isinstance(value, list):
        return f"of {len(value)} frequencies from {min(value):.4g} to {max(value):.4g}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _refused(name: str, what: str) -> ModelError:
    return ModelError(
        f"Expected a GGUF file whose rotary parameters transformers can take over, but {name} states {what}. Load the "
        "model's folder with config.json and safetensors files instead."
    )
