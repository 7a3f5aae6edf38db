"""MethodCost: the cost of a method in pairs with the untouched model, and its ratios with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lpes_evo.statistics import Interval, order_interval

__all__ = ["MethodCost", "Run", "ratio_to_json", "speed_of"]


@dataclass(frozen=True)
class Run:
    """The time of one prompt and of the tokens decoded after it.

    Attributes:
        prefill: Seconds of the prompt.
        decode: Seconds of the new tokens.
    """

    prefill: float
    decode: float

    @property
    def total(self) -> float:
        """Seconds of prompt and new tokens."""
        return self.prefill + self.decode


@dataclass(frozen=True)
class MethodCost:
    """The cost of a method.

    Attributes:
        name: The method as the caller named it.
        kind: Name of the method without its settings.
        forward_passes: Number of tokens that went through the decoder for each token of the input, as counted.
        attention_passes: Number of attention outputs of a layer in one forward pass, as the method states.
        pairs: Runs of the untouched model and under the method, ``(repeats, 2)``; the two of a pair follow each other.
        peaks: Peak memory of such pairs in bytes, beyond what was held before, ``(n, 2)``; empty where it is not known.
    """

    name: str
    kind: str
    forward_passes: float
    attention_passes: int
    pairs: tuple[tuple[Run, Run], ...]
    peaks: tuple[tuple[int, int], ...] = ()

    def ratios(self, part: str) -> np.ndarray:
        """Return the time under the method divided by that of the untouched model.

        Args:
            part: ``prefill``, ``decode`` or ``total``.

        Returns:
            One ratio for each pair, ``(repeats,)``.
        """
        return np.array([getattr(changed, part) / getattr(plain, part) for plain, changed in self.pairs])

    def ratio(self, part: str) -> Interval:
        """Return the median of the ratios of a part with its 95 % interval.

        Args:
            part: ``prefill``, ``decode`` or ``total``.
        """
        return order_interval(self.ratios(part))

    def median(self, part: str) -> float:
        """Return the median time of a part under the method, in seconds.

        Args:
            part: ``prefill``, ``decode`` or ``total``.
        """
        return float(np.median([getattr(run, part) for _, run in self.pairs]))

    @property
    def peak(self) -> float | None:
        """Median peak memory under the method in bytes; ``None`` where it is not known."""
        return float(np.median([peak for _, peak in self.peaks])) if self.peaks else None

    @property
    def peak_ratio(self) -> Interval | None:
        """The median ratio of the peaks; ``None`` where they are not known, or the untouched model has a peak of 0."""
        if not self.peaks or not all(plain for plain, _ in self.peaks):
            return None
        return order_interval(np.array([peak / plain for plain, peak in self.peaks]))

    def to_json(self, new_tokens: int) -> dict[str, Any]:
        """Return the cost as values that `json` can write, every pair included.

        Args:
            new_tokens: Number of tokens that were decoded after the prompt.
        """
        ratios: dict[str, Interval | None] = {
            part: self.ratio(part) for part in ("prefill", "decode", "total")
        }
        ratios["peak"] = self.peak_ratio

        return {
            "name": self.name,
            "prefill_seconds": self.median("prefill"),
            "decode_tokens_per_second": new_tokens / self.median("decode"),
            "peak_bytes": self.peak,
            "forward_passes": self.forward_passes,
            "attention_passes": self.attention_passes,
            "over_untouched": {
                part: None if ratio is None else ratio_to_json(ratio) for part, ratio in ratios.items()
            },
            "pairs": [{"untouched": vars(plain), "method": vars(run)} for plain, run in self.pairs],
            "peaks": [{"untouched": plain, "method": peak} for plain, peak in self.peaks],
        }


def speed_of(one: MethodCost, other: MethodCost, part: str) -> Interval:
    """Return how many times as fast one method is as another.

    Both methods were measured beside the untouched model. Their ratios to it are divided, repeat by repeat.

    Args:
        one: The cost of the first method.
        other: The cost of the second method, with as many pairs.
        part: ``prefill``, ``decode`` or ``total``.

    Returns:
        The median of the quotients with its 95 % interval.
    """
    return order_interval(other.ratios(part) / one.ratios(part))


def ratio_to_json(ratio: Interval) -> dict[str, float]:
    """Return the median of paired ratios with its limits as values that `json` can write."""
    return {"median": ratio.value, "low": ratio.low, "high": ratio.high}
