# %% [markdown]
# # Two companies that exchange sums
#
# An agency knows whom it mailed. A shop knows who bought. Neither may send rows to the other. They agree on a plan, each adds up
# its own rows at home, and two small files of sums are enough to fit the model.
#
# The campaign is simulated, so that we can check the answer.

# %%
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from unjoined import MinMaxUplift
from unjoined.data import campaign_problem
from unjoined.evaluate import qini
from unjoined.federated import (
    aggregate_rows,
    fourier_plan,
    merge_sums,
    read_sums,
    write_sums,
)

problem = campaign_problem()
data = problem.draw(20_000, random_state=0)
columns = {name: np.asarray(values) for name, values in data.items()}
room = Path(tempfile.mkdtemp())

# %% [markdown]
# ## 1. Agree on a plan
#
# For each feature the plan has a typical value and a spread that both companies know, such as "customers are about 49 years old, give
# or take 18". The plan holds no row.

# %%
plan = fourier_plan(
    {
        "age": (49.0, 18.0),
        "days_since_order": (60.0, 60.0),
        "orders": (3.0, 2.5),
        "spend": (150.0, 140.0),
        "member": (0.4, 0.5),
    },
    ["north", "south"],
    outcome_values=(0, 1),
    random_state=0,
)
print(f"{plan.size} functions of {', '.join(plan.feature_names)}")


def capped(X):
    """Bring long tails within a few spreads, as both companies agreed."""
    X = np.array(X, dtype=float)
    X[:, 1], X[:, 2] = np.minimum(X[:, 1], 240.0), np.minimum(X[:, 2], 10.0)
    X[:, 3] = np.minimum(X[:, 3], 600.0)
    return X


# %% [markdown]
# ## 2. Each company adds up at home
#
# `aggregate_rows` refuses functions that are too fine and groups of too few rows. That does not make sums anonymous.

# %%
for company, label in (("shop", "y"), ("agency", "treatment")):
    at = ~np.isnan(columns[label])
    rows = {name: values[at] for name, values in columns.items()}
    rows["X"] = capped(rows["X"])
    file = write_sums(aggregate_rows(rows, plan), room / f"{company}.sums")
    size, raw = file.stat().st_size / 1e6, rows["X"].nbytes / 1e6
    print(f"{company}: {at.sum():,} rows of {raw:.1f} MB became {size:.2f} MB of sums")

# %% [markdown]
# ## 3. Either of them fits
#
# The two files are added up. Nothing else is needed.

# %%
files = [room / "shop.sums", room / "agency.sums"]
both = merge_sums([read_sums(file) for file in files])
model = MinMaxUplift(random_state=0).fit_moments(both)
strength = model.identification_
print(
    f"Policies differ by {strength.rms_gap:.2f}, first-stage F = {strength.f_statistic:.0f}."
)

# %% [markdown]
# ## What was lost?
#
# We compare with a fit of the same functions to all rows in one place, and with the truth. A share of 1 is the perfect order, 0 a
# random one.

# %%
new = problem.draw_joint(20_000, random_state=1)
people = pd.DataFrame(capped(new.X), columns=plan.feature_names)
together = MinMaxUplift(random_state=0).fit(**data)
for name, uplift in (
    ("two files of sums", model.predict(people)),
    ("all rows in one place", together.predict(new.X)),
):
    print(f"{name}: {qini(uplift, new.uplift, normalize=True).value:.2f} of the oracle")

# %% [markdown]
# Sums are data about people and go under a contract: [rows that may not leave](../guide/sums.md). Read it before you
# send any.
