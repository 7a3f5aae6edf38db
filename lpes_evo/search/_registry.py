"""The algorithms by name, and those of users by the file of their class."""

from lpes_evo.errors import ConfigError
from lpes_evo.search._algorithm import Algorithm
from lpes_evo.search._ascent import GradientAscent
from lpes_evo.search._genetic import GeneticAlgorithm, Nsga2, SteadyState
from lpes_evo.search._population import RandomSearch
from lpes_evo.user_code import load_class

ALGORITHMS: dict[str, type[Algorithm]] = {
    "ga": GeneticAlgorithm,
    "steady-state": SteadyState,
    "nsga2": Nsga2,
    "random": RandomSearch,
    "gradient": GradientAscent,
}
"""The algorithms of this package by their name in the settings."""


def find_algorithm(name: str) -> type[Algorithm]:
    """Return the class of an algorithm.

    Args:
        name: A name of `ALGORITHMS`, or ``FILE.py:CLASS`` for a class of your own.

    Returns:
        The class.

    Raises:
        ConfigError: There is no such file, it has no such class, or its code failed.
    """
    known = ALGORITHMS.get(name)
    return known if known is not None else load_class(name, Algorithm, ConfigError)  # type: ignore[type-abstract]
