"""What the paper says of its synthetic data, on fresh rows with known uplift."""

import numpy as np
import pytest

from unjoined import MinMaxGau, MinMaxUplift
from unjoined.data import paper_problem
from unjoined.evaluate import auuc, qini
from unjoined.model import GaussianBasis

pytestmark = [pytest.mark.statistical, pytest.mark.slow]
SEEDS = range(20)


def oracle_shares(model, b):
    """Share of the oracle's AUUC above random, one per seed, 4 x 2,000 rows."""
    problem = paper_problem(b)
    shares = []
    for seed in SEEDS:
        new = problem.draw_joint(5000, random_state=1000 + seed)
        fitted = model.set_params(random_state=seed).fit(
            **problem.draw(2000, random_state=seed)
        )
        shares.append(qini(fitted.predict(new.X), new.uplift, normalize=True).value)
    return np.array(shares)


def standard_error(values):
    return values.std(ddof=1) / np.sqrt(len(values))


@pytest.mark.parametrize("model", [MinMaxUplift(), MinMaxGau(width=5.0), MinMaxGau()])
def test_minmax_beats_random_by_a_wide_margin_at_b_5(model):
    """More than half of the way to the truth, by five standard errors."""
    shares = oracle_shares(model, b=5.0)
    assert shares.mean() - 5.0 * standard_error(shares) > 0.5


@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
def test_performance_falls_as_the_policies_approach_each_other():
    """Paired by seed, the loss from b = 5 to b = 0.2 exceeds four standard errors."""
    far, near = (oracle_shares(MinMaxUplift(), b) for b in (5.0, 0.2))
    loss = far - near
    assert loss.mean() > 4.0 * standard_error(loss)


@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
def test_nothing_is_learned_when_the_policies_are_the_same():
    """At b = 0 the ranking is as good as a random one: zero within four standard errors."""
    shares = oracle_shares(MinMaxUplift(), b=0.0)
    assert abs(shares.mean()) < 4.0 * standard_error(shares)


def test_auuc_of_the_truth_is_the_largest():
    new = paper_problem().draw_joint(5000, random_state=0)
    fitted = MinMaxUplift(random_state=0).fit(
        **paper_problem().draw(2000, random_state=0)
    )
    best = auuc(new.uplift, new.uplift).value
    assert auuc(fitted.predict(new.X), new.uplift).value < best


def test_variance_falls_like_one_over_the_number_of_rows():
    """Fixed basis and ridges make the estimate a smooth function of sample averages.

    16 times the rows then divide its variance by 16. Twenty draws of each size: the ratio of two
    variances with 19 degrees of freedom leaves a factor 4.5 around its expectation once in a
    thousand seeds.
    """
    problem = paper_problem(5.0)
    points = problem.draw_joint(50, random_state=99).X
    basis = GaussianBasis(problem.draw_joint(20, random_state=98).X, width=5.0)

    def variance(n):
        fits = [
            MinMaxUplift(
                basis=basis, standardize=False, center=False, ridge_f=1e-2, ridge_g=1e-2
            ).fit(**problem.draw(n, random_state=seed))
            for seed in range(20)
        ]
        return np.mean(np.var([fit.predict(points) for fit in fits], axis=0, ddof=1))

    assert 16 / 4.5 < variance(250) / variance(4000) < 16 * 4.5
