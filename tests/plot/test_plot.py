"""Plots draw the numbers they are given, on the axes they are given."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_array_equal

from unjoined.data import paper_problem
from unjoined.errors import InputError
from unjoined.evaluate import uplift_curve
from unjoined.plot import plot_uplift_curve, plot_uplift_histogram

mpl.use("Agg")


@pytest.fixture(scope="module")
def rows():
    return paper_problem().draw_joint(200, random_state=0)


def test_curve_and_baselines_are_the_ones_given(rows):
    ax = Figure().add_subplot()
    curve = uplift_curve(rows.X[:, 0], rows.uplift)
    best = uplift_curve(rows.uplift, rows.uplift)
    assert plot_uplift_curve({"mine": curve}, perfect=best, unit="euros", ax=ax) is ax
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert_array_equal(lines["mine"].get_ydata(), curve.gain)
    assert_array_equal(lines["perfect order"].get_xdata(), best.share)
    assert lines["random order"].get_ydata()[-1] == curve.gain[-1]
    assert lines["treat all"].get_ydata()[0] == curve.gain[-1]
    assert "euros per person" in ax.get_ylabel()
    assert len(ax.collections) == 1  # one band


def test_baselines_and_band_can_be_left_out(rows):
    curve = uplift_curve(rows.X[:, 0], rows.uplift)
    ax = plot_uplift_curve(curve, random=False, treat_all=False, band=0.0)
    assert ax.get_lines()[0].get_label() == "estimate"
    assert len(ax.get_legend().get_texts()) == 1
    assert len(ax.collections) == 0


def test_histogram_counts_everybody_once(rows):
    ax = plot_uplift_histogram(rows.uplift, unit="visits", ax=Figure().add_subplot())
    assert sum(patch.get_height() for patch in ax.patches) == len(rows.uplift)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    share = np.mean(rows.uplift < 0)
    assert f"lose from treatment: {share:.0%}" in texts
    assert "visits per person" in ax.get_xlabel()


def test_histogram_without_harm_has_one_colour():
    ax = plot_uplift_histogram([0.1, 0.2, 0.3], bins=5)
    assert len(ax.patches) == 5


def test_histogram_refuses_what_it_cannot_draw():
    for uplift in ([], [np.nan], [np.inf, 0.0]):
        with pytest.raises(
            InputError, match="at least one value, and only finite ones"
        ):
            plot_uplift_histogram(uplift)


def test_no_global_style_is_touched(rows):
    before = dict(mpl.rcParams)
    plot_uplift_histogram(rows.uplift)
    plot_uplift_curve(uplift_curve(rows.uplift, rows.uplift))
    assert dict(mpl.rcParams) == before
