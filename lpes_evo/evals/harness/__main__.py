"""The command line of lm-evaluation-harness, with the model type ``lpes`` registered."""

import sys

from lpes_evo.errors import ConfigError, LpesError
from lpes_evo.evals.harness._names import require_harness


def main() -> None:
    """Run the harness's command line; its arguments and its output are those of ``lm_eval``.

    An error of this package, and data that the harness cannot get, end the program with one line.
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
    except LpesError as error:
        print(f"Error: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
