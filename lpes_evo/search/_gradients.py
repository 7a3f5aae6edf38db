"""Which gradients a search asks for, and what becomes of them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lpes_evo.config import SearchSettings
from lpes_evo.operators import BezierGenome, CurveSpace
from lpes_evo.search._ascent import Ascent
from lpes_evo.search._evaluation import Evaluation
from lpes_evo.search._probe import GradientProbe


class Gradients:
    """The gradients of one search: of the scales on the way up, and of parents that offspring are moved from.

    The algorithm ``gradient`` goes up in its space and arrives at one genome for each generation. ``ga`` goes up on
    free scales once its starting points are told, gives the nearest curves on the way to its first population, and
    wants the gradients of its best parents before each generation. A gradient that failed is passed over: the way up
    goes on with the next sample.

    Args:
        space: The curves.
        settings: Which gradients are wanted.
        start: Control points from which the algorithm ``gradient`` starts, ``(n_points, 2)``.
        of_parents: Where gradients ``(n_layers,)`` of evaluated genomes are put, by the key of the genome.

    Attributes:
        seeds: Genomes for the first population.
    """

    def __init__(
        self,
        space: CurveSpace,
        settings: SearchSettings,
        start: Sequence[Sequence[float]],
        of_parents: dict[str, npt.NDArray[np.float64]],
    ) -> None:
        self._space = space
        self._settings = settings
        self._climbs = settings.algorithm == "gradient"
        free = space.free()
        self._ascent = (
            Ascent(space, settings, start)
            if self._climbs
            else Ascent(free, settings, free.fit(np.ones(space.n_layers)))
        )
        self._n_samples = 0
        self._n_steps = 0
        self._parent_of: dict[str, str] = {}
        self._served = 0
        self._of_parents = of_parents
        self.seeds: list[BezierGenome] = []

    def wanted(self, generation: int, population: Sequence[BezierGenome]) -> list[GradientProbe]:
        """Return what must be told before a generation can be made; nothing when it can.

        Args:
            generation: Its number.
            population: The survivors, best first.
        """
        if self._climbs:
            is_on_its_way = generation > 0 and self._n_steps < self._settings.gradient_steps
            return [self._probe(self._ascent.scales)] if is_on_its_way else []
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
        """Take the gradient of a probe."""
        gradient = np.array(evaluation.gradient if evaluation.status == "sampled" else ())
        parent = self._parent_of.get(probe.key)
        if parent is not None:
            if gradient.size:
                self._of_parents[parent] = gradient
            return
        self._n_steps += 1
        if gradient.size:
            self._ascent.step(gradient)
        if not self._climbs and self._n_steps == self._settings.gradient_steps:
            self._n_steps = 0
            self.seeds.append(self._space.fit(self._ascent.scales))

    def arrival(self) -> BezierGenome | None:
        """Return where the algorithm ``gradient`` has arrived, and let it go on from there; ``None`` for others."""
        if not self._climbs:
            return None
        self._n_steps = 0
        return self._ascent.arrival()

    def _probe(self, scales: npt.NDArray[np.float64]) -> GradientProbe:
        probe = GradientProbe(scales, self._n_samples)
        self._n_samples += 1
        return probe
