"""Entry point: user errors become a message and exit code 2, never a traceback."""

from __future__ import annotations

import os
import re
import sys
import warnings
from contextlib import ExitStack
from typing import Any, TextIO

from unjoined._support import import_extra
from unjoined.errors import UnjoinedError, UnjoinedWarning, more_about

UNREAD, MISTAKE, INTERRUPTED = 1, 2, 130  # the last is what shells report for Ctrl-C


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and exit."""
    if hasattr(
        sys.stdout, "reconfigure"
    ):  # the terminal's encoding may lack a character
        sys.stdout.reconfigure(errors="backslashreplace")
    os.environ.setdefault(
        "ARROW_DEFAULT_MEMORY_POOL", "system"
    )  # others reserve a gigabyte
    try:
        code = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a broken pipe can still be caught
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = UNREAD
    except KeyboardInterrupt:
        # Nothing may be imported here: a module of which the import was interrupted is broken.
        print("unjoined: interrupted", file=sys.stderr)
        code = INTERRUPTED
    except MemoryError as error:
        detail = f" ({error})" if str(error) else ""
        _tell(
            f"there is not enough memory{detail}. Read large tables in pieces with unjoined fit "
            "--chunks, give fewer rows, or allow more."
        )
        code = MISTAKE
    except (UnjoinedError, OSError) as error:  # such as a full disk or a closed folder
        _tell(str(error))
        code = MISTAKE
    except ImportError as error:  # into which compiled modules turn Ctrl-C
        if not _is_interrupt(error):
            raise
        print("unjoined: interrupted", file=sys.stderr)
        code = INTERRUPTED
    sys.exit(code)


def _is_interrupt(error: BaseException | None) -> bool:
    """Tell whether Ctrl-C is behind an error."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _run(arguments: list[str] | None) -> int:
    """Run one command and return its exit code; typing errors are reported here."""
    typer = import_extra("typer", extra="cli")
    import_extra("rich", extra="cli")
    from unjoined.cli.program import COMMANDS, make_app

    words = sys.argv[1:] if arguments is None else arguments
    # Newer versions of typer carry a click of their own, whose errors are not those of click.
    usage_error, click_error = typer.BadParameter.__mro__[1:3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other packages speak to programmers
        warnings.simplefilter("always", UnjoinedWarning)
        warnings.showwarning = _show_warning
        try:
            app = make_app(words)
            with ExitStack() as around:
                if words and words[0] in COMMANDS:
                    # The command has imported them, too.
                    from unjoined._threads import one_blas_thread
                    from unjoined.cli.show import progress

                    around.enter_context(progress())
                    # Threads of BLAS that wait for the next product keep their cores busy.
                    around.enter_context(one_blas_thread())
                code = app(args=words, prog_name="unjoined", standalone_mode=False)
        except typer.Abort:
            raise KeyboardInterrupt from None
        except click_error as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                error.show()
                return MISTAKE
            path = (
                error.ctx.command_path
                if isinstance(error, usage_error) and error.ctx
                else ""
            )
            mistake = _mistake(str(error.format_message()), words)
            end = "" if mistake.endswith((".", "?")) else "."
            _tell(f"{mistake}{end} See {path or 'unjoined'} --help.")
            return MISTAKE
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    return code or 0


def _mistake(said: str, words: list[str]) -> str:
    """Return what is wrong with a command line, with the value where a number was expected."""
    if extra := re.search(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", said):
        return (
            f"{extra[1]!r} belongs to no option. Repeat the option for each file, such as "
            "--outcomes north=a.csv --outcomes south=b.csv; name columns in one word, with commas"
        )
    # Versions of typer say the same in other words.
    if re.match(r"No such option:? '?--out\b(?!-)", said) and words[:1] == ["fit"]:
        return "No such option: --out. A fit writes its model to --model"
    option = re.search(
        r"'(--[a-z-]+)': (?:Input should be|'.*' is not) a valid (int|number|float)",
        said,
    )
    if option is None:
        return said
    wanted = "a whole number" if option[2] == "int" else "a number such as 1000 or 0.5"
    given = words[words.index(option[1]) + 1 :] if option[1] in words else []
    found = f", got {given[0]!r}" if given else ""
    if option[1] == "--top" and given and given[0].endswith("%"):
        found += f". For a share of the people write --share {given[0]}"
    return f"Invalid value for {option[1]!r}: expected {wanted}{found}"


def _tell(message: str) -> None:
    """Print one line on stderr, with what a terminal would obey escaped."""
    from unjoined._validation import printable  # brings numpy, which help does without

    print(f"unjoined: {printable(message)}{more_about(message)}", file=sys.stderr)


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
