# ruff: noqa: TID253
"""`streams_of`: a context in which a model runs several times over its tokens, each time with another rotary base."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from lpes_evo.errors import ModelError
from lpes_evo.methods.takeover._in_force import replaced_function
from lpes_evo.methods.takeover._model_inputs import cache_name, input_positions, input_tokens, refuse_outputs
from lpes_evo.methods.takeover._variants import RowwiseRotaryEmbedding, base_variants, replaced_rotary

__all__ = ["combine_streams", "streams_of"]

_CACHES = "_lpes_stream_caches"
"""The attribute of the first group's cache that holds the caches of the other groups. The caller sees the first one."""
_BY_ROW = ("input_ids", "inputs_embeds", "attention_mask", "position_ids", "token_type_ids")


def combine_streams(logits: torch.Tensor, combine: str) -> torch.Tensor:
    """Combine the logits of streams by their confidence.

    Args:
        logits: Logits of the streams, ``(streams, ..., n_vocabulary)``.
        combine: ``logits`` or ``probs``.

    Returns:
        The combination, ``(..., n_vocabulary)``. With the weights ``w = softmax over streams of the largest logit``, it
        is the sum of ``w * logits``, or the logarithm of the sum of ``w * softmax(logits)``.
    """
    if len(logits) == 1:
        return logits[0]

    exact = logits.float()
    weights = exact.amax(dim=-1, keepdim=True).softmax(dim=0)
    if combine == "logits":
        return (weights * exact).sum(dim=0).to(logits.dtype)
    return (weights.log() + exact.log_softmax(dim=-1)).logsumexp(dim=0).to(logits.dtype)


@contextmanager
def streams_of(model: Any, ratios: Sequence[float], combine: str, group: int) -> Iterator[None]:
    """Make a model run once for each factor of its base and return combined logits, for the length of a block.

    Args:
        model: A causal language model.
        ratios: Factors of its base.
        combine: The rule of combination, see `combine_streams`.
        group: Streams that share a forward pass, as rows of one batch; each group has its own cache.

    Yields:
        Nothing.

    Raises:
        UnsupportedModelError: The rotary modules cannot be built with another base.
    """
    variants: dict[RowwiseRotaryEmbedding, list[torch.nn.Module]] = {}

    def stand_in(module: torch.nn.Module) -> RowwiseRotaryEmbedding:
        found = RowwiseRotaryEmbedding([module])
        variants[found] = base_variants(module, ratios)
        return found

    with replaced_rotary(model, stand_in):
        streams = _Streams(model, variants, len(ratios), combine, group)
        with replaced_function(model, "forward", streams.forward):
            yield


class _Streams:
    """The forward of a model that runs in streams."""

    def __init__(
        self,
        model: Any,
        variants: dict[RowwiseRotaryEmbedding, list[torch.nn.Module]],
        n_streams: int,
        combine: str,
        group: int,
    ) -> None:
        self._head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
        self._config = model.config
        self._forward: Callable[..., Any] = model.forward
        self._names = list(inspect.signature(model.forward).parameters)
        self._variants = variants
        self._n_streams = n_streams
        self._combine = combine
        self._group = group

    # Only the passes of the model are worth compiling. The handling of streams around them is not.
    @torch.compiler.disable(recursive=False)  # type: ignore[no-untyped-call, untyped-decorator]
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run all streams, and return the output of the first group with the combined logits."""
        inputs = dict(zip(self._names, args, strict=False)) | kwargs
        if inputs.get("labels") is not None:
            raise ModelError("Expected no labels, since streams give no loss. Take it from the logits.")

        refuse_outputs(
            inputs,
            self._config,
            ("output_hidden_states", "output_attentions"),
            "several streams have no hidden states and attention weights in common",
        )

        as_tuple = inputs.pop("return_dict", None) is False
        inputs |= {"output_hidden_states": False, "output_attentions": False, "return_dict": True}

        key = cache_name(inputs)
        groups = self._groups()
        caches = [None] * len(groups) if key is None else self._caches(inputs[key], len(groups))
        outputs = []
        for streams, cache in zip(groups, caches, strict=True):
            given = inputs if key is None else inputs | {key: cache}
            outputs.append(self._forward(**self._prepare(streams, given, cache)))

        if key is None and len(outputs) > 1:
            _keep_together([_cache_of(output) for output in outputs])

        output = outputs[0]
        logits = [
            found.logits.unflatten(0, (len(streams), -1))
            for streams, found in zip(groups, outputs, strict=True)
        ]
        output.logits = combine_streams(torch.cat(logits), self._combine)

        return output.to_tuple() if as_tuple else output

    def _groups(self) -> list[range]:
        # A hook on the output head, such as that of our scorer, expects the rows of the batch and no others.
        size = 1 if self._head is not None and self._head._forward_pre_hooks else self._group
        return [range(start, min(start + size, self._n_streams)) for start in range(0, self._n_streams, size)]

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _caches(self, cache: Any, n_groups: int) -> list[Any]:
        """Return the cache of each group, after creating the caches that a new request lacks."""
        if int(cache.get_seq_length()) == 0:
            _keep_together([cache, *(copy.deepcopy(cache) for _ in range(n_groups - 1))])

        caches = [cache, *getattr(cache, _CACHES, ())]
        if len(caches) != n_groups or len({int(each.get_seq_length()) for each in caches}) > 1:
            raise ModelError(
                f"Expected a cache that was filled under this method by {n_groups} groups of streams, but it was "
                "filled or cut otherwise. Begin again with the prompt and an empty cache."
            )

        return caches

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _prepare(self, streams: range, inputs: dict[str, Any], cache: Any) -> dict[str, Any]:
        """Return the inputs of a group, with its streams one after another in one batch, and set their bases."""
        batch = len(input_tokens(inputs))
        choice = torch.arange(len(streams)).repeat_interleave(batch)
        for stand_in, variants in self._variants.items():
            stand_in.variants = [variants[stream] for stream in streams]
            stand_in.choice = choice if len(streams) > 1 else None

        if len(streams) == 1:
            return inputs

        positions = input_positions(inputs, cache, "several streams in one batch; set group=1")
        repeated = {
            name: _repeat(inputs[name], len(streams)) for name in _BY_ROW if inputs.get(name) is not None
        }
        return inputs | repeated | {"position_ids": positions.expand(batch, -1).repeat(len(streams), 1)}


def _repeat(value: Any, times: int) -> Any:
    """Return rows repeated for every stream, also inside a dict of masks."""
    if isinstance(value, dict):
        return {key: _repeat(entry, times) for key, entry in value.items()}
    if not isinstance(value, torch.Tensor) or (value.dim() == 4 and len(value) == 1):
        # A four-dimensional mask with a single row holds for every row.
        return value
    return value.repeat(times, *[1] * (value.dim() - 1))


def _cache_of(output: Any) -> Any:
    name = cache_name(output)
    return None if name is None else output[name]


def _keep_together(caches: list[Any]) -> None:
    """Attach the caches of the other groups to that of the first group."""
    if caches[0] is not None and len(caches) > 1:
        setattr(caches[0], _CACHES, caches[1:])
    if caches[0] is not None:
        caches[0].reorder_cache = _refuse_reorder


def _refuse_reorder(_order: Any) -> None:
    raise ModelError(
        "Expected one answer to each prompt, but beam search changes the order of cached rows, which streams do not "
        "follow. Set num_beams to 1."
    )
