"""The page that holds our numbers against the paper's words, and its figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from studies.paper.claims import (
    CONTRADICTED,
    HOLDS,
    NOT_SHOWN,
    WELL,
    describe_leads,
    judge,
    plus_minus,
)
from studies.paper.draws import CLOSE_B, LARGEST_ERROR, OURS, RIDGES, WIDTHS
from unjoined._support import import_extra
from unjoined.data.write import replace_file

Block = dict[str, Any]
PAPER_TRIALS = 50
SHOWN_B = (0.0, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0)  # the nearest point of the grid is shown
# One look per method, in every figure; told apart without colour as well.
WIDE, NARROW = WIDTHS
LINEAR: dict[str, Any] = {"color": "#E69F00", "ls": "-.", "marker": "^"}
NEURAL: dict[str, Any] = {"color": "#D55E00", "ls": ":", "marker": "v"}
LOOKS: dict[str, dict[str, Any]] = {
    OURS: {"color": "black", "ls": "-", "marker": "o", "zorder": 5},
    WIDE: {"color": "#0072B2", "ls": "-", "marker": "s"},
    NARROW: {"color": "#56B4E9", "ls": "--", "marker": "D"},
    "FourLogistic": LINEAR,
    "FourRidge": LINEAR,
    "FourNNC": NEURAL,
    "FourNNR": NEURAL,
}
TITLES = {
    "email": "The Email data",
    "jobs": "The Jobs data",
    "criteo": "The Criteo data",
}
ERROR_RANGE = (
    1e-5,
    1e5,
)  # of Figure 2; a few ratios lie outside and are drawn at its edge


def paper_page(results: dict[str, Any]) -> str:
    """Return the page of a results file as Markdown; the same results give the same letters."""
    jinja = import_extra("jinja2", extra="report")
    environment = jinja.Environment(  # of plain text, where nothing is to be escaped
        loader=jinja.FileSystemLoader(Path(__file__).parent),
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    studies, ridges = results["studies"], results.get("ridges", {})
    rows = [
        (_place(name, row), row)
        for name, block in ridges.items()
        for row in block["rows"]
    ]
    page: str = environment.get_template("paper.md.jinja").render(
        studies=studies,
        ridges=ridges,
        claims=results["claims"],
        commands=[*_commands(studies, ""), *_commands(ridges, " --ridges")],
        preview=_preview([*studies.values(), *ridges.values()]),
        paper_trials=PAPER_TRIALS,
        rows=rows,
        shifts=_shifts(rows),
        shown=_shown,
        leads=describe_leads,
        plus_minus=plus_minus,
        number=_number,
        ours=OURS,
        well=WELL,
        pairs=RIDGES,
    )
    return page.rstrip("\n") + "\n"


def _commands(blocks: dict[str, Block], option: str) -> list[str]:
    """Return the command, or one for each study if they were run with different options."""
    options = {
        name: f"{option} --trials {block['trials']} --seed {block['seed']}"
        + " --small" * block["small"]
        for name, block in blocks.items()
    }
    if len(set(options.values())) == 1:
        return [
            f"python -m studies.paper {' '.join(blocks)}{next(iter(options.values()))}"
        ]
    return [f"python -m studies.paper {name}{given}" for name, given in options.items()]


def _preview(blocks: list[Block]) -> str:
    """Say by what a run is smaller than the paper's; "" if it is not."""
    fewer, small = (
        sorted({b["trials"] for b in blocks}),
        any(b["small"] for b in blocks),
    )
    if fewer[0] >= PAPER_TRIALS and not small:
        return ""
    return f"{' or '.join(map(str, fewer))} trials{' and small tables' * small}"


def _shown(points: list[Block]) -> list[Block]:
    """Return the points of the grid of b that the table has."""
    nearest = [min(points, key=lambda p: abs(p["b"] - want))["b"] for want in SHOWN_B]
    return [point for point in points if point["b"] in nearest]


def _number(row: Block, name: str, factor: float = 1.0, digits: int = 2) -> str:
    numbers = [row[name], row[f"{name}_se"]]
    return " ± ".join(f"{factor * n:.{digits}f}" for n in numbers if n is not None)


def _shifts(rows: list[tuple[str, Block]]) -> dict[str, list[str]]:
    """Return where the rule gains, loses or neither with all pairs to choose from."""
    places: dict[str, list[str]] = {HOLDS: [], CONTRADICTED: [], NOT_SHOWN: []}
    for place, row in rows:
        places[judge(*row["wide_minus_study"])].append(f"{place}, {row['method']}")
    return places


def _place(name: str, row: Block) -> str:
    return f"{name}, b = {row['b']:.3g}" if "b" in row else name


def draw_figures(block: Block, folder: Path) -> list[Path]:
    """Draw the figures of one study as PNG files in a folder that exists."""
    name = block["study"]
    figures = {f"paper-figure-3-{name}.png": _figure_3}
    if name == "synthetic":
        figures = {"paper-figure-1.png": _figure_1, "paper-figure-2.png": _figure_2}
    return [
        replace_file(
            folder / file,
            lambda path, draw=draw: draw(block).savefig(path, format="png", dpi=140),  # type: ignore[misc]
        )
        for file, draw in figures.items()
    ]


def _new(width: float, height: float) -> Any:
    return import_extra("matplotlib.figure", extra="plot").Figure(
        figsize=(width, height), layout="constrained"
    )


def _tidy(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="0.93", lw=0.8)
    ax.set_axisbelow(True)


def _figure_1(block: Block) -> Any:
    """Draw area and squared error against b."""
    figure = _new(10.0, 4.4)
    left, right = figure.subplots(1, 2)
    points = [p for p in block["by_b"] if p["b"] != CLOSE_B]
    b = [p["b"] for p in points]
    # Wide, so that it is seen behind a method that reaches it.
    left.plot(
        b, [p["oracle"] for p in points], color="0.8", lw=7.0, label="true uplift"
    )
    left.plot(
        b,
        [p["random"] for p in points],
        color="0.6",
        ls=(0, (1, 2)),
        label="random order",
    )
    for name in (m for m in LOOKS if m in points[0]["methods"]):
        rows = [p["methods"][name] for p in points]
        area = np.array([row["auuc"] for row in rows])
        error = np.array([row["auuc_se"] or 0.0 for row in rows])
        look = {"ms": 3.5, "lw": 1.5, **LOOKS[name]}
        left.plot(b, area, label=name, **look)
        left.fill_between(
            b, area - error, area + error, color=look["color"], alpha=0.18, lw=0
        )
        right.plot(b, [row["error"] for row in rows], **look)
    left.set_ylabel("area under the uplift curve")
    right.set_ylabel("mean squared error, median over trials")
    right.set_yscale("log")
    for ax in (left, right):
        ax.set_xlabel("b: policies are the same at 0, far apart at 10")
        ax.set_xlim(0.0, max(b))
        _tidy(ax)
    figure.legend(
        *left.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize="small",
    )
    figure.suptitle(
        f"Synthetic data: 4 x {block['n']:,} rows, mean of {_trials(block)}, band of one "
        "standard error",
        fontsize=11,
    )
    return figure


def _figure_2(block: Block) -> Any:
    """Draw squared errors of single points, coloured by the policy gap."""
    points = block["points"]
    errors = points["squared_error"]
    names = [name for name in LOOKS if name in errors][::-1]
    figure = _new(12.0, 3.5)
    axes = figure.subplots(1, len(names), sharey=True)
    order = np.argsort(points["gap"])[::-1]  # small gaps last, on top
    x2, gap = np.array(points["x2"])[order], np.array(points["gap"])[order]
    for ax, name in zip(axes, names, strict=True):
        drawn = ax.scatter(
            x2,
            np.clip(np.array(errors[name])[order], *ERROR_RANGE),
            c=gap,
            cmap="viridis",
            s=9,
            vmin=0.0,
            lw=0,
        )
        ax.axhline(LARGEST_ERROR, color="0.45", lw=0.9, ls="--")
        ax.set_yscale("log")
        ax.set_title(name, fontsize=10)
        ax.set_xlabel("$x_2$")
        _tidy(ax)
    axes[0].set_ylabel("squared error")
    axes[-1].text(  # where the fewest points are
        0.5,
        LARGEST_ERROR * 1.5,
        "no answer in [-2, 2]\nis above this line",
        fontsize=7.5,
        color="0.3",
        ha="center",
        transform=axes[-1].get_yaxis_transform(),
    )
    figure.colorbar(drawn, ax=axes, label="policy gap $|p_1 - p_2|$", pad=0.01)
    figure.suptitle(
        f"Synthetic data, b = {CLOSE_B:g}: {len(x2)} test points of one trial. Points drawn at "
        "$10^5$ or $10^{-5}$ lie beyond it.",
        fontsize=11,
    )
    return figure


def _figure_3(block: Block) -> Any:
    """Draw mean uplift curves with standard errors."""
    figure = _new(6.2, 4.6)
    ax = figure.add_subplot()
    shares = np.array(block["shares"])
    factor, unit = (
        (1.0, block["unit"]) if block["unit"] == "dollars" else (100.0, block["unit"])
    )
    per = "per person" if factor == 1.0 else "per 100 people"
    names = [name for name in LOOKS if name in block["methods"]]
    for i, name in enumerate(names):
        row = block["methods"][name]
        gain = factor * np.array(row["gain"])
        error = factor * np.array([e or 0.0 for e in row["gain_se"]])
        look = {"lw": 1.6, **LOOKS[name]}
        bar = {key: look[key] for key in ("color", "marker")} | {
            "zorder": look.get("zorder", 3)
        }
        ax.plot(shares, gain, **(look | {"marker": ""}))
        # Bars side by side: bands of five methods would cover one another.
        at = slice(4 + i, -1, 5)
        ax.errorbar(
            shares[at], gain[at], error[at], ls="", ms=4.0, lw=1.1, capsize=2.5, **bar
        )
        ax.plot([], [], label=name, ms=4.0, **look)
    everyone = factor * 2.0 * block["random"]
    ax.plot([0, 1], [0, everyone], color="0.6", ls=(0, (1, 2)), label="random order")
    ax.axhline(0.0, color="0.8", lw=0.8, zorder=0)
    ax.set_xlim(0.0, 1.0)
    ax.set_xticks(np.linspace(0, 1, 6), [f"{p:.0%}" for p in np.linspace(0, 1, 6)])
    ax.set_xlabel("share of people treated, best first")
    ax.set_ylabel(f"gain over treating nobody ({unit} {per})")
    ax.set_title(
        f"{TITLES[block['study']]}: 4 x {block['n']:,} rows, mean of {_trials(block)}, bars of one "
        "standard error",
        fontsize=9.5,
    )
    _tidy(ax)
    ax.legend(frameon=False, fontsize="small")
    return figure


def _trials(block: Block) -> str:
    return "1 trial" if block["trials"] == 1 else f"{block['trials']} trials"
