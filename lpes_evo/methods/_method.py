"""Method: the values that describe a method, and a context in which a model runs under it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from lpes_evo.config import Settings
from lpes_evo.methods.takeover import MethodHandle

if TYPE_CHECKING:
    import torch


class Method(Settings, ABC):
    """A change to a model while it runs. A method holds values and no model, so it can be sent to worker processes.

    Attributes:
        name: Name of the method.
        leading: The field that a spec such as ``pi:1.5`` gives without its name; ``None`` where there is none.
        chooses_by_prompt: Whether the method chooses something by the prompt of each row. If so,
            `MethodHandle.prompts` matters, and a forward pass must mark padding in its attention mask.
        changes_model: Whether the method changes the model, so that no other method may be on it.
    """

    name: ClassVar[str]
    leading: ClassVar[str | None] = None
    chooses_by_prompt: ClassVar[bool] = False
    changes_model: ClassVar[bool] = True

    @contextmanager
    def apply(self, model: "torch.nn.Module") -> Iterator[MethodHandle]:
        """Return a context in which a model runs under this method; leaving it restores the model.

        Inside the context, forward passes, ``generate`` and `lpes_evo.problems.score_answers` work as on the untouched
        model. A model is under one method at a time, and in one thread. ``baseline`` may stand inside or around another
        method. On a wrapped model (by peft, ``torch.compile`` and the like) the method is put on the model inside.
        Compiled code is compiled again when a method comes or goes. A forward pass with a cache that was filled without
        the method, or under other settings of it, raises ``ModelError``.

        Args:
            model: A causal language model of transformers with rotary position embeddings; it may be wrapped, see
                `lpes_evo.rope.unwrapped_model`.

        Yields:
            The handle of the method in force.

        Raises:
            ModelError: The model is under another method, or under scales of `lpes_evo.rope.patch_rope`.
            UnsupportedModelError: A wrapper runs copies of the model, or puts virtual tokens in front of prompts.
            LpesError: The method does not support the model, or a file of it cannot be used.
        """
        if not self.changes_model:
            with self._apply(model) as handle:
                yield handle
            return

        from lpes_evo.methods.takeover import prompts_of_generate, scales_untouched, sole_method
        from lpes_evo.rope import sweep_code, unwrapped_model

        model = unwrapped_model(model)
        with (
            sole_method(model, self.name, self.model_dump_json()),
            self._apply(model) as handle,
            scales_untouched(model, self.name),
            prompts_of_generate(model, handle) if self.chooses_by_prompt else nullcontext(),
        ):
            # Every hook of the method is registered by now.
            sweep_code()
            yield handle

    @abstractmethod
    def _apply(self, model: "torch.nn.Module") -> AbstractContextManager[MethodHandle]:
        """Return a context in which a model that no other method holds runs under this one.

        Args:
            model: The model.
        """

    @property
    def spec(self) -> str:
        """The text from which `make_method` makes this method; default values are left out."""
        parts = [self.name]
        for field, info in type(self).model_fields.items():
            value = getattr(self, field)
            if field == self.leading and (value != info.default or info.is_required()):
                parts.insert(1, _text(value))
            elif field != self.leading and field not in _VALUES_ELSEWHERE and value != info.default:
                parts.append(f"{field}={_text(value)}")
        return ":".join(parts)

    @property
    def streams(self) -> int:
        """The number of full forward passes in one step of decoding."""
        return 1

    @property
    def attention_passes(self) -> int:
        """The number of attention outputs that a layer under the method computes in one forward pass."""
        return 1

    def unchanged_below(self, model: "torch.nn.Module") -> int | None:  # noqa: ARG002
        """Return the length, in tokens, up to which prompts run as on the untouched model; ``None`` for no length.

        Args:
            model: The model.
        """
        return None

    def departures(self, model: "torch.nn.Module") -> tuple[str, ...]:  # noqa: ARG002
        """Return where this method departs, on a model, from the code that it follows.

        The code that a method follows is the one released by its authors, or a rotary type of transformers.

        Args:
            model: A model that the method supports, without a method on it.

        Returns:
            One text for each difference, with its reason; empty where nothing differs.
        """
        return ()

    def record(self, n_layers: int, model: "torch.nn.Module | None" = None) -> dict[str, Any]:
        """Return the name, the settings and the departures of this method on a model, as values for `json`.

        Args:
            n_layers: Decoder layers of the model.
            model: The model, which is needed for the `departures`; they are left out if it is ``None``.
        """
        return {"method": self.name, **self._settings(n_layers)} | self._departures(model)

    def _settings(self, n_layers: int) -> dict[str, Any]:  # noqa: ARG002
        """Return the settings as values that `json` can write."""
        return self.model_dump(mode="json")

    def _departures(self, model: "torch.nn.Module | None") -> dict[str, Any]:
        found = () if model is None else self.departures(model)
        return {"departures": list(found)} if found else {}


_VALUES_ELSEWHERE = ("scales",)
"""Fields that no spec can hold."""


def _text(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)
