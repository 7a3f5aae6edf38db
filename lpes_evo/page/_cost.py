"""What a search cost, from its journal."""

from collections import Counter
from dataclasses import dataclass

from lpes_evo.comparison import read_steps
from lpes_evo.page._run import RunContents


@dataclass(frozen=True)
class Cost:
    """What the evaluations of a search came to.

    Attributes:
        counts: Evaluations by status: ``ok``, ``raced``, ``failed``; ``sampled`` for gradients, which are none; and
            ``repeated`` for failures that stopped the run and were tried again.
        tokens: Tokens forwarded, a backward pass counted as two.
        seconds: Time of the workers, added up.
        scored: Scores of single examples in evaluations that are ``ok`` or ``raced``.
        unraced: The same if no evaluation had stopped early; 0 where no evaluation tells how many examples there are.
    """

    counts: dict[str, int]
    tokens: int
    seconds: float
    scored: int
    unraced: int


def read_cost(run: RunContents) -> Cost:
    """Read what the evaluations in the trace of a run cost.

    Args:
        run: The run; its journal may have grown since it was read, and later lines are left out.

    Returns:
        The cost.

    Raises:
        JournalError: A line is not a valid line.
    """
    counts: Counter[str] = Counter()
    n_left, n_tokens, n_seconds, n_scored, n_examples = len(run.trace), 0, 0.0, 0, 0
    for kind, line in read_steps(run.folder.journal):
        if not n_left:
            break
        if kind == "repeated":
            counts["repeated"] += 1
            continue
        n_tokens += line.tokens
        n_seconds += line.seconds
        if kind == "gradient":
            counts["sampled"] += 1
            continue
        counts[line.status] += 1
        n_left -= 1
        if line.status in ("ok", "raced"):
            n_scored += len(line.scores)
        if line.status == "ok":
            n_examples = len(line.scores)
    return Cost(dict(counts), n_tokens, n_seconds, n_scored, n_examples * (counts["ok"] + counts["raced"]))
