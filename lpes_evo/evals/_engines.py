"""Engine: generation of the answers to a batch of prompts, by transformers or by vLLM."""

import importlib.util
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from lpes_evo.errors import ConfigError, LpesError, ModelError, install_command
from lpes_evo.evals._arms import Arm
from lpes_evo.methods import Baseline, Lpes, MethodHandle
from lpes_evo.problems import Generated, generate_greedy

if TYPE_CHECKING:
    from lpes_evo.evals._config import EvalConfig
    from lpes_evo.evals._target import EvalTarget
    from lpes_evo.models import LoadedModel

_WORKER_EXTENSION = "lpes_evo.serving._vllm_rotary.ScalingWorker"
_CPU_CACHE_BYTES = 4 << 30
# vLLM makes its own batches out of what it is given, and is slow where it is given little.
_BATCH_TOKENS = 131072


class Engine(ABC):
    """Runs a model under an arm, and lets it answer prompts by its likeliest tokens.

    Attributes:
        name: The engine, as in ``EvalConfig.engine``.
    """

    name: ClassVar[str]

    def facts(self, target: "EvalTarget") -> dict[str, Any]:  # noqa: ARG002
        """Return the facts about a model that are otherwise in this engine, see `describe_target`."""
        return {}

    @abstractmethod
    def apply(self, target: "EvalTarget", arm: Arm) -> AbstractContextManager[MethodHandle]:
        """Return a context in which the model runs under an arm.

        Raises:
            LpesError: The arm does not go with the model.
        """

    @abstractmethod
    def generate(
        self, target: "EvalTarget", prompts: Sequence[Sequence[int]], max_new_tokens: Sequence[int]
    ) -> list[Generated]:
        """Return the greedy answers to prompts.

        Args:
            target: The model.
            prompts: Token ids, ``n_rows`` lists.
            max_new_tokens: Most tokens of each answer, ``(n_rows,)``.
        """


class TransformersEngine(Engine):
    """The loaded model itself, with ``generate`` of transformers."""

    name = "transformers"

    def apply(self, target: "EvalTarget", arm: Arm) -> AbstractContextManager[MethodHandle]:
        """Return a context in which the loaded model runs under an arm.

        Raises:
            LpesError: The arm does not go with the model.
        """
        return arm.apply(target.loaded)

    def generate(
        self, target: "EvalTarget", prompts: Sequence[Sequence[int]], max_new_tokens: Sequence[int]
    ) -> list[Generated]:
        """Return the greedy answers to prompts, see `generate_greedy`."""
        return generate_greedy(
            target.loaded.model, prompts, max_new_tokens, ends=target.ends, pad_id=target.pad_id
        )


class VllmEngine(Engine):
    """The same model in vLLM, with the plugin of `lpes_evo.serving`.

    The model is loaded once, under scales of 1; an arm puts its own scales into the rotary tables.
    """

    name = "vllm"

    def __init__(self, loaded: "LoadedModel", window: int, trust_remote_code: bool = False) -> None:
        """Load the model.

        Args:
            loaded: The model as transformers loads it.
            window: Most tokens of a prompt and its answer.
            trust_remote_code: Whether code that comes with the model may run.

        Raises:
            LpesError: vLLM or its plugin cannot run the model.
        """
        # One process holds the engine and the model: a worker is a process of its own already.
        with _environment(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_LOGGING_LEVEL="ERROR"):
            from vllm import LLM
            from vllm.platforms import current_platform

            self._in_force = (1.0,) * loaded.n_layers
            self.device = str(current_platform.device_type)
            options: dict[str, Any] = {}
            if self.device == "cpu" and "VLLM_CPU_KVCACHE_SPACE" not in os.environ:
                # By default vLLM asks for most of the memory of a machine that others may use too.
                options["kv_cache_memory_bytes"] = _CPU_CACHE_BYTES
            try:
                self._llm: Any = LLM(
                    _model_path(loaded),
                    revision=loaded.revision,
                    dtype=loaded.dtype,
                    max_model_len=window,
                    trust_remote_code=trust_remote_code,
                    skip_tokenizer_init=True,
                    load_format="lpes",
                    hf_overrides={"lpes_scales": [1.0] * loaded.n_layers},
                    worker_extension_cls=_WORKER_EXTENSION,
                    **options,
                )
            except LpesError:
                raise
            except Exception as error:  # vLLM raises whatever its parts raise
                raise ModelError(
                    f"Expected a model that vLLM can run, but for {loaded.name} it said: {_last_line(error)} Leave "
                    "--engine vllm out, or see the log with VLLM_LOGGING_LEVEL=INFO."
                ) from error

    def facts(self, target: "EvalTarget") -> dict[str, Any]:
        """Return where and by what the answers are generated, and how large batches may be."""
        engine = f"vLLM {_vllm_version()}"
        return {
            "engine": engine,
            "device": self.device,
            "attention": "vllm",
            "notes": [*target.loaded.notes, f"Answers are generated by {engine}"],
            "default_batch_tokens": _BATCH_TOKENS,
        }

    @contextmanager
    def apply(self, target: "EvalTarget", arm: Arm) -> Iterator[MethodHandle]:
        """Return a context in which the model of vLLM runs under the scales of an arm.

        The scales stay in force after the context, until another arm is applied.

        Raises:
            ScalesError: The curve of the scales cannot be read off at the depth of the model.
        """
        n_layers = target.loaded.n_layers
        found = arm.found
        scales = (1.0,) * n_layers if found is None else tuple(found.at_depth(n_layers).scales)
        if scales != self._in_force:
            self._llm.collective_rpc("set_lpes_scales", args=(scales,))
            # The cached keys of earlier prompts were rotated under other scales.
            if not self._llm.reset_prefix_cache():
                raise ModelError(
                    "Expected no request at work while scales are changed, but vLLM has some. Start again."
                )
            self._in_force = scales
        yield MethodHandle()

    def generate(
        self, target: "EvalTarget", prompts: Sequence[Sequence[int]], max_new_tokens: Sequence[int]
    ) -> list[Generated]:
        """Return the greedy answers to prompts; vLLM makes its own batches of them."""
        from vllm import SamplingParams

        settings = [
            SamplingParams(
                temperature=0,
                max_tokens=limit,
                # The ends of the own loop, and no others that vLLM would read from files of the model.
                ignore_eos=True,
                stop_token_ids=list(target.ends),
                logprobs=0,
                detokenize=False,
            )
            for limit in max_new_tokens
        ]
        asked = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        outputs = self._llm.generate(asked, settings, use_tqdm=False)
        return [_generated(output.outputs[0], target.ends) for output in outputs]


def _vllm_version() -> str:
    """Return the version of vLLM; its builds for a CPU have a name of their own."""
    import vllm

    return str(vllm.__version__)


def _generated(said: Any, ends: Sequence[int]) -> Generated:
    """Return an output of vLLM, up to the token that ends it."""
    ids = tuple(said.token_ids)
    length = next((place for place, token in enumerate(ids) if token in ends), len(ids))
    # Logits that are not finite leave a log-probability that is not.
    chosen = [entry[token].logprob for token, entry in zip(ids, said.logprobs, strict=True)]
    return Generated(ids[:length], all(map(math.isfinite, chosen)))


def _model_path(loaded: "LoadedModel") -> str:
    """Return what vLLM loads a model from.

    Raises:
        ConfigError: The model is an adapter or a GGUF file.
    """
    if loaded.base is not None or str(loaded.name).endswith(".gguf"):
        kind = "a GGUF file" if loaded.base is None else "an adapter"
        raise ConfigError(
            f"Expected a model folder or a hub id for --engine vllm, but {loaded.name} is {kind}. Save the loaded "
            "model to a folder with save_pretrained, and evaluate that."
        )
    if loaded.name == "tiny":
        from importlib.resources import files

        return str(files("lpes_evo.models") / "tiny")
    return str(loaded.name)


def check_engine(config: "EvalConfig", arms: Sequence[Arm], modes: dict[str, str]) -> None:
    """Refuse what the engine of an evaluation cannot do, before a model is loaded.

    Args:
        config: The evaluation.
        arms: Its arms.
        modes: By the name of a task, how its examples are answered; ``harness`` for a task of lm-evaluation-harness.

    Raises:
        ConfigError: There is something; the message says what.
    """
    if config.engine != VllmEngine.name:
        return

    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            f"Expected vLLM for --engine vllm, but it is not installed. Install it: {install_command('vllm')}, in an "
            "environment of its own, or leave the option out."
        )

    others = [arm.name for arm in arms if not isinstance(arm.method, (Baseline, Lpes))]
    if others:
        raise ConfigError(
            f"Expected the methods baseline and lpes with --engine vllm, but got {', '.join(others)}. Leave the option "
            "out for them."
        )

    unfit = [f"{name} ({mode})" for name, mode in modes.items() if mode != "generation"]
    if unfit:
        raise ConfigError(
            f"Expected tasks that are answered by generation with --engine vllm, but got {', '.join(unfit)}. Leave "
            "the option out for them."
        )

    if config.model.attention is not None:
        raise ConfigError(
            f"Expected no --attention with --engine vllm, which has its own, but got {config.model.attention}. Leave "
            "it out."
        )


@contextmanager
def _environment(**defaults: str) -> Iterator[None]:
    """Set variables that are not set for the length of a block."""
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _last_line(error: Exception) -> str:
    """Return the last line of an error, as a sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__).rstrip(".") + "."
