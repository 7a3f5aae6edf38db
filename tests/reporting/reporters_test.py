"""Reporters of a user hear of a search, and cannot end it."""

import re
from pathlib import Path

import pytest

from lpes_evo import Reporter
from lpes_evo.errors import ConfigError
from lpes_evo.reporting import SeveralReporters
from lpes_evo.user_code import make_from_file

PAGE = (Path(__file__).parents[2] / "docs" / "reporters.md").read_text(encoding="utf-8")


class Listener(Reporter):
    def __init__(self):
        self.heard = []

    def stage(self, text):
        self.heard.append(text)

    def generation(self, record):
        self.heard.append(record)


class Broken(Reporter):
    def __init__(self, error):
        self.error, self.n_calls = error, 0

    def generation(self, record):
        self.n_calls += 1
        record.clear()
        raise self.error


@pytest.mark.parametrize("error", [RuntimeError("no server"), SystemExit(3), GeneratorExit()])
def test_a_reporter_that_fails_is_named_once_and_told_no_more(error):
    ours, listener, broken = Listener(), Listener(), Broken(error)
    several = SeveralReporters(ours, {"mine.py:Broken": broken, "mine.py:Listener": listener})
    for number in range(3):
        several.generation({"generation": number, "best": 1.0})
    assert broken.n_calls == 1
    records = [{"generation": number, "best": 1.0} for number in range(3)]
    assert listener.heard == records
    lines = [line for line in ours.heard if isinstance(line, str)]
    assert len(lines) == 1
    assert lines[0].startswith(
        f"The reporter mine.py:Broken is switched off, since it raised {type(error).__name__}"
    )


def test_an_interrupt_is_no_fault_of_a_reporter():
    several = SeveralReporters(Reporter(), {"mine": Broken(KeyboardInterrupt())})
    with pytest.raises(KeyboardInterrupt):
        several.generation({})


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("class Other:\n    pass\n", "Other", "to define the Reporter class Other, but it defines none"),
        ("raise SystemExit(2)\n", "Mine", "to make an object, but it raised SystemExit: 2"),
        (
            "from lpes_evo import Reporter\n\n\nclass Mine(Reporter):\n    def __init__(self, needed):\n        pass\n",
            "Mine",
            "to make an object, but it raised TypeError",
        ),
    ],
)
def test_a_file_without_a_sound_reporter_is_refused_in_one_line(tmp_path, text, name, message):
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        make_from_file(f"{file}:{name}", Reporter, ConfigError)
    with pytest.raises(ConfigError, match="there is no file"):
        make_from_file(f"{tmp_path}/none.py:{name}", Reporter, ConfigError)


@pytest.mark.parametrize("name", ["TensorBoard", "WeightsAndBiases"])
def test_the_reporters_of_the_page_log_a_generation(tmp_path, monkeypatch, name):
    logged = []

    class Writer:
        def __init__(self, **_options):
            pass

        def add_scalar(self, key, value, step):
            logged.append((key, value, step))

        def close(self):
            logged.append("closed")

        def log(self, values, step):
            logged.extend((key, value, step) for key, value in values.items())

        finish = close

    import sys
    import types

    board, wandb = types.ModuleType("tensorboard"), types.ModuleType("wandb")
    board.SummaryWriter, wandb.init = Writer, Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    file = tmp_path / "my_reporters.py"
    file.write_text(re.search(r"```python\n(.*?)```", PAGE, flags=re.S)[1])
    reporter = make_from_file(f"{file}:{name}", Reporter, ConfigError)
    reporter.generation({"generation": 2, "best": -0.5, "evaluations": 8, "mean": None})
    reporter.end()
    assert ("best", -0.5, 2) in logged
    assert ("evaluations", 8, 2) in logged
    assert not any(entry[0] == "mean" for entry in logged)
    assert logged[-1] == "closed"
