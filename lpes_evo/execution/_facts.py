"""ProblemFacts: everything about a problem but its model, for the process that drives the workers."""

from collections import Counter
from dataclasses import dataclass

from lpes_evo.errors import TaskError
from lpes_evo.problems import Mixture, Problem, Sharing


@dataclass(frozen=True)
class ProblemFacts:
    """Everything about a problem but its model.

    Attributes:
        n_layers: Number of scales.
        example_ids: Ids of the examples, ``(n_examples,)``.
        groups: Set of each example, ``(n_examples,)``.
        sources: The material of each example, ``(n_examples,)``.
        positions: Gold positions from 0 to 1, ``(n_examples,)``, ``None`` for an example without one; empty for
            problems without positions.
        n_tokens: Tokens that one evaluation of all examples forwards; 0 for problems without tokens.
        sharing: Whether examples that begin alike share a run over their beginning; ``None`` for problems without
            tokens.
        has_gradient: Whether the problem defines a gradient.
        gradient_cost: Number of forward passes that a gradient costs, see `lpes_evo.problems.Problem`.
        skipped: Examples left out because they exceed the model's window.
        data_hash: SHA-256 of the examples; empty for problems that are not made of data.
        mixture: How the examples of several tasks are put together; ``None`` for a problem of one.
    """

    n_layers: int
    example_ids: tuple[str, ...]
    groups: tuple[str, ...]
    sources: tuple[str, ...]
    positions: tuple[float | None, ...] = ()
    n_tokens: int = 0
    sharing: Sharing | None = None
    has_gradient: bool = False
    gradient_cost: int = 3
    skipped: int = 0
    data_hash: str = ""
    mixture: Mixture | None = None

    @classmethod
    def of(cls, problem: Problem) -> "ProblemFacts":
        """Return the facts of a problem.

        Args:
            problem: The problem.

        Raises:
            TaskError: The object is no problem, or what it says of its examples does not fit together.
        """
        if not isinstance(problem, Problem):
            raise TaskError(
                f"Expected a problem, but got {type(problem).__name__}. "
                "Derive its class from lpes_evo.problems.Problem."
            )

        # Problems without tokens, positions or data need not define these attributes.
        facts = cls(
            n_layers=problem.n_layers,
            example_ids=tuple(problem.example_ids),
            groups=tuple(problem.groups),
            sources=tuple(problem.sources),
            positions=tuple(getattr(problem, "positions", ())),
            n_tokens=getattr(problem, "n_tokens", 0),
            sharing=getattr(problem, "sharing", None),
            has_gradient=problem.has_gradient,
            gradient_cost=problem.gradient_cost,
            skipped=getattr(problem, "skipped", 0),
            data_hash=getattr(problem, "data_hash", ""),
            mixture=getattr(problem, "mixture", None),
        )
        facts._check()
        return facts

    def _check(self) -> None:
        """Refuse facts that do not fit together.

        Raises:
            TaskError: They do not.
        """
        n = len(self.example_ids)
        if not n or len(self.groups) != n or len(self.sources) != n:
            raise TaskError(
                f"Expected example_ids, groups and sources of one length of at least 1, but got {n}, "
                f"{len(self.groups)} and {len(self.sources)}. Keep them as tuples with one entry for each example."
            )

        cost = self.gradient_cost
        if not isinstance(cost, int) or isinstance(cost, bool) or cost < 1:
            raise TaskError(
                f"Expected gradient_cost of the problem to be a whole number of at least 1, but got {cost!r:.80}. A "
                "forward and a backward pass are 3."
            )

        texts = (*self.example_ids, *self.groups, *self.sources)
        wrong = [text for text in texts if not isinstance(text, str)]
        if wrong:
            raise TaskError(
                f"Expected example_ids, groups and sources to hold text, but got {wrong[0]!r:.80}. Name them by str."
            )

        (most, count), *_ = Counter(self.example_ids).most_common(1)
        if count > 1:
            raise TaskError(
                f"Expected every example to have an id of its own, but {count} are called {most!r:.80}. Number them."
            )
