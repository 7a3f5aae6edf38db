"""Evaluator: the scores of genomes on a pool of workers, block by block, with shared forward passes and races."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo.config import SearchSettings
from lpes_evo.errors import ConfigError, CurveError
from lpes_evo.execution._facts import ProblemFacts
from lpes_evo.execution._fitness import FitnessRule
from lpes_evo.execution._groups import Group, Member, Pass, Reference
from lpes_evo.execution._scoring import WorkPlan, gradient_block, plan_work, score_block
from lpes_evo.operators import BezierGenome, CurveSpace
from lpes_evo.problems import Problem
from lpes_evo.search import (
    Algorithm,
    Evaluation,
    GradientProbe,
    example_blocks,
    find_algorithm,
)
from lpes_evo.workers import Completion, LocalPool, Pool, Usage

_GROUPS_OF_A_GENERATION = 8
_ROUNDING = 1e-9


@dataclass
class Cost:
    """The cost of the evaluations of an evaluator.

    Attributes:
        tokens: Tokens forwarded, including those of curves that only fill up a pass; a backward pass counts as two.
        seconds: Sum of the time of all workers.
        scored: Number of scores of single examples.
        unraced: Number that it would be without racing.
    """

    tokens: int = 0
    seconds: float = 0.0
    scored: int = 0
    unraced: int = 0


class Evaluator:
    """The evaluation of genomes and probes on the workers of a pool.

    With racing, examples are scored in blocks, which are the same for every candidate. A candidate is dropped once a
    paired test says that it is worse than the parent that it would have to beat. Genomes that are submitted together
    share forward passes. Results do not depend on the number of workers.

    A gradient is taken on a sample of the examples. Samples are dealt like blocks and take turns: after the last
    sample comes the first.

    In a mixture of tasks, scores become gains over the untouched model, see `FitnessRule`. So the untouched model is
    measured first, by `measure_untouched`, in passes of the same shape as those of all candidates, and `relate` takes
    the scores. Guards are scored last, in blocks of their own: a candidate that was dropped costs nothing on them.

    Args:
        source: A problem, which is then scored in this process; or a pool whose workers hold a problem.
        space: The space that decodes genomes.
        settings: The aggregate that makes fitness values, the rules of racing, and the algorithm; the defaults when
            ``None``.
        n_candidates: Number of candidates that share a forward pass; ``None`` for as many as fit, but at most an
            eighth of a generation, so that many workers find work. The number is 1 where the algorithm shares no
            passes: in steady-state, which candidates are ready together depends on the workers, and ``gradient`` has
            one candidate at a time.
        problem_of: Function that takes the target of a worker and returns the problem; it is sent to the workers.

    Attributes:
        facts: Everything about the problem but its model.
        rule: How scores become fitness values and violations.
        space: The space that decodes genomes.
        n_candidates: Candidates that share a forward pass.
        cost: The cost of all evaluations so far.

    Raises:
        ConfigError: ``n_candidates`` is not a positive number, or more than one where the algorithm shares no passes;
            the problem has another number of layers than the space, or no gradient where the search takes some; or a
            weight of a task would have no effect.
        LpesError: A worker could not read the facts of the problem.
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
        algorithm = find_algorithm(self._settings.algorithm)
        takes_gradients = self._settings.takes_gradients or algorithm.takes_gradients
        if takes_gradients and not self.facts.has_gradient:
            raise ConfigError(
                "Expected a problem with gradients, because the settings of the search take some, but it has none. "
                "Override its method gradient, or use an algorithm without gradients."
            )

        # Without racing, all examples are one block.
        self.rule = FitnessRule(self.facts, self._settings)
        searched, guarding = self.rule.searched, self.rule.guarding
        blocks = (
            [
                *self._blocks_of(searched, self._settings.race_block),
                *self._blocks_of(guarding, self._settings.race_block),
            ]
            if self._settings.racing
            else [np.arange(len(self.facts.example_ids))]
        )
        self._block_ids = [tuple(self.facts.example_ids[number] for number in block) for block in blocks]

        # The numbers of the examples in the order in which they are scored, and the end of each block in it.
        self._order = np.concatenate(blocks)
        self._ends = np.cumsum([len(block) for block in blocks])

        self._samples = self._blocks_of(searched, self._settings.gradient_sources) if takes_gradients else []
        self._sample_ids = [
            tuple(self.facts.example_ids[number] for number in sample) for sample in self._samples
        ]

        wanted = _n_wanted(n_candidates, self._settings.algorithm, algorithm)
        self._plan: WorkPlan = self._pool.call(
            self._on_problem(plan_work), self._block_ids, self._sample_ids, wanted
        )

        # The least number of groups of a generation is fixed, because the number of workers must not show in results.
        most = max(1, self._settings.n_offspring // _GROUPS_OF_A_GENERATION)
        self.n_candidates = self._plan.n_candidates if wanted else min(self._plan.n_candidates, most)
        self.cost = Cost()
        self._untouched: npt.NDArray[np.float64] | None = None
        self._passes: dict[int, Pass] = {}
        self._n_groups = 0

    @property
    def n_pending(self) -> int:
        """Groups that were submitted and not yet returned by `wait`."""
        return len({task.group.number for task in self._passes.values()})

    def relate(self, untouched: Sequence[float]) -> None:
        """Take the scores of the untouched model, over which a mixture measures gains.

        Args:
            untouched: The scores that `measure_untouched` gave, once for all evaluators of a search, ``(n_examples,)``.

        Raises:
            ConfigError: There is not one score for each example.
            TaskError: All scores of a task of a mixture are alike, so that they give no unit.
        """
        if len(untouched) != len(self._order):
            raise ConfigError(
                f"Expected {len(self._order)} scores of the untouched model, one for each example, but got "
                f"{len(untouched)}."
            )
        self._untouched = np.array(untouched)
        self.rule.relate(untouched)

    def measure_untouched(self) -> Evaluation:
        """Score the untouched model, block by block, in passes that are filled up like those of candidates.

        Returns:
            Its evaluation, with the scores in units of their tasks and their mean as its value; or a failed one.

        Raises:
            ConfigError: Other evaluations are pending.
            EvaluationError: No worker can be started any more.
        """
        if self._passes:
            raise ConfigError(
                f"Expected no pending evaluations before the untouched model is measured, but {self.n_pending} are. "
                "Measure it first."
            )
        group = Group(
            self._n_groups, (Member("the untouched model", np.ones(self.space.n_layers)),), is_baseline=True
        )
        self._n_groups += 1
        self._send(Pass(group, group.members, 0))
        _, (evaluation,) = self.wait()
        return evaluation

    def submit(
        self,
        requests: Sequence[BezierGenome | GradientProbe],
        reference: Reference | None = None,
        labels: Sequence[str] | None = None,
    ) -> int:
        """Send genomes, or a probe, to the workers.

        Args:
            requests: From one to ``n_candidates`` genomes, which share forward passes; or one `GradientProbe`.
            reference: Scores of the parent they are raced against, ``(n_examples,)``; ``None`` to score them fully.
            labels: One name for each in messages.

        Returns:
            The number of the group.

        Raises:
            ConfigError: There are no genomes, or more than share a forward pass; the number of reference scores is not
                that of examples, or the number of labels not that of genomes; or the untouched model was not measured
                and a mixture needs its scores.
            CurveError: A genome is not feasible in the space, or a scale of a probe is outside of its bounds.
        """
        n, number = len(requests), self._n_groups
        if not self.rule.is_ready:
            raise ConfigError(
                "Expected the scores of the untouched model before candidates of a mixture, but got none. Call "
                "relate(measure_untouched().scores) first."
            )
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
        if labels is None:
            labels = [f"candidate {number}"] * n

        probes = [request for request in requests if isinstance(request, GradientProbe)]
        if probes:
            group = self._group_of_probe(probes[0], number, labels[0], n)
        else:
            genomes = [request for request in requests if not isinstance(request, GradientProbe)]
            for genome in genomes:
                self.space.check(genome)
            members = tuple(map(Member, labels, self.space.decode(genomes)))
            group = Group(number, members, reference if self._settings.racing else None)
        self._n_groups += 1
        self._send(Pass(group, group.members, 0))
        return number

    def _group_of_probe(self, probe: GradientProbe, number: int, label: str, n_requests: int) -> Group:
        """Return the group of a probe, which is alone in it.

        Raises:
            ConfigError: There are other requests beside it, or the settings take no gradients.
            CurveError: A scale is outside of the bounds of the space.
        """
        if n_requests > 1 or not self._samples:
            raise ConfigError(
                f"Expected a single probe and settings that take gradients, but got {n_requests} genomes and the "
                f"algorithm {self._settings.algorithm!r}. Make the evaluator with the settings of the search."
            )

        low, high = self.space.y_min, self.space.y_max
        scales = probe.scales
        wrong = [scale for scale in scales if not low * (1 - 1e-9) <= scale <= high * (1 + 1e-9)]
        if len(scales) != self.space.n_layers or wrong:
            raise CurveError(
                f"Expected a probe of n_layers = {self.space.n_layers} scales from y_min = {low} to "
                f"y_max = {high}, but got {len(scales)} scales, {wrong[0] if wrong else 'all within'}. "
                "Take the gradient inside."
            )
        return Group(number, (Member(label, scales),), sample=probe.sample % len(self._samples))

    def wait(self) -> tuple[int, list[Evaluation]]:
        """Return the next group whose members are all evaluated.

        Returns:
            Its number and its evaluations, in the order of the requests.

        Raises:
            ConfigError: Nothing is pending.
            EvaluationError: No worker can be started any more.
        """
        while True:
            completion = self._pool.wait()
            task = self._passes.pop(completion.ticket)
            self._take(task, completion)
            if task.group.is_finished:
                evaluations = [member.evaluation for member in task.group.members]
                return task.group.number, [evaluation for evaluation in evaluations if evaluation is not None]

    def account(self, usage: Sequence[Usage]) -> list[str]:
        """Return lines for people about the cost of the evaluations.

        Args:
            usage: The usage of the workers, from the pool.

        Returns:
            The lines; none before the first evaluation.
        """
        cost = self.cost
        if not cost.unraced:
            return []

        line = f"{cost.tokens} tokens forwarded"
        if self._settings.racing:
            share = 100 * cost.scored / cost.unraced
            line += f", {share:.0f} % of the examples that would have been scored without racing"
        return [
            line,
            *(f"{worker.worker} was busy {100 * worker.share:.1f} % of the time" for worker in usage),
        ]

    def _blocks_of(self, numbers: npt.NDArray[np.int64], n_sources: int) -> list[npt.NDArray[np.int64]]:
        """Return some examples in blocks of so many sources of the most frequent kind; none for no examples."""
        if not len(numbers):
            return []
        sources = [self.facts.sources[number] for number in numbers]
        groups = [self.facts.groups[number] for number in numbers]
        tasks = [self.rule.tasks[number] for number in numbers]
        return [numbers[block] for block in example_blocks(sources, groups, n_sources, tasks)]

    def _on_problem(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that takes the target of a worker and calls ``function`` with the problem in it."""
        return function if self._problem_of is None else partial(_hand_over, self._problem_of, function)

    def _send(self, task: Pass) -> None:
        """Hand a pass to the pool."""
        group = task.group
        if group.sample is not None:
            sample = self._samples[group.sample]
            ticket = self._pool.submit(
                self._on_problem(gradient_block),
                group.members[0].scales,
                self._sample_ids[group.sample],
                self.rule.gradient_weights(sample),
                label=f"{group.members[0].label} (gradient)",
            )
        else:
            # A pass is filled up with one of its own curves, which cannot fail where the others do not.
            filling = (task.members[-1],) * (self._n_rows(task) - len(task.members))
            ticket = self._pool.submit(
                self._on_problem(score_block),
                np.array([member.scales for member in (*task.members, *filling)]),
                self._block_ids[task.block],
                label=", ".join(member.label for member in task.members),
                # A candidate that has begun is finished first, so that its evaluation is soon on the disk.
                first=task.block > 0,
            )
        self._passes[ticket] = task

    def _n_rows(self, task: Pass) -> int:
        """Return under how many curves a pass scores each example; in half precision all passes need one shape."""
        return len(task.members) if self._plan.is_exact else self.n_candidates

    def _take(self, task: Pass, completion: Completion) -> None:
        """Take the outcome of a pass, and send those members on that are still in the race."""
        self.cost.seconds += completion.seconds
        if task.group.sample is not None:
            self._take_gradient(task.members[0], task.group.sample, completion)
            return

        failure = completion.failure
        if failure is not None and len(task.members) > 1:
            # One of them is at fault. Each is scored alone now, so that the others do not fail with it.
            for member in task.members:
                self._send(Pass(task.group, (member,), task.block))
            return
        if failure is None:
            self.cost.tokens += self._n_rows(task) * self._plan.block_tokens[task.block]

        for row, member in enumerate(task.members):
            member.seconds += completion.seconds / len(task.members)
            if failure is not None:
                member.conclude("failed", error=failure.traceback)
            else:
                scores, n_halvings = completion.value
                self._take_scores(member, scores[row], n_halvings, task)
            if member.evaluation is not None:
                self.cost.scored += len(member.scores)
                self.cost.unraced += len(self._order)

        going_on = tuple(member for member in task.members if member.evaluation is None)
        if going_on:
            self._send(Pass(task.group, going_on, task.block + 1))

    def _take_scores(
        self, member: Member, scores: npt.NDArray[np.float64], n_halvings: int, task: Pass
    ) -> None:
        """Take the scores of a block, ``(n_examples,)``, and conclude where no further block is needed."""
        is_finite = np.isfinite(scores)
        if not is_finite.all():
            member.conclude(
                "failed",
                error=f"EvaluationError: Expected finite real scores, but got {scores[~is_finite][:3]}.",
            )
            return
        end = int(self._ends[task.block])
        block = self._order[end - len(scores) : end]
        is_baseline = task.group.is_baseline
        if self._untouched is not None and np.allclose(member.scales, 1, rtol=0, atol=_ROUNDING):
            # The untouched model has no gain, whatever another device or company in a pass makes of its last digits.
            scores = self._untouched[block]
        member.scores += (scores if is_baseline else self.rule.gains(scores, block)).tolist()
        member.tokens += self._plan.block_tokens[task.block]
        member.halvings = max(member.halvings, n_halvings)

        scored, so_far = self._order[:end], np.array(member.scores)
        if task.block + 1 == len(self._block_ids):
            in_order = np.empty(end)
            in_order[scored] = so_far
            values = (float(in_order.mean()),) if is_baseline else self.rule.values(in_order)
            violation = 0.0 if is_baseline else self.rule.violation(in_order)
            member.conclude("ok", values=values, scores=in_order.tolist(), violation=violation)
        elif task.group.reference is not None and self.rule.is_worse(so_far, scored, task.group.reference):
            member.conclude("raced", scores=member.scores, scored=scored.tolist())

    def _take_gradient(self, member: Member, sample: int, completion: Completion) -> None:
        """Conclude with the gradient that was wanted."""
        member.seconds = completion.seconds
        if completion.failure is not None:
            member.conclude("failed", error=completion.failure.traceback)
            return

        scores, gradient, member.halvings = completion.value
        member.tokens = self._plan.gradient_tokens[sample]
        self.cost.tokens += member.tokens
        member.conclude(
            "sampled",
            scores=self.rule.gains(scores, self._samples[sample]).tolist(),
            scored=self._samples[sample].tolist(),
            gradient=gradient.tolist(),
        )


def _n_wanted(n_candidates: int | None, name: str, algorithm: type[Algorithm]) -> int | None:
    """Return the number of candidates that shall share a forward pass; ``None`` for as many as fit.

    Raises:
        ConfigError: The number is no positive whole number, or more than 1 where the algorithm shares no passes.
    """
    most = np.inf if algorithm.shares_passes else 1
    is_number = n_candidates is None or type(n_candidates) is int
    if not is_number or (n_candidates is not None and not 1 <= n_candidates <= most):
        expected = "of at least 1" if algorithm.shares_passes else f"= 1 with the algorithm {name!r}"
        raise ConfigError(
            f"Expected n_candidates {expected}, but got {n_candidates!r}. Leave candidates_per_pass out."
        )
    return n_candidates if algorithm.shares_passes else 1


def _hand_over(
    problem_of: Callable[[Any], Problem], function: Callable[..., Any], target: Any, *rest: Any
) -> Any:
    return function(problem_of(target), *rest)
