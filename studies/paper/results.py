"""From finished trials to results, figures and the page: section 6 of the paper, end to end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from studies.paper.claims import check_claims
from studies.paper.draws import (
    CLOSE_B,
    GRID_F,
    GRID_G,
    PRESET,
    SHARES,
    SIZES,
    SMALL_SIZES,
    STUDIES,
    STUDY_PAIRS,
    UNITS,
    WIDTHS,
    Record,
    load_study,
    study_tasks,
)
from studies.paper.page import draw_figures, paper_page
from studies.paper.runner import run_tasks
from unjoined._support import import_extra
from unjoined._typing import Array, ArrayLike
from unjoined.data.write import replace_file
from unjoined.errors import TableError

DIGITS = 5  # significant ones kept in the file


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

    Studies that were run into the same folder before stay in its results file and on its page,
    and finished trials with the same seed, size and version are not run again. The numbers do not
    depend on ``jobs``. A synthetic trial takes about five seconds of one core at each of 26 values
    of b, an e-mail trial about fifteen.
    """
    import_extra("matplotlib.figure", extra="plot")  # before hours of work, not after
    import_extra("jinja2", extra="report")
    for name in studies:
        if name != "synthetic":  # a missing file is reported before hours of work
            load_study(name, small=small, folder=data)
    _make_folder(folder)
    file = folder / "paper-trials.jsonl"
    blocks, ridge_blocks = _earlier(folder / "paper-results.json")
    for name in studies:

        def tell(done: int, total: int, name: str = name) -> None:
            progress(name, done, total)

        tasks = study_tasks(
            name, trials, seed=seed, small=small, folder=data, ridges=ridges
        )
        records = run_tasks(tasks, file, jobs=jobs, progress=tell)
        if ridges:
            ridge_blocks[name] = summarise_ridges(records)
        else:
            blocks[name] = summarise_study(records)
    return write_paper(_in_order(blocks), folder, ridges=_in_order(ridge_blocks))


def write_paper(
    studies: dict[str, Any], folder: Path, *, ridges: dict[str, Any] | None = None
) -> PaperFiles:
    """Write results, figures and page of the studies given, from blocks of a results file."""
    results = {
        "studies": studies,
        "claims": check_claims(studies),
        "ridges": ridges or {},
    }
    images = folder / "images"
    _make_folder(images)
    figures = [
        file for block in studies.values() for file in draw_figures(block, images)
    ]
    text, page = json.dumps(results, indent=1) + "\n", paper_page(results)
    return PaperFiles(
        trials=folder / "paper-trials.jsonl",
        results=replace_file(
            folder / "paper-results.json", lambda file: file.write_text(text)
        ),
        page=replace_file(
            folder / "paper.md", lambda file: file.write_text(page, "utf-8")
        ),
        figures=tuple(figures),
    )


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
        results = json.loads(file.read_text("utf-8"))
        return _in_order(results["studies"]), _in_order(results.get("ridges", {}))
    except (ValueError, KeyError, TypeError) as error:
        raise TableError(
            f"{str(file)!r} is not a results file of this command. Move it away, or name another "
            "folder with --out."
        ) from error


def summarise_study(records: Sequence[Record]) -> dict[str, Any]:
    """Return the numbers of a study: means over trials and their standard errors, rounded."""
    task = records[0]["task"]
    n, n_test = (SMALL_SIZES if task["small"] else SIZES)[task["study"]]
    block = _origin(records) | {"n": records[0]["result"].get("n", n), "n_test": n_test}
    block |= (_synthetic if task["study"] == "synthetic" else _real)(records)
    seconds = {
        method: round(sum(record["seconds"][method] for record in records), 1)
        for method in records[0]["seconds"]
    }
    return {**_rounded(block), "seconds": seconds}


def _origin(records: Sequence[Record]) -> dict[str, Any]:
    """Return what was run, and how often."""
    task = records[0]["task"]
    return {
        "study": task["study"],
        "version": records[0]["version"],
        "seed": task["seed"],
        "small": task["small"],
        "trials": len({record["task"]["trial"] for record in records}),
    }


def mean_and_error(values: ArrayLike) -> tuple[float, float | None]:
    """Return a mean and its standard error, None with one value only."""
    array = np.asarray(values, dtype=np.float64)
    n = len(array)
    error = float(array.std(ddof=1) / np.sqrt(n)) if n > 1 else None
    return float(array.mean()), error


def _synthetic(records: Sequence[Record]) -> dict[str, Any]:
    points = sorted({record["task"]["b"] for record in records})
    by_b = {b: [r["result"] for r in records if r["task"]["b"] == b] for b in points}
    close = by_b[CLOSE_B]
    return {
        "by_b": [{"b": b, **_synthetic_point(results)} for b, results in by_b.items()],
        "gross": _gross([r["gross"] for r in close]),
        "points": next((r["points"] for r in close if "points" in r), None),
    }


def _gross(trials: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how often each method is grossly wrong, and the margins that the claims ask for."""

    def share(method: str, third: str) -> Array:
        return np.array([gross[method][third] for gross in trials])

    rows: dict[str, Any] = {}
    for method in trials[0]:
        small, large = share(method, "small gap"), share(method, "large gap")
        rows[method] = {**_named("small gap", small), **_named("large gap", large)}
        rows[method]["minus_twice_large"] = mean_and_error(small - 2.0 * large)
        if "FourNNC" in trials[0]:
            half = 0.5 * share("FourNNC", "small gap")
            rows[method]["below_half_of_network"] = mean_and_error(half - small)
    return rows


def _synthetic_point(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    methods = list(results[0]["methods"])
    shares = {m: _column(results, m, "share") for m in methods}
    return {
        "oracle": mean_and_error([r["oracle"] for r in results])[0],
        "random": mean_and_error([r["random"] for r in results])[0],
        "methods": {
            method: {
                **_named("auuc", _column(results, method, "auuc")),
                **_named("share", shares[method]),
                "error": float(np.median(_column(results, method, "error"))),
                "median_error": mean_and_error(
                    _column(results, method, "median_error")
                )[0],
                "minus": _differences(method, shares),
            }
            for method in methods
        },
    }


def _real(records: Sequence[Record]) -> dict[str, Any]:
    results = [record["result"] for record in records]
    methods = list(results[0]["methods"])
    areas = {m: _column(results, m, "auuc") for m in methods}
    random = np.array([r["random"] for r in results])
    return {
        "unit": UNITS[records[0]["task"]["study"]],
        "shares": SHARES.tolist(),
        **_named("random", random),
        "methods": {
            method: {
                **_named("auuc", areas[method]),
                **_named("above_random", areas[method] - random),
                **_curve([r["methods"][method]["gain"] for r in results]),
                "minus": _differences(method, areas),
            }
            for method in methods
        },
    }


def _column(results: Sequence[dict[str, Any]], method: str, what: str) -> Array:
    if what != "share":
        return np.array([r["methods"][method][what] for r in results])
    above = [r["methods"][method]["auuc"] - r["random"] for r in results]
    best = [r["oracle"] - r["random"] for r in results]
    share: Array = np.array(above) / np.array(best)
    return share


def _named(name: str, values: Array) -> dict[str, float | None]:
    mean, error = mean_and_error(values)
    return {name: mean, f"{name}_se": error}


def _curve(gains: Iterable[list[float]]) -> dict[str, Any]:
    pairs = [mean_and_error(column) for column in np.array(list(gains)).T]
    return {"gain": [p[0] for p in pairs], "gain_se": [p[1] for p in pairs]}


def _differences(method: str, scores: dict[str, Array]) -> dict[str, Any]:
    """Return by how much a method's score is above each other's, trial by trial."""
    return {
        other: mean_and_error(scores[method] - scores[other])
        for other in scores
        if other != method
    }


def summarise_ridges(records: Sequence[Record]) -> dict[str, Any]:
    """Return what ridges change, one row for each b and width: means over trials, rounded."""
    task = records[0]["task"]
    rows = []
    for b in sorted({record["task"]["b"] for record in records}):
        results = [r["result"] for r in records if r["task"]["b"] == b]
        place = {"b": b} if task["study"] == "synthetic" else {}
        rows += [
            {**place, "method": m, **_ridge_row([r[m] for r in results])}
            for m in WIDTHS
        ]
    block = _origin(records) | {"ridges_f": GRID_F, "ridges_g": GRID_G, "rows": rows}
    return {
        **_rounded(block),
        "seconds": round(sum(r["seconds"]["MinMaxGau"] for r in records), 1),
    }


def _ridge_row(trials: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return scores of the rule and of single pairs, for one width at one place."""
    scores = np.array([trial["score"] for trial in trials])  # (n, n_f, n_g)
    mean = scores.mean(axis=0)
    singles = {
        "preset": (GRID_F.index(PRESET[0]), GRID_G.index(PRESET[1])),
        "best_study": max(STUDY_PAIRS, key=lambda at: mean[at]),
        "best": _best_pair(scores),
    }
    by_rule = {
        name: [tuple(trial[name]) for trial in trials] for name in ("study", "wide")
    }
    ruled = {
        name: np.array([score[at] for score, at in zip(scores, chosen, strict=True)])
        for name, chosen in by_rule.items()
    }
    often = {name: Counter(chosen) for name, chosen in by_rule.items()}
    common = {
        name: min(count, key=lambda at: (-count[at], at))
        for name, count in often.items()
    }
    return {
        **{name: mean_and_error(values) for name, values in ruled.items()},
        "wide_minus_study": mean_and_error(ruled["wide"] - ruled["study"]),
        **{f"{name}_pair": _pair(at) for name, at in common.items()},
        "at_edge": float(np.mean([_from_edge(at) == 0 for at in by_rule["wide"]])),
        **{name: mean_and_error(scores[:, *at]) for name, at in singles.items()},
        **{f"{name}_pair": _pair(at) for name, at in singles.items()},
        "score": mean.tolist(),
    }


def _best_pair(scores: Array) -> tuple[int, int]:
    """Return the best pair in hindsight, the one farthest from the edges if many are as good.

    As good is within a tenth of the best pair's standard error. There always are many: with a
    large ``ridge_g`` only the product of the ridges counts, so the best one of a grid would
    lie at its edge, whatever the grid.
    """
    mean = scores.mean(axis=0)
    f, g = np.unravel_index(int(np.argmax(mean)), mean.shape)
    error = mean_and_error(scores[:, f, g])[1] or 0.0
    short = mean[f, g] - mean
    good = [(int(i), int(j)) for i, j in np.argwhere(short <= error / 10.0)]
    return min(good, key=lambda at: (-_from_edge(at), short[at]))


def _pair(at: tuple[int, int]) -> tuple[float, float]:
    return GRID_F[at[0]], GRID_G[at[1]]


def _from_edge(at: tuple[int, int]) -> int:
    """Return how many steps a pair is away from the nearest edge of the grid."""
    return min(at[0], len(GRID_F) - 1 - at[0], at[1], len(GRID_G) - 1 - at[1])


def _rounded(value: Any) -> Any:
    """Return the same with fewer digits, and tuples as lists, as JSON will have them."""
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
