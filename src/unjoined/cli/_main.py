"""Entry point: user errors become a message and exit code 2, never a traceback."""

from __future__ import annotations

import sys
import warnings
from typing import Any, TextIO

from unjoined._optional import import_extra
from unjoined.errors import UnjoinedError, UnjoinedWarning

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and exit."""
    try:
        import_extra("typer", extra="cli")
        import_extra("rich", extra="cli")
        from unjoined.cli._app import app  # after the extras it needs are known to be there

        with warnings.catch_warnings():
            warnings.simplefilter("always", UnjoinedWarning)
            warnings.showwarning = _show_warning
            app(args=arguments, prog_name="unjoined")
    except (UnjoinedError, OSError) as error:  # a full disk or a closed folder is no bug either
        print(f"unjoined: {error}", file=sys.stderr)
        sys.exit(2)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> Any:
    """Print a warning without the file and line of our own code, which users cannot act on."""
    print(f"unjoined: warning: {message}", file=sys.stderr)
