"""Evaluates genomes on a pool of workers: block by block, several to a pass, and no longer than they deserve."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo.config import SearchSettings
from lpes_evo.errors import ConfigError, CurveError
from lpes_evo.execution._facts import ProblemFacts
from lpes_evo.execution._passes import Group, Pass, Reference
from lpes_evo.execution._scoring import Survey, gradient_block, score_block, survey
from lpes_evo.operators import BezierGenome, CurveSpace
from lpes_evo.problems import Problem, aggregate
from lpes_evo.search import Evaluation, GradientProbe, example_blocks, is_worse
from lpes_evo.workers import Completion, LocalPool, Pool, Usage

_GROUPS_OF_A_GENERATION = 8


@dataclass
class Cost:
    """The cost of evaluations.

    Attributes:
        tokens: Tokens forwarded, those of curves that only fill a pass up among them, a backward pass counted as two.
        seconds: Time of the workers, added up.
        scored: Scores of single examples.
        unraced: Scores of single examples without racing.
    """

    tokens: int = 0
    seconds: float = 0.0
    scored: int = 0
    unraced: int = 0


class Evaluator:
    """Turns genomes into evaluations, as workers come free.

    With racing, examples are scored in blocks, the same for every candidate, and a candidate is dropped once a paired
    test says that it is worse than the parent it would have to beat. Genomes that are submitted together share forward
    passes. Results do not depend on the number of workers.

    Gradients are taken of samples of the examples, which are dealt like blocks: sample t is the next one after sample
    t - 1, and after the last comes the first.

    Args:
        source: A problem, which is then scored in this process, or a pool whose workers hold one.
        space: The space that decodes genomes.
        settings: How scores become fitness values and how candidates are raced; the defaults when ``None``.
        n_candidates: Candidates that share a forward pass; ``None`` for as many as fit. In a steady-state search every
            candidate has its own, because which of them come together there depends on the workers, and ``gradient``
            has one at a time. As many as fit are at most an eighth of a generation, so that workers find work.
        problem_of: Takes what a worker of the pool holds and returns the problem; it crosses to the workers.

    Attributes:
        facts: What the problem is.
        space: The space that decodes genomes.
        n_candidates: Candidates that share a forward pass.
        cost: The cost of all evaluations so far.

    Raises:
        ConfigError: ``n_candidates`` is not a positive number, or more than one in a steady-state search or with
            ``gradient``; the problem has another number of layers than the space, or no gradient where the settings
            take some.
        LpesError: A worker could not read off the problem what must be known of it.
    """

    def __init__(
        self,
        source: Problem | Pool,
        space: CurveSpace,
        settings: SearchSettings | None = None,
        *,
        n_candidates: int | None = None,
        problem_of: Callable[[Any], Problem] | None = None,
    ) -> None:
        self._pool = source if isinstance(source, Pool) else LocalPool(lambda _device: source)
        self.space = space
        self._settings = settings if settings is not None else SearchSettings()
        self._problem_of = problem_of
        self.facts: ProblemFacts = self._pool.call(self._on_problem(ProblemFacts.of))
        if self.facts.n_layers != space.n_layers:
            raise ConfigError(
                f"Expected a space of the {self.facts.n_layers!r} layers of the problem, but got one of "
                f"{space.n_layers}. Make it with n_layers=problem.n_layers."
            )
        if self._settings.takes_gradients and not self.facts.has_gradient:
            raise ConfigError(
                "Expected a problem with gradients, because the settings of the search take some, but it has none. "
                "Override its method gradient, or use an algorithm without gradients."
            )
        blocks = (
            example_blocks(self.facts.sources, self.facts.groups, self._settings.race_block)
            if self._settings.racing
            else [np.arange(len(self.facts.example_ids))]
        )
        self._block_ids = [tuple(self.facts.example_ids[number] for number in block) for block in blocks]
        # Examples in the order in which they are scored, and where each block ends in it.
        self._order = np.concatenate(blocks)
        self._ends = np.cumsum([len(block) for block in blocks])
        self._samples = (
            example_blocks(self.facts.sources, self.facts.groups, self._settings.gradient_sources)
            if self._settings.takes_gradients
            else []
        )
        self._sample_ids = [
            tuple(self.facts.example_ids[number] for number in sample) for sample in self._samples
        ]
        wanted = _n_wanted(n_candidates, self._settings)
        self._plan: Survey = self._pool.call(
            self._on_problem(survey), self._block_ids, self._sample_ids, wanted
        )
        # A generation is so many groups at least, so that many workers find work; their number itself must not show.
        most = max(1, self._settings.n_offspring // _GROUPS_OF_A_GENERATION)
        self.n_candidates = self._plan.n_candidates if wanted else min(self._plan.n_candidates, most)
        self.cost = Cost()
        self._passes: dict[int, Pass] = {}
        self._n_groups = 0
        self._finished: deque[Group] = deque()

    @property
    def n_pending(self) -> int:
        """Groups that were submitted and not yet returned by `wait`."""
        return len({task.group.number for task in self._passes.values()}) + len(self._finished)

    def submit(
        self,
        genomes: Sequence[BezierGenome],
        reference: Reference | None = None,
        labels: Sequence[str] | None = None,
    ) -> int:
        """Put genomes on their way.

        Args:
            genomes: From one to ``n_candidates`` genomes, which share forward passes; or one `GradientProbe`.
            reference: Scores of the parent they are raced against, ``(n_examples,)``; ``None`` to score them fully.
            labels: What messages call them, one for each.

        Returns:
            The number of the group.

        Raises:
            ConfigError: There are no genomes, or more than share a forward pass; or another number of reference scores
                than examples, or of labels than genomes.
            CurveError: A genome is not feasible in the space, or a scale of a probe is outside of its bounds.
        """
        n = len(genomes)
        if (reference is not None and len(reference) != len(self._order)) or (
            labels is not None and len(labels) != n
        ):
            raise ConfigError(
                f"Expected {len(self._order)} reference scores and {n} labels, but got "
                f"{None if reference is None else len(reference)} and {None if labels is None else len(labels)}. Give "
                "one score for each example and one label for each genome, or leave them out."
            )
        if not 1 <= n <= self.n_candidates:
            raise ConfigError(
                f"Expected from 1 to n_candidates = {self.n_candidates} genomes, which share forward passes, but got "
                f"{n}. Submit them in groups of that size."
            )
        probe = genomes[0] if isinstance(genomes[0], GradientProbe) else None
        if probe is not None and (n > 1 or not self._samples):
            raise ConfigError(
                f"Expected a single probe and settings that take gradients, but got {n} genomes and the algorithm "
                f"{self._settings.algorithm!r}. Make the evaluator with the settings of the search."
            )
        self._refuse_infeasible(genomes)

        number = self._n_groups
        self._n_groups += 1
        group = Group(
            number=number,
            labels=tuple(labels) if labels is not None else tuple(f"candidate {number}" for _ in genomes),
            scales=self.space.decode(genomes) if probe is None else probe.scales[None],
            reference=reference if self._settings.racing else None,
            evaluations=[None] * n,
            scores=[[] for _ in genomes],
            seconds=[0.0] * n,
            tokens=[0] * n,
            halvings=[0] * n,
            sample=None if probe is None else probe.sample % len(self._samples),
        )
        self._send(Pass(group, tuple(range(n)), 0))
        return number

    def _refuse_infeasible(self, genomes: Sequence[BezierGenome]) -> None:
        """Refuse genomes that break a bound of the space: a user's loop may submit what no operator has made.

        Raises:
            CurveError: One does; the message names the control point and the bound.
        """
        for genome in genomes:
            if not isinstance(genome, GradientProbe):
                self.space.check(genome)
                continue

            low, high = self.space.y_min, self.space.y_max
            wrong = [scale for scale in genome.scales if not low * (1 - 1e-9) <= scale <= high * (1 + 1e-9)]
            if len(genome) != self.space.n_layers or wrong:
                raise CurveError(
                    f"Expected a probe of n_layers = {self.space.n_layers} scales from y_min = {low} to "
                    f"y_max = {high}, but got {len(genome)} scales, {wrong[0] if wrong else 'all within'}. "
                    "Take the gradient inside."
                )

    def wait(self) -> tuple[int, list[Evaluation]]:
        """Return the next group whose genomes are all evaluated.

        Returns:
            Its number and its evaluations, in the order of the genomes.

        Raises:
            ConfigError: Nothing is pending.
            EvaluationError: No worker can be started any more.
        """
        while not self._finished:
            completion = self._pool.wait()
            self._take(self._passes.pop(completion.ticket), completion)
        group = self._finished.popleft()
        return group.number, [evaluation for evaluation in group.evaluations if evaluation is not None]

    def account(self, usage: Sequence[Usage]) -> list[str]:
        """Return what the evaluations cost, as lines for people.

        Args:
            usage: How busy the workers were, from the pool.
        """
        cost = self.cost
        if not cost.unraced:
            return []
        lines = [
            f"{cost.tokens} tokens forwarded, {100 * cost.scored / cost.unraced:.0f} % of the examples that would "
            "have been scored without racing"
            if self._settings.racing
            else f"{cost.tokens} tokens forwarded"
        ]
        return lines + [
            f"{worker.worker} was busy {100 * worker.share:.1f} % of the time" for worker in usage
        ]

    def _on_problem(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of the worker's target that hands its problem to ``function``."""
        return function if self._problem_of is None else partial(_hand_over, self._problem_of, function)

    def _send(self, task: Pass) -> None:
        group = task.group
        if group.sample is not None:
            ticket = self._pool.submit(
                self._on_problem(gradient_block),
                group.scales[0],
                self._sample_ids[group.sample],
                _weights_of([self.facts.groups[number] for number in self._samples[group.sample]]),
                label=f"{group.labels[0]} (gradient)",
            )
            self._passes[ticket] = task
            return
        # A pass is filled up with one of its own curves, which cannot fail where the others do not.
        filling = (task.members[-1],) * (self._n_rows(task) - len(task.members))
        scales = group.scales[[*task.members, *filling]]
        ticket = self._pool.submit(
            self._on_problem(score_block),
            scales,
            self._block_ids[task.block],
            label=", ".join(group.labels[member] for member in task.members),
            # A candidate that has begun is finished first, so that its evaluation is soon on the disk.
            first=task.block > 0,
        )
        self._passes[ticket] = task

    def _n_rows(self, task: Pass) -> int:
        """Return under how many curves a pass scores each example; in half precision all passes need one shape."""
        return len(task.members) if self._plan.is_exact else self.n_candidates

    def _take(self, task: Pass, completion: Completion) -> None:
        """Take the scores of a block, and send those members on that are still in the race."""
        self.cost.seconds += completion.seconds
        if task.group.sample is not None:
            self._take_gradient(task.group, task.group.sample, completion)
            return
        if completion.failure is not None and len(task.members) > 1:
            # One of them is at fault; alone, the others live.
            for member in task.members:
                self._send(Pass(task.group, (member,), task.block))
            return
        group, share = task.group, completion.seconds / len(task.members)
        if completion.failure is None:
            self.cost.tokens += self._n_rows(task) * self._plan.block_tokens[task.block]
        for row, member in enumerate(task.members):
            group.seconds[member] += share
            if completion.failure is not None:
                self._fail(group, member, completion.failure.traceback)
                continue
            scores, n_halvings = completion.value
            if not np.isfinite(scores[row]).all():
                wrong = scores[row][~np.isfinite(scores[row])][:3]
                self._fail(group, member, f"EvaluationError: Expected finite real scores, but got {wrong}.")
                continue
            group.scores[member] += scores[row].tolist()
            group.tokens[member] += self._plan.block_tokens[task.block]
            group.halvings[member] = max(group.halvings[member], n_halvings)
            self._judge(group, member, task.block)
        going_on = tuple(member for member in task.members if group.evaluations[member] is None)
        if going_on:
            self._send(Pass(group, going_on, task.block + 1))
        elif None not in group.evaluations:
            self._finished.append(group)

    def _take_gradient(self, group: Group, sample: int, completion: Completion) -> None:
        """Conclude an evaluation with the gradient that was wanted of it."""
        group.seconds[0] = completion.seconds
        if completion.failure is not None:
            self._fail(group, 0, completion.failure.traceback)
        else:
            scores, gradient, group.halvings[0] = completion.value
            group.tokens[0] = self._plan.gradient_tokens[sample]
            self.cost.tokens += group.tokens[0]
            self._conclude(
                group,
                0,
                "sampled",
                scores=tuple(scores.tolist()),
                scored=tuple(self._samples[sample].tolist()),
                gradient=tuple(gradient.tolist()),
            )
        self._finished.append(group)

    def _judge(self, group: Group, member: int, block: int) -> None:
        """Conclude the evaluation of a member that is through, or that is worse than its parent."""
        how = self._settings.objectives
        end = int(self._ends[block])
        scored, scores = self._order[:end], np.array(group.scores[member])
        is_through = block + 1 == len(self._block_ids)
        if is_through:
            in_order = np.empty(end)
            in_order[scored] = scores
            values = aggregate(in_order, self.facts.groups, how)
            self._conclude(group, member, "ok", values=values, scores=tuple(in_order.tolist()))
        elif group.reference is not None and is_worse(
            scores, scored, group.reference, self.facts.groups, how, self._settings.race_level
        ):
            self._conclude(
                group, member, "raced", scores=tuple(scores.tolist()), scored=tuple(scored.tolist())
            )

    def _fail(self, group: Group, member: int, error: str) -> None:
        self._conclude(group, member, "failed", error=error)

    def _conclude(self, group: Group, member: int, status: Any, **facts: Any) -> None:
        if group.sample is None:
            self.cost.scored += len(group.scores[member])
            self.cost.unraced += len(self._order)
        group.evaluations[member] = Evaluation(
            **({"values": (), "scores": ()} | facts),
            seconds=group.seconds[member],
            status=status,
            tokens=group.tokens[member],
            halvings=group.halvings[member],
        )


def _weights_of(groups: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return how much each score counts in the mean of the set means, ``(n_examples,)``."""
    sizes = Counter(groups)
    return np.array([1 / (len(sizes) * sizes[name]) for name in groups])


def _n_wanted(n_candidates: int | None, settings: SearchSettings) -> int | None:
    """Return how many candidates shall share a forward pass; ``None`` for as many as fit."""
    is_single = settings.algorithm in ("steady-state", "gradient")
    is_number = n_candidates is None or type(n_candidates) is int
    if not is_number or (n_candidates is not None and not 1 <= n_candidates <= (1 if is_single else np.inf)):
        expected = f"= 1 with the algorithm {settings.algorithm!r}" if is_single else "of at least 1"
        raise ConfigError(
            f"Expected n_candidates {expected}, but got {n_candidates!r}. Leave candidates_per_pass out."
        )
    return 1 if is_single else n_candidates


def _hand_over(
    problem_of: Callable[[Any], Problem], function: Callable[..., Any], target: Any, *rest: Any
) -> Any:
    return function(problem_of(target), *rest)
