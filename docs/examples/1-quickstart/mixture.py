"""The picture of the mixture page: uplift over the plane, when the policies hardly differ.

Run: python docs/examples/1-quickstart/mixture.py [FOLDER]; writes mixture.png there and prints
the numbers of the page.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from unjoined import MinMaxGau, Uplift
from unjoined._typing import Array
from unjoined.data import paper_problem
from unjoined.errors import WeakIdentificationWarning
from unjoined.estimators.base import UpliftEstimator
from unjoined.evaluate import qini

B, N_PER_TABLE, N_DRAWS, REACH = 0.4, 2000, 4, 7.0


def fit_draws(model: UpliftEstimator, plane: Array) -> tuple[Array, list[float]]:
    """Return the uplift on the plane from the first draw, and each draw's share of the oracle."""
    problem = paper_problem(b=B)
    shares, uplift = [], np.empty(0)
    for seed in range(N_DRAWS):
        new = problem.draw_joint(10_000, random_state=100 + seed)
        with (
            warnings.catch_warnings()
        ):  # expected: policies this close are weakly identified
            warnings.simplefilter("ignore", WeakIdentificationWarning)
            model.fit(**problem.draw(N_PER_TABLE, random_state=seed))
        shares.append(qini(model.predict(new.X), new.uplift, normalize=True).value)
        uplift = model.predict(plane) if seed == 0 else uplift
    return uplift, shares


def main(folder: Path) -> Path:
    """Draw the picture and return the file."""
    side = np.linspace(-REACH, REACH, 141)
    plane = np.array([[x1, x2] for x2 in side for x1 in side])
    panels = {
        f"true uplift\npolicies {B} apart in log-odds": paper_problem(b=B).uplift(plane)
    }
    models = {
        "Uplift": Uplift(random_state=0),
        "MinMaxGau, the paper's method": MinMaxGau(random_state=0),
    }
    for name, model in models.items():
        uplift, shares = fit_draws(model, plane)
        print(f"{name}: shares of the oracle", *(f"{share:.2f}" for share in shares))
        low, high = (
            f"{each(shares):.2f}".replace("-", "\N{MINUS SIGN}") for each in (min, max)
        )
        reach = low if low == high else f"{low} to {high}"
        panels[f"{name}\n{reach} of the oracle in {N_DRAWS} draws"] = uplift

    figure = Figure(figsize=(10.5, 3.9), layout="constrained")
    axes = figure.subplots(1, 3, sharex=True, sharey=True)
    for ax, (title, uplift) in zip(axes, panels.items(), strict=True):
        image = ax.imshow(
            uplift.reshape(len(side), -1),
            origin="lower",
            extent=(-REACH, REACH, -REACH, REACH),
            cmap="RdBu",
            vmin=-2.0,
            vmax=2.0,
            interpolation="bilinear",
        )
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("feature 1")
        ax.set_xticks([-5, 0, 5])
        ax.set_yticks([-5, 0, 5])
    axes[0].set_ylabel("feature 2")
    figure.colorbar(image, ax=axes, label="uplift (outcomes are -1 and +1)", shrink=0.9)
    path = folder / "mixture.png"
    figure.savefig(path, dpi=150)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
