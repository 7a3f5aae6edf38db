"""Algorithm: the interface between a search and the rule that chooses what it evaluates next."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from lpes_evo.config import SearchSettings
from lpes_evo.operators import BezierGenome, CurveSpace, init_constants, init_identity
from lpes_evo.search._curves import distinct
from lpes_evo.search._evaluation import Evaluation
from lpes_evo.search._progress import Progress
from lpes_evo.search._requests import Request


class Algorithm(ABC):
    """The rule by which a search chooses what it evaluates next.

    A search makes its algorithm, asks it for proposals, has them evaluated, and hands every evaluation back in the
    order of the proposals. The search keeps all books: it copies and checks the genomes, recognises curves that were
    evaluated before, selects the survivors, writes the logbook, and ends after the budget of its settings. So an
    algorithm of your own needs one method::

        class HillClimber(Algorithm):
            def propose(self, progress):
                if not progress.population:
                    yield from map(Candidate, self.starting_points)
                for _ in range(self.settings.offspring_size if progress.population else 0):
                    child = copy.copy(progress.population[0])
                    mut_point(child, space=self.space)
                    yield Candidate(child)

        search = Search(space, settings, algorithm=HillClimber)

    In the settings of a run it is named by its file: ``search.algorithm: climber.py:HillClimber``.

    Every draw comes from Python's ``random`` or NumPy's global generator, as in DEAP. The search seeds both for the
    constructor and for every call of `propose` and `observe`, and restores the state in which they were. As long as an
    algorithm draws from nothing else, the search is a function of its seed and can be resumed.

    Args:
        space: The curves.
        settings: Sizes, probabilities and budget.
        initial: Genomes of the caller to start from.
        n_objectives: Number of fitness values of an evaluation.
        seed: Seed of the search, for packages that have random generators of their own.

    Attributes:
        space: The curves.
        settings: Sizes, probabilities and budget.
        weights: Weights of the fitness of every genome, ``(n_objectives,)``.
        starting_points: Distinct genomes that a search begins with: the identity where the space holds it, constant
            curves over the range of values, and the genomes of the caller.
        example_weights: Weight of the score of each example in the fitness, ``(n_examples,)``, which the search sets;
            ``None`` where they count alike.

    Where a search has guards, evaluations have a ``violation``, and `Evaluation.standing` ranks them. The genomes of
    `Progress.population` are ranked in the same way, and DEAP's selections follow it by themselves.

    Raises:
        CurveError: A genome of ``initial`` is not feasible.
    """

    several_objectives: ClassVar[bool] = False
    """Whether it takes evaluations of several fitness values."""

    takes_gradients: ClassVar[bool] = False
    """Whether it proposes a `GradientProbe` whatever the settings; an `Evaluator` is then ready for them."""

    tries_constants: ClassVar[bool] = True
    """Whether it evaluates constant curves, the best of which a report compares the result with."""

    shares_passes: ClassVar[bool] = True
    """Whether candidates that were proposed together may share the forward passes of a model."""

    example_weights: tuple[float, ...] | None = None

    def __init__(
        self,
        space: CurveSpace,
        settings: SearchSettings,
        *,
        initial: Sequence[BezierGenome] = (),
        n_objectives: int = 1,
        seed: int = 0,  # noqa: ARG002
    ) -> None:
        self.space = space
        self.settings = settings
        self.weights = (1.0,) * n_objectives
        self.starting_points = starting_points(space, settings, initial, self.weights)

    @property
    def n_first(self) -> int:
        """Number of candidates that make generation 0; each later generation has `SearchSettings.n_offspring`."""
        return len(self.starting_points)

    @property
    def in_flight(self) -> int | None:
        """Number of candidates that may be without an evaluation at once, in an algorithm without generations.

        The search then takes one proposal at a time. With ``None`` it takes all that one call of `propose` gives, and
        calls again when all of them are evaluated.
        """
        return None

    @abstractmethod
    def propose(self, progress: Progress) -> Iterable[Request]:
        """Return or yield what is to be evaluated next.

        A curve that is known already costs no evaluation, but counts as a candidate. Where the method is a generator,
        ``progress`` holds each proposal as soon as it was yielded.

        Args:
            progress: The state of the search.

        Returns:
            Candidates and gradient probes; the search ends where there are none and nothing is on its way.
        """

    def observe(self, request: Request, evaluation: Evaluation) -> None:  # noqa: B027
        """Take the evaluation of a proposal; called once for each, in the order of the proposals.

        Args:
            request: The proposal, the same object that `propose` gave.
            evaluation: Its evaluation, or that of an earlier candidate with the same curve.
        """

    def finished(self) -> str | None:
        """Return why nothing more will be proposed, or ``None``; the budget is not the concern of an algorithm."""
        return None


def starting_points(
    space: CurveSpace,
    settings: SearchSettings,
    initial: Sequence[BezierGenome] = (),
    weights: tuple[float, ...] = (1.0,),
) -> list[BezierGenome]:
    """Return the genomes that a search begins with: the identity, constant curves, and those of the caller.

    Args:
        space: The curves.
        settings: The number of constant curves.
        initial: Genomes of the caller.
        weights: Weights of the fitness, ``(n_objectives,)``.

    Returns:
        Genomes of distinct curves.

    Raises:
        CurveError: A genome of ``initial`` is not feasible.
    """
    for genome in initial:
        space.check(genome)
    identity = [init_identity(space, weights=weights)] if space.contains_identity else []
    constants = init_constants(space, settings.n_constants, weights=weights)
    given = [BezierGenome(genome, weights) for genome in initial]

    return distinct(space, [*identity, *constants, *given])
