"""Run the command line with ``python -m unjoined``."""

from unjoined.cli import main

main()
