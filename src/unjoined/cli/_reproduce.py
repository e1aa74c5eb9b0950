"""The command that runs the paper's experiments."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from unjoined._validation import check_option
from unjoined.cli._paths import check_distinct
from unjoined.errors import TableError
from unjoined.experiments._reproduce import PaperFiles, reproduce_paper
from unjoined.experiments._study_methods import STUDIES

__all__ = ["run_reproduce"]


def run_reproduce(
    out: Console,
    studies: list[str],
    folder: Path,
    *,
    trials: int,
    jobs: int | None,
    seed: int,
    small: bool,
    data: Path | None,
    ridges: bool,
) -> dict[str, Any]:
    """Run the studies named, show what happens, and return the verdicts and files."""
    if folder.exists() and not folder.is_dir():
        raise TableError(f"{str(folder)!r} is a file; name a folder with --out.")
    if data is not None and not data.is_dir():
        raise TableError(f"there is no folder {str(data)!r}. Check --data.")
    if data is not None:
        check_distinct([("--data", data), ("--out", folder)])
    wanted = _wanted(studies)
    with _progress(out) as told:
        try:
            files = reproduce_paper(
                wanted,
                folder,
                trials=trials,
                jobs=jobs or os.cpu_count() or 1,
                seed=seed,
                small=small,
                data=None if data is None else str(data),
                ridges=ridges,
                progress=told,
            )
        except KeyboardInterrupt:
            out.print(f"Finished trials are kept in {folder}; the same command goes on.")
            raise
    claims = json.loads(files.results.read_text("utf-8"))["claims"]
    _show(out, files, claims)
    verdicts = {claim["claim"]: claim["verdict"] for claim in claims}
    return {"verdicts": verdicts, "files": _names(files)}


def _names(files: PaperFiles) -> dict[str, Any]:
    return {
        "page": str(files.page),
        "results": str(files.results),
        "trials": str(files.trials),
        "figures": [str(file) for file in files.figures],
    }


@contextmanager
def _progress(out: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that is told how far each study is, and draws a bar for it."""
    bars: dict[str, TaskID] = {}
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=out,
    ) as shown:

        def told(study: str, done: int, total: int) -> None:
            if study not in bars:
                bars[study] = shown.add_task(study, total=total)
            shown.update(bars[study], completed=done)

        yield told


def _wanted(studies: list[str]) -> list[str]:
    """Return the studies named, in the paper's order, each once."""
    for study in studies:
        check_option("study", study, (*STUDIES, "all"))
    return [name for name in STUDIES if name in studies or "all" in studies]


def _show(out: Console, files: PaperFiles, claims: list[dict[str, Any]]) -> None:
    """Print the verdict on each claim, and what was written."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("the paper, section 6.3")
    for claim in claims:
        table.add_row(claim["verdict"], claim["claim"])
    out.print(table)
    out.print(f"Wrote {files.page}, {files.results} and {len(files.figures)} figures.")
