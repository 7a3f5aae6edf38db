"""SearchSettings: algorithm, sizes, probabilities and budget of a search."""

import re
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from lpes_evo.config._settings import Settings

ALGORITHM_NAMES = ("ga", "steady-state", "nsga2", "random", "gradient")
"""The algorithms of this package, which `lpes_evo.search.ALGORITHMS` holds by these names."""


class SearchSettings(Settings):
    """The evolutionary search.

    Attributes:
        algorithm: ``ga`` is a (mu + lambda) genetic algorithm. ``steady-state`` is a (mu + 1) genetic algorithm
            without generations. ``nsga2`` keeps the begin, middle and end sets as three objectives. ``random`` draws
            curves without learning from them. ``gradient`` climbs from the untouched model along gradients.
            ``FILE.py:CLASS`` names a class of your own, see `lpes_evo.search.Algorithm`.
        nsga2_objectives: The objectives of ``nsga2``: the ``sets`` begin, middle and end, in a mixture over all of its
            tasks; or the ``tasks`` of a mixture.
        aggregate: Function that makes one fitness value of the three sets: their ``mean`` or their ``min``; ``nsga2``
            keeps all three.
        population_size: Parents that survive each generation (mu), and size of the initial population.
        offspring_size: Genomes bred in each generation (lambda).
        generations: Generations after the initial population.
        n_constants: Constant curves in the initial population, spread over the range of scales, beside the identity.
        tournament_size: Contestants of each parent selection.
        crossover_probability: Chance that an offspring has two parents.
        mutation_probability: Chance that an offspring is mutated. An offspring that crossover left unchanged is always
            mutated.
        preselection: Genomes that are bred for each genome that is evaluated. A cheap model of the fitness over curves
            chooses the most promising of them; with 1, every bred genome is evaluated. Several objectives, the random
            search and curves that can be zero or less go without preselection.
        max_failures: Failed evaluations in a row that stop the run.
        in_flight: Candidates of a steady-state search whose results may be outstanding at once. Twice the number of
            workers keeps all workers busy; with more candidates, the search learns later from each result.
        racing: Whether a candidate stops early when it is clearly worse than a parent, see `lpes_evo.search`.
        race_level: Level of the test that stops a candidate.
        race_block: Sources of examples that are scored between two tests. Where every source belongs to one set, so
            many sources of each set are scored.
        race_against: The parent that a candidate is raced against, by fitness. The defaults of racing are the best of
            those that ``benchmarks/racing.py`` compares.
        gradient_steps: Steps along gradients between two full evaluations; they make one generation of ``gradient``.
        gradient_sources: Sources of examples of which a gradient is taken, counted as in ``race_block``; each step
            takes the next sources.
        learning_rate: Length of a step in the logarithm of the scales; Adam moves each scale by about so much.
        gradient_backtracking: Whether ``gradient`` goes back to the best so far, with shorter steps, after an arrival
            that is no better. On for ``gradient``; runs begun by a version without it, and all others, have it off.
        total_variation: Penalty on the sum of differences of the logarithms of neighbouring scales, in units of the
            fitness. The penalty steers the steps along gradients, and is no part of the fitness.
        gradient_seeds: Curves in the first population of ``ga`` that are fitted to free scales on their way along
            gradients, one curve after every ``gradient_steps`` steps.
        gradient_mutation: Chance that a mutation of ``ga`` moves a parent along its gradient.
        gradient_parents: Number of the best parents that receive a gradient before each generation, if they have none
            yet and there are gradient mutations.
    """

    ADDED: ClassVar[frozenset[str]] = frozenset({"nsga2_objectives", "gradient_backtracking"})

    algorithm: str = "ga"
    nsga2_objectives: Literal["sets", "tasks"] = "sets"
    aggregate: Literal["mean", "min"] = "mean"
    population_size: int = Field(default=24, ge=2, strict=True)
    offspring_size: int = Field(default=16, ge=1, strict=True)
    generations: int = Field(default=12, ge=0, strict=True)
    n_constants: int = Field(default=9, ge=1, strict=True)
    tournament_size: int = Field(default=3, ge=1, strict=True)
    crossover_probability: float = Field(default=0.6, ge=0, le=1)
    mutation_probability: float = Field(default=0.8, ge=0, le=1)
    preselection: int = Field(default=64, ge=1, le=1024, strict=True)
    max_failures: int = Field(default=5, ge=1, strict=True)
    in_flight: int = Field(default=8, ge=1, strict=True)
    racing: bool = True
    race_level: float = Field(default=0.01, gt=0, lt=0.5)
    race_block: int = Field(default=1, ge=1, strict=True)
    race_against: Literal["best", "median", "worst"] = "best"
    gradient_steps: int = Field(default=6, ge=1, strict=True)
    gradient_sources: int = Field(default=4, ge=1, strict=True)
    learning_rate: float = Field(default=0.05, gt=0, le=1)
    gradient_backtracking: bool = False
    total_variation: float = Field(default=0.0, ge=0, le=1e6)
    gradient_seeds: int = Field(default=0, ge=0, strict=True)
    gradient_mutation: float = Field(default=0.0, ge=0, le=1)
    gradient_parents: int = Field(default=2, ge=1, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _gradient_goes_back(cls, values: Any) -> Any:
        # The default of the field is the value of older folders, whose hash lacks it.
        if isinstance(values, dict) and values.get("algorithm") == "gradient":
            return {"gradient_backtracking": True} | values
        return values

    @field_validator("algorithm")
    @classmethod
    def _algorithm_is_named(cls, name: str) -> str:
        if name not in ALGORITHM_NAMES and not re.fullmatch(r".+\.py:[^\W\d]\w*", name):
            *others, last = map(repr, ALGORITHM_NAMES)
            raise PydanticCustomError(
                "algorithm",
                "Input should be {names} or {last}, or FILE.py:CLASS for a class of your own",
                {"names": ", ".join(others), "last": last},
            )
        return name

    @model_validator(mode="after")
    def _constants_fit(self) -> "SearchSettings":
        if self.n_constants >= self.population_size:
            raise ValueError(
                f"expected n_constants to be less than population_size = {self.population_size}, "
                f"but got {self.n_constants}; set search.n_constants too"
            )
        return self

    @model_validator(mode="after")
    def _gradients_fit(self) -> "SearchSettings":
        if (self.gradient_seeds or self.gradient_mutation) and self.algorithm != "ga":
            raise ValueError(
                f"expected gradient_seeds and gradient_mutation with the algorithm 'ga' alone, but got them with "
                f"{self.algorithm!r}"
            )
        if self.gradient_backtracking and self.algorithm in ALGORITHM_NAMES and self.algorithm != "gradient":
            raise ValueError(
                f"expected gradient_backtracking with the algorithm 'gradient' alone, but got it with "
                f"{self.algorithm!r}"
            )
        if self.takes_gradients and self.aggregate != "mean":
            raise ValueError(
                f"expected the aggregate 'mean' where gradients are taken, but got {self.aggregate!r}, which has none "
                "where two sets are equal"
            )
        return self

    @model_validator(mode="after")
    def _objectives_fit(self) -> "SearchSettings":
        if self.nsga2_objectives != "sets" and self.algorithm != "nsga2":
            raise ValueError(
                f"expected nsga2_objectives with the algorithm 'nsga2' alone, but got {self.nsga2_objectives!r} with "
                f"{self.algorithm!r}"
            )
        return self

    @property
    def takes_gradients(self) -> bool:
        """Whether the search asks for gradients, so that scores must have some."""
        return self.algorithm == "gradient" or self.gradient_seeds > 0 or self.gradient_mutation > 0

    @property
    def n_offspring(self) -> int:
        """Genomes of a generation: ``offspring_size``, or the one at which the steps of ``gradient`` arrive."""
        return 1 if self.algorithm == "gradient" else self.offspring_size

    @property
    def objectives(self) -> Literal["mean", "min", "groups", "tasks"]:
        """How scores become fitness values, in the terms of `lpes_evo.problems.aggregate`; or the mean of each task."""
        if self.algorithm != "nsga2":
            return self.aggregate
        return "groups" if self.nsga2_objectives == "sets" else "tasks"

    @property
    def max_evaluations(self) -> int:
        """The most evaluations that a run can need, including those with gradients; duplicates make them fewer."""
        if self.algorithm == "gradient":
            return 1 + self.max_gradients + self.generations

        n_first = max(self.population_size, 1 + self.n_constants + self.gradient_seeds)
        return n_first + self.max_gradients + self.offspring_size * self.generations

    @property
    def max_gradients(self) -> int:
        """The most gradients that a run can need."""
        if self.algorithm == "gradient":
            return self.gradient_steps * self.generations

        mutations = self.gradient_parents * self.generations if self.gradient_mutation else 0
        return self.gradient_steps * self.gradient_seeds + mutations
