"""Gradients of a genetic algorithm: those on the way to the seeds of its first population, and those of its parents."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lpes_evo.config import SearchSettings
from lpes_evo.operators import BezierGenome, CurveSpace
from lpes_evo.search._ascent import Ascent, refuse_flat
from lpes_evo.search._evaluation import Evaluation
from lpes_evo.search._requests import GradientProbe


class Gradients:
    """Which gradients a genetic algorithm asks for, and what becomes of them.

    Once the starting points are evaluated, an ascent on free scales gives the nearest curve after every
    ``gradient_steps`` steps to the first population. Before each generation, the best parents without a gradient are
    given theirs. A gradient that failed is passed over: the ascent goes on with the next sample.

    Args:
        space: The curves.
        settings: Which gradients are wanted.

    Attributes:
        seeds: Genomes for the first population.
        of_parents: Gradients ``(n_layers,)`` of evaluated genomes by the key of the genome.

    Raises:
        ConfigError: The space has one layer, or values that are not positive.
    """

    def __init__(self, space: CurveSpace, settings: SearchSettings) -> None:
        refuse_flat(space)
        self._space = space
        self._settings = settings
        free = space.free()
        self._ascent = Ascent(free, settings, free.fit(np.ones(space.n_layers)))
        self._n_samples = 0
        self._n_steps = 0
        self._parent_of: dict[str, str] = {}
        self._served = 0
        self.seeds: list[BezierGenome] = []
        self.of_parents: dict[str, npt.NDArray[np.float64]] = {}

    def wanted(self, generation: int, population: Sequence[BezierGenome]) -> list[GradientProbe]:
        """Return the gradients that must be known before a generation can be made; none when it can.

        Args:
            generation: Number of the generation.
            population: The survivors, best first.
        """
        if generation == 0:
            lacks_seeds = len(self.seeds) < self._settings.gradient_seeds
            return [self._probe(self._ascent.scales)] if lacks_seeds else []
        if not self._settings.gradient_mutation or generation <= self._served:
            return []

        self._served = generation
        asked = set(self._parent_of.values())
        parents = [genome for genome in population if genome.key not in asked]
        probes = []
        for parent in parents[: self._settings.gradient_parents]:
            probe = self._probe(self._space.decode([parent])[0])
            self._parent_of[probe.key] = parent.key
            probes.append(probe)
        return probes

    def learn(self, probe: GradientProbe, evaluation: Evaluation) -> None:
        """Take the gradient of a probe: that of a parent, or the next step of the ascent."""
        is_known = evaluation.status == "sampled"
        parent = self._parent_of.get(probe.key)
        if parent is not None:
            if is_known:
                self.of_parents[parent] = np.array(evaluation.gradient)
            return

        self._n_steps += 1
        if is_known:
            self._ascent.step(evaluation.gradient)
        if self._n_steps == self._settings.gradient_steps:
            self._n_steps = 0
            self.seeds.append(self._space.fit(self._ascent.scales))

    def _probe(self, scales: npt.NDArray[np.float64]) -> GradientProbe:
        probe = GradientProbe(scales, self._n_samples)
        self._n_samples += 1
        return probe
