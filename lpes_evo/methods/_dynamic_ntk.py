"""DynamicNtk: a larger rotary base for prompts beyond the window."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lpes_evo.methods._lpes import ScaledMethod
from lpes_evo.methods.takeover import MethodHandle

if TYPE_CHECKING:
    import torch

    from lpes_evo.methods.takeover import Forward, RowwiseRotaryEmbedding


class DynamicNtk(ScaledMethod):
    """Base ``b (f n / L0 - (f - 1))^(d / (d - 2))`` for a prompt of n tokens and an original window L0.

    Prompts up to L0 run as on the untouched model. Each row has the base of its own prompt, and keeps this base to the
    end of its request, cached keys included. The type ``dynamic`` of transformers differs in three ways: it uses the
    length of the longest row, changes the base while keys are cached, and remembers the base for later prompts.

    Attributes:
        factor: The factor f by which the window is extended.
        original: The original window L0 in tokens; ``None`` to take it from the config.
        length: Number of tokens n that counts for every row; ``None`` for the length of the prompt of each row.
    """

    name: ClassVar[str] = "ntk"
    leading: ClassVar[str | None] = "factor"
    chooses_by_prompt: ClassVar[bool] = True

    factor: float = Field(ge=1, le=1e6, allow_inf_nan=False)
    original: int | None = Field(default=None, ge=1, le=10**9)
    length: int | None = Field(default=None, ge=1, le=10**9)

    @contextmanager
    def change_rotation(
        self, model: "torch.nn.Module", handle: MethodHandle, scales: npt.NDArray[np.float64] | None
    ) -> Iterator[None]:
        """Return a context in which each row has the base of its prompt.

        Raises:
            UnsupportedModelError: The model is not of the default rotary type.
            ModelError: The model's rotary frequencies are not sound.
        """
        from lpes_evo.methods.takeover import (
            RequestTracker,
            RowwiseRotaryEmbedding,
            check_describes,
            original_length,
            replaced_rotary,
        )
        from lpes_evo.rope import find_structure, patch_rope

        check_describes(model, self.name)
        window = original_length(model, self.original)

        with replaced_rotary(model, lambda module: RowwiseRotaryEmbedding([module])) as stand_ins:
            own = {
                stand_in: stand_in.variants[0]
                for stand_in in stand_ins
                if isinstance(stand_in, RowwiseRotaryEmbedding)
            }

            def choose(forward: "Forward") -> "torch.Tensor | None":
                return self._choose(forward, own, window)

            tracker = RequestTracker(
                find_structure(model).decoder,
                handle,
                chooses_by_prompt=self.length is None,
                on_forward=choose,
            )

            try:
                with patch_rope(model, scales) if scales is not None else nullcontext():
                    yield
            finally:
                tracker.remove()

    def unchanged_below(self, model: "torch.nn.Module") -> int | None:
        """Return the original window, up to which the base is unchanged; ``None`` with ``length`` or scales.

        Args:
            model: The model.
        """
        from lpes_evo.methods.takeover import original_length

        return None if self.length or self.scales else original_length(model, self.original)

    def departures(self, model: "torch.nn.Module") -> tuple[str, ...]:
        """Return where the computation departs, on a model, from the type ``dynamic`` of transformers."""
        from lpes_evo.methods.takeover import original_length, stated_window

        window, stated = original_length(model, self.original), stated_window(model)
        other_window = (
            f"the original window is {window} tokens, where the type takes max_position_embeddings, {stated}"
        )
        return (
            f"every row counts as a prompt of {self.length} tokens, where the type takes the longest row"
            if self.length
            else "each row has the base of its own prompt, where the type takes the longest row of the batch",
            "a request keeps its base to the end, cached keys included, where the type changes it while keys keep the "
            "old one",
            "nothing is remembered for the next prompt, where the type keeps the base of the longest one so far",
            *([other_window] if window != stated else []),
        )

    def base_ratio(self, n_tokens: int, window: int, width: int) -> float:
        """Return the factor of the base for a prompt.

        Args:
            n_tokens: Tokens of the prompt, n.
            window: Original window, L0.
            width: Dimensions that are rotated, d.

        Returns:
            ``(f n / L0 - (f - 1))^(d / (d - 2))``. It is 1 within the window, and for a single frequency, which has no
            base.
        """
        if n_tokens <= window or width == 2:
            return 1.0
        return float((self.factor * n_tokens / window - (self.factor - 1)) ** (width / (width - 2)))

    def _choose(
        self, forward: "Forward", own: "dict[RowwiseRotaryEmbedding, torch.nn.Module]", window: int
    ) -> "torch.Tensor | None":
        """Give the rows of a forward pass their bases, and return positions for each row if the bases differ."""
        import torch

        from lpes_evo.methods.takeover import base_variants, rotary_frequencies

        request = forward.request
        lengths = [self.length] * request.batch if self.length else request.prompt_lengths.tolist()

        # All prompts within the window have the same base.
        lengths = [max(length, window) for length in lengths]
        distinct = sorted(set(lengths))
        choice = torch.tensor([distinct.index(length) for length in lengths])
        for stand_in, module in own.items():
            width = 2 * len(next(iter(rotary_frequencies(module).values())))
            ratios = [self.base_ratio(length, window, width) for length in distinct]
            stand_in.variants = base_variants(module, ratios)
            stand_in.choice = None if len(distinct) == 1 else choice

        return None if len(distinct) == 1 else forward.positions.expand(request.batch, -1)
