# ruff: noqa: TID253
"""Measurement of time, memory and forward passes of methods, in pairs with the untouched model."""

from __future__ import annotations

import gc
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from lpes_evo.accelerators import device_kind, is_out_of_memory, wait_for
from lpes_evo.bench._costs import MethodCost, Run
from lpes_evo.bench._memory import PeakMeter, peak_meter
from lpes_evo.bench._settings import BenchSettings
from lpes_evo.errors import LpesError, ModelError
from lpes_evo.methods import Baseline, Method
from lpes_evo.rope import find_structure

__all__ = ["measure_costs"]

_MEMORY_PAIRS = 6
"""With fewer pairs, the least and the largest do not enclose the median with 95 % confidence."""


def measure_costs(
    model: Any,
    methods: Mapping[str, Method],
    settings: BenchSettings,
    *,
    refuse: bool = True,
    on_pair: Callable[[], None] = lambda: None,
) -> tuple[list[MethodCost], dict[str, str]]:
    """Measure methods in pairs with the untouched model.

    Every method runs once so that its tokens are counted, and once more to warm up. The repeats follow. In each repeat
    all methods take a turn, and a turn is one run of the untouched model and one run under the method. The order of
    methods and the order within a pair change from repeat to repeat. The time to apply a method to the model is not
    counted. Memory is measured in six more pairs.

    Args:
        model: The model, which is unchanged afterwards.
        methods: The methods by the name that is shown.
        settings: Settings of the measurement.
        refuse: Whether a method that does not fit the model raises; otherwise the method is left out.
        on_pair: Called after each pair, those that warm up included.

    Returns:
        The costs in the order of the methods, and by name the reason why each other method was left out.

    Raises:
        ModelError: There is not enough memory for the untouched model.
        LpesError: A method does not fit the model.
    """
    device = str(next(model.parameters()).device)
    bench = _Bench(model, settings, device, peak_meter(device))

    # The garbage collection before each run then does not scan what exists already, which would take longer than a run.
    gc.freeze()
    try:
        return _measure(bench, methods, settings.repeats, refuse=refuse, on_pair=on_pair)
    finally:
        gc.unfreeze()


def _measure(
    bench: _Bench, methods: Mapping[str, Method], repeats: int, *, refuse: bool, on_pair: Callable[[], None]
) -> tuple[list[MethodCost], dict[str, str]]:
    """Count the passes of all methods, then time them, then measure their memory."""
    counted: dict[str, float] = {}
    left_out: dict[str, str] = {}

    # A failure of the untouched model is a failure of the whole measurement.
    bench.tokens_per_input_token(Baseline())
    for name, method in methods.items():
        try:
            counted[name] = bench.tokens_per_input_token(method)
        except LpesError as error:
            if refuse:
                raise
            left_out[name] = str(error)

    # The repeat of number -1 warms up.
    pairs: dict[str, list[tuple[Run, Run]]] = {name: [] for name in counted}
    for repeat in range(-1, repeats):
        # The order is reversed in every other repeat, so that a drift of the machine cancels.
        names = list(counted)[:: 1 if repeat % 2 else -1]
        for turn, name in enumerate(names):
            pair = bench.pair(methods[name], plain_first=(repeat + turn) % 2 == 0)
            if repeat >= 0:
                pairs[name].append(pair)
            on_pair()

    costs = [
        MethodCost(
            name,
            methods[name].name,
            counted[name],
            methods[name].attention_passes,
            tuple(pairs[name]),
            bench.peaks(methods[name]),
        )
        for name in counted
    ]
    return costs, left_out


class _Bench:
    """Runs of one prompt on one model, untouched or under a method."""

    def __init__(self, model: Any, settings: BenchSettings, device: str, meter: PeakMeter) -> None:
        self._model = model
        self._settings = settings
        self._device = device
        self._meter = meter

        generator = torch.Generator().manual_seed(0)
        vocabulary = model.get_input_embeddings().num_embeddings
        self._prompt = torch.randint(vocabulary, (1, settings.prompt_tokens), generator=generator).to(device)

        takes = inspect.signature(model.forward).parameters
        # Like generation, ask for the last logits alone where the family of the model allows it.
        self._options = {"use_cache": True} | ({"logits_to_keep": 1} if "logits_to_keep" in takes else {})

    def tokens_per_input_token(self, method: Method) -> float:
        """Run once; return how many tokens went through the first layer, for each token of prompt and answer."""
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
        """Return one run of the untouched model and one under a method, in the order asked for."""
        if plain_first:
            plain = self._run(Baseline())
            return plain, self._run(method)

        changed = self._run(method)
        return self._run(Baseline()), changed

    def peaks(self, method: Method) -> tuple[tuple[int, int], ...]:
        """Return the peak memory of pairs of runs, untouched and under a method; empty where it is not known."""
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
            # Versions of transformers name the cache differently.
            key = "cache" if output.get("cache") is not None else "past_key_values"
            token = output.logits[:, -1:].argmax(dim=-1)
            output = self._model(input_ids=token, **{key: output[key]}, **self._options)

    def _timed(self, work: Callable[[], Any]) -> tuple[Any, float]:
        """Return the result of some work and its time in seconds, by the events of the device where it has them."""
        if device_kind(self._device) != "cuda":
            clock = time.perf_counter if self._settings.clock == "wall" else time.process_time
            wait_for(self._device)
            start = clock()
            result = work()
            wait_for(self._device)
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
    """Record the number of tokens, over all rows, in every forward pass through the first decoder layer."""
    seen: list[int] = []

    def count(_layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states = args[0] if args else kwargs["hidden_states"]
        seen.append(states.shape[0] * states.shape[1])

    handle = find_structure(model).layers[0].register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()
