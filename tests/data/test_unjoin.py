"""Taking a trial apart: features and outcomes keep their laws, the policy becomes the asked one.

Each table remembers the trial's rows, so the labels it lost can be looked up and its full
law tested against the one that is known.
"""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.special import expit
from scipy.stats import chi2, norm

from unjoined.data import unjoin
from unjoined.data.chunks import feature_matrix
from unjoined.errors import InputError, LabelError, TableError

N = 200_000
POLICIES = {
    "constant": {"A": 0.9, "B": 0.2},
    "of features": {
        "A": lambda X: expit(X[:, 0]),
        "B": lambda X: expit(-1.0 - X[:, 1]),
    },
    "never and always": {"A": 1.0, "B": 0.0},
}
PROPENSITIES = {
    "coin": lambda X: np.full(len(X), 0.5),
    "of features": lambda X: 0.2 + 0.6 * expit(X[:, 0] - X[:, 1]),
}
CELLS = [("outcome", "A"), ("outcome", "B"), ("treatment", "A"), ("treatment", "B")]
# Three laws in each of four tables, six times: all comparisons of this module together fail
# by chance with probability 1e-4 at most.
ALPHA = 1e-4 / (3 * len(CELLS) * len(POLICIES) * len(PROPENSITIES))


def chance_of_outcome(X, treated):
    return expit(0.5 * X[:, 1] + treated * (0.5 + X[:, 0]))


def trial(propensity, *, n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    treated = (rng.random(n) < propensity(X)).astype(float)
    y = (rng.random(n) < chance_of_outcome(X, treated)).astype(float)
    return X, y, treated


def small_trial(n=400, seed=0):
    X, y, treated = trial(PROPENSITIES["coin"], n=n, seed=seed)
    return {"X": X, "y": y, "treatment": treated}


def bin_of(X):
    """Cut the plane into 16 bins of equal probability."""
    edges = norm.ppf([0.25, 0.5, 0.75])
    return 4 * np.digitize(X[:, 0], edges) + np.digitize(X[:, 1], edges)


def chi_square(values, chance, bins, n_bins):
    """Return the squared standardised sums of Bernoulli draws over bins, and their number."""
    residual = np.bincount(bins, weights=values - chance, minlength=n_bins)
    spread = np.bincount(bins, weights=chance * (1 - chance), minlength=n_bins)
    used = spread > 25.0  # a normal approximation needs more than a few successes
    return np.sum(residual[used] ** 2 / spread[used]), int(used.sum())


@pytest.mark.statistical
def test_features_and_outcomes_keep_their_laws_and_the_policy_is_the_asked_one():
    """p(x), p(t | x) and p(y | x, t) of every table, each by a chi-square test."""
    for logged in PROPENSITIES:
        for asked in POLICIES:
            X, y, treated = trial(PROPENSITIES[logged])
            made = unjoin(
                X,
                y,
                treated,
                policies=POLICIES[asked],
                propensity=PROPENSITIES[logged](X),
                random_state=1,
            )
            for kind, name in CELLS:
                rows = made.rows[made.data.rows(kind, name)]
                x, t, bins = X[rows], treated[rows], bin_of(X[rows])

                counts = np.bincount(bins, minlength=16)
                expected = len(rows) / 16
                assert np.sum((counts - expected) ** 2 / expected) < chi2.isf(ALPHA, 15)

                policy = POLICIES[asked][name]
                e = policy(x) if callable(policy) else np.full(len(x), policy)
                if policy in (0.0, 1.0):
                    assert_array_equal(t, e)
                else:
                    statistic, n_bins = chi_square(t, e, bins, 16)
                    assert n_bins == 16
                    assert statistic < chi2.isf(ALPHA, n_bins)

                arms = bins + 16 * t.astype(int)
                statistic, n_bins = chi_square(
                    y[rows], chance_of_outcome(x, t), arms, 32
                )
                assert n_bins >= 16
                assert statistic < chi2.isf(ALPHA, n_bins)


@pytest.mark.statistical
def test_without_a_propensity_the_share_treated_serves_a_trial_of_even_odds():
    """The share treated of a table is normal around the asked policy; four are looked at."""
    X, y, treated = trial(lambda X: np.full(len(X), 0.3))
    made = unjoin(X, y, treated, policies=POLICIES["constant"], random_state=2)
    for kind, name in CELLS:
        t = treated[made.rows[made.data.rows(kind, name)]]
        e = POLICIES["constant"][name]
        limit = norm.isf(1e-4 / 8) * np.sqrt(e * (1 - e) / len(t))
        assert abs(t.mean() - e) < limit


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.floats(0.05, 0.95),
    st.floats(0.05, 0.95),
    st.sampled_from([None, 20]),
)
def test_every_row_of_the_trial_is_used_at_most_once_with_its_own_label(seed, a, b, n):
    given_ = small_trial(seed=seed)
    made = unjoin(**given_, policies={"A": a, "B": b}, n_per_table=n, random_state=seed)
    data, rows = made.data, made.rows
    assert len(np.unique(rows)) == len(rows) == data.n_rows
    assert_array_equal(data.X, given_["X"][rows])
    for kind, label in (("outcome", "y"), ("treatment", "treatment")):
        at = data.rows(kind)
        assert_array_equal(data[label][at], given_[label][rows[at]])
    assert data.populations == ["A", "B"]
    assert data.rows("target").size == 0


def test_the_same_seed_deals_the_same_rows():
    made = [
        unjoin(
            **small_trial(), policies=POLICIES["constant"], random_state=s
        ).rows.tolist()
        for s in (0, 0, 1)
    ]
    assert made[0] == made[1] != made[2]


def test_a_policy_of_the_trial_itself_keeps_every_row():
    given_ = small_trial()
    share = float(given_["treatment"].mean())
    made = unjoin(**given_, policies={"A": share, "B": share}, random_state=0)
    assert sorted(made.rows) == list(range(400))


def test_n_per_table_rows_are_kept_and_they_are_the_first_of_those_without_it():
    given_ = small_trial()
    every = unjoin(**given_, policies=POLICIES["constant"], random_state=0)
    some = unjoin(
        **given_, policies=POLICIES["constant"], n_per_table=20, random_state=0
    )
    assert [cell.n_rows for cell in some.data.summary()] == [20] * 4
    for kind, name in CELLS:
        first = every.rows[every.data.rows(kind, name)][:20]
        assert_array_equal(some.rows[some.data.rows(kind, name)], first)


def test_a_data_frame_keeps_its_library_and_names():
    for frame in (pd.DataFrame, pl.DataFrame, pa.table):
        given_ = small_trial()
        table = frame({"age": given_["X"][:, 0], "spend": given_["X"][:, 1]})
        made = unjoin(
            **{**given_, "X": table}, policies=POLICIES["constant"], random_state=0
        )
        plain = unjoin(**given_, policies=POLICIES["constant"], random_state=0)
        assert isinstance(made.data.X, type(table))
        assert made.data.feature_names == ["age", "spend"]
        assert_array_equal(feature_matrix(made.data.X), plain.data.X)


def test_the_coding_of_treatment_changes_nothing():
    given_ = small_trial()
    codes = {
        "0/1": given_["treatment"],
        "bool": given_["treatment"] > 0,
        "paper": 2 * given_["treatment"] - 1,
    }
    made = {
        name: unjoin(
            **{**given_, "treatment": code},
            policies=POLICIES["constant"],
            random_state=0,
        )
        for name, code in codes.items()
    }
    for name in codes:
        assert_array_equal(made[name].rows, made["0/1"].rows)
        assert_array_equal(made[name].data.treatment, made["0/1"].data.treatment)


def test_populations_may_be_named_by_numbers():
    made = unjoin(**small_trial(), policies={1: 0.9, 2: 0.2}, random_state=0)
    assert made.data.populations == ["1", "2"]


# --- messages -------------------------------------------------------------------------------


def test_a_policy_outside_zero_and_one_is_named():
    for bad in (-0.1, 1.5, lambda X: X[:, 0], np.nan):
        message = (
            r"policies\['B'\] must (hold probabilities in \[0, 1\]|be finite, got nan)"
        )
        with pytest.raises(InputError, match=message):
            unjoin(**small_trial(), policies={"A": 0.5, "B": bad}, random_state=0)


def test_a_propensity_outside_zero_and_one_is_named():
    for bad in (-0.5, 1.5, np.nan):
        propensity = np.full(400, 0.5)
        propensity[7] = bad
        with pytest.raises(
            InputError,
            match=r"propensity must (lie strictly between 0 and 1|be finite), got",
        ):
            unjoin(
                **small_trial(), policies=POLICIES["constant"], propensity=propensity
            )


@pytest.mark.parametrize("bad", [0.0, 1.0])
def test_a_propensity_of_zero_or_one_is_refused(bad):
    propensity = np.full(400, 0.5)
    propensity[7] = bad
    with pytest.raises(
        InputError, match=r"between 0 and 1.* Leave out rows that could not"
    ):
        unjoin(**small_trial(), policies=POLICIES["constant"], propensity=propensity)


def test_a_trial_of_one_arm_says_nothing_about_another_policy():
    given_ = {**small_trial(), "treatment": np.ones(400)}
    with pytest.raises(
        InputError, match="propensity must lie strictly between 0 and 1"
    ):
        unjoin(**given_, policies=POLICIES["constant"])


def test_too_few_rows_name_the_table_what_is_left_and_what_is_asked():
    with pytest.raises(
        InputError,
        match=r"sub-sampling left \d+ rows for the outcome table of population 'A', but 100 are ne",
    ):
        unjoin(
            **small_trial(),
            policies=POLICIES["constant"],
            n_per_table=100,
            random_state=0,
        )


def test_a_table_without_rows_is_too_few():
    given_ = {name: values[:3] for name, values in small_trial().items()}
    given_["treatment"] = np.array([0.0, 1.0, 0.0])
    with pytest.raises(
        InputError, match=r"left 0 rows for the .* table .* but 1 are needed"
    ):
        unjoin(**given_, policies={"A": 0.5, "B": 0.5}, random_state=0)


def test_n_per_table_is_a_whole_number_above_zero():
    for n in (0, -1, 2.5):
        with pytest.raises(
            InputError, match="n_per_table must be a whole number, 1 or above"
        ):
            unjoin(
                **small_trial(),
                policies=POLICIES["constant"],
                n_per_table=n,
                random_state=0,
            )


@pytest.mark.parametrize("name", ["y", "treatment"])
def test_labels_are_one_per_row_and_one_dimensional(name):
    given_ = small_trial()
    with pytest.raises(InputError, match=f"{name} has 399 entries but X has 400 rows"):
        unjoin(**{**given_, name: given_[name][:-1]}, policies=POLICIES["constant"])
    with pytest.raises(InputError, match=f"{name} must be one-dimensional"):
        unjoin(**{**given_, name: given_[name][:, None]}, policies=POLICIES["constant"])


def test_the_propensity_is_one_per_row():
    with pytest.raises(
        InputError, match=r"propensity must be .* one per row \(400\), got 3"
    ):
        unjoin(**small_trial(), policies=POLICIES["constant"], propensity=[0.5] * 3)


@pytest.mark.parametrize("shape", [(3,), (400, 1)])
def test_a_policy_gives_one_probability_per_row(shape):
    with pytest.raises(InputError, match=r"policies\['B'\]"):
        unjoin(**small_trial(), policies={"A": 0.5, "B": lambda X: np.full(shape, 0.5)})


def test_labels_that_are_no_numbers_are_refused():
    for name in ("y", "treatment"):
        for bad in (np.nan, np.inf):
            given_ = small_trial()
            given_[name][5] = bad
            with pytest.raises(
                InputError, match=f"{name} must be finite, got {bad} .* at position 5"
            ):
                unjoin(**given_, policies=POLICIES["constant"])


def test_three_treatments_are_refused():
    given_ = small_trial()
    given_["treatment"][5] = 2.0
    with pytest.raises(
        LabelError, match=r"0/1, False/True or -1/\+1, got 0\.0, 1\.0, 2\.0"
    ):
        unjoin(**given_, policies=POLICIES["constant"])


def test_features_that_are_no_numbers_name_their_column():
    given_ = small_trial()
    table = pd.DataFrame({"age": given_["X"][:, 0], "city": ["u"] * 400})
    with pytest.raises(TableError, match="column 'city' of X holds"):
        unjoin(**{**given_, "X": table}, policies=POLICIES["constant"])
    table["city"] = np.nan
    with pytest.raises(
        InputError, match="features of X contain NaN in 400 of 400 rows, in 'city'"
    ):
        unjoin(**{**given_, "X": table}, policies=POLICIES["constant"])


THREE_POLICIES = {
    "A": lambda X: 0.2 + 0.3 * X[:, 0],
    "B": 0.5,
    "C": lambda X: 0.8 - 0.3 * X[:, 0],
}


CHANCE = np.array(
    [[0.1, 0.5, 0.7], [0.6, 0.5, 0.2]]
)  # of the outcome 1, by treatment and x


def discrete_trial(n=60_000):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, n)
    treated = (rng.random(n) < 0.4).astype(int)
    y = (rng.random(n) < CHANCE[treated, x]).astype(float)
    return x[:, None].astype(float), y, treated


def chance_errors(found, expected):
    """By how many standard errors the mean of each group of 0/1 is off."""
    return [
        abs(values.mean() - p) / np.sqrt(p * (1 - p) / len(values))
        for values, p in zip(found, expected, strict=True)
    ]


def test_a_trial_is_taken_apart_into_the_tables_of_three_populations():
    """p(x) and p(y|x,t) stay as they were and p_k(t|x) is the policy: 54 shares, each a binomial.

    One of 54 normal variables is beyond 4.5 once in 2,700 seeds.
    """
    X, y, treated = discrete_trial()
    found = unjoin(
        X, y, treated, policies=THREE_POLICIES, propensity=0.4, random_state=0
    )
    assert len(set(found.rows.tolist())) == found.data.n_rows == len(found.rows)
    assert found.data.populations == ["A", "B", "C"]
    np.testing.assert_array_equal(found.data.X, X[found.rows])
    errors = []
    for name, policy in THREE_POLICIES.items():
        for kind, label in (("outcome", y), ("treatment", treated)):
            at = found.data.rows(kind, name)
            rows = found.rows[at]
            np.testing.assert_array_equal(found.data.checked.label[at], label[rows])
            x, t = X[rows, 0].astype(int), treated[rows]
            errors += chance_errors([x == v for v in range(3)], [1 / 3] * 3)
            wanted = (
                policy(np.arange(3.0)[:, None])
                if callable(policy)
                else np.full(3, policy)
            )
            errors += chance_errors([t[x == v] for v in range(3)], wanted)
            if kind == "outcome":
                cells = [(u, v) for u in (0, 1) for v in range(3)]
                labels = [y[rows][(t == u) & (x == v)] for u, v in cells]
                errors += chance_errors(labels, [CHANCE[u, v] for u, v in cells])
    assert len(errors) == 54
    assert max(errors) < 4.5


def test_a_row_of_the_trial_is_in_one_table_of_five_populations():
    X, y, treated = discrete_trial(5000)
    shares = dict(zip("EDCBA", (0.1, 0.3, 0.5, 0.7, 0.9), strict=True))
    found = unjoin(X, y, treated, policies=shares, n_per_table=40, random_state=0)
    assert found.data.populations == list("ABCDE")
    assert found.data.n_rows == 10 * 40 == len(set(found.rows.tolist()))


def test_one_policy_is_refused():
    for policies, found in (({}, "0"), ({"A": 0.5}, "1"), ([0.5, 0.4], "list")):
        X, y, treated = discrete_trial(100)
        with pytest.raises(InputError, match=f"two populations or more, got {found}"):
            unjoin(X, y, treated, policies=policies)
