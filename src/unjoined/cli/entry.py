"""Entry point: user errors become a message and exit code 2, never a traceback."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any, TextIO

from unjoined._optional import import_extra
from unjoined._validation import printable
from unjoined.errors import UnjoinedError, UnjoinedWarning

UNREAD, MISTAKE, INTERRUPTED = 1, 2, 130  # the last is what shells report for Ctrl-C


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and exit."""
    if hasattr(sys.stdout, "reconfigure"):  # a name that the terminal's encoding lacks is no bug
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a broken pipe can still be caught
    except BrokenPipeError:  # whoever reads, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = UNREAD
    except KeyboardInterrupt:
        _tell("interrupted")
        code = INTERRUPTED
    except MemoryError as error:
        found = f" ({error})" if str(error) else ""
        _tell(
            f"there is not enough memory{found}. Read large tables in pieces with unjoined fit "
            "--chunks, or give fewer rows."
        )
        code = MISTAKE
    except (UnjoinedError, OSError) as error:  # a full disk or a closed folder is no bug either
        _tell(str(error))
        code = MISTAKE
    sys.exit(code)


def _run(arguments: list[str] | None) -> int:
    """Run one command and return its exit code; what was typed wrong is told here."""
    typer = import_extra("typer", extra="cli")
    import_extra("rich", extra="cli")
    from unjoined.cli.app import app

    # Newer versions of typer carry a click of their own, whose errors are not those of click.
    usage_error, click_error = typer.BadParameter.__mro__[1:3]
    with warnings.catch_warnings():
        warnings.simplefilter("always", UnjoinedWarning)
        warnings.showwarning = _show_warning
        try:
            code = app(args=arguments, prog_name="unjoined", standalone_mode=False)
        except typer.Abort:
            raise KeyboardInterrupt from None
        except click_error as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                error.show()
                return MISTAKE
            path = error.ctx.command_path if isinstance(error, usage_error) and error.ctx else ""
            found = error.format_message()
            end = "" if found.endswith((".", "?")) else "."
            _tell(f"{found}{end} See {path or 'unjoined'} --help.")
            return MISTAKE
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    return code or 0


def _tell(message: str) -> None:
    """Print one line on stderr, with what a terminal would obey escaped."""
    print(f"unjoined: {printable(message)}", file=sys.stderr)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> Any:
    """Print a warning without the file and line of our own code, which users cannot act on."""
    _tell(f"warning: {message}")
