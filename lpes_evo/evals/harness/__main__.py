"""The command line of lm-evaluation-harness, with the model type ``lpes`` registered."""

import os
import sys

from lpes_evo.errors import ConfigError, LpesError
from lpes_evo.evals.harness._names import require_harness


def main() -> None:
    """Run the harness's command line; its arguments and its output are those of ``lm_eval``.

    An error of this package, data that the harness cannot get, and whatever else the harness raises end the program
    with one line.
    """
    try:
        require_harness()
        from datasets.exceptions import DatasetsError
        from lm_eval.__main__ import cli_evaluate

        from lpes_evo.evals.harness._load import no_data
        from lpes_evo.evals.harness._model import register

        register()
        try:
            cli_evaluate()
        except (ConnectionError, DatasetsError) as error:
            raise no_data(error) from error
        except FileNotFoundError as error:
            raise ConfigError(
                f"Expected the files that the command and its task files name, but one is missing: {error}"
            ) from error
        except LpesError:
            raise
        except Exception as error:
            # Options, task files and templates are the user's, and the harness raises whatever they lead to.
            if os.environ.get("LPES_EVO_DEBUG"):
                raise
            raise ConfigError(
                f"Expected lm-evaluation-harness to run, but it raised {type(error).__name__}: {error} Correct the "
                "options or install what is missing; LPES_EVO_DEBUG=1 shows where."
            ) from error
    except LpesError as error:
        print(f"Error: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
