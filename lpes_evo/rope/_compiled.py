"""Handling of code that torch has compiled: `sweep_code` discards it, `without_compiled_code` suspends it."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext

import torch

__all__ = ["sweep_code", "without_compiled_code"]


def sweep_code() -> None:
    """Discard all compiled code, so that it is compiled again at its next call.

    Call this function after hooks were registered or removed. By default
    (``torch._dynamo.config.skip_nnmodule_hook_guards``) compiled code does not check whether a module still has the
    hooks that the code was compiled with: it would ignore new hooks and run removed ones. The code of every model in
    the process is discarded, since torch does not tell which code belongs to which model. Where nothing was compiled,
    the call takes microseconds.
    """
    # Importing the compiler takes seconds. Where it was never imported, no code was compiled.
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


def without_compiled_code() -> AbstractContextManager[object]:
    """Return a context in which models run uncompiled, for forward passes that temporary hooks observe.

    Compiled code is kept, but not used. Versions of torch before 2.6 offer no such context, so there models run as they
    are.
    """
    set_stance = getattr(torch.compiler, "set_stance", None)
    if set_stance is None or "torch._dynamo" not in sys.modules:
        return nullcontext()
    context: AbstractContextManager[object] = set_stance("force_eager")
    return context
