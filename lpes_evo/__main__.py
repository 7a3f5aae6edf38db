"""The command line, as ``python -m lpes_evo``."""

from lpes_evo.cli import main

if __name__ == "__main__":
    main()
