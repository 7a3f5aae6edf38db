"""Options that are made from settings, and the runner that tries commands in the process of the tests."""

import logging
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Literal

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from commands import run_here
from lpes_evo.analysis import AnalysisRequest
from lpes_evo.bench import BenchSettings
from lpes_evo.cli import SettingOptions, add_command, app
from lpes_evo.comparison import ComparisonConfig
from lpes_evo.config import RunConfig, Settings
from lpes_evo.errors import ConfigError
from lpes_evo.evals import EvalConfig
from lpes_evo.methods.moice import TrainingSettings

COMMANDS = ("search", "show", "estimate", "report", "eval", "score", "train-moice", "bench", "compare", "ablate",
            "convergence", "drift", "attention", "sensitivity")  # fmt: skip


class Oven(Settings):
    """An oven.

    Attributes:
        heat: Degrees, see `nowhere.at_all`; ``None`` for no heat.
        name: What it is called.
    """

    heat: float | None = None
    name: str = "old"


class Kitchen(Settings):
    """A kitchen.

    Attributes:
        oven: The oven.
        cooks: Their names,
            in the order of their arrival.
        hours: Hours of the day.
        n_plates: Plates.
        style: What it cooks: ``plain`` or ``fine``.
        open: Whether guests come.
        loud: Whether it is loud.
    """

    oven: Oven = Oven()
    cooks: tuple[str, ...] = ()
    hours: tuple[float, ...] = (12.0, 18.5)
    n_plates: int = Field(default=8, ge=2)
    style: Literal["plain", "fine"] = "plain"
    open: bool = True
    loud: bool = False


@pytest.fixture
def kitchen():
    """A command line with the settings of a kitchen, and what it was called with."""
    options = SettingOptions(lambda: Kitchen, "Kitchen", names={"n_plates": "plates"})
    calls = []

    def cook(spoons: int = 3, **given):
        """Cook."""
        calls.append((spoons, options.chosen(given)))

    command_line = typer.Typer()
    add_command(command_line, cook, options)
    return command_line, calls


def called(kitchen, *arguments):
    command_line, calls = kitchen
    result = CliRunner().invoke(command_line, list(arguments), env={"COLUMNS": "200"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return calls.pop() if calls else result.output


def walked(model):
    yield model
    for field in model.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            yield from walked(field.annotation)


@pytest.mark.parametrize(
    "model", [RunConfig, EvalConfig, ComparisonConfig, AnalysisRequest, BenchSettings, TrainingSettings]
)
def test_every_setting_has_a_description(model):
    for kind in walked(model):
        assert set(kind.descriptions()) == set(kind.model_fields), kind


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_explained_in_plain_words(command):
    found = typer.main.get_command(app).commands[command]
    context = typer.Context(found)
    for parameter in found.get_params(context):
        assert parameter.help, parameter.name
        assert "`" not in parameter.help
        assert "None" not in parameter.help


def test_help_has_groups_descriptions_defaults_and_bounds(kitchen):
    shown = " ".join(called(kitchen, "--help").split())
    for words in (
        "─ Kitchen ─",
        "Their names, in the order of their arrival.",
        "Degrees; when left out, no heat.",
        "[default: 12,18.5]",
        "Plates. At least 2. [default: 8]",
        "plain|fine",
        "--no-open",
    ):
        assert words in shown
    assert "--no-loud" not in shown


def test_a_command_is_called_with_what_was_given_alone(kitchen):
    assert called(kitchen) == (3, {})
    assert called(kitchen, "--spoons", "5", "--plates", "8") == (5, {"n_plates": 8})
    given = ["--oven", "new", "--heat", "200", "--cooks", "Ann, Bob", "--hours", "7,9", "--no-open", "--loud"]
    assert called(kitchen, *given) == (
        3,
        {
            "oven.name": "new",
            "oven.heat": 200.0,
            "cooks": ("Ann", "Bob"),
            "hours": (7.0, 9.0),
            "open": False,
            "loud": True,
        },
    )


def test_a_list_of_numbers_that_holds_a_word_is_refused(kitchen):
    with pytest.raises(ConfigError, match="Expected --hours to be numbers .* but got '7,noon'"):
        called(kitchen, "--hours", "7,noon")


def test_a_command_in_this_process_leaves_it_as_it_was(tmp_path):
    def state():
        actions = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
        root = logging.getLogger()
        filters = list(warnings.filters)
        return (
            Path.cwd(),
            dict(os.environ),
            actions,
            list(root.handlers),
            root.level,
            filters,
            sys.stdout,
            sys.argv,
        )

    before = state()
    result = run_here("show", "missing", cwd=tmp_path, check=2)
    assert state() == before
    assert result.stdout == ""
    assert result.stderr.startswith("Error: Expected a run folder")
