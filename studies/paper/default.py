"""The paper's experiments with the default alone, for a results file that has the other methods.

Run: python -m studies.paper.default RESULTS OUT [--studies synthetic,email,jobs] [--data FOLDER]

RESULTS is a ``paper-results.json`` of ``python -m studies.paper``, whose trials and seed are
repeated.
Finished trials are kept in OUT/default-trials.jsonl: started again, it goes on where it stopped.
Then results, figures and page are written to OUT, with the default's line of the studies renewed
and all else kept.

A difference between the default and another method is then that of their means, and its error is
that of two independent means. The draws are the same, so the true error is smaller as a rule.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from studies.paper import (
    OURS,
    STUDIES,
    Task,
    draw_rows,
    score_estimates,
    study_tasks,
    summarise_study,
    write_paper,
)
from unjoined import Uplift

Block = dict[str, Any]
Pair = tuple[float, float | None]


def run(task: Task) -> Block:
    """Fit the default to the rows of one trial, on one core."""
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # weak identification: the scores show it
        draw = draw_rows(task)
        start = time.process_time()
        model = Uplift(n_jobs=1, random_state=task.seeds[2])
        estimate = model.fit(**draw.data).predict(draw.X)
        seconds = time.process_time() - start
    result = score_estimates(task, draw, {OURS: estimate})
    return {"task": task.key(), "result": result, "seconds": {OURS: round(seconds, 3)}}


def records_of(block: Block, file: Path, folder: str | None) -> list[Block]:
    """Repeat the trials of one study with the default; those in the file are not run again."""
    tasks = study_tasks(
        block["study"],
        block["trials"],
        seed=block["seed"],
        small=block["small"],
        folder=folder,
        ridges=False,
    )
    lines = file.read_text().splitlines() if file.is_file() else []
    kept = {json.dumps(record["task"]): record for record in map(json.loads, lines)}
    with file.open("a") as out:
        for task in tasks:
            key = json.dumps(task.key())
            if key not in kept:
                kept[key] = run(task) | {"version": block["version"]}
                out.write(json.dumps(kept[key]) + "\n")
                out.flush()
    return [kept[json.dumps(task.key())] for task in tasks]


def difference(first: Block, second: Block, score: str) -> Pair:
    """Return the difference of two means, with the error that independent ones have."""
    value = float(f"{first[score] - second[score]:.5g}")
    errors = first[f"{score}_se"], second[f"{score}_se"]
    return value, None if None in errors else float(f"{np.hypot(*errors):.5g}")


def renew_methods(methods: Block, ours: Block, score: str) -> None:
    """Put the default's new line among those of the other methods."""
    methods[OURS] = ours
    ours["minus"] = {}
    for name, row in methods.items():
        if name != OURS:
            ours["minus"][name] = difference(ours, row, score)
            row["minus"][OURS] = difference(row, ours, score)


def renew_study(block: Block, records: list[Block]) -> None:
    """Replace what a block of results says of the default."""
    new = summarise_study(records)
    block["ours_alone"] = True  # so that the page says what its differences are worth
    block["seconds"][OURS] = new["seconds"][OURS]
    if block["study"] != "synthetic":
        renew_methods(block["methods"], new["methods"][OURS], "auuc")
        return
    for point, renewed in zip(block["by_b"], new["by_b"], strict=True):
        renew_methods(point["methods"], renewed["methods"][OURS], "share")
    gross, network = new["gross"][OURS], block["gross"]["FourNNC"]
    half = {
        "small gap": network["small gap"] / 2.0,
        "small gap_se": network["small gap_se"] / 2.0,
    }
    gross["below_half_of_network"] = difference(half, gross, "small gap")
    block["gross"][OURS] = gross
    block["points"]["squared_error"][OURS] = new["points"]["squared_error"][OURS]


def main() -> None:
    """Run what is missing, then write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--studies", default=",".join(STUDIES))
    parser.add_argument("--data")
    args = parser.parse_args()
    results = json.loads(args.results.read_text("utf-8"))
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.studies.split(","):
        block = results["studies"][name]
        renew_study(
            block, records_of(block, args.out / "default-trials.jsonl", args.data)
        )
    files = write_paper(results["studies"], args.out, ridges=results["ridges"])
    print(f"Wrote {files.page}, {files.results} and figures: {len(files.figures)}.")


if __name__ == "__main__":
    main()
