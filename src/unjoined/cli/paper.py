"""The command reproduce: the experiments of the paper, run again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from unjoined._validation import check_option
from unjoined.cli.inputs import check_distinct
from unjoined.cli.options import AsJson, Folder, Seed, command
from unjoined.cli.show import console, print_json, show_pairs, tell_progress
from unjoined.errors import TableError
from unjoined.reproduce import STUDIES, reproduce_paper


@command("unjoined reproduce synthetic --small", "unjoined reproduce all --out unjoined-paper")
def reproduce(
    study: Annotated[
        list[str],
        typer.Argument(help=f"{', '.join(STUDIES)}, or all; several may be named."),
    ],
    trials: Annotated[int, typer.Option(min=1, help="Draws of each study.")] = 50,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; default: one for each core.")
    ] = None,
    folder: Folder = Path("unjoined-paper"),
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data files; default: cache, download.")
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="Tiny sizes, to see in seconds that it works.")
    ] = False,
    ridges: Annotated[
        bool,
        typer.Option("--ridges", help="Try a wide grid of MinMaxGau's ridges, and nothing else."),
    ] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Run the experiments of the paper and write figures and a page."""
    if folder.exists() and not folder.is_dir():
        raise TableError(f"{str(folder)!r} is a file; name a folder with --out.")
    if data is not None and not data.is_dir():
        raise TableError(f"there is no folder {str(data)!r}. Check --data.")
    if data is not None:
        check_distinct([("--data", data), ("--out", folder)])
    for name in study:
        check_option("study", name, (*STUDIES, "all"))
    out = console(quiet=as_json)
    try:
        files = reproduce_paper(
            [name for name in STUDIES if name in study or "all" in study],
            folder,
            trials=trials,
            jobs=jobs or os.cpu_count() or 1,
            seed=seed,
            small=small,
            data=None if data is None else str(data),
            ridges=ridges,
            progress=tell_progress,
        )
    except KeyboardInterrupt:
        out.print(f"Finished trials are kept in {folder}; the same command goes on.")
        raise
    claims = json.loads(files.results.read_text("utf-8"))["claims"]
    out.print("What the paper says in section 6.3, judged by these numbers:")
    show_pairs(out, ((claim["verdict"], claim["claim"]) for claim in claims))
    out.print(f"Wrote {files.page}, {files.results} and figures: {len(files.figures)}.")
    if as_json:
        paths = {"page": files.page, "results": files.results, "trials": files.trials}
        print_json(
            {
                "verdicts": {claim["claim"]: claim["verdict"] for claim in claims},
                "files": {name: str(path) for name, path in paths.items()}
                | {"figures": [str(file) for file in files.figures]},
            }
        )
