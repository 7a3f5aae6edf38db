"""The reporter of the terminal shows a search and an evaluation, with a bar where there is a terminal."""

import io

import numpy as np
import pytest
from rich.console import Console

from lpes_evo.errors import ConfigError
from lpes_evo.problems import AnswerScores
from lpes_evo.reporting import Reporter, TerminalReporter, make_reporter
from lpes_evo.search import Evaluation

RECORD = {"generation": 2, "best": 0.25, "evaluations": 6, "raced": 1, "cached": 0, "failed": 0}


def reporter_on(*, terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    return TerminalReporter(console), console.file


def test_a_file_gets_a_line_for_each_generation():
    reporter, file = reporter_on(terminal=False)
    reporter.begin(10)
    reporter.evaluated(2, Evaluation((0.25,), (0.25,), 1.0), 0.25, fresh=True)
    reporter.generation(RECORD)
    reporter.measured("lpes", AnswerScores(np.zeros(4), np.array([True, False, True, True])))
    reporter.end()
    lines = file.getvalue().splitlines()
    assert lines[0].startswith(
        "generation   2  best 0.2500  evaluations 6 (raced out 1, cached 0, failed 0)  "
    )
    assert lines[0].endswith(" left")
    assert lines[1] == "held-out accuracy of lpes: 0.750, 0.000 nats per token (n = 4)"


def test_a_file_gets_a_line_for_each_tenth_of_the_answers():
    reporter, file = reporter_on(terminal=False)
    reporter.begin(20)
    for _ in range(10):
        reporter.answered("kv", 1, 1)
    lines = file.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[-1] == "kv: 20/20 answers, 10 failed  0 s left"


@pytest.mark.parametrize("kind", ["evaluations", "answers"])
def test_a_terminal_gets_one_bar(kind):
    reporter, file = reporter_on(terminal=True)
    reporter.begin(2)
    for _ in range(2):
        if kind == "answers":
            reporter.answered("k[red]v", 1, 0)
        else:
            reporter.evaluated(1, Evaluation((0.5,), (0.5,), 1.0), 0.5, fresh=True)
            reporter.generation(RECORD)
    reporter.end()
    reporter.end()
    said = file.getvalue()
    assert f"2/2 {kind}" in said
    assert ("k[red]v" in said) == (kind == "answers")
    assert "raced out" not in said


def test_reporters_of_the_user_hear_of_answers_too(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from lpes_evo import Reporter\n\n\nclass Mine(Reporter):\n    heard = []\n\n"
        "    def answered(self, task, n_answers, n_failed):\n        self.heard.append((task, n_answers, n_failed))\n"
    )
    console = Console(file=io.StringIO())
    several = make_reporter(console, [f"{file}:Mine"])
    several.answered("kv", 3, 1)
    assert several._others[f"{file}:Mine"].heard == [("kv", 3, 1)]
    with pytest.raises(ConfigError, match="to define the Reporter class Other, but it defines Mine"):
        make_reporter(console, [f"{file}:Other"])
    assert isinstance(make_reporter(console), Reporter)
