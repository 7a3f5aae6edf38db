"""RopePatch: per-layer scales on a model, with `patch_rope` to put them on and `unpatch_rope` to take them off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy.typing as npt
import torch

from lpes_evo.errors import ModelError
from lpes_evo.rope._frequencies import check_frequencies
from lpes_evo.rope._hooks import RopeHooks
from lpes_evo.rope._scales import LayerScales
from lpes_evo.rope._structure import find_structure, unwrapped_model

__all__ = ["RopePatch", "patch_rope", "unpatch_rope"]

PATCH_ATTRIBUTE = "_lpes_rope_switch"


class RopePatch:
    """Scales that are in force on a model until ``remove`` is called or the ``with`` block is left.

    A patch is made by `patch_rope`. Several patches on one model form a stack, of which the newest is in force.
    Removing a patch also removes those made after it, as leaving an outer ``with`` block ends the inner ones.
    """

    def __init__(self, decoder: torch.nn.Module, hooks: RopeHooks, layer_scales: LayerScales) -> None:
        self._decoder = decoder
        self._hooks = hooks
        self._layer_scales = layer_scales

    @property
    def n_layers(self) -> int:
        """The number of decoder layers, and so of scales."""
        return self._hooks.n_layers

    @property
    def active(self) -> bool:
        """Whether this patch is still on the model."""
        return any(entry is self._layer_scales for entry in self._hooks.stack)

    def set(self, scales: npt.ArrayLike | torch.Tensor) -> None:
        """Replace the scales.

        Keys that a cache already holds keep the rotation that they were computed with. A forward pass with a cache
        that was filled under other scales is refused (see `patch_rope`), so scales are to be set between inputs.

        Args:
            scales: Position divisors, ``(n_layers,)`` or ``(batch, n_layers)``.

        Raises:
            ScalesError: The scales have a wrong shape, or a value that is not finite or outside 1e-6 to 1e6.
            ModelError: The patch was removed.
        """
        if not self.active:
            raise ModelError(
                "Expected a patch that is on its model, but it was removed. Call patch_rope again."
            )

        layer_scales = LayerScales(scales, self.n_layers)
        stack = self._hooks.stack
        stack[[entry is self._layer_scales for entry in stack].index(True)] = layer_scales
        self._layer_scales = layer_scales
        self._hooks.take_effect()

    def remove(self) -> None:
        """Take this patch, and those made after it, off the model; a second call does nothing."""
        if not self.active:
            return

        stack = self._hooks.stack
        del stack[[entry is self._layer_scales for entry in stack].index(True) :]
        if stack:
            self._hooks.take_effect()
        else:
            self._hooks.uninstall()
            delattr(self._decoder, PATCH_ATTRIBUTE)

    def save_with(self, write: Callable[[Path], None]) -> None:
        """Have ``save_pretrained`` of the model, or of a wrapper of peft around it, write the scales as well.

        Without, it warns once that they are lost. Where a state dict is handed to ``save_pretrained``, as distributed
        training does, nobody asks the model for its weights, and neither happens.

        Args:
            write: Writes the scales into a folder, that of the weights.
        """
        self._hooks.on_save.write = write

    def __enter__(self) -> RopePatch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()


def patch_rope(model: torch.nn.Module, scales: npt.ArrayLike | torch.Tensor) -> RopePatch:
    """Make layer ``h`` of a model rotate position ``m`` as ``m / scales[h]``.

    No weight and no module is changed. The patch registers hooks, and removing it restores the model. With all scales
    1 the logits are bit-equal to those of the untouched model.

    **Caches.** A cache (``past_key_values``) may be used further under the scales that it was filled under, and an
    empty cache under any. Copies made by ``copy`` count as the cache itself. The forward pass of a patched model
    refuses every other cache, also one that was filled on the untouched model or assembled from tensors. Four misuses
    are not noticed: a cache that was filled under the patch is used on the model after the patch was removed, or is
    filled further there before the same scales come back; a cache has no ``get_seq_length``, as in continuous
    batching; live scales are changed in place between two steps of compiled code; live scales are changed through
    ``.data``.

    **Compiled models.** A model may be compiled (``torch.compile``, ``model.compile()``, ``generate`` with a static
    cache) before or after it is patched. Where hooks come or go, all compiled code of the process is compiled again at
    its next call. Other values, set by `RopePatch.set` or by a patch on top, need no new graph. An exported or traced
    model keeps the state that it was made with.

    **Dynamic rotary types.** A model whose rotary type follows the length of its input (``dynamic``) still does so,
    and remembers the longest input as in transformers; see `lpes_evo.rope.forget_lengths`.

    **Threads.** One thread patches a model at a time. Hooks and scales belong to the model, so a second thread that
    runs or patches it meanwhile sees the scales of the first. Each thread needs a copy of the model.

    Args:
        model: A causal language model of transformers with rotary position embeddings.
        scales: Position divisors, ``(n_layers,)``, or ``(batch, n_layers)`` to give each row of the batch its own
            curve. A torch tensor that requires gradients keeps them, and is read anew at every forward pass.

    Returns:
        The patch, which is in force already. Use it as a context manager, or call its ``remove``.

    Raises:
        ScalesError: The scales have a wrong shape, are masked, complex, sparse or without values, or one is not
            finite or outside 1e-6 to 1e6, beyond which positions overflow or vanish in float32. The forward pass
            also raises it if the batch has another number of rows than the scales.
        UnsupportedModelError: The architecture has no rotary embedding that can be scaled layer by layer. The first
            forward pass also raises it if scaled positions do not reach every layer that takes them.
        ModelError: The model's rotary frequencies are not sound, or it was exported and has scales of its own. The
            forward pass also raises it for a cache that was filled otherwise. For a static cache, compiled code raises
            a ``RuntimeError`` with the same text; on a device other than the CPU this is an assertion of the device.

    Example:
        >>> with patch_rope(model, [1.2] * count_layers(model)):
        ...     model.generate(**inputs)
    """
    structure = find_structure(model)
    _refuse_exported(model)
    layer_scales = LayerScales(scales, len(structure.layers))

    # All patches of a model share one set of hooks, which the first of them installs.
    hooks: Any = getattr(structure.decoder, PATCH_ATTRIBUTE, None)
    if hooks is None:
        check_frequencies(model)
        hooks = RopeHooks(structure)
        hooks.install(structure)
        setattr(structure.decoder, PATCH_ATTRIBUTE, hooks)

    hooks.stack.append(layer_scales)
    hooks.take_effect()
    return RopePatch(structure.decoder, hooks, layer_scales)


def _refuse_exported(model: torch.nn.Module) -> None:
    """Refuse a model whose own code, written by an export, puts scales on it.

    Raises:
        ModelError: It is one.
    """
    config: Any = getattr(unwrapped_model(model), "config", None)
    if str(getattr(config, "model_type", "")).startswith("lpes_") and hasattr(config, "lpes_scales"):
        raise ModelError(
            "Expected a model without scales, but this one was written by 'lpes-evo export' and runs under scales by "
            "itself. Load the model that was exported, and patch that."
        )


def unpatch_rope(model: torch.nn.Module) -> None:
    """Take every patch off a model, also off a copy of a patched model; an untouched model stays as it is.

    Args:
        model: The model.

    Raises:
        UnsupportedModelError: The model has no rotary embedding, so it cannot have been patched.
    """
    decoder = find_structure(model).decoder
    hooks: Any = getattr(decoder, PATCH_ATTRIBUTE, None)
    if hooks is not None:
        hooks.uninstall()
        hooks.stack.clear()
        delattr(decoder, PATCH_ATTRIBUTE)
