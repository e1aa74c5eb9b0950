"""The program: its commands, of which the one that is asked for is loaded; options from a file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Self

import typer

from unjoined.errors import TableError

# In the order of ``unjoined --help``: the module of this package that holds a command, and what it
# does, which is the first line of its docstring.
COMMANDS = {
    "init": (
        "init",
        "Write a file of settings for your tables, and say what was guessed.",
    ),
    "demo": (
        "demo",
        "Run the whole job on a simulated campaign whose answer is known.",
    ),
    "check": (
        "check",
        "Say whether the tables identify uplift, for whom, and what to do if not.",
    ),
    "fit": (
        "fit",
        "Estimate uplift from tables or sums, and write the model to a file.",
    ),
    "score": (
        "score",
        "Write whom to treat: uplift, rank and decision for each person.",
    ),
    "evaluate": (
        "evaluate",
        "Say what a model is worth on held-out tables, with intervals.",
    ),
    "report": (
        "report",
        "Write a report: whom to treat, what it brings, how far to trust it.",
    ),
    "explain": (
        "explain",
        "Say what raises and lowers the uplift of one person, against the average.",
    ),
    "compare": (
        "compare",
        "Say what changed from one model to the next: gains on the same tables, and decisions.",
    ),
    "rule": (
        "rule",
        "Find a rule that people can read: a few conditions say whom to treat.",
    ),
    "plan-study": (
        "check",
        "Say how many rows, and how large a policy gap, a wanted precision needs.",
    ),
    "export": ("report", "Write a model as SQL, which scores without this program."),
    "plan": (
        "sums",
        "Write the plan that all parties then use: features, scales, functions.",
    ),
    "aggregate": (
        "sums",
        "Turn one party's tables into a file of sums, or into SQL that makes them.",
    ),
    "merge": ("sums", "Add up files of sums that were made with one plan."),
}
CONTEXT, POSITIONAL = "ctx", Parameter.POSITIONAL_OR_KEYWORD
HOW_MANY = ("share", "top", "threshold", "budget")  # each says how many to treat
LOADED: dict[
    str, tuple[Callable[..., None], str | None]
] = {}  # functions and their examples
Function = Callable[..., None]


class SharedOptions:
    """Options that several commands have: what the class is made with, declared there once."""

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Take what a command was given, by the names of its parameters."""
        names = signature(cls).parameters
        return cls(**{name: value for name, value in given.items() if name in names})


def command(*examples: str) -> Callable[[Function], Function]:
    """Make a function a command of the program, with examples below its help.

    A parameter that is annotated with a kind of `SharedOptions` stands for all of these options.
    """
    lines = "\n".join(
        f"  {line}" for example in examples for line in example.splitlines()
    )
    epilog = f"\b\nExample{'s' * (len(examples) > 1)}:\n{lines}" if examples else None

    def register(function: Function) -> Function:
        LOADED[function.__name__.replace("_", "-")] = _spread(function), epilog
        return function

    return register


def _spread(function: Function) -> Function:
    """Return a command that takes shared options one by one, as the program offers them."""
    options: list[Parameter] = []
    shared: dict[str, type[SharedOptions]] = {}
    for name, parameter in signature(function, eval_str=True).parameters.items():
        kind = parameter.annotation
        if isinstance(kind, type) and issubclass(kind, SharedOptions):
            shared[name] = kind
            options += signature(kind, eval_str=True).parameters.values()
        else:
            options.append(parameter)

    @wraps(function)
    def run(**given: Any) -> None:
        given = _typed_first(given[CONTEXT], given)
        groups = {name: kind.of(given) for name, kind in shared.items()}
        own = signature(function).parameters
        function(**groups, **{k: v for k, v in given.items() if k in own})

    if all(each.name != CONTEXT for each in options):
        options.append(Parameter(CONTEXT, POSITIONAL, annotation=typer.Context))
    by_name = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in options]
    run.__signature__ = Signature(by_name)  # type: ignore[attr-defined]
    return run


def _typed_first(ctx: typer.Context, given: dict[str, Any]) -> dict[str, Any]:
    """Leave out what settings say of how many to treat if the command line says it otherwise."""
    sources = ((name, ctx.get_parameter_source(name)) for name in HOW_MANY)
    source = {name: found.name for name, found in sources if found is not None}
    if "COMMANDLINE" not in source.values():
        return given
    return {
        name: None if source.get(name) == "DEFAULT_MAP" else value
        for name, value in given.items()
    }


def given_words(ctx: typer.Context, names: Iterable[str] | None = None) -> list[str]:
    """Return the options of a command line, or some of them, as they were typed."""
    words: list[str] = []
    for parameter in ctx.command.params:
        name = str(parameter.name)
        source = ctx.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE":
            continue
        if names is not None and name not in names:
            continue
        value = ctx.params[name]
        for each in value if isinstance(value, list | tuple) else [value]:
            said = f"{each:g}" if isinstance(each, float) else str(each)
            words += [parameter.opts[0], *([] if each is True else [said])]
    return words


def make_app(words: list[str]) -> typer.Typer:
    """Return the program, with the commands imported that the words may ask for.

    Importing all of them takes a second, which help and completion do without.
    """
    app = typer.Typer(
        help="Whom to treat, when treatment and outcome labels can never be joined.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    completed = [
        os.environ.get(name, "") for name in ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
    ]
    asked = {*words[:1], *" ".join(completed).split()}
    for name, (module, does) in COMMANDS.items():
        if name in asked:
            import_module(f"unjoined.cli.{module}")
            function, epilog = LOADED[name]
            app.command(name, epilog=epilog)(function)
        else:
            app.command(name, help=does)(_not_asked)
    if words and words[0] in COMMANDS:
        _refuse_empty_words(words[1:])
    return app


def _not_asked() -> None:
    """Stand for a command that is not imported."""


def _refuse_empty_words(words: list[str]) -> None:
    """Refuse a word without letters, such as a variable of the shell that is not set.

    A path without letters would be the present folder. Lists of columns may be empty.
    """
    for before, word in zip(["", *words], words, strict=False):
        option, is_joined, value = word.partition("=")
        if not option.startswith("--") or not is_joined:
            option, value = before, word
        if not value.strip() and option not in LISTS:
            what = option if option.startswith("--") else "a word of the command"
            raise TableError(f"{what} is empty. Say what it is, or leave it out.")


def _version(value: bool) -> None:
    if value:
        from unjoined import __version__

        print(__version__)
        raise typer.Exit


def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Whom to treat, when treatment and outcome labels can never be joined."""


# The tables that --config names, for whichever command: none is ever overwritten.
SETTINGS_TABLES: ContextVar[list[str]] = ContextVar("SETTINGS_TABLES", default=[])  # noqa: B039


def _read_config(ctx: typer.Context, value: Path | None) -> Path | None:
    """Let a file of settings say what options are by default."""
    SETTINGS_TABLES.set([])
    if value is not None and not ctx.resilient_parsing:
        known = {
            option.lstrip("-").replace("-", "_"): parameter
            for parameter in ctx.command.params
            for option in parameter.opts
            if parameter.name != "config"
        }
        ctx.default_map = read_config(value, str(ctx.info_name), known)
        SETTINGS_TABLES.set(_tables_named(value))
    return value


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        callback=_read_config,
        is_eager=True,
        metavar="FILE",
        help="Options from a TOML file, such as `unjoined init` writes.",
    ),
]

# What may stand above all sections, for every command that has such an option.
TABLES = ("outcomes", "treatments", "both")
POLICIES = "policies"
LABELS = (
    "outcome",
    "treatment",
    "population",
    "weight",
    "cluster",
    "count",
    "treated",
    "dose",
    "control",
    "randomised",
)
COLUMNS = (*LABELS, "features", "ignore", "categories")
LISTS = ("--features", "--ignore", "--categories", "--keep", "--by")
PEOPLE = ("table", "target")
IN_DATABASE = ("export", "rule")  # commands whose table is in a database
FILES = {*PEOPLE, "model", "out", "list", "moments", "checkpoint", "plan", "sql"}
SHARED = (
    *TABLES,
    POLICIES,
    *COLUMNS,
    "model",
    "table",
    "keep",
    "seed",
    "share",
    "budget",
    "cost",
    "value",
    "unit",
    "currency",
)


def read_config(path: Path, command: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return values for the parameters of a command; ``known`` has the parameter of each option."""
    chosen: dict[str, Any] = {}
    settings = _read_toml(path)
    for key, value in settings.items():
        name = key.replace("-", "_")
        if isinstance(value, dict) and name not in (*TABLES, POLICIES, "cost"):
            if key not in COMMANDS:
                raise TableError(_unknown(path, f"[{key}]", COMMANDS, "for commands"))
        elif name not in SHARED:
            raise TableError(_unknown(path, key, SHARED, "above all sections"))
        # Evaluate is for a model of other rows.
        elif name in known and not (
            (name in ("table", "keep") and command in IN_DATABASE)
            or (name == "model" and command == "evaluate")
        ):
            chosen[name] = value
    for key, value in settings.get(command, {}).items():
        name = key.replace("-", "_")
        if name not in known:
            raise TableError(_unknown(path, key, known, f"in the section [{command}]"))
        chosen[name] = value
    files = FILES - {"table"} if command in IN_DATABASE else FILES
    return {
        known[name].name: _value(path, name, value, known[name], is_file=name in files)
        for name, value in chosen.items()
    }


def _tables_named(path: Path) -> list[str]:
    """Return the tables that a file of settings names, above the sections and in each."""
    settings = _read_toml(path)
    sections = [settings] + [
        settings[c] for c in COMMANDS if c in settings and c not in IN_DATABASE
    ]
    found: list[str] = []
    for section in sections:
        for name in (*TABLES, *PEOPLE):
            value = section.get(name)
            files = value.values() if isinstance(value, dict) else _as_list(value)
            found += [
                _beside(path, name, file) for file in files if isinstance(file, str)
            ]
    return found


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8-sig")
        return tomllib.loads(text)
    except OSError as error:
        raise TableError(
            f"--config {str(path)!r} cannot be read: {error.strerror}. unjoined init FOLDER --out "
            "FILE.toml writes such a file."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TableError(
            f"--config {str(path)!r} is not TOML: {error}. unjoined init FOLDER --out FILE.toml "
            "writes such a file from the tables in a folder."
        ) from error


def _unknown(path: Path, key: str, known: Any, where: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key, known, 1)
    hint = (
        f" Did you mean {near[0]!r}?"
        if near
        else f" It may be one of {', '.join(known)}."
    )
    return f"{str(path)!r}: there is no setting {key!r} {where}.{hint}"


def _value(path: Path, name: str, value: Any, parameter: Any, *, is_file: bool) -> Any:
    """Return a setting as the command line would have it; files are beside the settings."""
    if name in TABLES:
        if isinstance(value, dict):
            return [f"{key}={_beside(path, name, file)}" for key, file in value.items()]
        return [_beside(path, name, file) for file in _as_list(value)]
    if name == POLICIES:
        return [f"{key}={chance}" for key, chance in _chances(path, value)]
    if is_file:
        return _beside(path, name, value)
    if parameter.nargs == -1 or getattr(parameter, "multiple", False):
        return [str(word) for word in _as_list(value)]
    if isinstance(value, dict):
        value = [f"{key}={part}" for key, part in value.items()]
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _chances(path: Path, value: Any) -> Iterable[tuple[str, Any]]:
    """Return the policies of settings, each a number or a column."""
    plain = isinstance(value, dict) and all(
        isinstance(chance, int | float | str) and not isinstance(chance, bool)
        for chance in value.values()
    )
    if not plain:
        raise TableError(
            f"{str(path)!r}: 'policies' must name a chance or a column for each population, such "
            f'as {{ north = 0.3, south = "chance" }}, got {value!r}.'
        )
    return value.items()  # type: ignore[no-any-return]  # a dict, as was checked


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _beside(path: Path, name: str, file: Any) -> str:
    """Return a file as seen from the working folder; a query stays as it is."""
    from unjoined.data.queries import SERVER, STATEMENT  # as the command does

    if not isinstance(file, str):
        raise TableError(
            f"{str(path)!r}: {name!r} must be a path in quotes, got {file!r}."
        )
    if not file.strip():
        raise TableError(
            f"{str(path)!r}: {name!r} is empty. Name a file, or leave it out."
        )
    is_elsewhere = STATEMENT.match(file) or SERVER.fullmatch(file)
    return file if is_elsewhere else str(path.parent / file)
