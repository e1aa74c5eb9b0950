"""Run the experiments of the paper: ``python -m studies.paper all``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from studies.paper.draws import STUDIES
from studies.paper.results import PaperFiles, reproduce_paper
from unjoined.errors import InputError, TableError, UnjoinedError


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    """Return what was asked for on the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.paper",
        description="Run the experiments of the paper and write figures and a page.",
    )
    parser.add_argument(
        "study",
        nargs="+",
        choices=(*STUDIES, "all"),
        help="several may be named, or all",
    )
    parser.add_argument(
        "--trials", type=int, help="draws of each study; 50, or 2 with --small"
    )
    parser.add_argument(
        "--jobs", type=int, help="processes; one for each core by default"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/paper"), help="folder to write to"
    )
    parser.add_argument("--data", type=Path, help="folder with the data files")
    parser.add_argument(
        "--small",
        action="store_true",
        help="tiny tables, to see soon that it works; not criteo",
    )
    parser.add_argument(
        "--ridges",
        action="store_true",
        help="a wide grid of ridges of MinMaxGau, nothing else",
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(words)


def chosen_studies(asked: argparse.Namespace) -> list[str]:
    """Return the studies asked for, in the order of the paper, or refuse what cannot be run."""
    numbers = {
        "--trials": (asked.trials, 1),
        "--jobs": (asked.jobs, 1),
        "--seed": (asked.seed, 0),
    }
    for name, (value, least) in numbers.items():
        if value is not None and value < least:
            raise InputError(f"{name} must be {least} or above, got {value}.")
    if asked.out.exists() and not asked.out.is_dir():
        raise TableError(f"{str(asked.out)!r} is a file; name a folder with --out.")
    if asked.data is not None and not asked.data.is_dir():
        raise TableError(f"there is no folder {str(asked.data)!r}. Check --data.")
    if asked.small and "criteo" in asked.study:
        raise InputError(
            "criteo has a click in twenty rows, too few for the tables of --small. Leave out "
            "--small or criteo."
        )
    if "all" not in asked.study:
        return [name for name in STUDIES if name in asked.study]
    return [name for name in STUDIES if not (asked.small and name == "criteo")]


def show_progress(study: str, done: int, total: int) -> None:
    """Say on stderr how far a study is."""
    print(f"{study}: {done} of {total} trials", file=sys.stderr)


def run(asked: argparse.Namespace) -> PaperFiles:
    """Run the studies asked for."""
    return reproduce_paper(
        chosen_studies(asked),
        asked.out,
        trials=asked.trials or (2 if asked.small else 50),
        jobs=asked.jobs or os.cpu_count() or 1,
        seed=asked.seed,
        small=asked.small,
        data=None if asked.data is None else str(asked.data),
        ridges=asked.ridges,
        progress=show_progress,
    )


def main(words: Sequence[str] | None = None) -> None:
    """Run the studies, and print what became of the paper's claims."""
    asked = parsed(words)
    try:
        files = run(asked)
    except UnjoinedError as error:
        sys.exit(f"paper: {error}")
    except KeyboardInterrupt:
        sys.exit(f"Finished trials are kept in {asked.out}; the same command goes on.")
    claims = json.loads(files.results.read_text("utf-8"))["claims"]
    print("What the paper says in section 6.3, judged by these numbers:")
    for claim in claims:
        print(f"  {claim['verdict']:<14}{claim['claim']}")
    print(f"Wrote {files.page}, {files.results} and {len(files.figures)} figures.")


if __name__ == "__main__":
    main()
