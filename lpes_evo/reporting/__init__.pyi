from ._consoles import (
    PlainTable as PlainTable,
    console as console,
    error_console as error_console,
    say as say,
)
from ._picture_style import (
    PALETTE as PALETTE,
    new_figure as new_figure,
    new_panels as new_panels,
    save_figure as save_figure,
    save_pictures as save_pictures,
)
from ._progress import (
    PlainReporter as PlainReporter,
    Reporter as Reporter,
    SeveralReporters as SeveralReporters,
    duration as duration,
    make_reporter as make_reporter,
)
