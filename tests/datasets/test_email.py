"""The e-mail campaign: what the file says is what comes out, and the published facts hold."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from unjoined.data import unjoin
from unjoined.datasets import fetch_email
from unjoined.errors import InputError, TableError

REAL = Path(__file__).parents[3] / "shared" / "data" / "hillstrom"
needs_file = pytest.mark.skipif(not REAL.is_dir(), reason="the e-mail file is not here")

HEADER = (
    "recency,history_segment,history,mens,womens,zip_code,newbie,channel,segment,"
    "visit,conversion,spend\r\n"
)
ROWS = [
    "10,2) $100 - $200,142.44,1,0,Surburban,0,Phone,Womens E-Mail,0,0,0\r\n",
    '6,"6) $750 - $1,000",829.08,1,1,Rural,1,Web,No E-Mail,1,0,0\r\n',
    '1,"7) $1,000 +",1329.5,0,1,Urban,0,Multichannel,Mens E-Mail,1,1,29.99\r\n',
    "12,1) $0 - $100,29.99,0,1,Urban,1,Web,No E-Mail,0,0,0\r\n",
]


def small(tmp_path, rows=ROWS, header=HEADER):
    path = tmp_path / "email.csv"
    path.write_text(header + "".join(rows), newline="")
    return path


def test_every_cell_is_where_its_name_says(tmp_path):
    data = fetch_email(path=small(tmp_path), outcome="spend")
    by_name = dict(zip(data.feature_names, data.X.T.tolist(), strict=True))
    assert by_name == {
        "recency": [10, 6, 1, 12],
        "history_segment": [2, 6, 7, 1],
        "history": [142.44, 829.08, 1329.5, 29.99],
        "mens": [1, 1, 0, 0],
        "womens": [0, 1, 1, 1],
        "zip_urban": [0, 0, 1, 1],
        "zip_suburban": [1, 0, 0, 0],
        "zip_rural": [0, 1, 0, 0],
        "newbie": [0, 1, 0, 1],
        "channel_phone": [1, 0, 0, 0],
        "channel_web": [0, 1, 0, 1],
        "channel_multichannel": [0, 0, 1, 0],
    }
    assert_array_equal(data.y, [0, 0, 29.99, 0])
    assert_array_equal(data.treatment, [1, 0, 1, 0])


@pytest.mark.parametrize(
    ("treatment", "treated", "chance", "visits"),
    [
        ("any", [1, 0, 1, 0], 2 / 3, [0, 1, 1, 0]),
        ("mens", [0, 1, 0], 1 / 2, [1, 1, 0]),
        ("womens", [1, 0, 0], 1 / 2, [0, 1, 0]),
    ],
)
def test_a_single_mailing_is_compared_with_no_mail_alone(
    tmp_path, treatment, treated, chance, visits
):
    data = fetch_email(path=small(tmp_path), treatment=treatment)
    assert_array_equal(data.treatment, treated)
    assert_array_equal(data.propensity, np.full(len(treated), chance))
    assert_array_equal(data.y, visits)


def test_a_gzipped_copy_and_other_line_ends_read_the_same(tmp_path):
    plain = fetch_email(path=small(tmp_path))
    packed = tmp_path / "email.csv.gz"
    packed.write_bytes(
        gzip.compress((HEADER + "".join(ROWS)).replace("\r", "").encode())
    )
    assert_array_equal(fetch_email(path=packed).X, plain.X)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "Rural",
            "Moon",
            r"zip_code should be one of Urban, Surburban, Rural, not 'Moon'",
        ),
        ("6) $750", "9) $750", "history_segment should be one of 1, 2, .*, not '9'"),
        (",1,0,0\r\n", ",2,0,0\r\n", "visit should be one of 0, 1, not '2'"),
        ("829.08", "nan", "history should be finite numbers"),
        ("829.08", "much", "could not convert string to float: 'much'"),
        (",1,0,0\r\n", ",1,0\r\n", "could not convert string to float: "),
    ],
)
def test_a_file_with_another_cell_is_refused_and_the_cell_named(
    tmp_path, old, new, message
):
    assert old in ROWS[1]
    path = small(tmp_path, [ROWS[0], ROWS[1].replace(old, new), *ROWS[2:]])
    with pytest.raises(
        TableError, match=rf"email.csv' is not the e-mail file: {message}"
    ):
        fetch_email(path=path)


def test_a_damaged_copy_is_refused(tmp_path):
    (file := tmp_path / "email.csv").write_bytes(gzip.compress(HEADER.encode())[:-9])
    with pytest.raises(TableError, match=r"is not the e-mail file: .* fetch it again"):
        fetch_email(path=file)


def test_another_file_is_refused_by_its_header(tmp_path):
    with pytest.raises(
        TableError, match=r"is not the e-mail file: .*, not 'age,visit'"
    ):
        fetch_email(path=small(tmp_path, header="age,visit\r\n"))
    with pytest.raises(TableError, match="it has no rows"):
        fetch_email(path=small(tmp_path, rows=[]))


def test_options_are_words_of_a_list(tmp_path):
    with pytest.raises(
        InputError, match="outcome must be one of 'visit', 'conversion', 'spend'"
    ):
        fetch_email(path=small(tmp_path), outcome="clicks")
    with pytest.raises(
        InputError, match="treatment must be one of 'any', 'mens', 'womens'"
    ):
        fetch_email(path=small(tmp_path), treatment="both")


def test_rows_are_read_only_and_taken_by_position_or_mask(tmp_path):
    data = fetch_email(path=small(tmp_path))
    with pytest.raises(ValueError, match="read-only"):
        data.X[0, 0] = 1.0
    some = data.take([2, 0])
    assert_array_equal(some.X, data.X[[2, 0]])
    assert_array_equal(some.y, data.y[[2, 0]])
    assert_array_equal(some.propensity, data.propensity[[2, 0]])
    assert data.take(data.treatment == 1).n_rows == 2
    assert repr(data.take(np.zeros(4, dtype=bool))).count("none") == 2


# --- the real file --------------------------------------------------------------------------


@needs_file
def test_the_real_file_is_the_one_whose_checksum_we_know(cache):
    """A file in the cache is compared with its checksum, a copy of the user's is not."""
    cache.symlink_to(REAL)
    assert fetch_email(download=False).n_rows == 64_000


@pytest.mark.slow
@needs_file
@pytest.mark.parametrize(
    ("treatment", "n_treated", "visit", "spend"),
    [("mens", 21_307, 0.1828, 1.4226), ("womens", 21_387, 0.1514, 1.0772)],
)
def test_arms_have_their_published_sizes_and_means(treatment, n_treated, visit, spend):
    for outcome, treated_mean, control_mean in (
        ("visit", visit, 0.1062),
        ("spend", spend, 0.6528),
    ):
        data = fetch_email(path=REAL, outcome=outcome, treatment=treatment)
        treated = data.treatment == 1
        assert (treated.sum(), (~treated).sum()) == (n_treated, 21_306)
        assert data.y[treated].mean() == pytest.approx(
            treated_mean, abs=5e-5
        )  # as printed
        assert data.y[~treated].mean() == pytest.approx(control_mean, abs=5e-5)


@needs_file
def test_the_bracket_is_a_function_of_the_spending():
    data = fetch_email(path=REAL)
    assert data.X.shape == (64_000, 12)
    history, bracket = data.X[:, 2], data.X[:, 1]
    assert_array_equal(np.searchsorted([100, 200, 350, 500, 750, 1000], history, "right"),
                       bracket - 1)  # fmt: skip
    assert_array_equal(data.X[:, 5:8].sum(axis=1), 1)
    assert_array_equal(data.X[:, 9:12].sum(axis=1), 1)


@pytest.mark.slow
@needs_file
def test_conversions_are_visits_and_only_they_spend():
    visit, conversion, spend = (
        fetch_email(path=REAL, outcome=name).y
        for name in ("visit", "conversion", "spend")
    )
    assert (visit[conversion == 1] == 1).all()
    assert_array_equal(spend > 0, conversion == 1)


@needs_file
def test_the_trial_can_be_taken_apart():
    data = fetch_email(path=REAL)
    tables = unjoin(
        data.X,
        data.y,
        data.treatment,
        propensity=data.propensity,
        policies={"A": 0.9, "B": 0.3},
        n_per_table=2000,
        random_state=0,
    )
    shares = [
        cell.label_mean for cell in tables.data.summary() if cell.kind == "treatment"
    ]
    # Five standard errors of a share over 2,000 draws.
    assert shares[0] == pytest.approx(0.9, abs=5 * np.sqrt(0.9 * 0.1 / 2000))
    assert shares[1] == pytest.approx(0.3, abs=5 * np.sqrt(0.3 * 0.7 / 2000))
