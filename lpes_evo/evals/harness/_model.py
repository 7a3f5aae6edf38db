"""LpesLM: the model type ``lpes`` of lm-evaluation-harness, a model whose layers stay under their scales."""

import copy
import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy.typing as npt
from lm_eval.models.huggingface import HFLM
from lm_eval.utils import simple_parse_args_string

from lpes_evo.errors import ConfigError, ModelError, ScalesError
from lpes_evo.models import LoadedModel, load_model, weights_hash
from lpes_evo.rope import forget_lengths, patch_rope
from lpes_evo.scales import check_scales, load_scales
from lpes_evo.storage import package_versions, to_json

_LOADING = ("revision", "dtype", "device", "attention", "trust_remote_code")
_PASSED_ON = (
    "batch_size",
    "max_batch_size",
    "max_length",
    "truncation",
    "logits_cache",
    "softmax_dtype",
    "mixed_precision_dtype",
    "add_bos_token",
    "prefix_token_id",
    "think_end_token",
    "enable_thinking",
    "chat_template_args",
)
_CACHE_KEY = "lpes-evo"


class LpesLM(HFLM):  # type: ignore[misc]
    """A causal language model under per-layer scales, as lm-evaluation-harness wants it.

    The scales are in force from the end of the constructor until `close`, which also leaving a ``with`` block calls.
    Several processes started by ``torchrun`` or ``accelerate launch`` each load the model on their own device and
    share the questions.

    Args:
        pretrained: Argument of `load_model` (hub id, folder, ``.gguf`` file or ``tiny``), or a model it has loaded.
        scales: A ``scales.json`` file, the folder of a finished run, or position divisors of shape ``(n_layers,)``;
            ``"none"`` or ``None`` leaves the model untouched.
        check_model: Whether scales from a file must have been found on a model of the same name.
        **options: ``tokenizer``, a name, a folder or an object, in the place of the model's own; of `load_model`:
            ``revision``, ``dtype``, ``device``, ``attention`` and ``trust_remote_code``; of the harness's own model
            type: batch sizes, maximum length and the treatment of special tokens.

    Attributes:
        scales: Position divisor of each layer, ``(n_layers,)``; ``None`` for an untouched model.
        cut_prompts: Prompts that were longer than the model's window, of which the harness dropped the beginning.

    Raises:
        ConfigError: An option is unknown, does not go with a model that is loaded already, or asks for batches of a
            model whose rotary frequencies follow the length of its input.
        ModelError: No model is named, or it cannot be loaded, see `load_model`.
        ScalesError: The scales are missing, damaged, or those of another model or depth.
        UnsupportedModelError: The architecture has no rotary embedding that can be scaled layer by layer.
    """

    def __init__(
        self,
        pretrained: str | Path | LoadedModel | None = None,
        scales: str | Path | npt.ArrayLike | None = None,
        check_model: bool = True,
        **options: Any,
    ) -> None:
        unknown = sorted(set(options) - {"tokenizer", *_LOADING, *_PASSED_ON})
        if unknown:
            known = ", ".join(("pretrained", "scales", "check_model", "tokenizer", *_LOADING, *_PASSED_ON))
            raise ConfigError(f"Expected model arguments among {known}, but got {', '.join(unknown)}.")

        tokenizer = options.pop("tokenizer", None)
        loading = {name: options.pop(name) for name in _LOADING if name in options}
        accelerator = _accelerator()
        if accelerator is not None:
            # The device of the command line would be one for all processes.
            loading["device"] = str(accelerator.device)

        loaded = _loaded(pretrained, loading)
        if forget_lengths(loaded.model) and str(options.get("batch_size", 1)) != "1":
            # The harness pads the rows of a batch, and the longest would set the frequencies of all.
            raise ConfigError(
                f"Expected batch_size=1 with {loaded.name}, whose rotary frequencies follow the length of its input, "
                f"but got batch_size={options['batch_size']}. Set batch_size=1, so that no answer depends on its batch."
            )

        source, divisors = _read_scales(scales, loaded, check_model)
        with _only_errors("lm_eval.models.huggingface"):
            # The harness warns that one process alone evaluates an object; the accelerator below sees to that.
            super().__init__(
                pretrained=loaded.model,
                backend="causal",
                # The harness adds a padding token.
                tokenizer=copy.deepcopy(_tokenizer(tokenizer, loaded)),
                **{"max_length": loaded.max_length, **options},
            )

        if accelerator is not None:
            self.accelerator = accelerator
            self._rank, self._world_size = accelerator.process_index, accelerator.num_processes

        self.cut_prompts: set[str] = set()
        self.scales = divisors
        self._facts = {
            "lpes_model": loaded.name,
            "lpes_weights_sha256": weights_hash(loaded.model),
            "lpes_scales": divisors,
            "lpes_scales_source": source,
            "lpes_attention": loaded.attention,
            "lpes_versions": package_versions(),
        }
        self.revision = loaded.revision
        self._patch = None if divisors is None else patch_rope(loaded.model, divisors)

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None
    ) -> "LpesLM":
        """Make the model from the harness's command line.

        Args:
            arg_dict: The values of ``--model_args``, which go first.
            additional_config: Batch size and device. The harness says ``cuda:0`` where the user says nothing, also on a
                machine without a GPU, so that is read as the first GPU if there is one.

        Returns:
            The model.

        Raises:
            LpesError: See the constructor.
        """
        settings = {name: value for name, value in (additional_config or {}).items() if value is not None}
        if settings.get("device") == "cuda:0":
            settings["device"] = "auto"
        return cls(**{**settings, **arg_dict})

    @classmethod
    def create_from_arg_string(
        cls, arg_string: str, additional_config: dict[str, Any] | None = None
    ) -> "LpesLM":
        """Make the model from arguments as ``name=value,name=value``, see `create_from_arg_obj`."""
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    def close(self) -> None:
        """Take the scales off the model; does nothing the second time."""
        if self._patch is not None:
            self._patch.remove()

    def __enter__(self) -> "LpesLM":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def get_model_info(self) -> dict[str, Any]:
        """Return the facts about the model that the harness writes into its results, and the scales.

        Returns:
            Names and values that JSON can hold, but for the dtype, which the harness turns to text.
        """
        commit = getattr(self.config, "_commit_hash", None)
        return {**super().get_model_info(), "model_sha": commit or "", **self._facts}

    def set_cache_hook(self, cache_hook: Any) -> None:
        """Let the harness keep answers (``--use_cache``), which it looks up by the prompt alone.

        Args:
            cache_hook: The harness's handle of the file.

        Raises:
            ScalesError: The file holds answers under other scales, or of another model.
        """
        answers = cache_hook.dbdict
        if answers is not None:
            identity = hashlib.sha256(to_json([self._facts, str(self.model.dtype)]).encode()).hexdigest()
            if not len(answers):
                answers[_CACHE_KEY] = identity
            if answers.get(_CACHE_KEY) != identity:
                raise ScalesError(
                    f"Expected answers of this model under these scales in {answers.filename}, but it holds "
                    "others. Name another file for --use_cache."
                )
        super().set_cache_hook(cache_hook)

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **options: Any
    ) -> Any:
        """Score continuations, see the harness, and remember the prompts that lose their beginning."""
        for texts, context, continuation in requests:
            # Windows of a rolling likelihood come without texts, and are cut to measure.
            if texts is not None and len(context) + len(continuation) > self.max_length + 1:
                self.cut_prompts.add(texts[0])
        return super()._loglikelihood_tokens(requests, **options)

    def tok_batch_encode(
        self, strings: list[str], *arguments: Any, left_truncate_len: int | None = None, **options: Any
    ) -> Any:
        """Encode prompts for generation, see the harness, and remember which of them lost their beginning."""
        if left_truncate_len is not None:
            self.cut_prompts.update(
                text for text in strings if len(self.tok_encode(text)) > left_truncate_len
            )
        return super().tok_batch_encode(strings, *arguments, left_truncate_len=left_truncate_len, **options)

    def tok_decode(self, tokens: Any, skip_special_tokens: bool = True) -> Any:
        """Decode tokens, see the harness; a tokenizer without an end token has no text for it."""
        return None if tokens is None else super().tok_decode(tokens, skip_special_tokens=skip_special_tokens)


def register() -> None:
    """Make the model type ``lpes`` known to the harness, which finds it by itself only after release 0.4.13."""
    # The harness registers its own models only while its registry is empty.
    import lm_eval.models  # noqa: F401
    from lm_eval.api.registry import model_registry

    if "lpes" not in model_registry:
        model_registry.register("lpes", target="lpes_evo.evals.harness:LpesLM")


def _accelerator() -> Any:
    """Return the handle of this process among several, or ``None`` when it is alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return None
    from accelerate import Accelerator

    return Accelerator()


def _loaded(pretrained: Any, loading: dict[str, Any]) -> LoadedModel:
    """Return the model, loaded where it is not yet.

    Raises:
        ConfigError: Options of loading are given for a model that is loaded already.
        ModelError: No model is named, or it cannot be loaded.
    """
    if isinstance(pretrained, LoadedModel):
        if loading:
            raise ConfigError(
                f"Expected no {', '.join(loading)} with a model that is loaded already, since nothing would come of "
                "it. Name the model instead, or pass them to load_model."
            )
        return pretrained

    if pretrained is None:
        raise ModelError("Expected the model argument pretrained, but got none. Pass pretrained=MODEL.")
    return load_model(pretrained, **loading)


def _tokenizer(given: Any, loaded: LoadedModel) -> Any:
    """Return the tokenizer that was asked for, by its name or as an object, else that of the model."""
    if given is None or not isinstance(given, (str, Path)):
        return loaded.tokenizer if given is None else given
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(given))
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(
            f"Expected tokenizer to name a tokenizer on the hub or in a folder, but {str(given)!r:.80} cannot be "
            f"loaded: {' '.join(str(error).split())[:200]} Leave it out for the model's own."
        ) from error


def _read_scales(
    scales: Any, loaded: LoadedModel, check_model: bool
) -> tuple[str | None, list[float] | None]:
    """Return where the scales come from, and the scales; both are ``None`` for an untouched model."""
    if scales is None or (isinstance(scales, str) and scales.lower() == "none"):
        return None, None
    if not isinstance(scales, (str, Path)):
        divisors = check_scales(scales, loaded.n_layers)
        if divisors.ndim != 1:
            raise ScalesError(
                f"Expected one scale for each layer, ({loaded.n_layers},), but got {divisors.shape}."
            )
        return "values", divisors.tolist()

    found = load_scales(scales, n_layers=loaded.n_layers)
    if check_model and found.model != loaded.name:
        raise ScalesError(
            f"Expected scales found on {loaded.name}, but those of {scales} were found on {found.model}. Search scales "
            "for this model, or pass check_model=False to use them all the same."
        )
    return f"{scales} (found on {found.model}, task {found.task})", list(found.scales)


@contextmanager
def _only_errors(name: str) -> Iterator[None]:
    """Silence the warnings of a logger for the length of a block."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
