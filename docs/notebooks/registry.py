# %% [markdown]
# # A medical registry
#
# Two registries cannot be linked. One records who got a physiotherapy programme, the other how many days people spent in
# hospital afterwards. Two counties prescribe differently: the first often, the second seldom and mostly to older people. The
# second county is also older. We want to know which patients of a third county the programme spares days in hospital.
#
# Everything here is simulated, so that the truth is known.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from unjoined import SeparateLabels, Uplift
from unjoined.data import SimulatedProblem
from unjoined.evaluate import diagnose, evaluate_uplift
from unjoined.targeting import expected_gain, top_share_rule

NAMES = ["age", "earlier_stays", "lives_alone"]


def patients(mean_age):
    """Draw patients of a county."""

    def draw(n, rng):
        age = np.clip(rng.normal(mean_age, 9.0, n), 40.0, 95.0)
        stays = rng.poisson(0.5 + (age - 40.0) / 40.0).astype(float)
        return np.column_stack([age, stays, rng.random_sample(n) < 0.3])

    return draw


def days(X, treated):
    """Return the mean number of days in hospital."""
    age, stays, alone = X.T
    helped = 1.5 / (1.0 + np.exp(-(age - 70.0) / 5.0)) + 1.0 * alone
    return 3.0 + 0.1 * (age - 40.0) + 1.2 * stays - treated * helped


problem = SimulatedProblem(
    features={"county 1": patients(64.0), "county 2": patients(70.0)},
    target_features=patients(67.0),
    policies={
        "county 1": lambda X: 0.9 - (X[:, 0] - 40.0) / 150.0,
        "county 2": lambda X: 0.05 + (X[:, 0] - 40.0) / 250.0,
    },
    outcome=lambda X, treated, rng: (
        days(X, treated) + 2.0 * rng.standard_normal(len(X))
    ),
    outcome_mean=days,
)

# %% [markdown]
# ## The tables
#
# The outcome is a number of days. Ages differ between the counties, and from those of the patients to be scored. That is a covariate shift.

# %%
drawn = problem.draw(4000, random_state=0)
columns = {name: np.asarray(values) for name, values in drawn.items()}
data = SeparateLabels(**columns | {"X": pd.DataFrame(columns["X"], columns=NAMES)})
ages = pd.DataFrame({"age": columns["X"][:, 0], "county": columns["population"]})
print(ages.groupby("county")["age"].describe().round(1)[["mean", "std"]])
print(diagnose(data).headline)

# %% [markdown]
# ## Whom does it help?
#
# The check warns that the counties differ in age. `Uplift` compares people of the same age, so it can allow for that wherever
# both counties have patients. Negative numbers are days that are spared.

# %%
model = Uplift(random_state=0).fit(**data)
print(model.summary())

# %%
new = problem.draw_joint(4000, random_state=1)
people = pd.DataFrame(new.X, columns=NAMES)
effect = model.predict(people)
figure, ax = plt.subplots(figsize=(6, 4))
order = np.argsort(people["age"])
for alone, colour in ((0.0, "#1f5f99"), (1.0, "#b35a00")):
    at = order[people["lives_alone"].to_numpy()[order] == alone]
    label, age = "lives alone" if alone else "lives with others", people["age"].iloc[at]
    ax.plot(age, new.uplift[at], ":", color=colour, label=f"{label}, truth")
    ax.plot(age, effect[at], ".", ms=2, color=colour, label=label)
ax.set_xlabel("age")
ax.set_ylabel("days in hospital by the programme")
ax.legend()
plt.show()

# %% [markdown]
# ## Three hundred places
#
# The programme has 300 places for the 4,000 patients of the third county. Fewer days are better, so the sign is turned.

# %%
rule = top_share_rule(-effect, 300 / len(people))
promised = -expected_gain(effect, rule).net
true = -float(new.uplift @ rule)
best = -float(new.uplift @ top_share_rule(-new.uplift, 300 / len(people)))
at_random = -300 * new.uplift.mean()
print(f"Days spared: {promised:.0f} promised, {true:.0f} in truth.")
print(f"The best list spares {best:.0f}, one at random {at_random:.0f}.")

# %% [markdown]
# ## Without the truth
#
# In life there is no truth to compare with. Fresh separate tables show how far to trust the list.

# %%
fresh = problem.draw(4000, random_state=2)
columns = {name: np.asarray(values) for name, values in fresh.items()}
fresh = SeparateLabels(**columns | {"X": pd.DataFrame(columns["X"], columns=NAMES)})
print(evaluate_uplift(model, fresh, random_state=0))
