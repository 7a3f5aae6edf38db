"""Rotary bases for several streams: the published sets, and the greedy search that they come from.

The search follows the released program of Attention Buckets (arXiv 2312.04455). From the starting bases of that program
the search gives (10000, 18000, 19000, 20500, 24000, 24500), which is not the published set of the tool task. Both are
available.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import ConfigError

BASE_SETS: dict[str, tuple[float, ...]] = {
    "tool": (10000.0, 17500.0, 18000.0, 19000.0, 20000.0, 25000.0),
    "rag": (10000.0, 13000.0, 16000.0, 19000.0, 22000.0, 25000.0, 28000.0),
    "moice": (10000.0, 17500.0, 18000.0, 19000.0, 20000.0, 22500.0, 25000.0),
}
"""Published sets for models of base 10000: Attention Buckets with tools and with retrieval, and MoICE."""

_N_EXTREMES = 6
_APART = {"peak": 50, "trough": 60}
_STEP, _REACH = 50, 500
_NEAR, _EQUAL = 3, 0.001


def search_bases(
    start: Sequence[float] = (10000.0, 18000.0, 19000.0),
    n_bases: int = 6,
    *,
    candidates: Sequence[float] = tuple(range(10000, 30001, 500)),
    positions: tuple[int, int] = (1000, 4090),
    head_dim: int = 128,
) -> tuple[float, ...]:
    """Return bases whose attention waves fill each other's troughs, found by a greedy search.

    The wave of a base is ``sum_j 2 cos(m theta_j) / sqrt(d)`` over distances m. Each round adds the candidate whose six
    main peaks and troughs most often fall within 3 tokens of the troughs and peaks so far. A tie is decided by the
    smaller mean squared distance.

    Args:
        start: Starting bases; by default those of the released program.
        n_bases: Number of bases in the result, the starting bases included.
        candidates: Bases to choose from.
        positions: First and last distance, in tokens.
        head_dim: Size of a head, d.

    Returns:
        The bases, ascending.

    Raises:
        ConfigError: There are no starting bases, there are too few candidates, or a wave has no main peaks or troughs
            in the range.
    """
    chosen = [float(base) for base in start]
    if not chosen or len({*chosen, *map(float, candidates)}) < n_bases:
        raise ConfigError(
            f"Expected a base to begin with and candidates for {n_bases} bases, but got {list(start)!r:.60} and "
            f"{len(candidates)} candidates."
        )

    distances = np.arange(positions[0], positions[1] + 1)
    extremes = {float(base): _extremes(base, distances, head_dim) for base in {*chosen, *candidates}}
    peaks: list[int] = []
    troughs: list[int] = []
    for base in chosen:
        peaks, troughs = _merge(peaks, troughs, *extremes[base])

    while len(chosen) < n_bases:
        best: tuple[float, float] | None = None
        added = 0.0
        for base in map(float, candidates):
            if base in chosen:
                continue

            new_peaks, new_troughs = extremes[base]
            gaps = np.concatenate([_gaps(new_peaks, troughs), _gaps(peaks, new_troughs)])
            hits = gaps[gaps <= _NEAR]
            rank = (-float(len(hits)), float(np.mean(hits**2)) if len(hits) else np.inf)

            if best is None or rank < best:
                best, added = rank, base

        chosen.append(added)
        peaks, troughs = _merge(peaks, troughs, *extremes[added])

    return tuple(sorted(chosen))


def _gaps(some: Sequence[int], others: Sequence[int]) -> npt.NDArray[np.int_]:
    gaps: npt.NDArray[np.int_] = np.subtract.outer(
        np.asarray(some, dtype=np.int_), np.asarray(others, dtype=np.int_)
    )
    return np.abs(gaps).ravel()


def _merge(
    peaks: list[int], troughs: list[int], new_peaks: list[int], new_troughs: list[int]
) -> tuple[list[int], list[int]]:
    """Return all peaks and troughs; a peak at exactly the place of a trough fills it, and both are removed."""
    all_peaks, all_troughs = peaks + new_peaks, troughs + new_troughs
    if not peaks:
        return all_peaks, all_troughs
    both = {*all_peaks} & {*all_troughs}
    return [place for place in all_peaks if place not in both], [
        place for place in all_troughs if place not in both
    ]


def _extremes(base: float, distances: npt.NDArray[np.int_], head_dim: int) -> tuple[list[int], list[int]]:
    """Return the distances of the main peaks and troughs of the wave of a base."""
    frequencies = base ** (-2 * np.arange(head_dim // 2) / head_dim)
    wave = (2 * np.cos(np.outer(distances, frequencies))).sum(axis=1) / np.sqrt(head_dim)
    peaks, troughs = _main_peaks(wave), _main_troughs(wave)
    if not peaks or not troughs:
        raise ConfigError(
            f"Expected peaks and troughs of the wave of base {base:g} at distances {distances[0]} to {distances[-1]}, "
            "but there are none. Widen the range."
        )
    return [int(distances[place]) for place in peaks], [int(distances[place]) for place in troughs]


def _local_maxima(values: npt.NDArray[np.float64]) -> list[int]:
    inner = values[1:-1]
    return [int(place) + 1 for place in np.flatnonzero((inner > values[:-2]) & (inner > values[2:]))]


def _main_peaks(wave: npt.NDArray[np.float64]) -> list[int]:
    """Return up to six peaks by ascending distance: the highest, then in turn the highest of the next stretch."""
    places = _local_maxima(wave)
    found: list[int] = []
    height = max((wave[place] for place in places), default=np.nan)

    for number, place in enumerate(places[:-1]):
        if abs(wave[place] - height) > _EQUAL:
            continue

        if not found or place - found[-1] > _APART["peak"]:
            found.append(place)
        if len(found) == _N_EXTREMES:
            break

        begin = min(place + _STEP, places[number + 1])
        height = wave[begin : begin + _REACH].max()

    return found


def _main_troughs(wave: npt.NDArray[np.float64]) -> list[int]:
    """Return up to six troughs, found by descending distance: the lowest, then in turn the lowest before it."""
    places = _local_maxima(-wave)
    found: list[int] = []
    depth = min((wave[place] for place in places), default=np.nan)

    for number in range(len(places) - 1, 0, -1):
        place = places[number]
        if abs(wave[place] - depth) > _EQUAL:
            continue

        if not found or found[-1] - place > _APART["trough"]:
            found.append(place)

        end = min(place - _STEP, places[number - 1])
        if len(found) == _N_EXTREMES or end <= 0:
            break

        depth = wave[:end].min()

    return found[::-1]
