# ruff: noqa: TID253
"""The measurement of methods: time, memory and forward passes, beside the untouched model."""

from __future__ import annotations

import gc
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from pydantic import Field

from lpes_evo.accelerators import device_kind, is_out_of_memory
from lpes_evo.bench._costs import MethodCost, Run
from lpes_evo.bench._memory import PeakMeter, peak_meter
from lpes_evo.config import Settings
from lpes_evo.errors import LpesError, ModelError
from lpes_evo.methods import Baseline, Method
from lpes_evo.rope import find_structure

__all__ = ["BenchSettings", "measure_costs"]

_MEMORY_PAIRS = 6
"""The fewest with an interval of 95 %."""


class BenchSettings(Settings):
    """How costs are measured.

    Attributes:
        prompt_tokens: Tokens of the prompt, one row.
        new_tokens: Tokens that are decoded after it with the cache, greedily.
        repeats: Pairs of each method and the untouched model; 6 are the fewest with an interval of 95 %.
        clock: What seconds are on a CPU: ``wall``, or ``processor`` for those that the process computed, all its
            threads together, so that waiting for other programs on the machine does not count. A GPU has events.
    """

    prompt_tokens: int = Field(default=512, ge=2)
    new_tokens: int = Field(default=16, ge=1)
    repeats: int = Field(default=9, ge=6)
    clock: Literal["wall", "processor"] = "wall"


def measure_costs(
    model: Any,
    methods: Mapping[str, Method],
    settings: BenchSettings,
    *,
    refuse: bool = True,
    on_pair: Callable[[], None] = lambda: None,
) -> tuple[list[MethodCost], dict[str, str]]:
    """Measure methods in pairs with the untouched model.

    Every method runs once to be counted and once more to warm up. Then come the repeats: in each, all methods take
    their turns, in changing order, and each turn is a run of the untouched model and one under the method, in
    changing order. Putting a method on the model is not part of the time. Memory is measured in six more pairs.

    Args:
        model: The model; it is as before afterwards.
        methods: The methods by the name to show.
        settings: What is measured.
        refuse: Whether a method that does not go with the model is an error; else it is left out and told.
        on_pair: Called after each pair.

    Returns:
        The costs in the order of the methods, and why the others were left out, by name.

    Raises:
        ModelError: There is not enough memory for the untouched model.
        LpesError: A method does not go with the model.
    """
    device = str(next(model.parameters()).device)
    work = _Work(model, settings, device, peak_meter(device))
    # What lives already is no garbage, and looking through it before each run would take longer than the runs.
    gc.freeze()
    try:
        return _measure(work, methods, settings.repeats, refuse=refuse, on_pair=on_pair)
    finally:
        gc.unfreeze()


def _measure(
    work: _Work, methods: Mapping[str, Method], repeats: int, *, refuse: bool, on_pair: Callable[[], None]
) -> tuple[list[MethodCost], dict[str, str]]:
    counted: dict[str, float] = {}
    left_out: dict[str, str] = {}
    work.count_passes(Baseline())
    for name, method in methods.items():
        try:
            counted[name] = work.count_passes(method)
        except LpesError as error:
            if refuse:
                raise
            left_out[name] = str(error)
    pairs: dict[str, list[tuple[Run, Run]]] = {name: [] for name in counted}
    for repeat in range(-1, repeats):
        names = list(counted)[:: 1 if repeat % 2 else -1]
        for turn, name in enumerate(names):
            pair = work.pair(methods[name], plain_first=(repeat + turn) % 2 == 0)
            if repeat >= 0:
                pairs[name].append(pair)
            on_pair()
    return [
        MethodCost(
            name,
            methods[name].name,
            counted[name],
            methods[name].attention_passes,
            tuple(pairs[name]),
            work.peaks(methods[name]),
        )
        for name in counted
    ], left_out


class _Work:
    """The runs on one model."""

    def __init__(self, model: Any, settings: BenchSettings, device: str, meter: PeakMeter) -> None:
        self._model = model
        self._settings = settings
        self._device = device
        self._meter = meter
        generator = torch.Generator().manual_seed(0)
        vocabulary = model.get_input_embeddings().num_embeddings
        self._prompt = torch.randint(vocabulary, (1, settings.prompt_tokens), generator=generator).to(device)
        takes = inspect.signature(model.forward).parameters
        # Generation asks for the last logits alone where the family lets it.
        self._options = {"use_cache": True} | ({"logits_to_keep": 1} if "logits_to_keep" in takes else {})

    def count_passes(self, method: Method) -> float:
        """Run once under a method and return the tokens through the decoder for each token of the input."""
        with _counted_tokens(self._model) as seen:
            try:
                self._run(method)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                raise ModelError(
                    f"Expected memory for a prompt of {self._settings.prompt_tokens} tokens under {method.name}, but "
                    f"{self._device} has too little. Give fewer --prompt-tokens, or a larger device."
                ) from error
        return sum(seen) / (self._settings.prompt_tokens + self._settings.new_tokens)

    def pair(self, method: Method, *, plain_first: bool) -> tuple[Run, Run]:
        """Run untouched and under a method."""
        if plain_first:
            plain = self._run(Baseline())
            return plain, self._run(method)
        changed = self._run(method)
        return self._run(Baseline()), changed

    def peaks(self, method: Method) -> tuple[tuple[int, int], ...]:
        """Return the peak memory of pairs of runs, untouched and under a method, or nothing where it is not known."""
        pairs = []
        for _ in range(_MEMORY_PAIRS):
            plain, peak = self._peak(Baseline()), self._peak(method)
            if plain is None or peak is None:
                return ()
            pairs.append((plain, peak))
        return tuple(pairs)

    def _peak(self, method: Method) -> int | None:
        self._meter.begin()
        self._run(method)
        return self._meter.end()

    @torch.inference_mode()
    def _run(self, method: Method) -> Run:
        with method.apply(self._model):
            output, prefill = self._timed(lambda: self._model(input_ids=self._prompt, **self._options))
            _, decode = self._timed(lambda: self._decode(output))
        return Run(prefill, decode)

    def _decode(self, output: Any) -> None:
        for _ in range(self._settings.new_tokens):
            # transformers has renamed the cache.
            key = "cache" if output.get("cache") is not None else "past_key_values"
            token = output.logits[:, -1:].argmax(dim=-1)
            output = self._model(input_ids=token, **{key: output[key]}, **self._options)

    def _timed(self, work: Callable[[], Any]) -> tuple[Any, float]:
        """Return what some work gives and its seconds, by events of the device where it has such."""
        kind = device_kind(self._device)
        if kind != "cuda":
            clock = time.perf_counter if self._settings.clock == "wall" else time.process_time
            # A GPU is told what to do and does it later.
            finish = torch.mps.synchronize if kind == "mps" else lambda: None
            finish()
            start = clock()
            result = work()
            finish()
            return result, clock() - start
        with torch.cuda.device(self._device):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
            begin.record()
            result = work()
            end.record()
            torch.cuda.synchronize()
        return result, begin.elapsed_time(end) / 1000


@contextmanager
def _counted_tokens(model: Any) -> Iterator[list[int]]:
    """Collect the tokens, over all rows, of every forward pass of the first decoder layer."""
    seen: list[int] = []

    def count(_layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states = args[0] if args else kwargs["hidden_states"]
        seen.append(states.shape[0] * states.shape[1])

    handle = find_structure(model).layers[0].register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()
