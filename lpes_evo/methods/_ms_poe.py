"""MsPoe: each attention head has its own position ratio."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from lpes_evo.errors import UnsupportedModelError
from lpes_evo.methods._method import Method
from lpes_evo.methods.takeover import MethodHandle

if TYPE_CHECKING:
    import torch

    from lpes_evo.methods.takeover import AttentionCall, RotaryCall

_SHARP = 3.0
"""A key is attended sharply if its probability exceeds the mean by this factor."""


class MsPoe(Method):
    """Head i of H rotates position m as ``m / (smallest + (largest - smallest) * r_i / H)`` (arXiv 2403.04797).

    The numbers r_i are assigned in each layer and row by how sharply the last token of the prompt attends, measured on
    unrotated queries and keys:

    * ``order="rank"`` gives the sharpest head the smallest ratio, as the paper describes.
    * ``order="released"`` gives head i the number order[i] of the sorted heads, as the released code does.
    * ``order="normal"`` is the fixed order of the released code, without statistics. The first head has the largest
      ratio.

    Query heads that share keys also share a ratio, and their statistic is the mean over these heads.

    Attributes:
        smallest: Smallest ratio. With ``largest`` also 1 the method is the untouched model.
        largest: Upper end of the ratios, which the last head does not quite reach.
        order: The rule that assigns the ratios.
        first_layer: First layer under the method; the layers before it stay untouched.
    """

    name: ClassVar[str] = "ms-poe"
    chooses_by_prompt: ClassVar[bool] = True

    smallest: float = Field(default=1.2, ge=1e-6, le=1e6, allow_inf_nan=False)
    largest: float = Field(default=1.8, ge=1e-6, le=1e6, allow_inf_nan=False)
    order: Literal["rank", "released", "normal"] = "rank"
    first_layer: int = Field(default=2, ge=0)

    @field_validator("largest")
    @classmethod
    def _ratios_are_sorted(cls, largest: float, info: ValidationInfo) -> float:
        smallest = info.data.get("smallest", largest)
        if largest < smallest:
            raise ValueError(f"expected largest to be at least smallest = {smallest:g}, but got {largest:g}")
        return largest

    def ratios(self, n_heads: int) -> tuple[float, ...]:
        """Return the ratios of the numbers 0 to ``n_heads - 1``."""
        return tuple(
            self.smallest + (self.largest - self.smallest) * number / n_heads for number in range(n_heads)
        )

    @contextmanager
    def _apply(self, model: "torch.nn.Module") -> Iterator[MethodHandle]:
        """Return a context in which each head has its ratio.

        Raises:
            UnsupportedModelError: The attention of the model cannot be taken over, its layers have different numbers of
                key heads, or no layer is under the method.
            ModelError: Another method is in force.
        """
        from lpes_evo.methods.takeover import find_rotations, unrotated_attention

        rotations = find_rotations(model).values()
        n_groups = sorted(
            {rotation.n_key_heads for layer, rotation in rotations if layer >= self.first_layer}
        )
        if len(n_groups) != 1:
            came = ", ".join(map(str, n_groups)) or "no such layers"
            raise UnsupportedModelError(
                f"Expected rotating layers of one number of key heads from layer {self.first_layer} on for ms-poe, but "
                f"got {came}. Set first_layer, or use lpes."
            )

        # The first tables, of the ratio 1, are for the layers that stay untouched.
        ratios = (1.0, *self.ratios(n_groups[0]))

        def make_tables(call: "RotaryCall") -> "tuple[torch.Tensor, torch.Tensor]":
            return _tables(call, ratios)

        handle = MethodHandle()
        with unrotated_attention(
            model, handle, make_tables, self._attend, chooses_by_prompt=self.order != "normal"
        ):
            yield handle

    def departures(self, model: "torch.nn.Module") -> tuple[str, ...]:
        """Return where the computation departs from the released code on a model."""
        from lpes_evo.methods.takeover import find_rotations, under_other_type

        # `_apply` accepts only models whose layers under the method have one number of key heads.
        rotation = next(found for layer, found in find_rotations(model).values() if layer >= self.first_layer)
        grouped = (
            f"the {rotation.n_heads} query heads of a layer share {rotation.n_key_heads} key heads, and each group has "
            "one ratio and one statistic, the mean of its heads, where the released code has a ratio for each head: a "
            "shared key would have to be rotated, and attended to, once for every head of its group"
        )
        sliding = (
            "in layers with a sliding window the statistic counts all keys of the prompt, as on the models of the "
            "released code, which have no such layers"
        )

        return (
            *([grouped] if rotation.n_heads != rotation.n_key_heads else []),
            *([sliding] if self.order != "normal" and _has_sliding_layers(model) else []),
            *under_other_type(model, "positions are divided"),
        )

    def _settings(self, n_layers: int) -> dict[str, Any]:
        """Return the settings, and the source of the order of heads."""
        source = {"rank": "paper", "released": "released code", "normal": "released code, fixed"}[self.order]
        return {
            **super()._settings(n_layers),
            "order_follows": source,
            "layers": [self.first_layer, n_layers - 1],
        }

    def _attend(self, call: "AttentionCall") -> "torch.Tensor":
        if call.layer < self.first_layer:
            # The first tables are those of the ratio 1.
            own = tuple(table[0][:, None] for table in call.tables)
            return call.run(call.rotate_query(*own), call.rotate_key(*own))

        numbers = self._numbers(call) + 1
        per_group = call.rotation.n_heads // call.rotation.n_key_heads
        n_queries = call.query.shape[-2]

        # In decoding there are many keys and one query, which stands at the last position.
        of_queries = (
            _pick(table[..., -n_queries:, :], numbers.repeat_interleave(per_group, dim=1))
            for table in call.tables
        )
        of_keys = (_pick(table, numbers) for table in call.tables)

        return call.run(call.rotate_query(*of_queries), call.rotate_key(*of_keys))

    def _numbers(self, call: "AttentionCall") -> "torch.Tensor":
        """Return the number of the ratio of each group of heads, ``(batch, key_heads)``."""
        import torch

        batch, n_groups = call.query.shape[0], call.rotation.n_key_heads
        if self.order == "normal":
            return torch.arange(n_groups - 1, -1, -1, device=call.query.device).expand(batch, -1)

        choices = call.forward.request.choices
        if call.forward.begins:
            choices[call.layer] = head_numbers(head_sharpness(call), self.order)
        return choices[call.layer]


def _has_sliding_layers(model: "torch.nn.Module") -> bool:
    """Return whether the config of a model states layers that attend to the last tokens only."""
    from lpes_evo.rope import find_structure

    config: Any = find_structure(model).decoder.config
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return "sliding_attention" in kinds
    return bool(getattr(config, "sliding_window", None)) and getattr(config, "use_sliding_window", True)


def head_numbers(scores: "torch.Tensor", order: str) -> "torch.Tensor":
    """Return the number of the ratio of each head.

    Args:
        scores: How sharply each head attends, ``(..., heads)``.
        order: ``rank`` or ``released``, see `MsPoe`.

    Returns:
        Numbers from 0, ``(..., heads)``.
    """
    by_score = scores.argsort(dim=-1, descending=True, stable=True)
    return by_score if order == "released" else by_score.argsort(dim=-1)


def head_sharpness(call: "AttentionCall") -> "torch.Tensor":
    """Return the share of keys that the last token of the prompt attends to more than 3 times the mean.

    Args:
        call: The first call of a request.

    Returns:
        ``(batch, key_heads)``, the mean over the heads of a group.
    """
    import torch

    request = call.forward.request
    first, last = (column.to(call.key.device) for column in (request.first, request.last))
    batch, n_groups = call.key.shape[:2]

    # Attention of the last token of each prompt.
    rows = torch.arange(batch, device=call.key.device)
    query = call.query[rows, :, last].reshape(batch, n_groups, -1, call.query.shape[-1])
    keys = call.key[:, :, : call.query.shape[2]]
    scores = torch.einsum("bghd,bgkd->bghk", query, keys).float() * call.scaling

    # Padding has no probability.
    columns = torch.arange(keys.shape[2], device=keys.device)
    seen = ((columns >= first[:, None]) & (columns <= last[:, None]))[:, None, None]
    probabilities = scores.masked_fill(~seen, -torch.inf).softmax(dim=-1)

    # The mean probability is 1 / n_seen.
    n_seen = (last - first + 1)[:, None, None]
    sharp = (probabilities * n_seen[..., None] > _SHARP).sum(dim=-1) / n_seen

    return sharp.mean(dim=-1)


def _tables(call: "RotaryCall", ratios: tuple[float, ...]) -> "tuple[torch.Tensor, torch.Tensor]":
    """Return the tables of every ratio at the positions of all keys."""
    import torch

    positions = call.forward.key_positions
    # Positions are divided in float64, so that the division is the only rounding before angles are computed in
    # float32.
    dtype = torch.float32 if positions.device.type == "mps" else torch.float64
    divisors = torch.tensor(ratios, dtype=dtype, device=positions.device)[:, None, None]
    cosines, sines = call.tables((positions / divisors).flatten(0, 1))
    shape = (len(ratios), len(positions), *cosines.shape[1:])
    return cosines.view(shape), sines.view(shape)


def _pick(table: "torch.Tensor", numbers: "torch.Tensor") -> "torch.Tensor":
    """Return ``(batch, heads, n_keys, width)`` of tables ``(n_tables, 1 or batch, n_keys, width)``."""
    import torch

    numbers = numbers.to(table.device)
    if table.shape[1] == 1:
        return table[numbers, 0]
    return table[numbers, torch.arange(len(numbers), device=table.device)[:, None]]
