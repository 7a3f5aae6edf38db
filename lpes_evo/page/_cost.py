"""The cost of a search, read from its journal."""

from collections import Counter

from lpes_evo.comparison import read_steps
from lpes_evo.execution import Cost
from lpes_evo.page._run import RunContents


def read_cost(run: RunContents) -> tuple[Cost, Counter[str]]:
    """Read the cost of the evaluations in the trace of a run.

    Args:
        run: The run; its journal may have grown since it was read, and later evaluations are left out.

    Returns:
        The cost, whose ``unraced`` is 0 where no evaluation tells how many examples there are; and the number of
        evaluations by status: ``ok``, ``raced``, ``failed``, ``sampled`` for gradients, which are no evaluations, and
        ``repeated`` for failures that stopped the run and were tried again.

    Raises:
        JournalError: A line is not a valid line.
    """
    cost, counts = Cost(), Counter[str]()
    n_left, n_examples = len(run.trace), 0

    for kind, line in read_steps(run.folder.journal):
        # The last steps of an ascent can lead to a curve that is known already.
        if not n_left and kind != "gradient":
            break
        if kind == "repeated":
            counts["repeated"] += 1
            continue

        cost.tokens += line.tokens
        cost.seconds += line.seconds
        if kind != "evaluation":
            counts["sampled"] += kind == "gradient"
            continue

        counts[line.status] += 1
        n_left -= 1
        if line.status in ("ok", "raced"):
            cost.scored += len(line.scores)
        if line.status == "ok":
            n_examples = len(line.scores)

    # Without racing, every evaluation would have scored all examples.
    cost.unraced = n_examples * (counts["ok"] + counts["raced"])
    return cost, counts
