"""Tables of an evaluation: for a terminal, as Markdown and as CSV."""

from collections.abc import Iterator

from rich.console import Console

from lpes_evo.evals._folder import EvalFolder
from lpes_evo.evals._results import EvalResults, Row, TaskResult
from lpes_evo.reporting import Cell, Table, difference_text, p_text, say
from lpes_evo.storage import write_atomic

_COLUMNS = ("position", "arm", "n", "score", "95 % interval", "minus untouched", "p")
_CSV_COLUMNS = (
    "task", "metric", "mode", "position", "arm", "n", "score", "low", "high", "interval", "difference",
    "difference_low", "difference_high", "p_value", "test", "n_pairs", "n_failed", "n_skipped", "n_cut", "n_gold_lost",
    "data",
)  # fmt: skip


def print_results(results: EvalResults, console: Console) -> None:
    """Print the tables of all tasks with what a reader must know about them.

    Args:
        results: The results.
        console: Where to print.
    """
    for task in results.tasks:
        _task_table(task, f"{task.name}: {task.metric}, {results.model}").print(console)

    for line in _closing_lines(results):
        say(line, console)


def save_tables(results: EvalResults, folder: EvalFolder) -> None:
    """Write ``results.md`` and ``results.csv``.

    Raises:
        StorageError: A file cannot be written.
    """
    write_atomic(folder.markdown, markdown_table(results))
    write_atomic(folder.csv, csv_table(results))


def markdown_table(results: EvalResults) -> str:
    """Return the tables of all tasks as Markdown.

    Args:
        results: The results.

    Returns:
        The text.
    """
    facts = results.facts
    lines = [f"# {results.model}", "", f"`{results.command}`", ""]
    lines += [
        f"{facts['n_layers']} layers, {facts['dtype']} on {facts['device']}, {facts['attention']} attention",
        "",
    ]
    for task in results.tasks:
        lines += [_task_table(task, f"{task.name}: {task.metric}").to_markdown("##"), ""]
    lines += [f"- {line}" for line in _closing_lines(results)]
    return "\n".join(lines) + "\n"


def csv_table(results: EvalResults) -> str:
    """Return one line for each task, arm and position, with all digits.

    Args:
        results: The results.

    Returns:
        The text; a line without a position is over all examples.
    """
    table = Table("", _CSV_COLUMNS)

    for task in results.tasks:
        for name, arm in task.arms.items():
            for row in [*arm.positions, arm.overall]:
                found = row.difference
                compared: tuple[Cell, ...] = (
                    (None,) * 6
                    if found is None
                    else (found.value, found.low, found.high, found.p_value, found.test, found.n)
                )
                table.add_row(
                    task.name, task.metric, task.mode, row.position, name, row.n,
                    row.score, row.low, row.high, row.interval, *compared, arm.n_failed, task.n_skipped,
                    task.n_cut, task.n_gold_lost, task.data,
                )  # fmt: skip
    return table.to_csv()


def _task_table(task: TaskResult, caption: str) -> Table:
    """Return the scores of a task by position and arm, with what a reader must know about them."""
    table = Table(caption, _COLUMNS, names=("arm",), notes=(_summary(task), *task.notes))
    for group in _groups(task):
        table.add_section()
        for cells in group:
            table.add_row(*cells)
    return table


def _groups(task: TaskResult) -> Iterator[list[list[str]]]:
    """Yield the lines of each position, then those over all examples."""
    positions = sorted(
        {row.position for arm in task.arms.values() for row in arm.positions if row.position is not None}
    )
    if len(positions) > 1:
        for position in positions:
            rows = [
                (name, row)
                for name, arm in task.arms.items()
                for row in arm.positions
                if row.position == position
            ]
            yield [_cells(f"{position:.3f}", name, row) for name, row in rows]
    yield [_cells("all", name, arm.overall) for name, arm in task.arms.items()]


def _cells(position: str, arm: str, row: Row) -> list[str]:
    compared = ["", ""]
    if row.difference is not None:
        found = row.difference
        compared = [difference_text(found.value, found.low, found.high), p_text(found.p_value)]
    return [position, arm, str(row.n), f"{row.score:.3f}", f"[{row.low:.3f}, {row.high:.3f}]", *compared]


def _summary(task: TaskResult) -> str:
    better = "" if task.larger_is_better else ", smaller is better"
    return (
        f"{task.n_examples} examples from {task.n_sources} sources, {task.mode}{better}; skipped {task.n_skipped}, cut "
        f"{task.n_cut} ({task.n_gold_lost} lost the needed fact); data {task.data[:12]}"
    )


def _closing_lines(results: EvalResults) -> list[str]:
    """Return what stands below all tables."""
    missing = [f"{task} has no result: {why}" for task, why in results.missing.items()]
    return [*missing, *results.notes, *_legend(results)]


def _legend(results: EvalResults) -> list[str]:
    """Say how intervals and p-values were made."""
    rows = [
        row for task in results.tasks for arm in task.arms.values() for row in [*arm.positions, arm.overall]
    ]
    lines = [f"Intervals of scores, 95 %: {', '.join(sorted({row.interval for row in rows}))}"]
    tests = sorted({row.difference.test for row in rows if row.difference is not None})
    if tests:
        lines.append(
            "Differences: on the same examples, paired bootstrap, 95 %; "
            f"p-values: {', '.join(tests)}; not corrected for their number"
        )
    return lines
