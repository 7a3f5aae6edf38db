"""The result of an evaluation as a table: for a terminal, as Markdown and as CSV."""

import csv
import io
from collections.abc import Iterator

from rich.console import Console

from lpes_evo.evals._folder import EvalFolder
from lpes_evo.evals._results import Difference, EvalResults, Row, TaskResult
from lpes_evo.reporting import PlainTable, say
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
        table = PlainTable(f"{task.name}: {task.metric}, {results.model}", _COLUMNS, names=("arm",))
        for group in _groups(task):
            for cells in group:
                table.add_cells(*cells)
            table.add_section()
        console.print(table)
        for line in [_summary(task), *task.notes]:
            say(f"  {line}", console)
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
        lines += [f"## {task.name}: {task.metric}", "", _markdown_row(_COLUMNS)]
        lines.append(
            _markdown_row(["---" if column in ("position", "arm") else "---:" for column in _COLUMNS])
        )
        lines += [_markdown_row(cells) for group in _groups(task) for cells in group]
        lines += ["", *(f"- {line}" for line in [_summary(task), *task.notes]), ""]
    lines += [f"- {line}" for line in _closing_lines(results)]
    return "\n".join(lines) + "\n"


def csv_table(results: EvalResults) -> str:
    """Return one line for each task, arm and position, with all digits.

    Args:
        results: The results.

    Returns:
        The text; a line without a position is over all examples.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for task in results.tasks:
        for name, arm in task.arms.items():
            for row in [*arm.positions, arm.overall]:
                found = row.difference
                compared = (
                    ("", "", "", "", "", "")
                    if found is None
                    else (found.value, found.low, found.high, found.p_value, found.test, found.n)
                )
                writer.writerow(
                    [
                        task.name, task.metric, task.mode, "" if row.position is None else row.position, name, row.n,
                        row.score, row.low, row.high, row.interval, *compared, arm.n_failed, task.n_skipped,
                        task.n_cut, task.n_gold_lost, task.data,
                    ]
                )  # fmt: skip
    return text.getvalue()


def difference_text(found: Difference) -> str:
    """Return a difference with its interval for people."""
    return f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def p_text(p_value: float) -> str:
    """Return a p-value for people; the resampled ones know no more than three digits."""
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


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
        compared = [difference_text(row.difference), p_text(row.difference.p_value)]
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


def _markdown_row(cells: "tuple[str, ...] | list[str]") -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
