"""What the process that drives a run must know of a problem that lives in its workers."""

from dataclasses import dataclass

from lpes_evo.problems import Problem


@dataclass(frozen=True)
class ProblemFacts:
    """Everything about a problem but its model.

    Attributes:
        n_layers: Number of scales.
        example_ids: Ids of the examples, ``(n_examples,)``.
        groups: Set of each example, ``(n_examples,)``.
        sources: What each example is made of, ``(n_examples,)``.
        positions: Gold positions from 0 to 1, ``(n_examples,)``; empty for problems without positions.
        n_tokens: Tokens that one evaluation of all examples forwards; 0 for problems without tokens.
        gradient_cost: Forward passes that a gradient costs, see `lpes_evo.problems.Problem`.
        skipped: Examples left out because they exceed the model's window.
        data_hash: SHA-256 of the examples; empty for problems that are not made of data.
    """

    n_layers: int
    example_ids: tuple[str, ...]
    groups: tuple[str, ...]
    sources: tuple[str, ...]
    positions: tuple[float, ...] = ()
    n_tokens: int = 0
    gradient_cost: int = 3
    skipped: int = 0
    data_hash: str = ""

    @classmethod
    def of(cls, problem: Problem) -> "ProblemFacts":
        """Read the facts off a problem."""
        return cls(
            n_layers=problem.n_layers,
            example_ids=tuple(problem.example_ids),
            groups=tuple(problem.groups),
            sources=tuple(problem.sources),
            positions=tuple(getattr(problem, "positions", ())),
            n_tokens=getattr(problem, "n_tokens", 0),
            gradient_cost=problem.gradient_cost,
            skipped=getattr(problem, "skipped", 0),
            data_hash=getattr(problem, "data_hash", ""),
        )
