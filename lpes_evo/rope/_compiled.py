"""Compiled code of torch: how it hears that hooks came or went, and how a probe runs without it."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext

import torch

__all__ = ["sweep_code", "without_compiled_code"]


def sweep_code() -> None:
    """Have all compiled code made anew at its next call; call this after hooks were registered or removed.

    By default (``torch._dynamo.config.skip_nnmodule_hook_guards``) compiled code does not look whether the hooks of a
    module are still those that it was made with: it would run on without hooks that came, and with hooks that went. The
    code of every model in the process is swept, since torch does not tell which belongs to one. Where nothing was
    compiled, this costs microseconds.
    """
    # Asked without an import, which takes seconds: where the compiler was never loaded, no code was compiled.
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


def without_compiled_code() -> AbstractContextManager[object]:
    """Return a context in which models run uncompiled, for passes that are watched by hooks of a moment.

    Compiled code is neither used nor lost. Before torch 2.6, which lacks the means, models run as they are.
    """
    set_stance = getattr(torch.compiler, "set_stance", None)
    if set_stance is None or "torch._dynamo" not in sys.modules:
        return nullcontext()
    context: AbstractContextManager[object] = set_stance("force_eager")
    return context
