"""Moice: the method that mixes, in every layer, attention under several rotary bases by a trained router."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, PrivateAttr

from lpes_evo.errors import ConfigError
from lpes_evo.methods import Method
from lpes_evo.methods.takeover import MethodHandle

if TYPE_CHECKING:
    import torch


class Moice(Method):
    """The attention outputs of several rotary bases, weighted for each head and token (arXiv 2406.19598).

    The weights are a softmax over the bases. The ``top_k`` largest weights are kept and scaled to sum to 1. The router
    sees the query rotated with the first base. Keys are cached unrotated. Each row has its own positions, so padding
    and batches of mixed lengths are exact; in the released code they are not.

    Attributes:
        routers: File of routers that ``lpes-evo train-moice`` wrote for the model.
        top_k: Bases that count for a token; ``None`` for the number that the routers were trained with.
    """

    name: ClassVar[str] = "moice"
    leading: ClassVar[str | None] = "routers"

    routers: str
    top_k: int | None = Field(default=None, ge=1)
    _content: str = PrivateAttr()

    def __init__(self, **values: Any) -> None:
        """Record the content of the file, so that a file which is replaced later is noticed.

        Args:
            **values: The settings.

        Raises:
            ConfigError: A setting is not valid, or the file cannot be read.
        """
        super().__init__(**values)
        self._content = _content_of(self.routers)

    @property
    def attention_passes(self) -> int:
        """The number of attention outputs that each layer computes, one for each base of the routers."""
        from lpes_evo.methods.moice._routers import load_routers

        return len(load_routers(self.routers).facts.bases)

    @contextmanager
    def _apply(self, model: "torch.nn.Module") -> Iterator[MethodHandle]:
        """Return a context in which every layer mixes its bases.

        Raises:
            ConfigError: The file of routers cannot be used, or ``top_k`` exceeds their bases.
            ModelError: The routers were trained for another model, or another method is in force.
            UnsupportedModelError: The attention of the model cannot be taken over.
        """
        from lpes_evo.methods.moice._experts import mixed_experts
        from lpes_evo.methods.moice._routers import load_routers

        if _content_of(self.routers) != self._content:
            raise ConfigError(
                f"Expected the routers in {self.routers} to stay what they were when the method was made, but the file "
                "was changed. Give other routers a file of their own."
            )

        routers = load_routers(self.routers, model)
        top_k = self.top_k or routers.facts.top_k
        if top_k > len(routers.facts.bases):
            raise ConfigError(f"Expected top_k of at most {len(routers.facts.bases)} bases, but got {top_k}.")

        handle = MethodHandle()
        with mixed_experts(model, routers, handle, top_k=top_k):
            yield handle

    def departures(self, model: "torch.nn.Module") -> tuple[str, ...]:
        """Return where the computation departs from the released code on a model."""
        from lpes_evo.methods.moice._routers import load_routers
        from lpes_evo.methods.takeover import relative_bases, under_other_type

        return (
            "each row has positions of its own, where the released code takes the queries' positions of the first row "
            "for all and counts keys from 0, so padded rows and batches differ from it",
            "routers compute in float32, and in the released code in the dtype of the model",
            *relative_bases(model, load_routers(self.routers).facts.bases),
            *under_other_type(model, "the bases are changed"),
        )

    def _settings(self, n_layers: int) -> dict[str, Any]:
        """Return the settings, the hash of the routers' file, and the facts of their training."""
        from dataclasses import asdict

        from lpes_evo.methods.moice._routers import load_routers

        trained_for = asdict(load_routers(self.routers).facts)
        return {**super()._settings(n_layers), "content": self._content, "trained_for": trained_for}


def _content_of(path: str) -> str:
    """Return the SHA-256 of a file of routers."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"Expected routers of MoICE in {path}, but it cannot be read: {reason}. Make them with "
            "lpes-evo train-moice."
        ) from error
