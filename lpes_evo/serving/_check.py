"""The check of an exported folder: its logits, where lpes-evo cannot be imported, are those of the patched model."""

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lpes_evo.errors import ModelError
from lpes_evo.models import LoadedModel
from lpes_evo.scales import Scales
from lpes_evo.serving import _isolated
from lpes_evo.serving._isolated import logits_of

_LENGTHS = (12, 48, 160)
"""Tokens of the prompts that are compared, where the window allows it."""
_TEXT = "The key to the archive: 4711, and naïve café 東京."
_TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2, "float16": 4e-3}
"""Largest difference that is no fault, relative to the largest logit: a few roundings of the format."""


@dataclass(frozen=True)
class Reference:
    """What an exported folder must reproduce.

    Attributes:
        prompts: Token ids of each prompt.
        scaled: Logits of the model under its scales, see `lpes_evo.serving._isolated.logits_of`.
        effect: Largest difference that the scales make to a logit.
        tokens: Token ids of a text.
        dtype: Number format of the computation.
        device: Device of the computation.
        attention: Attention backend.
    """

    prompts: list[list[int]]
    scaled: list[Any]
    effect: float
    tokens: list[int]
    dtype: str
    device: str
    attention: str


def take_reference(loaded: LoadedModel, scales: Scales) -> Reference:
    """Compute what an exported folder must reproduce.

    Args:
        loaded: The model.
        scales: Its scales.

    Returns:
        The logits of the model under `patch_rope`, and what else is compared.
    """
    from lpes_evo.rope import patch_rope

    generator = random.Random(0)
    n_tokens = loaded.model.get_input_embeddings().weight.shape[0]
    longest = max(1, loaded.max_length - _isolated.N_DECODED)
    prompts = [
        [generator.randrange(n_tokens) for _ in range(length)]
        for length in sorted({min(length, longest) for length in _LENGTHS})
    ]
    untouched = logits_of(loaded.model, prompts)
    with patch_rope(loaded.model, scales.scales):
        scaled = logits_of(loaded.model, prompts)
    # Decoded tokens may be others, so prompts alone tell what the scales do.
    effect = largest_difference(untouched[:-1], scaled[:-1])
    tokens = loaded.tokenizer(_TEXT)["input_ids"]
    return Reference(prompts, scaled, effect, tokens, loaded.dtype, loaded.device, loaded.attention)


def check_folder(folder: Path, reference: Reference) -> float:
    """Load a folder in a process that cannot import lpes-evo, and compare its logits.

    Args:
        folder: The exported folder.
        reference: What it must reproduce.

    Returns:
        The largest difference of a logit.

    Raises:
        ModelError: The folder cannot be loaded, or its logits or its tokens are others.
    """
    with TemporaryDirectory(prefix="lpes-export-") as name:
        found, tokens = _run_isolated(folder, reference, Path(name))
    if tokens != reference.tokens:
        raise _unfit("its tokenizer cuts a text into other tokens than that of the model")
    shapes = [tuple(logits.shape) for logits in found], [tuple(logits.shape) for logits in reference.scaled]
    if shapes[0] != shapes[1]:
        raise _unfit(f"its logits have the shapes {shapes[0]} in place of {shapes[1]}")

    difference = largest_difference(found, reference.scaled)
    largest = max(1.0, *(float(logits.abs().max()) for logits in reference.scaled))
    limit = _TOLERANCE[reference.dtype] * largest
    # Where scales change little, a folder without them must not pass for one with them.
    if reference.effect > 1e-6 * largest:
        limit = min(limit, reference.effect / 4)
    if not difference <= limit:
        raise _unfit(
            f"its logits differ by up to {difference:.2g} from those under patch_rope, where {limit:.2g} is the limit"
        )
    return difference


def largest_difference(one: list[Any], other: list[Any]) -> float:
    """Return the largest difference between two lists of tensors of equal shapes."""
    return max(float((first - second).abs().max()) for first, second in zip(one, other, strict=True))


def _run_isolated(folder: Path, reference: Reference, work: Path) -> tuple[list[Any], list[int]]:
    """Return logits and tokens of a folder from another process."""
    from safetensors import safe_open

    output = work / "logits.safetensors"
    request = {
        "folder": str(folder),
        "prompts": reference.prompts,
        "text": _TEXT,
        "dtype": reference.dtype,
        "device": reference.device,
        "attention": reference.attention,
        "output": str(output),
    }
    (work / "request.json").write_text(json.dumps(request), encoding="utf-8")
    source = Path(_isolated.__file__).read_text(encoding="utf-8")
    # Code of the folder is cached by its name, and must not be there for a folder that gets this name later.
    surroundings = {
        "HF_MODULES_CACHE": str(work / "modules"),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }
    process = subprocess.run(  # noqa: S603  (the program is a text of this package, and no shell is asked)
        [sys.executable, "-c", source, str(work / "request.json")],
        cwd=work,
        env=os.environ | surroundings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if process.returncode < 0:
        raise _unfit(
            f"the process that loaded it was ended by signal {-process.returncode}, perhaps for want of memory"
        )
    if process.returncode:
        lines = process.stderr.strip().splitlines()
        raise _unfit(
            f"transformers alone cannot load it: {lines[-1] if lines else 'no reason is given'!s:.300}"
        )
    with safe_open(output, "pt") as file:
        found = [file.get_tensor(str(index)) for index in range(len(reference.scaled))]
        return found, json.loads(file.metadata()["tokens"])


def _unfit(reason: str) -> ModelError:
    return ModelError(
        f"Expected the exported folder to be the model under its scales, but {reason}. The folder was removed. Serve "
        "the model with patch_rope instead, and report this model."
    )
