"""Centring inside the pass: the sums of labels that were centred before it."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from unjoined.data import campaign_problem, paper_problem
from unjoined.data.rows import label_rows
from unjoined.federated import SumsPlan
from unjoined.model import FourierBasis, GaussianBasis, LinearBasis
from unjoined.model.accumulate import accumulate, accumulate_policies
from unjoined.model.basis import ScaledBasis, Scaling, StackedBasis
from unjoined.model.centring import cross_fit_centring, deal_folds
from unjoined.model.draw import draw_basis, means_basis, same_basis
from unjoined.model.moments import CellKey
from unjoined.model.plan import shared_means


def fit_centring(rows, rng, **options):
    """Fit one pair (m, q) to all rows: a single fold leaves nothing out."""
    fold = np.zeros(len(rows.label), dtype=np.int64)
    return cross_fit_centring(rows, fold, rng, **options)[0][0]


FIELDS = ("weight", "label_cross", "label_basis", "gram")


def rows_of(problem, n, *, weighted=False, real=False):
    data, rng = problem.draw(n, random_state=0), np.random.default_rng(0)
    y = data.y + np.where((data.kind == "outcome") & real, rng.standard_normal(data.n_rows), 0.0)
    weight = rng.uniform(0.5, 2.0, data.n_rows) if weighted else None
    return label_rows(**{**data, "y": y}, sample_weight=weight)


def plan_of(rows, name, n_folds):
    """Return a plan that centres on the basis of its sums, and the rows' folds."""
    rng = np.random.RandomState(0)
    scaling = Scaling.of_rows(rows.X, rows.weight)
    basis = draw_basis(name, scaling(rows.X), n_centers=21, width=1.5, rng=rng)
    fold = deal_folds(rows, rng, n_folds) if n_folds > 1 else np.zeros(len(rows.X), dtype=int)
    space = ScaledBasis(means_basis(basis) or basis, scaling)
    parts = cross_fit_centring(rows, fold, rng, space=space)
    centring = tuple(part for part, _ in parts)
    names = tuple(rows.names)
    return SumsPlan(None, names, rows.coding, scaling, basis, basis, centring, n_folds), fold


@pytest.mark.parametrize("name", ["smooth", "gaussian", "fourier", "linear"])
@pytest.mark.parametrize("n_folds", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("binary", [False, True])
def test_sums_are_those_of_labels_centred_before(name, n_folds, weighted, binary):
    rows = rows_of(campaign_problem(), 150, weighted=weighted, real=not binary)
    assert rows.coding.is_binary == binary
    plan, fold = plan_of(rows, name, n_folds)
    planned = plan.sums(rows, fold, n_jobs=2)
    found, policy = planned.sums, planned.policy
    label = plan.centred(rows, fold, n_jobs=1)
    centred = replace(rows, label=label)
    expected = accumulate(plan.values, plan.size, centred, groups=fold)
    assert set(found.cells) == set(expected.cells)
    for key, cell in expected.cells.items():
        for field in FIELDS:
            want = np.asarray(getattr(cell, field))
            scale = max(1.0, float(np.abs(want).max()))
            assert_allclose(getattr(found.cells[key], field), want, rtol=0, atol=1e-11 * scale)
    # Policies are told apart by the treatments, not by what centring leaves of them.
    for k in (0, 1):
        at = rows.at("treatment", k)
        assert_allclose(policy.label[k, 0], rows.weight[at] @ rows.label[at], atol=1e-9)


def test_a_cell_without_its_mean_is_not_left_as_it_is():
    rows = rows_of(campaign_problem(), 40)
    plan, _ = plan_of(rows, "smooth", 1)
    means = plan._means()
    del means[CellKey("treatment", 1, 0)]
    with pytest.raises(KeyError):
        accumulate_policies(plan.values, plan.size, rows, plan.scaling, means=means)


def test_a_mean_is_kept_between_the_labels():
    """Else a treatment less its mean could change its sign, which the sums sort by."""
    rows = rows_of(campaign_problem(), 40)
    plan, _ = plan_of(rows, "smooth", 1)
    (centring,) = plan.centring
    coef = 3.0 * np.random.default_rng(0).standard_normal(centring.means.coef.shape)
    steep = replace(centring, means=replace(centring.means, coef=coef))
    means = shared_means(steep, plan.basis, plan.scaling)
    values = plan.values(rows.X)
    assert np.abs(values @ coef).max() > 2.0
    for mean, expected in zip(means.values(), steep(rows.X), strict=True):
        found = mean(values, mean.linear(rows.X))
        assert np.abs(found).max() <= 1.0
        assert_allclose(found, expected, atol=1e-12)


def test_labels_of_the_policies_are_the_treatments_though_others_enter_the_sums():
    rows = rows_of(paper_problem(), 50)
    basis = LinearBasis(2)
    centred = np.full(len(rows.X), 0.25)
    sums, policy = accumulate_policies(
        basis, 3, rows, Scaling.identity(2), centred=centred, groups=None
    )
    at = rows.at("treatment", 0)
    assert_allclose(sums.cells[CellKey("treatment", 0, 0)].label_basis[0], 0.25 * len(at))
    assert_allclose(policy.label[0, 0], rows.label[at].sum())


def test_means_on_another_basis_are_not_shared():
    rows = rows_of(paper_problem(), 50)
    plan, _ = plan_of(rows, "gaussian", 1)
    elsewhere = GaussianBasis(plan.basis.centers + 1.0, plan.basis.width)
    assert shared_means(plan.centring[0], elsewhere, plan.scaling) is None
    assert shared_means(plan.centring[0], plan.basis, Scaling.identity(2)) is None
    own = fit_centring(rows, np.random.RandomState(0))
    assert shared_means(own, plan.basis, own.scaling) is None


def test_unknown_functions_are_not_centred_on():
    class Sine:
        size, n_features = 1, 2

        def __call__(self, X):
            return np.sin(X[:, :1])

    assert means_basis(LinearBasis(2)) is None
    assert means_basis(Sine()) is None
    assert means_basis(StackedBasis(Sine(), LinearBasis(2))) is None


def test_bases_are_the_same_by_their_numbers():
    centers = np.arange(6.0).reshape(3, 2)
    frequencies, phases = centers.T, np.zeros(3)
    different = [
        LinearBasis(2),
        LinearBasis(3),
        GaussianBasis(centers, 1.0),
        GaussianBasis(centers, 2.0),
        GaussianBasis(centers + 1.0, 1.0),
        FourierBasis(frequencies, phases),
        FourierBasis(frequencies, phases + 1.0),
        StackedBasis(LinearBasis(2), GaussianBasis(centers, 1.0)),
        StackedBasis(LinearBasis(2), GaussianBasis(centers, 2.0)),
    ]
    again = [
        LinearBasis(2),
        LinearBasis(3),
        GaussianBasis(centers.copy(), 1.0),
        GaussianBasis(centers.copy(), 2.0),
        GaussianBasis(centers + 1.0, 1.0),
        FourierBasis(frequencies.copy(), phases.copy()),
        FourierBasis(frequencies, phases + 1.0),
        StackedBasis(LinearBasis(2), GaussianBasis(centers, 1.0)),
        StackedBasis(LinearBasis(2), GaussianBasis(centers, 2.0)),
    ]
    same = [[same_basis(a, b) for b in again] for a in different]
    assert same == np.eye(len(different), dtype=bool).tolist()
