"""LpesError and CurveError: the root of all errors of this project, and the errors of curves."""


class LpesError(Exception):
    """Base of all errors of lpes-evo; the message names what was expected, what came and the remedy.

    Attributes:
        exit_code: Exit status of the command line when this error ends it: 2 for bad input, 1 for a failed run.
    """

    exit_code = 2


class CurveError(LpesError, ValueError):
    """A curve space or a genome is not valid."""
