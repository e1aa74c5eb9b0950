"""The command line: each command is a few lines that call the library."""

from unjoined.cli._main import main

__all__ = ["main"]
