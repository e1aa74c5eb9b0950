"""Weights for the target: what they leave alone, what they report, and what they refuse."""

import warnings

import numpy as np
import pytest
import skops.io
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from unjoined.data import SimulatedProblem, paper_problem
from unjoined.data.rows import label_rows, separate_labels
from unjoined.errors import InputError, OverlapWarning
from unjoined.model import LinearBasis
from unjoined.model.accumulate import accumulate
from unjoined.model.minmax import assemble
from unjoined.model.shift import effective_size, weigh_shift

CELLS = [("outcome", 0), ("outcome", 1), ("treatment", 0), ("treatment", 1)]
SIZES = {
    ("outcome", "A"): 150,
    ("outcome", "B"): 100,
    ("treatment", "A"): 60,
    ("treatment", "B"): 200,
}


def problem(mean_a=0.5, mean_b=-0.5):
    """Two populations around different points of the line; the target around 0."""

    def law(mean):
        return lambda n, rng: rng.normal(mean, 1.0, (n, 1))

    return SimulatedProblem(
        features={"A": law(mean_a), "B": law(mean_b)},
        target_features=law(0.0),
        policies={
            "A": lambda X: np.full(len(X), 0.8),
            "B": lambda X: np.full(len(X), 0.3),
        },
        outcome=lambda X, treated, rng: X[:, 0] + treated + rng.standard_normal(len(X)),
        outcome_mean=lambda X, treated: X[:, 0] + treated,
    )


def draw(n=SIZES, n_target=80, seed=0, **means):
    """Checked rows, and the features of the target rows."""
    data = problem(**means).draw(n, n_target=n_target, random_state=seed)
    return label_rows(**data), np.asarray(data.X)[np.asarray(data.kind) == "target"]


def weigh(rows, target, shift="classifier", *, clip=None, seed=0, **options):
    return weigh_shift(
        rows, target, shift, clip=clip, rng=np.random.RandomState(seed), **options
    )


METHODS = pytest.mark.parametrize("shift", ["classifier", LogisticRegression()])


# --- what stays the same --------------------------------------------------------------------


@pytest.fixture(scope="module")
def ways():
    """Rows, the target and the weighted rows and report, for each method and kind of target."""
    rows, target = draw()
    return [
        (rows, target, *weigh(rows, None if pooled else target, shift), pooled)
        for shift in ("classifier", LogisticRegression())
        for pooled in (True, False)
    ]


def test_weights_change_and_everything_else_stays(ways):
    for rows, _, weighted, _, _ in ways:
        kept = np.isin(rows.X[:, 0], weighted.X[:, 0])
        for name in ("X", "label", "kind", "population"):
            assert_array_equal(getattr(weighted, name), getattr(rows, name)[kept])
        assert weighted.names == rows.names
        assert weighted.coding == rows.coding
        assert np.all(rows.weight == 1.0)


def test_the_total_weight_of_each_cell_stays(ways):
    for rows, _, weighted, _, _ in ways:
        for cell in CELLS:
            assert_allclose(
                weighted.weight[weighted.at(*cell)].sum(), len(rows.at(*cell))
            )


def test_a_classifier_that_sees_no_difference_leaves_all_weights_at_one():
    rows, target = draw(n=100, n_target=100)
    for at in (None, target):
        weighted, report = weigh(rows, at, DummyClassifier(strategy="prior"))
        assert_allclose(weighted.weight, 1.0, rtol=1e-12)
        assert all(
            cell.effective_size == pytest.approx(cell.n_rows) for cell in report.cells
        )


def test_known_ratios_of_one_change_no_bit():
    """Known ratios are given as sample_weight; ones are what stands there without them."""
    data = problem().draw(50, random_state=0)
    plain, given = (label_rows(**data, sample_weight=w) for w in (None, np.ones(200)))
    one, other = (
        assemble(accumulate(LinearBasis(1), 2, rows)) for rows in (plain, given)
    )
    for name in ("A", "b", "C"):
        assert_array_equal(getattr(one, name), getattr(other, name))


# --- weights are multiplied by ratios -------------------------------------------------------


class Known(ClassifierMixin, BaseEstimator):
    """Odds of the last class against the first fixed in advance, by the sign of the feature."""

    def __init__(self, odds):
        self.odds = odds

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        propensity = np.where(X[:, 0] > 0.0, self.odds, 1.0 / self.odds)
        return (
            np.column_stack([propensity, np.ones(len(X))]) / (1.0 + propensity)[:, None]
        )


def ratios_of(rows, target, odds):
    """What `Known` amounts to in each cell, brought to mean 1."""
    ratio = np.empty(len(rows.X))
    for cell in CELLS:
        at = rows.at(*cell)
        pooled = np.concatenate([target, rows.X[at]])
        middle = np.average(
            pooled[:, 0], weights=np.r_[np.ones(len(target)), rows.weight[at]]
        )
        raw = np.where(rows.X[at, 0] > middle, odds, 1.0 / odds)
        ratio[at] = raw / np.average(raw, weights=rows.weight[at])
    return ratio


def test_weights_are_multiplied_by_ratios_of_mean_one():
    rows, target = draw()
    weighted, report = weigh(rows, target, Known(3.0))
    assert_allclose(weighted.weight, ratios_of(rows, target, 3.0), rtol=1e-12)
    for cell, reported in zip(CELLS, report.cells, strict=True):
        assert reported.largest_weight == pytest.approx(
            weighted.weight[rows.at(*cell)].max()
        )


def test_row_weights_stay_part_of_the_data():
    """A row of weight 2 ends with twice the weight of the same row of weight 1."""
    data = problem().draw(SIZES, n_target=80, random_state=0)
    weight = np.random.RandomState(1).choice([1.0, 2.0, 3.0], data.n_rows)
    target = np.asarray(data.X)[np.asarray(data.kind) == "target"]
    rows = label_rows(**data, sample_weight=weight)
    weighted, _ = weigh(rows, target, Known(3.0))
    assert_allclose(
        weighted.weight, rows.weight * ratios_of(rows, target, 3.0), rtol=1e-12
    )


def test_weights_of_target_rows_move_the_target():
    rows, target = draw(n=400, n_target=400)
    means = [
        np.average(weighted.X[:, 0], weights=weighted.weight)
        for weighted, _ in (
            weigh(rows, target, target_weight=weight)
            for weight in (None, np.where(target[:, 0] > 0.0, 1.0, 0.2))
        )
    ]
    assert means[1] > means[0] + 0.2


def test_after_weighting_the_cells_have_the_targets_mean():
    """Two populations a standard deviation apart; five standard errors of the averages."""
    for shift in ("classifier", LogisticRegression()):
        for pooled in (True, False):
            rows, target = draw(n=1500, n_target=1500)
            weighted, _ = weigh(rows, None if pooled else target, shift)
            aim = rows.X[:, 0] if pooled else target[:, 0]
            for cell in CELLS:
                at = weighted.at(*cell)
                share = weighted.weight[at] / weighted.weight[at].sum()
                x = weighted.X[at, 0]
                error = np.hypot(
                    np.sqrt(share**2 @ (x - share @ x) ** 2),
                    aim.std() / np.sqrt(len(aim)),
                )
                assert abs(share @ x - aim.mean()) < 5.0 * error
                assert abs(rows.X[rows.at(*cell), 0].mean() - aim.mean()) > 5.0 * error


# --- seeds and order ------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bits():
    for shift in ("classifier", LogisticRegression()):
        for pooled in (True, False):
            rows, target = draw()
            one, other = (
                weigh(rows, None if pooled else target, shift, seed=5)[0]
                for _ in range(2)
            )
            assert_array_equal(one.weight, other.weight)


def test_the_order_of_rows_does_not_matter():
    for shift in ("classifier", LogisticRegression()):
        for pooled in (True, False):
            data = dict(problem().draw(SIZES, n_target=80, random_state=0))
            mixed = np.random.RandomState(3).permutation(len(data["y"]))
            weights = []
            for order in (np.arange(len(mixed)), mixed):
                columns = {
                    name: np.asarray(column)[order] for name, column in data.items()
                }
                target = columns["X"][columns["population"] == ""]
                weighted, _ = weigh(
                    label_rows(**columns), None if pooled else target, shift
                )
                weights.append(
                    dict(zip(weighted.X[:, 0].tolist(), weighted.weight, strict=True))
                )
            assert weights[0].keys() == weights[1].keys()
            assert_allclose(
                [weights[1][x] for x in weights[0]],
                list(weights[0].values()),
                rtol=1e-10,
            )


# --- the report -----------------------------------------------------------------------------


def test_the_effective_size_is_between_one_and_the_number_of_rows():
    assert effective_size(np.full(7, 0.3)) == pytest.approx(7.0)
    assert effective_size(np.array([5.0, 0.0, 0.0])) == pytest.approx(1.0)
    assert effective_size(np.array([2.0, 1.0])) == pytest.approx(9.0 / 5.0)


def test_the_report_describes_the_weights(ways):
    methods = [report.method for *_, report, _ in ways]
    assert methods == ["classifier"] * 2 + ["LogisticRegression"] * 2
    for rows, _, weighted, report, pooled in ways:
        assert report.target == ("pooled rows" if pooled else "target rows")
        assert report.n_target == (len(rows.X) if pooled else 80)
        assert report.clip is None
        for (kind, k), cell in zip(CELLS, report.cells, strict=True):
            weight = weighted.weight[weighted.at(kind, k)]
            assert (cell.kind, cell.population) == (kind, rows.names[k])
            assert cell.n_rows == SIZES[kind, rows.names[k]]
            assert cell.effective_size == pytest.approx(effective_size(weight))
            assert cell.largest_weight == pytest.approx(weight.max())
            assert cell.n_clipped == 0
            assert cell.n_dropped == cell.n_rows - len(weight)
            assert 0.5 < cell.coverage < 1.5


def test_the_report_prints_a_line_per_cell():
    rows, target = draw()
    lines = str(weigh(rows, target, clip=20.0)[1]).splitlines()
    assert lines[0] == "weighted to 80 target rows by classifier"
    assert len(lines) == 5
    assert "outcome A: 150 rows worth" in lines[1]


def test_the_report_survives_a_file():
    report = weigh(*draw(), clip=10)[1]
    written = skops.io.dumps(report)
    trusted = skops.io.get_untrusted_types(data=written)
    assert set(trusted) <= {
        "unjoined.model.shift.CellShift",
        "unjoined.model.shift.ShiftReport",
    }
    assert skops.io.loads(written, trusted=trusted) == report


def test_coverage_tells_how_much_of_the_target_the_cell_has_seen():
    """The cells hold 0 and 1, half of the target 5; one split tells."""
    rng = np.random.RandomState(0)
    n = 400
    rows = label_rows(
        rng.randint(0, 2, (4 * n, 1)).astype(float),
        **separate_labels(
            rng.randint(0, 2, 4 * n), np.repeat(["outcome", "treatment"], 2 * n)
        ),
        population=np.tile(["A", "B"], 2 * n),
    )
    stump = DecisionTreeClassifier(max_depth=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverlapWarning)
        _, report = weigh(rows, rng.choice([0.0, 1.0, 5.0, 5.0], (n, 1)), stump)
    for cell in report.cells:
        assert cell.coverage == pytest.approx(0.5, abs=0.1)
        assert cell.effective_size > 0.8 * cell.n_rows  # which says nothing of it


# --- clipping -------------------------------------------------------------------------------


def test_a_cap_cuts_ratios_down_and_says_how_many():
    rows, target = draw()
    weighted, report = weigh(rows, target, Known(3.0), clip=2.0)
    assert report.clip == 2.0
    for cell, reported in zip(CELLS, report.cells, strict=True):
        at = rows.at(*cell)
        # Known odds are multiplied by the sizes before they are ratios.
        ratio = ratios_of(rows, target, 3.0)[at]
        scale = len(at) / len(target) * np.where(ratio > 1.0, 3.0, 1.0 / 3.0)
        capped = np.minimum(scale, 2.0)
        assert_allclose(weighted.weight[at], capped / capped.mean(), rtol=1e-12)
        assert reported.n_clipped == int((scale > 2.0).sum())
        assert reported.coverage == pytest.approx(capped.mean())


def test_a_cap_no_ratio_reaches_changes_nothing():
    rows, target = draw()
    one, other = (weigh(rows, target, clip=clip)[0] for clip in (None, 1e6))
    assert_array_equal(one.weight, other.weight)


def test_rows_the_target_never_visits_are_left_out():
    """The nearest neighbour says of some rows that the target has nobody like them."""
    rows, target = draw(mean_a=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverlapWarning)
        weighted, report = weigh(rows, target, KNeighborsClassifier(1), clip=5.0)
    assert sum(cell.n_dropped for cell in report.cells) > 0
    assert len(weighted.X) == len(rows.X) - sum(cell.n_dropped for cell in report.cells)
    assert weighted.weight.min() > 0.0


# --- refusals and warnings ------------------------------------------------------------------


@METHODS
def test_populations_without_overlap_are_refused_by_name(shift):
    rows, _ = draw(mean_a=30.0)
    with pytest.raises(
        InputError,
        match=r"no overlap: the outcome rows of population 'A' can be told from the outcome rows "
        r"of population 'B' without error.*Leave out features.*leave shift out",
    ):
        weigh(rows, None, shift)


@METHODS
def test_a_target_without_overlap_is_refused_by_name(shift):
    rows, target = draw(mean_b=30.0)
    with pytest.raises(
        InputError,
        match=r"no overlap: the outcome rows of population 'B' .* the target rows",
    ):
        weigh(rows, target, shift)


def test_infinite_ratios_need_a_cap():
    rows, target = draw(n=40, n_target=40)
    model = KNeighborsClassifier(1)
    with pytest.raises(
        InputError,
        match=r"gives \d+ of 40 rows among the outcome rows of population 'A' no chance.*"
        r"shift_clip.*CalibratedClassifierCV",
    ):
        weigh(rows, target, model)
    weighted, report = weigh(rows, target, model, clip=5.0)
    assert np.isfinite(weighted.weight).all()
    assert report.cells[0].n_clipped > 0


def test_a_shift_that_is_no_classifier_is_refused():
    for shift in (3, LogisticRegression, "kmm"):
        with pytest.raises(
            InputError, match=r"shift must be 'classifier' or .*sample_weight"
        ):
            weigh(*draw(), shift)


def test_a_classifier_without_probabilities_is_refused():
    with pytest.raises(
        InputError, match=r"LinearSVC has none\. Wrap it in .*CalibratedClassifierCV"
    ):
        weigh(*draw(), LinearSVC())


def test_a_cap_that_makes_no_sense_is_refused():
    cases = (
        (0.5, r"shift_clip must be at least 1, .* got 0\.5.*None leaves ratios alone"),
        (-1.0, r"shift_clip must be a finite number above 0, got -1\.0"),
        ("sqrt", "shift_clip must be a finite number above 0, got 'sqrt'"),
    )
    for clip, message in cases:
        with pytest.raises(InputError, match=message):
            weigh(*draw(), clip=clip)


def test_single_rows_cannot_be_compared():
    rows, target = draw(n={**SIZES, ("treatment", "A"): 1})
    with pytest.raises(
        InputError,
        match=r"the treatment rows of population 'A' number 1\. Give more rows",
    ):
        weigh(rows, target)
    with pytest.raises(InputError, match="the target rows number 1"):
        weigh(draw()[0], target[:1])


def test_two_rows_in_a_cell_are_enough():
    for shift in ("classifier", LogisticRegression()):
        for pooled in (True, False):
            rows, target = draw(n={**SIZES, ("treatment", "A"): 2}, seed=2)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OverlapWarning)
                weighted, _ = weigh(rows, None if pooled else target, shift)
            assert np.isfinite(weighted.weight).all()


def test_a_cell_that_hardly_resembles_the_target_warns_the_caller():
    rows, target = draw(n=400, n_target=400, mean_a=2.5, seed=1)
    with pytest.warns(
        OverlapWarning,
        match=r"few rows resemble the target rows: .* of population 'A' \(effective size \d+ of "
        r"400, coverage \d+%\).*set shift_clip",
    ) as caught:
        weigh_shift(rows, target, "classifier", rng=np.random.RandomState(0))
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("ignore::unjoined.errors.OverlapWarning")
def test_rows_dropped_by_the_shift_take_their_cell_with_them():
    data = dict(paper_problem().draw(300, random_state=0))
    target = data["X"][data["X"][:, 0] > 0.0]
    # Plain arrays are looked at in one go, which notes the cell of each row; lists are not.
    plain, listed = label_rows(**data), label_rows(**data | {"y": data["y"].tolist()})
    sums = []
    for rows in (plain, listed):
        weighted, report = weigh(rows, target, KNeighborsClassifier(1), clip=5.0)
        assert sum(cell.n_dropped for cell in report.cells) > 0
        assert len(weighted.cell) == len(weighted.X)
        basis = LinearBasis(weighted.X.shape[1])
        sums.append(accumulate(basis, basis.size, weighted))
    assert_array_equal(sums[0].n_rows, sums[1].n_rows)
    assert_array_equal(sums[0].gram, sums[1].gram)
