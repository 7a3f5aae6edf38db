"""The algorithms by name, and the making of an algorithm, of this package or of a user."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lpes_evo.config import SearchSettings
from lpes_evo.errors import ConfigError, LpesError
from lpes_evo.operators import BezierGenome, CurveSpace
from lpes_evo.search._algorithm import Algorithm
from lpes_evo.search._ascent import GradientAscent
from lpes_evo.search._genetic import GeneticAlgorithm, Nsga2, SteadyState
from lpes_evo.search._population import RandomSearch
from lpes_evo.user_code import error_text, load_class

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


def name_of(algorithm: Callable[..., Algorithm]) -> str:
    """Return the name of an algorithm that a caller gave, for messages."""
    named = getattr(algorithm, "func", algorithm)
    return getattr(named, "__name__", type(named).__name__)


def make_algorithm(
    name: str,
    algorithm: Callable[..., Algorithm] | None,
    space: CurveSpace,
    settings: SearchSettings,
    *,
    initial: Sequence[BezierGenome],
    n_objectives: int,
    seed: int,
) -> Algorithm:
    """Return an algorithm, ready for a search.

    Args:
        name: Its name in messages, and in the settings where there is no class.
        algorithm: Its class, or a function that makes it; ``None`` for the class of the name.
        space: The curves.
        settings: Sizes, probabilities and budget.
        initial: Genomes to start from.
        n_objectives: Number of fitness values.
        seed: Seed of the search.

    Raises:
        ConfigError: It is no algorithm, cannot be made, or does not take ``n_objectives``.
        CurveError: A genome of ``initial`` is not feasible.
    """
    if algorithm is None:
        algorithm = find_algorithm(name)
    if not callable(algorithm) or (isinstance(algorithm, type) and not issubclass(algorithm, Algorithm)):
        raise _no_algorithm("be a class derived from", algorithm)

    several_error = ConfigError(
        f"Expected n_objectives = 1 for the algorithm {name!r}, but got {n_objectives}. "
        "Use 'nsga2' for several objectives."
    )
    if n_objectives < 1:
        raise several_error
    with blaming(name, "be made"):
        made = algorithm(space, settings, initial=initial, n_objectives=n_objectives, seed=seed)
    if not isinstance(made, Algorithm):
        raise _no_algorithm("make an object of", made)
    if n_objectives > 1 and not made.several_objectives:
        raise several_error
    return made


@contextmanager
def blaming(name: str, work: str) -> Iterator[None]:
    """Turn whatever the code of an algorithm raises in a block into one clear error.

    Args:
        name: Name of the algorithm.
        work: What was expected of it, as the end of a sentence.

    Raises:
        ConfigError: The code raised an error other than those of this package.
    """
    try:
        yield
    except LpesError:
        raise
    except (Exception, SystemExit) as error:  # the code of a user can raise anything, and may try to exit
        # No algorithm of this package exits; where one seems to, a signal came whose handler does.
        if isinstance(error, SystemExit) and name in ALGORITHMS:
            raise
        raise ConfigError(
            f"Expected the algorithm {name} to {work}, but it raised {error_text(error)}. Mend its class."
        ) from error


def _no_algorithm(expected: str, came: object) -> ConfigError:
    return ConfigError(
        f"Expected algorithm to {expected} lpes_evo.search.Algorithm, but got {came!r:.80}. Derive the class from it."
    )
