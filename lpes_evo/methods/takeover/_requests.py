# ruff: noqa: TID253
"""RequestTracker: the requests of a model, each a prompt with the tokens decoded after it, and what a method keeps."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from lpes_evo.errors import ModelError
from lpes_evo.methods.takeover._in_force import refuse_copy, replaced_function
from lpes_evo.methods.takeover._method_handle import MethodHandle
from lpes_evo.methods.takeover._model_inputs import cache_name, input_positions, input_tokens

__all__ = ["Forward", "Request", "RequestTracker", "prompts_of_generate"]

_ATTRIBUTE = "_lpes_request"
"""The attribute of a cache that holds its request. With the request on the cache of its keys, requests may take turns
and caches may be copied."""


@dataclass
class Request:
    """The state of the rows of a batch since their prompts.

    Attributes:
        batch: Number of rows.
        first: Column of the first token that is not padding in each row, ``(batch,)``.
        last: Column of the last token of the prompt in each row, ``(batch,)``.
        key_positions: Positions of all keys so far, ``(1 or batch, n_keys)``.
        told: Whether a caller stated where the prompts end. Otherwise they are assumed to end with the first forward
            pass.
        choices: The choices of the method by the prompt, by layer.
    """

    batch: int
    first: torch.Tensor
    last: torch.Tensor
    key_positions: torch.Tensor
    told: bool
    choices: dict[int, torch.Tensor] = field(default_factory=dict)

    @property
    def prompt_lengths(self) -> torch.Tensor:
        """The number of tokens of each prompt, ``(batch,)``."""
        return self.last - self.first + 1


@dataclass(frozen=True)
class Forward:
    """One forward pass of a decoder.

    Attributes:
        request: The request that the pass belongs to.
        positions: Positions of the tokens of the pass, ``(1 or batch, length)``.
        key_positions: Positions of all keys that the pass attends to, ``(1 or batch, n_keys)``; those of its own tokens
            come last.
        begins: Whether the pass is the first of its request.
    """

    request: Request
    positions: torch.Tensor
    key_positions: torch.Tensor
    begins: bool


class RequestTracker:
    """Hooks that follow the forward passes of a decoder.

    Attributes:
        current: The present forward pass, or else the last one.
    """

    def __init__(
        self,
        decoder: torch.nn.Module,
        handle: MethodHandle,
        *,
        chooses_by_prompt: bool,
        on_forward: Callable[[Forward], torch.Tensor | None] | None = None,
    ) -> None:
        """Register the hooks.

        Args:
            decoder: The module that owns the decoder layers.
            handle: The handle of the method, which knows where prompts end.
            chooses_by_prompt: Whether the method must know where prompts end.
            on_forward: Called at the start of each forward pass; it may return other position ids for the pass.
        """
        self.current: Forward | None = None
        self._decoder = decoder
        self._method_handle = handle
        self._chooses_by_prompt = chooses_by_prompt
        self._on_forward = on_forward

        self._names = [name for name in inspect.signature(type(decoder).forward).parameters if name != "self"]
        self._handles = [
            decoder.register_forward_pre_hook(self._before, with_kwargs=True),
            decoder.register_forward_hook(self._after),
        ]

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def __deepcopy__(self, memo: dict[int, Any]) -> RequestTracker:
        """Return the tracker itself, since the hooks of a copied decoder must lead here, where the copy is refused."""
        return self

    def _before(self, decoder: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        refuse_copy(decoder, self._decoder)

        inputs = dict(zip(self._names, args, strict=False)) | kwargs
        batch, length = input_tokens(inputs).shape[:2]
        name = cache_name(inputs)
        cache = None if name is None else inputs[name]
        past = 0 if cache is None else int(cache.get_seq_length())

        positions = input_positions(inputs, cache, "this method")
        if len(positions) > 1 and bool((positions == positions[:1]).all()):
            positions = positions[:1]

        if past == 0:
            request = self._begin(batch, length, inputs.get("attention_mask"), positions)
        else:
            request = self._go_on(cache, batch, past, positions)

        if cache is not None:
            setattr(cache, _ATTRIBUTE, request)

        self.current = Forward(request, positions, request.key_positions, past == 0)
        changed = self._on_forward(self.current) if self._on_forward is not None else None
        if changed is None:
            return None

        if "position_ids" in self._names[: len(args)]:
            place = self._names.index("position_ids")
            return (*args[:place], changed, *args[place + 1 :]), kwargs

        return args, kwargs | {"position_ids": changed}

    def _after(self, _decoder: Any, _args: Any, output: Any) -> None:
        """Keep the request on a cache that the decoder made itself."""
        if isinstance(output, dict) and self.current is not None:
            for name in ("cache", "past_key_values"):
                cache = dict.get(output, name)
                if cache is not None and not hasattr(cache, _ATTRIBUTE):
                    setattr(cache, _ATTRIBUTE, self.current.request)

    def _begin(self, batch: int, length: int, mask: Any, positions: torch.Tensor) -> Request:
        device = positions.device
        told = self._method_handle.prompt_lengths
        columns = self._method_handle.prompt_columns if self._chooses_by_prompt else None
        if columns is None or told is not None:
            columns = length
        elif columns > length:
            raise ModelError(
                "Expected the whole prompts in the first forward pass, since this method chooses something by them, "
                f"but got {length} of {columns} columns. Leave out prefill_chunk_size, guidance_scale, and whatever "
                "else cuts prompts."
            )

        # The mask tells padding on either side from the tokens of a row.
        first = torch.zeros(batch, dtype=torch.long, device=device)
        count = torch.full((batch,), columns, device=device)
        if isinstance(mask, torch.Tensor) and mask.dim() == 2:
            real = mask[:, -length:][:, :columns].to(device).bool()
            first, count = real.int().argmax(dim=1), real.sum(dim=1)
        elif mask is not None and self._chooses_by_prompt and (told is None or min(told) < length):
            raise ModelError(
                "Expected an attention mask of shape (batch, length), since this method chooses something by the "
                f"prompt of each row, but got {_shape(mask)}. Pass the two-dimensional mask, and no static cache, for "
                "which generate makes another one of it."
            )

        if told is not None:
            count = self._lengths(told, count)

        known = told is not None or self._method_handle.prompt_columns is not None
        return Request(batch, first, first + count - 1, positions, known)

    def _lengths(self, told: tuple[int, ...], count: torch.Tensor) -> torch.Tensor:
        """Return the lengths that a caller stated, ``(batch,)``, after a comparison with the tokens of the rows."""
        batch = len(count)
        if batch % len(told):
            raise ModelError(f"Expected the lengths of {batch} prompts, but got {len(told)}.")

        lengths = torch.tensor(told, device=count.device).repeat_interleave(batch // len(told))
        beyond = (lengths > count).nonzero().flatten().tolist()
        if beyond:
            row = beyond[0]
            raise ModelError(
                f"Expected a prompt of at most the {int(count[row])} tokens of row {row} in the first forward pass, "
                f"but {int(lengths[row])} were told. Tell lengths without padding, and pass whole prompts at once."
            )

        return lengths

    def _go_on(self, cache: Any, batch: int, past: int, positions: torch.Tensor) -> Request:
        request: Request | None = getattr(cache, _ATTRIBUTE, None)
        if request is None or request.batch != batch or request.key_positions.shape[1] < past:
            raise ModelError(
                f"Expected a cache that was filled under this method with {batch} rows, but it was filled otherwise. "
                "Begin again with the prompt and an empty cache."
            )

        length = positions.shape[1]
        if self._chooses_by_prompt and length > 1 and not request.told:
            raise ModelError(
                "Expected the whole prompt in the first forward pass, since this method chooses something by it, but "
                f"{length} more tokens of each row follow. Pass the prompt at once, or tell where it ends by prompts() "
                "of what apply gives."
            )

        before = request.key_positions[:, :past]
        rows = max(len(before), len(positions))
        both = (before.expand(rows, -1), positions.expand(rows, -1))
        request.key_positions = torch.cat(both, dim=1)
        return request


@contextmanager
def prompts_of_generate(model: Any, handle: MethodHandle) -> Iterator[None]:
    """Make ``generate`` of a model state where its prompts end, for the length of a block.

    The first forward pass of ``generate`` does not show this. With speculative decoding it contains more than the
    prompts, and without a cache every token starts with a first pass.

    Args:
        model: The model; a model without ``generate`` stays untouched.
        handle: The handle that receives the columns of the prompts.

    Yields:
        Nothing.
    """
    if not hasattr(model, "generate"):
        yield
        return

    generate = model.generate

    def tell(*args: Any, **kwargs: Any) -> Any:
        before, handle.prompt_columns = handle.prompt_columns, _prompt_columns(args, kwargs)
        try:
            return generate(*args, **kwargs)
        finally:
            handle.prompt_columns = before

    with replaced_function(model, "generate", tell):
        yield


def _prompt_columns(args: Any, kwargs: dict[str, Any]) -> int | None:
    """Return the number of columns of the prompts that ``generate`` gets, or ``None`` if it gets no prompts."""
    prompts = (kwargs.get("inputs_embeds"), *args[:1], kwargs.get("inputs"), kwargs.get("input_ids"))
    return next((int(value.shape[1]) for value in prompts if isinstance(value, torch.Tensor)), None)


def _shape(mask: Any) -> str:
    return f"{tuple(mask.shape)}" if isinstance(mask, torch.Tensor) else f"a {type(mask).__name__}"
