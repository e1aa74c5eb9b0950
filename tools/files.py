"""List the packages and files of unjoined with what each is for: ``make files``.

What a file is for is the first line of its docstring. The documentation shows the same list.
"""

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "unjoined"


def purpose(file: Path) -> str:
    """Return the first line of a file's docstring."""
    return (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").partition(
        "\n"
    )[0]


def table(folder: Path) -> list[str]:
    """Return a table with one line per file of a folder."""
    files = [file for file in sorted(folder.glob("*.py")) if file.name != "__init__.py"]
    rows = [
        f"| `{file.relative_to(SOURCES).as_posix()}` | {purpose(file)} |"
        for file in files
    ]
    return ["| file | what |", "|---|---|", *rows, ""] if rows else []


def packages() -> list[Path]:
    """Return the packages from the top layer of the import contract to the bottom."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    layers = " ".join(settings["tool"]["importlinter"]["contracts"][0]["layers"])
    return [
        SOURCES / name
        for name in layers.split()
        if (SOURCES / name / "__init__.py").exists()
    ]


def page() -> str:
    """Return the list in Markdown: packages from the top of the flow to the bottom, then files."""
    lines = []
    for package in packages():
        lines += [f"### `{package.name}/`", "", purpose(package / "__init__.py"), ""]
        lines += table(package)
    return "\n".join([*lines, "### Single files", "", *table(SOURCES)])


if __name__ == "__main__":
    print(page())
