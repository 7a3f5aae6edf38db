from ._consoles import (
    console as console,
    error_console as error_console,
    say as say,
)
from ._numbers import (
    difference_text as difference_text,
    duration as duration,
    interval_text as interval_text,
    p_equation as p_equation,
    p_text as p_text,
)
from ._picture_style import (
    PALETTE as PALETTE,
    new_figure as new_figure,
    new_panels as new_panels,
    save_figure as save_figure,
    save_pictures as save_pictures,
)
from ._reporter import Reporter as Reporter, SeveralReporters as SeveralReporters
from ._table import Cell as Cell, Table as Table
from ._terminal import TerminalReporter as TerminalReporter, make_reporter as make_reporter
