"""Two public trials: what they say with both labels, and from four tables that share no row.

Run: python docs/examples/1-quickstart/datasets.py [FOLDER] [--download]; writes datasets.png there
and prints the numbers of docs/guide/datasets.md. The trials are read from the cache. If they are
not there and --download is not given, the stored picture is copied instead.
"""

import shutil
import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unjoined import SeparateLabels
from unjoined.data import unjoin
from unjoined.datasets import PublicData, fetch_email, fetch_jobs
from unjoined.errors import TableError

BLUE, ORANGE, GREY = "#1f5f99", "#b35a00", "0.35"
STORED = Path(__file__).parents[2] / "images" / "datasets.png"
POLICIES = {"A": 0.9, "B": 0.1}
NORMAL = 1.96  # 95 percent

Interval = tuple[float, float]  # estimate, half width


def mean(values: np.ndarray) -> Interval:
    """Return a mean and the half width of its interval."""
    return float(values.mean()), NORMAL * float(values.std(ddof=1)) / np.sqrt(
        len(values)
    )


def minus(first: Interval, second: Interval) -> Interval:
    """Return the difference of two independent estimates."""
    return first[0] - second[0], float(np.hypot(first[1], second[1]))


def joint_effect(data: PublicData, group: np.ndarray) -> Interval:
    """Return treated minus untreated mean outcome, which needs both labels on each row."""
    return minus(
        mean(data.y[group & (data.treatment == 1)]),
        mean(data.y[group & (data.treatment == 0)]),
    )


def separate_effect(data: SeparateLabels, group: np.ndarray) -> Interval:
    """Return the difference in outcomes over that in treatments, from tables never joined."""

    def gap(label: np.ndarray) -> Interval:
        usable = group & ~np.isnan(label)
        a, b = (label[usable & (data.population == name)] for name in POLICIES)
        return minus(mean(a), mean(b))

    (top, top_error), (bottom, bottom_error) = gap(data.y), gap(data.treatment)
    effect = top / bottom
    return effect, float(np.hypot(top_error, effect * bottom_error)) / abs(bottom)


def groups(X: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return groups of customers by what they bought and how."""
    column = {name: X[:, j] for j, name in enumerate(names)}
    mens, womens = column["mens"] == 1, column["womens"] == 1
    return {
        "all customers": np.ones(len(X), dtype=bool),
        "bought men's only": mens & ~womens,
        "bought women's only": womens & ~mens,
        "bought both": mens & womens,
        "last purchase ≤ 3 months ago": column["recency"] <= 3,
        "last purchase > 9 months ago": column["recency"] > 9,
        "new customers": column["newbie"] == 1,
    }


def draw_email(ax: Axes, data: PublicData) -> None:
    """Draw the effect of the women's mail by group, with joint labels and without."""
    tables = unjoin(
        data.X,
        data.y,
        data.treatment,
        propensity=data.propensity,
        policies=POLICIES,
        random_state=0,
    ).data
    joint = groups(data.X, data.feature_names)
    separate = groups(np.asarray(tables.X), data.feature_names)
    for row, name in enumerate(joint):
        pair = joint_effect(data, joint[name]), separate_effect(tables, separate[name])
        print(
            f"{name}: " + ", ".join(f"{100 * e:.1f} ± {100 * w:.1f}" for e, w in pair)
        )
        for (effect, width), shift, color, marker, text in (
            (pair[0], -0.14, BLUE, "o", f"trial, both labels ({data.n_rows:,} rows)"),
            (
                pair[1],
                0.14,
                ORANGE,
                "s",
                f"four tables, one label each ({tables.n_rows:,} rows)",
            ),
        ):
            ax.errorbar(
                100 * effect,
                row + shift,
                xerr=100 * width,
                fmt=marker,
                color=color,
                ms=5,
                capsize=2,
                lw=1.4,
                label=text if row == 0 else None,
            )
    ax.axvline(0.0, color=GREY, lw=0.8, ls=":")
    ax.set_yticks(range(len(joint)), joint)
    ax.set_ylim(len(joint) + 0.55, -0.6)
    ax.set_xlabel("visits caused per 100 mails (95 % intervals)")
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    ax.set_title(
        "e-mail: women's merchandise against no mail", fontsize=11, weight="bold"
    )


def draw_jobs(ax: Axes, samples: dict[str, PublicData]) -> None:
    """Draw mean earnings of 1978 with training and without."""
    for row, (name, data) in enumerate(samples.items()):
        effect, width = joint_effect(data, np.ones(data.n_rows, dtype=bool))
        print(f"{name}: {effect:.0f} ± {width:.0f} dollars, {data.n_rows} rows")
        for treated, shift, color, text in (
            (0, -0.17, GREY, "no offer"),
            (1, 0.17, BLUE, "offered training"),
        ):
            rows = data.treatment == treated
            level, error = mean(data.y[rows])
            ax.bar(
                row + shift,
                level,
                0.3,
                yerr=error,
                color=color,
                alpha=0.85,
                error_kw={"lw": 1.2, "capsize": 3},
                label=text if row == 0 else None,
            )
            ax.text(
                row + shift,
                250,
                f"{int(rows.sum())}",
                ha="center",
                color="white",
                fontsize=9,
            )
    ax.set_xticks(range(len(samples)), samples)
    ax.set_ylim(0.0, 9000.0)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.set_ylabel("mean earnings of 1978 (dollars)")
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    ax.set_title("job training (rows in white)", fontsize=11, weight="bold")


def main(folder: Path, *, download: bool) -> Path:
    """Draw the picture and return the file."""
    path = folder / "datasets.png"
    try:
        email = fetch_email(treatment="womens", download=download)
        jobs = {
            "LaLonde": fetch_jobs(download=download),
            "Dehejia-Wahba": fetch_jobs(sample="dehejia-wahba", download=download),
        }
    except TableError as error:
        print(f"the stored picture is kept: {error}")
        if path.resolve() != STORED:
            shutil.copy(STORED, path)
        return path
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.7, 1.0])
    draw_email(left, email)
    draw_jobs(right, jobs)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    print(path)
    return path


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if argument != "--download"]
    main(Path(given[0]) if given else Path(), download="--download" in sys.argv)
