"""From the records of single trials to the numbers of a study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from unjoined._typing import Array, ArrayLike
from unjoined.experiments._study_methods import PRESET, RIDGES, WIDTHS
from unjoined.experiments._study_runner import Record
from unjoined.experiments._synthetic_study import CLOSE_B, synthetic_size
from unjoined.experiments._trial_studies import SHARES, UNITS, trial_size

__all__ = ["mean_and_error", "summarise_study"]

DIGITS = 5  # significant ones kept in the file


def summarise_study(name: str, records: Sequence[Record]) -> dict[str, Any]:
    """Return the numbers of a study: means over trials and their standard errors.

    Parameters
    ----------
    name : {"synthetic", "email", "jobs", "criteo"}
        The study.
    records : sequence of dict
        Its trials, all of one seed and size.

    Returns
    -------
    dict
        Ready for JSON, numbers rounded. The same records give the same dict, but for
        ``"seconds"``, the processor time of each method over all trials.
    """
    task = records[0]["task"]
    size = (synthetic_size if name == "synthetic" else _size_of(name))(small=task["small"])
    block: dict[str, Any] = {
        "study": name,
        "version": records[0]["version"],
        "seed": task["seed"],
        "small": task["small"],
        "trials": len({record["task"]["trial"] for record in records}),
        "n": records[0]["result"].get("n", size[0]),
        "n_test": size[1],
    }
    block |= _synthetic(records) if name == "synthetic" else _real(name, records)
    seconds = {
        method: sum(record["seconds"][method] for record in records)
        for method in records[0]["seconds"]
    }
    return {**_rounded(block), "seconds": {m: round(s, 1) for m, s in seconds.items()}}


def _size_of(name: str) -> Any:
    return lambda *, small: trial_size(name, small=small)


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
        "gross": {
            method: {
                third: mean_and_error([r["gross"][method][third] for r in close])[0]
                for third in close[0]["gross"][method]
            }
            for method in close[0]["gross"]
        },
        "points": next((r["points"] for r in close if "points" in r), None),
        "ridges": [
            {"b": b, **row}
            for b, results in by_b.items()
            if "grid" in results[0]
            for row in _ridge_rows(results)
        ],
    }


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
                "median_error": mean_and_error(_column(results, method, "median_error"))[0],
                "minus": _differences(method, shares),
            }
            for method in methods
        },
    }


def _real(name: str, records: Sequence[Record]) -> dict[str, Any]:
    results = [record["result"] for record in records]
    methods = list(results[0]["methods"])
    areas = {m: _column(results, m, "auuc") for m in methods}
    random = np.array([r["random"] for r in results])
    return {
        "unit": UNITS[name],
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
        "ridges": _ridge_rows(results),
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
        other: mean_and_error(scores[method] - scores[other]) for other in scores if other != method
    }


def _ridge_rows(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each width what the choice of ridges changes: mean area of every pair."""
    rows = []
    for method in WIDTHS:
        areas = np.mean([r["grid"][method] for r in results], axis=0)
        often = Counter(tuple(r["ridges"][method]) for r in results)
        rows.append(
            {
                "method": method,
                "chosen": mean_and_error(_column(results, method, "auuc"))[0],
                "preset": float(areas[RIDGES.index(PRESET)]),
                "best": float(areas.max()),
                "best_pair": RIDGES[int(areas.argmax())],
                "worst": float(areas.min()),
                "worst_pair": RIDGES[int(areas.argmin())],
                "most_chosen": min(often, key=lambda pair: (-often[pair], pair)),
                "random": mean_and_error([r["random"] for r in results])[0],
                "pairs": RIDGES,
                "auuc": areas.tolist(),
            }
        )
    return rows


def _rounded(value: Any) -> Any:
    """Return the same with fewer digits, and tuples as lists, as JSON will have them."""
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
