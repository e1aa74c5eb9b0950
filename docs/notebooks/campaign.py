# %% [markdown]
# # A campaign with separate logs
#
# Hillstrom's e-mail trial is public. 64,000 customers were mailed or not, at random, and who came back to the shop is
# known for each of them. We take it apart into four tables, as if the mailing log and the shop's log could not be joined.
# Then we do the whole job with the four tables. At the end we open the envelope and look at the joint labels.
#
# The file is used if it was downloaded before (`fetch_email` does it once). Without it a simulated trial stands in.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from unjoined import Uplift
from unjoined.data import campaign_problem, unjoin
from unjoined.datasets import fetch_email
from unjoined.errors import UnjoinedError
from unjoined.evaluate import diagnose, evaluate_uplift, joint_values, uplift_curve
from unjoined.plot import plot_uplift_curve

try:
    trial = fetch_email(outcome="visit", treatment="womens", download=False)
    names = list(trial.feature_names)
    print(f"The e-mail trial: {len(trial.y):,} customers.")
except UnjoinedError:
    trial = campaign_problem().draw_joint(40_000, random_state=0)
    names = list(campaign_problem().feature_names)
    print(f"No file, so a simulated trial: {len(trial.y):,} customers.")

# %% [markdown]
# ## Four tables that cannot be joined
#
# Half of the customers are put aside in the envelope. The rest is dealt into two regions. The north mails eight in ten,
# the south two in ten. In each region, some customers are in the shop's log and others in the mailing log. Nobody is in both.

# %%
people = pd.DataFrame(trial.X, columns=names)
rng = np.random.default_rng(0)
order = rng.permutation(len(trial.y))
envelope, ours = order[: len(order) // 2], order[len(order) // 2 :]
propensity = np.broadcast_to(trial.propensity, len(trial.y))
apart = unjoin(
    people.iloc[ours],
    trial.y[ours],
    trial.treatment[ours],
    propensity=propensity[ours],
    policies={"north": 0.8, "south": 0.2},
    random_state=0,
)
data = apart.data
for cell in data.summary():
    name = f"{cell.kind}s {cell.population}"
    print(f"{name:17} {cell.n_rows:6,} rows, mean {cell.label_mean:.3f}")

# %% [markdown]
# ## Do these tables identify uplift?

# %%
print(diagnose(data).headline)

# %% [markdown]
# ## Who responds to a mail?

# %%
model = Uplift(random_state=0).fit(**data)
print(model.summary())

# %% [markdown]
# ## How good is the ranking, by the separate tables alone?
#
# The rows that chose the model would flatter it. So a model that saw two thirds of the rows is judged by the last third. Every
# number has an interval, and no row has both labels.

# %%
hand = rng.integers(0, 3, data.n_rows)
train, held = (data.take(np.flatnonzero(at)) for at in (hand > 0, hand == 0))
judged = Uplift(random_state=0).fit(**train)
print(evaluate_uplift(judged, held, random_state=0))

# %% [markdown]
# ## The envelope
#
# Now the customers who were put aside, with both labels. Mailing from the top of the list gains this much:

# %%
scores = model.predict(people.iloc[envelope])
y, treated = trial.y[envelope], trial.treatment[envelope]
values = joint_values(y, treated, propensity=propensity[envelope])
figure, ax = plt.subplots(figsize=(6, 4))
plot_uplift_curve(uplift_curve(scores, values), ax=ax)
plt.show()
half = 1.96 * values.std() / np.sqrt(len(values))
print(f"Average effect with joint labels: {values.mean():+.4f}")
print(f"  95% interval {values.mean() - half:+.4f} to {values.mean() + half:+.4f}")
low, high = model.average_effect_.interval(0.95)
print(f"Estimated from four tables: {model.average_effect_.value:+.4f}")
print(f"  95% interval {low:+.4f} to {high:+.4f}")

# %% [markdown]
# The estimate from tables that share no row lies near what the trial says. The interval is wider than a trial's would be.
# That is the price of not joining.
