"""Baseline: the untouched model as a method."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from lpes_evo.methods._method import Method
from lpes_evo.methods.takeover import MethodHandle

if TYPE_CHECKING:
    import torch


class Baseline(Method):
    """The untouched model."""

    name: ClassVar[str] = "baseline"
    changes_model: ClassVar[bool] = False

    @contextmanager
    def _apply(self, model: "torch.nn.Module") -> Iterator[MethodHandle]:  # noqa: ARG002
        """Return a context that does nothing."""
        yield MethodHandle()
