"""Settings in a file instead of options: how it is read, and a first one from tables."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from unjoined.cli.program import COMMANDS
from unjoined.data import STATEMENT
from unjoined.errors import TableError

# What may stand above all sections, for every command that has such an option.
TABLES = ("outcomes", "treatments")
COLUMNS = ("outcome", "treatment", "population", "features", "ignore", "weight", "treated")
FILES = {*TABLES, "model", "table", "out", "moments", "checkpoint", "plan", "people", "list_out"}
SHARED = (*TABLES, *COLUMNS, "model", "table", "seed", "share", "budget", "cost", "value")


def read_config(path: Path, command: str, known: dict[str, str]) -> dict[str, Any]:
    """Return values for the parameters of a command; ``known`` has the parameter of each option."""
    try:
        text = path.read_text("utf-8-sig")
        settings = tomllib.loads(text)
    except OSError as error:
        raise TableError(
            f"--config {str(path)!r} cannot be read: {error.strerror}. unjoined init FOLDER --out "
            "FILE.toml writes such a file."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TableError(
            f"--config {str(path)!r} is not TOML: {error}. unjoined init FOLDER --out FILE.toml "
            "writes such a file from the tables in a folder."
        ) from error
    values: dict[str, Any] = {}
    for key, value in settings.items():
        name = key.replace("-", "_")
        if isinstance(value, dict) and name not in TABLES:
            if key not in COMMANDS:
                raise TableError(_unknown(path, f"[{key}]", COMMANDS, "for commands"))
            continue
        if name not in SHARED:
            raise TableError(_unknown(path, key, SHARED, "above all sections"))
        # The table of export is in a database, and evaluate is for a model of other rows.
        if name in known and (name, command) not in (("table", "export"), ("model", "evaluate")):
            values[known[name]] = _value(path, name, value)
    for key, value in settings.get(command, {}).items():
        name = key.replace("-", "_")
        if name not in known:
            raise TableError(_unknown(path, key, known, f"in the section [{command}]"))
        is_table = name == "table" and command == "export"  # of a database
        values[known[name]] = value if is_table else _value(path, name, value)
    return values


def _unknown(path: Path, key: str, known: Any, where: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key, known, 1)
    hint = f" Did you mean {near[0]!r}?" if near else f" It may be one of {', '.join(known)}."
    return f"{str(path)!r}: there is no setting {key!r} {where}.{hint}"


def _value(path: Path, name: str, value: Any) -> Any:
    """Return a setting as the command line would have it; files are beside the settings."""

    def beside(file: Any) -> str:
        if not isinstance(file, str):
            raise TableError(f"{str(path)!r}: {name!r} must be a path in quotes, got {file!r}.")
        if STATEMENT.match(file):
            return file
        return str(path.parent / file)

    if name in TABLES:
        if isinstance(value, dict):
            return [f"{population}={beside(file)}" for population, file in value.items()]
        return [beside(file) for file in (value if isinstance(value, list) else [value])]
    if name in FILES:
        return beside(value)
    if name == "treated":
        return [str(word) for word in (value if isinstance(value, list) else [value])]
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value
