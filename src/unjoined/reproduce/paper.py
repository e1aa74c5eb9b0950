"""Section 6 of the paper from end to end: run, summarise, draw, write the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unjoined._optional import import_extra
from unjoined.data import replace_file
from unjoined.errors import TableError
from unjoined.reproduce.claims import check_claims
from unjoined.reproduce.figures import draw_figures
from unjoined.reproduce.page import paper_page
from unjoined.reproduce.results import summarise_ridges, summarise_study
from unjoined.reproduce.ridges import ridge_tasks
from unjoined.reproduce.runner import run_tasks
from unjoined.reproduce.studies import STUDIES, Task, synthetic_tasks
from unjoined.reproduce.trials import load_study, real_tasks


@dataclass(frozen=True, slots=True)
class PaperFiles:
    """The files of a run, all in one folder."""

    trials: Path  # JSON lines, one per trial
    results: Path  # JSON
    page: Path  # Markdown
    figures: tuple[Path, ...]  # PNG


def reproduce_paper(
    studies: Sequence[str],
    folder: Path,
    *,
    trials: int = 50,
    jobs: int = 1,
    seed: int = 0,
    small: bool = False,
    data: str | None = None,
    ridges: bool = False,
    progress: Callable[[str, int, int], None] = lambda study, done, total: None,
) -> PaperFiles:
    """Run studies of the paper's section 6 and write figures, a results file and a page.

    Parameters
    ----------
    studies : sequence of {"synthetic", "email", "jobs", "criteo"}
        Which ones. Others that were run into the same folder before stay in its results file
        and on its page.
    folder : path
        Where the files go; made if it does not exist. Trials finished in an earlier run, with
        the same seed and size and the same version of the package, are not run again.
    trials : int, default=50
        Draws of each study, for the synthetic one at each b.
    jobs : int, default=1
        Processes. The numbers do not depend on it.
    seed : int, default=0
        The same seed gives the same numbers.
    small : bool, default=False
        Tiny tables and three values of b: shows in seconds that everything works.
    data : str, optional
        Folder with the data files, in it or one below; by default cache and download.
    ridges : bool, default=False
        Instead of comparing methods, fit MinMaxGau alone with every pair of a wide grid of
        ridges, on the same draws. It has a section of its own on the page.
    progress : callable
        Told the study, the number of finished trials and of all.

    Returns
    -------
    PaperFiles

    Raises
    ------
    TableError
        Data cannot be had, or the folder cannot be written to.
    MissingExtraError
        matplotlib is not installed.

    Notes
    -----
    A synthetic trial of the paper's size takes about five seconds of one core at each of 26
    values of b, an e-mail trial about fifteen.
    """
    import_extra("matplotlib.figure", extra="plot")  # before hours of work, not after
    made = ridge_tasks if ridges else _study_tasks
    tasks = {}
    for name in studies:
        if name != "synthetic":  # read now, so that a missing file is told before an hour of work
            load_study(name, small=small, folder=data)
        tasks[name] = made(name, trials, seed=seed, small=small, folder=data)
    _make_folder(folder)
    file = folder / "paper-trials.jsonl"
    blocks, ridge_blocks = _earlier(folder / "paper-results.json")
    for name, wanted in tasks.items():

        def told(done: int, total: int, name: str = name) -> None:
            progress(name, done, total)

        records = run_tasks(wanted, file, jobs=jobs, progress=told)
        if ridges:
            ridge_blocks[name] = summarise_ridges(records)
        else:
            blocks[name] = summarise_study(name, records)
    return write_paper(_in_order(blocks), folder, ridges=_in_order(ridge_blocks))


def write_paper(
    studies: dict[str, Any], folder: Path, *, ridges: dict[str, Any] | None = None
) -> PaperFiles:
    """Write results, figures and page of the studies given, from their numbers alone.

    Parameters
    ----------
    studies : dict of str to dict
        Blocks of a results file, by name.
    folder : path
        Where the files go; it must exist.
    ridges : dict of str to dict, optional
        Its blocks about ridges, by name.

    Returns
    -------
    PaperFiles
    """
    results = {"studies": studies, "claims": check_claims(studies), "ridges": ridges or {}}
    images = folder / "images"
    _make_folder(images)
    figures = [file for block in studies.values() for file in draw_figures(block, images)]
    text, page = json.dumps(results, indent=1) + "\n", paper_page(results)
    return PaperFiles(
        trials=folder / "paper-trials.jsonl",
        results=replace_file(folder / "paper-results.json", lambda file: file.write_text(text)),
        page=replace_file(folder / "paper.md", lambda file: file.write_text(page, "utf-8")),
        figures=tuple(figures),
    )


def _study_tasks(
    name: str, trials: int, *, seed: int, small: bool, folder: str | None
) -> list[Task]:
    if name == "synthetic":
        return synthetic_tasks(trials, seed=seed, small=small)
    return real_tasks(name, trials, seed=seed, small=small, folder=folder)


def _in_order(blocks: dict[str, Any]) -> dict[str, Any]:
    return {name: blocks[name] for name in STUDIES if name in blocks}


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TableError(
            f"the folder {str(folder)!r} cannot be made: {error.strerror}. Name another one with "
            "--out."
        ) from error


def _earlier(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the studies of an earlier run into the same folder, and those of ridges."""
    if not file.is_file():
        return {}, {}
    try:
        found = json.loads(file.read_text("utf-8"))
        return _in_order(found["studies"]), _in_order(found.get("ridges", {}))
    except (ValueError, KeyError, TypeError) as error:
        raise TableError(
            f"{str(file)!r} is no results file of this command. Move it away, or name another "
            "folder with --out."
        ) from error
