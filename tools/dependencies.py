"""Name the packages that unjoined[all] needs, for the checks of licences and weaknesses."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version


def needed(package: str, extras: frozenset[str], found: set[str]) -> None:
    """Add what a package needs, and what that needs."""
    for line in requires(package) or ():
        requirement, _, marker = line.partition(";")
        wanted = re.search(r"extra == ['\"]([\w-]+)", marker)
        if wanted and wanted[1] not in extras:
            continue
        name = re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")  # type: ignore[index]
        inner = re.search(r"\[([^\]]+)\]", requirement)
        more = frozenset(inner[1].replace(" ", "").split(",")) if inner else frozenset()
        if name == "unjoined":
            needed(name, more, found)
        elif name not in found:
            try:
                version(name)
            except PackageNotFoundError:  # for another system
                continue
            found.add(name)
            needed(name, more, found)


packages: set[str] = set()
needed("unjoined", frozenset({"all"}), packages)
for each in sorted(packages):
    print(f"{each}=={version(each)}" if "--pins" in sys.argv else each)
