"""Runs of lm-evaluation-harness tasks on a model under scales."""

import hashlib
import logging
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from lpes_evo.accelerators import device_kind, devices_of
from lpes_evo.errors import ConfigError, TaskError
from lpes_evo.evals.harness._load import check_tasks, load_tasks
from lpes_evo.evals.harness._names import harness_name, require_harness
from lpes_evo.evals.harness._score import HarnessScore, SubjectScore, macro_average, score_subject
from lpes_evo.models import LoadedModel
from lpes_evo.search import isolated_random
from lpes_evo.storage import to_json


def run_harness(
    loaded: LoadedModel,
    scales: str | Path | npt.ArrayLike | None,
    tasks: Sequence[str],
    *,
    limit: int | None = None,
    n_shots: int | None = None,
    batch_size: int | Literal["auto"] = 8,
    metric: str | None = None,
    chat_template: bool = False,
    include_path: Path | None = None,
    seed: int = 1234,
) -> dict[str, HarnessScore]:
    """Score a model under scales on tasks of the harness.

    The scales are in force while the harness runs, and off the model afterwards, also after an error. Labels of all
    questions are checked before the first is asked. The global random generators are left as they were.

    Args:
        loaded: The model.
        scales: A ``scales.json`` file, the folder of a finished run, position divisors ``(n_layers,)``, or ``None`` for
            the untouched model.
        tasks: ``mmlu``, ``ceval-valid``, or ``lm:`` and any other name of the harness.
        limit: Most questions of each subject, the first of them; ``None`` for all.
        n_shots: Solved examples in the prompt; ``None`` for the number of the task file, which is 0 where it names
            none.
        batch_size: Prompts in a forward pass, or ``auto`` to let the harness try how many fit.
        metric: Metric of a question; ``None`` for the first of the task file that is a mean over questions.
        chat_template: Whether prompts are put into the model's chat template.
        include_path: Folder with task files of the user, which go before those of the harness.
        seed: Seed of the harness's choice of solved examples, where a task file leaves it to chance; the default is
            the harness's own.

    Returns:
        The score of each task, by the names that were asked for.

    Raises:
        ConfigError: lm-eval is not installed, or a number is not a positive integer.
        ScalesError: The scales are missing, damaged, or those of another model or depth.
        TaskError: A task is unknown, its data cannot be read, a label is missing, or it has no such metric.
    """
    names = [harness_name(task) for task in tasks]
    _check_numbers(limit=limit, batch_size=None if batch_size == "auto" else batch_size)
    if n_shots is not None and (isinstance(n_shots, bool) or not isinstance(n_shots, int) or n_shots < 0):
        raise ConfigError(f"Expected the number of shots to be an integer from 0, but got {n_shots!r:.80}.")
    if chat_template and not getattr(loaded.tokenizer, "chat_template", None):
        raise ConfigError(
            f"Expected a model with a chat template, but {loaded.name} has none. Leave the template off."
        )

    require_harness()
    import torch
    from lm_eval import simple_evaluate

    from lpes_evo.evals.harness._model import LpesLM

    devices = devices_of(loaded.device) if device_kind(loaded.device) == "cuda" else ()
    logger = logging.getLogger("lm_eval")
    level = logger.level
    scores = {}
    with (
        isolated_random(seed, "harness"),
        torch.random.fork_rng(map(torch.device, devices)),
        LpesLM(loaded, scales, batch_size=batch_size) as model,
    ):
        # The warnings of the harness are about the settings given here; what concerns questions is in the score.
        logger.setLevel(logging.ERROR)
        try:
            for task, name in zip(tasks, names, strict=True):
                subjects = load_tasks(name, include_path)
                check_tasks(name, subjects, limit, n_shots)
                chosen = _choose_metric(name, subjects, metric)
                try:
                    results = simple_evaluate(
                        model=model,
                        tasks=list(subjects.values()),
                        num_fewshot=n_shots,
                        limit=limit,
                        bootstrap_iters=0,
                        apply_chat_template=chat_template,
                        fewshot_as_multiturn=chat_template,
                        random_seed=seed,
                        numpy_random_seed=seed,
                        torch_random_seed=seed,
                        fewshot_random_seed=seed,
                    )
                except ValueError as error:
                    raise TaskError(
                        f"Expected the harness to run task {name!r}, but it refused: {' '.join(str(error).split())}"
                    ) from error
                scores[task] = _score(task, chosen, results, model, chat_template)
        finally:
            logger.setLevel(level)
    return scores


def _check_numbers(**numbers: int | None) -> None:
    """Refuse numbers that are not positive.

    Raises:
        ConfigError: There is one.
    """
    for name, number in numbers.items():
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise ConfigError(f"Expected {name} to be a positive integer, but got {number!r:.80}.")


def _choose_metric(name: str, subjects: dict[str, Any], metric: str | None) -> str:
    """Return the metric that all subjects have and that is a mean over questions."""
    from lm_eval.api.registry import get_aggregation

    mean = get_aggregation("mean")
    means: list[list[str]] = [
        [key for key, combine in subject.aggregation().items() if combine is mean]
        for subject in subjects.values()
    ]

    common = [key for key in means[0] if all(key in keys for keys in means)]
    if metric is None and common:
        return common[0]
    if metric is None or metric not in common:
        found = f"only {', '.join(common)}" if common else "none"
        raise TaskError(
            f"Expected task {name!r} to have a metric that is a mean over questions{f', {metric!r}' if metric else ''}"
            f", but it has {found}. lpes-lm-eval runs it with the harness's own output."
        )
    return metric


def _score(task: str, metric: str, results: Any, model: Any, chat_template: bool) -> HarnessScore:
    """Condense the log of the harness about every question."""
    samples = {subject: results["samples"][subject] for subject in sorted(results["samples"])}

    first_filter = next(iter(samples.values()))[0]["filter"]
    answers: list[tuple[str, dict[str, Any]]] = []
    values: dict[str, float] = {}
    subjects: dict[str, SubjectScore] = {}
    for subject, logged in samples.items():
        asked = [answer for answer in logged if answer["filter"] == first_filter]
        unscored = [answer["doc_id"] for answer in asked if metric not in answer]
        if unscored:
            raise TaskError(
                f"Expected {metric} of every question of {subject!r}, but the harness gave none for question "
                f"{unscored[0]}. Name another metric."
            )

        own = {
            f"{subject}/{answer['doc_id']}/{answer['doc_hash'][:12]}": float(answer[metric])
            for answer in asked
        }

        answers += [(subject, answer) for answer in asked]
        values |= own
        subjects[subject] = score_subject(list(own.values()), int(results["n-shot"][subject]))

    macro = macro_average(subjects)
    micro = score_subject(list(values.values()), macro.n_shots)

    shots = {score.n_shots for score in subjects.values()}
    versions = sorted({str(results["versions"][subject]) for subject in samples})
    return HarnessScore(
        task=task,
        metric=metric,
        filter=first_filter,
        macro=macro.mean,
        macro_interval=macro.interval,
        macro_stderr=macro.stderr,
        micro=micro.mean,
        micro_interval=micro.interval,
        micro_stderr=micro.stderr,
        n=micro.n,
        n_cut=sum(any(part[0] in model.cut_prompts for part in answer["arguments"]) for _, answer in answers),
        n_shots=shots.pop() if len(shots) == 1 else None,
        prompt=(
            f"task version {', '.join(versions)}, {'with' if chat_template else 'without'} chat template, "
            f"lm-eval {metadata.version('lm-eval')}"
        ),
        prompt_sha256=_hash([subject, answer["doc_id"], answer["arguments"]] for subject, answer in answers),
        data_sha256=_hash(
            [subject, answer["doc_id"], answer["doc_hash"], answer["target_hash"]]
            for subject, answer in answers
        ),
        scales=None if model.scales is None else tuple(model.scales),
        subjects=subjects,
        values=values,
    )


def _hash(lines: Iterable[Any]) -> str:
    """Return the SHA-256 of values as lines of JSON."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{to_json(line)}\n".encode())
    return digest.hexdigest()
