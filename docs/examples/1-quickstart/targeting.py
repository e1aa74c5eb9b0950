"""From predicted uplift to a mailing list, and how much its promised gain overstates.

Run: python docs/examples/1-quickstart/targeting.py [FOLDER]; writes targeting.png there and prints
the numbers of docs/guide/targeting.md.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unjoined import MinMaxUplift
from unjoined.data import campaign_problem
from unjoined.evaluate import joint_values
from unjoined.targeting import expected_gain, profit_rule

BLUE, ORANGE, GREEN, GREY = "#1f5f99", "#b35a00", "#2e7d4f", "0.45"
VALUE, COST = 20.0, 1.0  # euros per purchase, euros per mail
ROWS = (500, 1000, 2000, 4000)
DRAWS = 12
# Little shrinkage, as in the paper: estimates that vary freely show the winner's curse.
FREE = {
    "basis": "gaussian",
    "width": "median",
    "ridge_f": 0.01,
    "ridge_g": 0.01,
    "center": False,
}
CHOSEN: dict[str, object] = {}  # the defaults choose their shrinkage
PROBLEM = campaign_problem()
# Customers to choose from; their true uplift is known here, as they are simulated.
CUSTOMERS = PROBLEM.draw_joint(5000, random_state=100)


def net(uplift: np.ndarray, rule: np.ndarray) -> float:
    """Return the net gain in euros per customer."""
    return expected_gain(uplift, rule, value=VALUE, cost=COST).net_per_row


def one_draw(
    n: int, seed: int, settings: dict[str, object]
) -> tuple[float, float, float]:
    """Return what a rule promises, what it brings, and what a trial kept aside says of it."""
    model = MinMaxUplift(**settings, n_jobs=1, random_state=seed)
    model.fit(**PROBLEM.draw(n, random_state=seed))
    uplift = model.predict(CUSTOMERS.X)
    rule = profit_rule(uplift, value=VALUE, cost=COST)
    trial = PROBLEM.draw_joint(5000, random_state=1000 + seed)
    on_trial = profit_rule(model.predict(trial.X), value=VALUE, cost=COST)
    values = joint_values(trial.y, trial.treatment, propensity=trial.propensity)
    return net(uplift, rule), net(CUSTOMERS.uplift, rule), net(values, on_trial)


def draw_optimism(ax: Axes, table: np.ndarray, best: float) -> None:
    """Draw promised, true and measured gain against the number of rows."""
    ax.axhline(best, color=GREY, lw=1.2, ls=":")
    ax.text(
        ROWS[-1],
        best + 0.02,
        "best rule, uplift known",
        ha="right",
        va="bottom",
        fontsize=9,
        color=GREY,
    )
    for column, (text, color) in enumerate(
        (
            ("promised by the predictions that chose", ORANGE),
            ("what mailing that list brings", BLUE),
            ("measured on a trial kept aside", GREEN),
        )
    ):
        style = "--" if column == 2 else "-"
        ax.plot(
            ROWS, table[:, column], style, color=color, marker="o", ms=4, label=text
        )
    ax.set_xscale("log")
    ax.set_xticks(ROWS, [f"{n:,}" for n in ROWS])
    ax.minorticks_off()
    ax.set_ylim(0.0, 1.1 * max(best, table.max()))
    ax.set_xlabel("rows per table the uplift was learned from")
    ax.set_ylabel("net gain (euros per customer)")
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    ax.set_title("the promise is too good", fontsize=11, weight="bold")


def draw_budgets(ax: Axes) -> None:
    """Draw the net gain of one model's list against the budget."""
    model = MinMaxUplift(**FREE, n_jobs=1, random_state=0)
    model.fit(**PROBLEM.draw(4000, random_state=0))
    uplift = model.predict(CUSTOMERS.X)
    budgets = np.linspace(0.0, len(uplift) * COST, 41)
    for score, text, color in (
        (CUSTOMERS.uplift, "best list, uplift known", GREY),
        (uplift, "list from the four tables", BLUE),
    ):
        gains = [
            net(
                CUSTOMERS.uplift,
                profit_rule(score, value=VALUE, cost=COST, budget=budget),
            )
            for budget in budgets
        ]
        ax.plot(budgets, gains, ":" if color == GREY else "-", color=color, label=text)
    everybody = [
        net(CUSTOMERS.uplift, np.full(len(uplift), b / budgets[-1])) for b in budgets
    ]
    ax.plot(budgets, everybody, "--", color=ORANGE, lw=1.2, label="customers at random")
    ax.set_xlabel("budget for mails (euros, one per mail)")
    ax.set_ylabel("true net gain (euros per customer)")
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    ax.set_ylim(0.0, 2.0)
    ax.set_title("what a budget buys", fontsize=11, weight="bold")


def main(folder: Path) -> Path:
    """Draw the picture, print the numbers and return the file."""
    best = net(CUSTOMERS.uplift, profit_rule(CUSTOMERS.uplift, value=VALUE, cost=COST))
    for settings, name in ((CHOSEN, "default shrinkage"), (FREE, "little shrinkage")):
        table = np.array(
            [
                np.mean([one_draw(n, s, settings) for s in range(DRAWS)], axis=0)
                for n in ROWS
            ]
        )
        print(name)
        for n, (promised, true, measured) in zip(ROWS, table, strict=True):
            print(
                f"{n:5d} rows per table: promised {promised:.2f}, true {true:.2f}, measured on a "
                f"trial kept aside {measured:.2f}, best {best:.2f} euros per customer"
            )
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_budgets(left)
    draw_optimism(right, table, best)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    path = folder / "targeting.png"
    figure.savefig(path, dpi=150)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
