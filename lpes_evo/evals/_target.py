"""EvalTarget: the part of an evaluation in workers, which encode prompts and answer batches of them under an arm."""

import math
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lpes_evo.accelerators import device_kind, devices_of, empty_caches, input_device, is_gpu
from lpes_evo.errors import ConfigError, LpesError
from lpes_evo.evals._arms import Arm
from lpes_evo.evals._config import EvalConfig
from lpes_evo.evals._engines import Engine, TransformersEngine, VllmEngine
from lpes_evo.methods import MethodHandle, score_row_by_row
from lpes_evo.problems import (
    EncodedPrompt,
    Example,
    Mode,
    PromptEncoder,
    PromptSummary,
    Sharing,
    end_ids,
    score_answers,
    sharing_is_sound,
)

if TYPE_CHECKING:
    from lpes_evo.models import LoadedModel

_GPU_BATCH_TOKENS = 16384
# Decoding one token at a time leaves a CPU idle unless several rows share the work.
_CPU_BATCH_TOKENS = 4096


@dataclass(frozen=True)
class Answer:
    """The answer of a model to one example.

    Attributes:
        id: The example's id.
        prompt_hash: SHA-256 of the prompt's token ids.
        n_prompt: Tokens of the prompt.
        n_cut: Tokens cut out of the document.
        gold_lost: Whether the cut took a part of the fact that is needed.
        output: The output of the model; with teacher forcing, the right answer where greedy decoding gives it, else
            an empty text; ``None`` for a likelihood.
        n_output: Tokens of the output, or of the text whose likelihood was taken.
        nats: Negative log-probability of the known text in nats; ``None`` after generation.
        n_rows: Examples that were answered together with this one, itself included.
        error: The traceback where there is no answer, else ``None``.
    """

    id: str
    prompt_hash: str
    n_prompt: int
    n_cut: int = 0
    gold_lost: bool = False
    output: str | None = None
    n_output: int = 0
    nats: float | None = None
    n_rows: int = 1
    error: str | None = None


@dataclass(frozen=True)
class EvalTarget:
    """A loaded model and the encoder of its prompts.

    Attributes:
        loaded: The model.
        encoder: Turns examples into token ids.
        ends: Tokens that end an output.
        engine: What generates answers.
    """

    loaded: "LoadedModel"
    encoder: PromptEncoder
    ends: tuple[int, ...]
    engine: Engine = field(default_factory=TransformersEngine)

    @classmethod
    def of(cls, loaded: "LoadedModel", config: EvalConfig) -> "EvalTarget":
        """Return the target for a model that is loaded already.

        Raises:
            ConfigError: The window that was asked for is longer than the model's.
        """
        window = config.max_length or loaded.max_length
        if window > loaded.max_length:
            raise ConfigError(
                f"Expected --max-length within the model's window of {loaded.max_length} tokens, but got {window}. "
                "Leave it out for the whole window; a longer one needs a config.json that states it."
            )
        encoder = PromptEncoder(loaded.tokenizer, window, config.chat_template, config.over_length)
        return cls(loaded, encoder, end_ids(loaded.model, loaded.tokenizer))

    @property
    def pad_id(self) -> int:
        """Token that fills the padding."""
        pad = self.loaded.tokenizer.pad_token_id
        return int(pad) if pad is not None else next(iter(self.ends), 0)


@dataclass(frozen=True)
class EvalTargetSpec:
    """Makes the target of a worker.

    Attributes:
        config: The evaluation.
    """

    config: EvalConfig

    def __call__(self, device: str) -> EvalTarget:
        """Load the model on a device.

        Raises:
            ConfigError: vLLM has several devices, over which it is not spread here.
            ModelError: The model cannot be loaded or used.
        """
        from lpes_evo.models import load_model, resolve_device, resolve_dtype

        model = self.config.model
        dtype: str = model.dtype
        place = device
        is_served = self.config.engine == VllmEngine.name
        if is_served:
            if len(devices_of(device)) > 1:
                raise ConfigError(
                    f"Expected one device for each worker with --engine vllm, but got {device!r}. Spread models with "
                    "the engine transformers."
                )
            # The device belongs to vLLM. Beside it the model serves the checks alone, in the same number format.
            dtype, place = resolve_dtype(dtype, resolve_device(device), model.name), "cpu"
        loaded = load_model(
            model.name,
            revision=model.revision,
            dtype=dtype,
            device=place,
            attention=model.attention,
            trust_remote_code=model.trust_remote_code,
        )
        target = EvalTarget.of(loaded, self.config)
        if is_served:
            engine = VllmEngine(loaded, self.config.max_length or loaded.max_length, model.trust_remote_code)
            target = replace(target, engine=engine)
        return target


def describe_target(target: EvalTarget) -> dict[str, Any]:
    """Return the facts about a model: those that two evaluations must share to be one, and those for readers."""
    from lpes_evo.models import weights_hash

    loaded = target.loaded
    kind = device_kind(loaded.device)
    return {
        "n_layers": loaded.n_layers,
        "revision": loaded.revision,
        **({} if loaded.base is None else {"base": loaded.base}),
        "dtype": loaded.dtype,
        "device": kind,
        "attention": loaded.attention,
        "notes": list(loaded.notes),
        "window": target.encoder.max_length,
        "weights": weights_hash(loaded.model),
        "ends": list(target.ends),
        "default_batch_tokens": _GPU_BATCH_TOKENS if is_gpu(kind) else _CPU_BATCH_TOKENS,
        **target.engine.facts(target),
    }


def check_arms(target: EvalTarget, arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """Run the model once under every arm, so that an arm that does not go with it is refused before work begins.

    Returns:
        The record of each arm.

    Raises:
        LpesError: An arm does not go with the model.
    """
    import torch

    model = target.loaded.model
    records = []
    for arm in arms:
        with arm.apply(target.loaded), torch.inference_mode():
            model(input_ids=torch.zeros(1, 2, dtype=torch.long, device=input_device(model)), use_cache=False)
        record, length = arm.record(target.loaded.n_layers, model), arm.method.unchanged_below(model)
        # Journals of version 1 know the length by this name, and an evaluation resumes where the records are equal.
        records.append(record if length is None else record | {"neutral_up_to": length})
    return records


def encode_prompts(target: EvalTarget, examples: Sequence[Example], mode: Mode) -> list[PromptSummary]:
    """Return the summaries of the prompts of examples."""
    return [target.encoder.encode(example, mode).summary for example in examples]


def try_sharing(
    target: EvalTarget, arms: Sequence[Arm], examples: Sequence[Example], batch_tokens: int
) -> dict[str, Sharing]:
    """Try whether questions about one text may share a run over it, see `sharing_is_sound`.

    Args:
        target: The model.
        arms: The arms.
        examples: A batch of examples that are answered by teacher forcing.
        batch_tokens: Tokens of one forward pass over long texts.

    Returns:
        The verdict by the name of the arm.

    Raises:
        LpesError: An arm does not go with the model.
    """
    rows = [row for example in examples for row in target.encoder.encode(example, "teacher forcing").rows]

    found = {}
    for arm in arms:
        if arm.method.chooses_by_prompt:
            found[arm.name] = Sharing(False, "the method chooses by the prompt of each row")
            continue

        try:
            with arm.apply(target.loaded):
                found[arm.name] = sharing_is_sound(target.loaded.model, rows, batch_tokens=batch_tokens)
        except LpesError:
            raise
        except Exception as error:  # the examples that fail are written down when they are answered
            message = next(iter(str(error).splitlines()), "")
            found[arm.name] = Sharing(
                False, f"the model failed on it ({type(error).__name__}: {message:.300})"
            )
        empty_caches()
    return found


def answer_batch(
    target: EvalTarget,
    arm: Arm,
    examples: Sequence[Example],
    mode: Mode,
    batch_tokens: int,
    share_prefixes: bool = False,
) -> list[Answer]:
    """Let the model answer a batch under an arm.

    A batch that fails, as where memory is short, is answered in halves; an example that fails alone gets its traceback
    for an answer.

    Args:
        target: The model.
        arm: The arm that it is under.
        examples: The examples of the batch.
        mode: The way in which they are answered.
        batch_tokens: Tokens of one forward pass over long texts.
        share_prefixes: Whether questions about one text share a run over it; `try_sharing` tells where they may.

    Returns:
        The answers, in the order of the examples.

    Raises:
        LpesError: The arm does not go with the model.
    """
    prompts = [target.encoder.encode(example, mode) for example in examples]
    with target.engine.apply(target, arm) as applied:
        return _answer(target, arm, applied, examples, prompts, mode, batch_tokens, share_prefixes)


def _answer(
    target: EvalTarget,
    arm: Arm,
    applied: MethodHandle,
    examples: Sequence[Example],
    prompts: Sequence[EncodedPrompt],
    mode: Mode,
    batch_tokens: int,
    share_prefixes: bool,
) -> list[Answer]:
    """Answer a batch under the method in force; a batch that fails is answered in halves."""
    trouble = None
    try:
        if mode == "generation":
            return _generate(target, examples, prompts)
        return _read(target, arm, applied, examples, prompts, mode, batch_tokens, share_prefixes)
    except LpesError:
        raise
    except Exception:  # the others keep their answers, and the run its work
        trouble = traceback.format_exc()

    # This stands outside of the handler, which would keep the tensors of the failed attempt alive.
    empty_caches()
    if len(examples) == 1:
        if len(prompts[0].rows) > 1 and batch_tokens > 1:
            return _answer(target, arm, applied, examples, prompts, mode, 1, share_prefixes)
        return [_blank(prompts[0], 1, error=trouble)]

    middle = len(examples) // 2
    return [
        answer
        for part in (slice(0, middle), slice(middle, None))
        for answer in _answer(
            target, arm, applied, examples[part], prompts[part], mode, batch_tokens, share_prefixes
        )
    ]


def _generate(
    target: EvalTarget, examples: Sequence[Example], prompts: Sequence[EncodedPrompt]
) -> list[Answer]:
    """Answer prompts by greedy generation."""
    found = target.engine.generate(
        target,
        [prompt.rows[0].prompt_ids for prompt in prompts],
        [example.max_new_tokens for example in examples],
    )

    texts = [target.loaded.tokenizer.decode(said.ids, skip_special_tokens=True) for said in found]
    return [
        _blank(prompt, len(prompts), output=text, n_output=len(said.ids))
        if said.is_finite
        else _blank(prompt, len(prompts), error=_NOT_FINITE)
        for prompt, said, text in zip(prompts, found, texts, strict=True)
    ]


def _read(
    target: EvalTarget,
    arm: Arm,
    applied: MethodHandle,
    examples: Sequence[Example],
    prompts: Sequence[EncodedPrompt],
    mode: Mode,
    batch_tokens: int,
    share_prefixes: bool,
) -> list[Answer]:
    """Take the likelihood of known texts; with teacher forcing, also whether greedy decoding gives them."""
    rows = [row for prompt in prompts for row in prompt.rows]
    if arm.method.chooses_by_prompt:
        scores = score_row_by_row(applied, target.loaded.model, rows, prompts_end=mode == "teacher forcing")
    else:
        scores = score_answers(
            target.loaded.model, rows, batch_tokens=batch_tokens, share_prefixes=share_prefixes
        )

    answers, start = [], 0
    for example, prompt in zip(examples, prompts, strict=True):
        part = slice(start, start + len(prompt.rows))
        start = part.stop
        lengths = [len(row.answer_ids) for row in prompt.rows]
        nats = -math.fsum(
            mean * length for mean, length in zip(scores.log_probability[part].tolist(), lengths, strict=True)
        )

        output = None
        if mode == "teacher forcing":
            output = example.answers[0] if scores.correct[part].all() else ""
        answers.append(
            _blank(prompt, len(prompts), output=output, n_output=sum(lengths), nats=nats)
            if math.isfinite(nats)
            else _blank(prompt, len(prompts), error=_NOT_FINITE)
        )
    return answers


_NOT_FINITE = "EvaluationError: the model's output is not finite. With float16, try bfloat16 or float32."


def _blank(prompt: EncodedPrompt, n_rows: int, **values: Any) -> Answer:
    """Return an answer with the fields that the prompt gives."""
    summary = prompt.summary
    return Answer(
        summary.id,
        prompt.prompt_hash,
        summary.n_prompt,
        n_cut=summary.n_cut,
        gold_lost=summary.gold_lost,
        n_rows=n_rows,
        **values,
    )
