"""The command line: each command is a few lines that call the library."""

from unjoined.cli.entry import main

__all__ = ["main"]
