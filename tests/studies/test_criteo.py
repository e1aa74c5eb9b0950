"""The counterfactual test-bed: three forms of one log read alike, and the published facts hold."""

import gzip
import io
import tarfile
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from studies.criteo import Impression, criteo_impressions, fetch_criteo
from unjoined.errors import InputError, TableError

REAL = Path(__file__).parents[3] / "shared" / "data" / "criteo_counterfactual"
needs_files = pytest.mark.skipif(
    not REAL.is_dir(), reason="the Criteo files are not here"
)

CODES = (300, 250, 0, 47, 1585, 5, 0, 56, 74, 0)  # display features 1 to 10
TOKEN_OF_FEATURE = {3: 2, 4: 3, 5: 4, 6: 5, 7: 6, 8: 7, 9: 8, 10: 9}
INDEX = {token: feature for feature, token in TOKEN_OF_FEATURE.items()}


def draw(n, seed=0):
    """Draw impressions together with the feature 12 of their candidates."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(n):
        flags = rng.integers(0, 2, rng.integers(1, 6)).tolist()
        one = Impression(
            example=1000 + i,
            features=tuple(map(float, CODES[:2] + tuple(rng.integers(0, 99, 8)))),
            treated=bool(flags[0]),
            clicked=bool(rng.random() < 0.3),
            propensity=float(rng.uniform(0.01, 1.0)),
            n_candidates=len(flags),
            n_treated=sum(flags),
        )
        made.append((one, flags))
    return made


def form_a(made, slots=1):
    lines = []
    for one, flags in made:
        features = " ".join(f"{j}:{v:g}" for j, v in enumerate(one.features, 1))
        lines.append(
            f"example {one.example}: c0ffee {one.clicked:d} {one.propensity!r} {slots} "
            f"{len(flags)} {features}"
        )
        for j, flag in enumerate(flags):
            # 112:1 and 35:12 look like the treatment and are not.
            click = int(one.clicked and j == 0)
            lines.append(f"{click} exid:{one.example} 11:1 12:{flag} 17:2 17:2 35:12")
    return "\n".join(lines) + "\n"


def form_b(made):
    lines = []
    for one, flags in made:
        numbers = " ".join(f"{j}:{v:g}" for j, v in enumerate(one.features[:2], 1))
        codes = " ".join(f"{j}_{v:g}" for j, v in enumerate(one.features[2:], 3))
        lines.append(f"shared {one.example}| {numbers} {codes}")
        kept = one.propensity if one.clicked else one.propensity / 10
        cost = "0.001" if one.clicked else "0.999"
        label = f"0:{cost}:{kept!r} "
        for j, flag in enumerate(flags):
            lines.append(
                f"{label if j == 0 else ''}| 11_1 12_{flag} 17_1:2 17_2 17_1:3 35_12"
            )
        lines.append("")
    return "\n".join(lines)


def form_c(made, space=""):
    lines = []
    for one, flags in made:
        weight = (1 if one.clicked else 10) / one.propensity
        cost = "0.001" if one.clicked else "0.999"
        display = f"0:{one.features[0]:g} 1:{one.features[1]:g} " + " ".join(
            f"{token}:1" for token in INDEX
        )
        for j, flag in enumerate(flags):
            label = f"|l {cost} |p {weight!r}{space}" if j == 0 else ""
            lines.append(
                f"{one.example} {label}|f {display} {49 if flag else 11}:1 149:1 211:2"
            )
    return "\n".join(lines) + "\n"


def written(tmp_path, text, name="log.txt"):
    path = tmp_path / name
    path.write_text(text)
    return path


def assert_same(found, expected):
    assert [replace(one, propensity=0.0) for one in found] == [
        replace(one, propensity=0.0) for one in expected
    ]
    assert_allclose(
        [one.propensity for one in found], [one.propensity for one in expected]
    )


@pytest.mark.parametrize("form", [form_a, form_b])
def test_forms_that_name_features_give_back_the_impressions(tmp_path, form):
    made = draw(50)
    path = written(tmp_path, form(made))
    assert_same(list(criteo_impressions(path)), [one for one, _ in made])


@pytest.mark.parametrize("space", ["", " "])
def test_the_challenge_form_gives_back_all_but_the_codes(tmp_path, space):
    """Of categories it has token numbers, which are as good: codes have no order."""
    made = draw(50)
    path = written(tmp_path, form_c(made, space))
    tokens = tuple(map(float, INDEX))
    expected = [replace(one, features=one.features[:2] + tokens) for one, _ in made]
    assert_same(list(criteo_impressions(path, display_index=INDEX)), expected)
    bare = [replace(one, features=one.features[:2]) for one, _ in made]
    assert_same(list(criteo_impressions(path)), bare)


def test_impressions_of_several_slots_are_passed_over(tmp_path):
    made = draw(9)
    text = form_a(made[:3]) + form_a(made[3:6], slots=2) + form_a(made[6:])
    found = [one.example for one in criteo_impressions(written(tmp_path, text))]
    assert found == [one.example for one, _ in made[:3] + made[6:]]
    with pytest.raises(TableError, match="has no impression with one slot"):
        fetch_criteo(path=written(tmp_path, form_a(made, slots=2)))


@pytest.mark.parametrize("form", [form_a, form_b])
def test_blank_lines_between_impressions_are_no_matter(tmp_path, form):
    made = draw(4)
    text = "\n\n".join(form([one]) for one in made) + "\n\n"
    assert_same(
        list(criteo_impressions(written(tmp_path, text))), [one for one, _ in made]
    )


def test_an_archive_without_files_is_empty(tmp_path):
    path = tmp_path / "log.tar"
    tarfile.open(path, "w").close()
    with pytest.raises(TableError, match="the file is empty"):
        fetch_criteo(path=path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "cut.gz",
            lambda text: gzip.compress(text)[:-9],
            "is damaged or cut off after line",
        ),
        (
            "flipped.gz",
            lambda text: gzip.compress(text)[:-8] + bytes(8),
            "is damaged or cut off",
        ),
        ("binary.txt", lambda text: text + b"\xff\xfe\n", "is not text after line"),
        (
            "cut.tar.gz",
            lambda text: gzip.compress(text)[:40],
            "is damaged or cut off after line 0",
        ),
    ],
)
def test_damage_is_an_error_that_names_the_file(tmp_path, name, change, message):
    path = tmp_path / name
    path.write_bytes(change(form_a(draw(9)).encode()))
    with pytest.raises(TableError, match=f"{name}' {message}"):
        list(criteo_impressions(path))


def test_line_ends_and_names_of_files_do_not_matter(tmp_path):
    made = draw(9)
    text = form_a(made).replace("\n", "\r\n").rstrip().encode()
    for name, content in (
        ("plain", text),
        ("packed, but not by its name", gzip.compress(text)),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        assert_same(list(criteo_impressions(path)), [one for one, _ in made])


def test_the_table_holds_the_impressions(tmp_path):
    made = draw(40)
    data = fetch_criteo(path=written(tmp_path, form_b(made)))
    ones = [one for one, _ in made]
    assert_array_equal(data.X, [one.features for one in ones])
    assert data.feature_names == tuple(f"display_{j}" for j in range(1, 11))
    assert data.categorical == data.feature_names[2:]
    assert_array_equal(data.y, [one.clicked for one in ones])
    assert_array_equal(data.treatment, [one.treated for one in ones])
    assert_array_equal(data.sample_weight, np.where(data.y == 1, 1, 10))
    assert_allclose(data.extra["display_propensity"], [one.propensity for one in ones])
    assert_array_equal(data.extra["example"], [one.example for one in ones])
    assert_array_equal(data.extra["n_candidates"], [one.n_candidates for one in ones])
    assert_array_equal(data.extra["n_treated"], [one.n_treated for one in ones])
    assert data.propensity is None
    assert "propensity not known" in repr(data)
    some = data.take(data.y == 1)
    assert_array_equal(some.sample_weight, 1)
    assert_array_equal(some.extra["example"], data.extra["example"][data.y == 1])


def test_the_weight_over_the_propensity_is_what_the_challenge_writes(tmp_path):
    made = draw(40)
    data = fetch_criteo(path=written(tmp_path, form_c(made)))
    weight = [float(line.split("|p")[1].split("|")[0]) for line in form_c(made).splitlines()
              if "|p" in line]  # fmt: skip
    assert_allclose(data.sample_weight / data.extra["display_propensity"], weight)
    assert data.feature_names == ("display_1", "display_2")
    assert data.categorical == ()


def test_max_rows_stops_before_a_later_error(tmp_path):
    text = form_a(draw(5)) + "nonsense\n"
    path = written(tmp_path, text)
    assert fetch_criteo(path=path, max_rows=5).n_rows == 5
    with pytest.raises(TableError, match="nonsense"):
        fetch_criteo(path=path)
    with pytest.raises(InputError, match="max_rows must be a whole number, 1 or above"):
        fetch_criteo(path=path, max_rows=0)


def test_an_archive_as_published_is_read_without_unpacking_it(tmp_path):
    made = draw(20)
    content = form_a(made).encode()
    path = tmp_path / "CriteoBannerFillingChallenge.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo("criteo.txt")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    assert_array_equal(fetch_criteo(path=tmp_path).y, [one.clicked for one, _ in made])


@pytest.mark.slow
@pytest.mark.parametrize("form", [form_a, form_b, form_c])
def test_memory_does_not_grow_with_the_file(tmp_path, form):
    peaks = []
    for n in (300, 3000):
        path = tmp_path / f"{n}.gz"
        path.write_bytes(gzip.compress(form(draw(n)).encode()))
        tracemalloc.start()
        assert sum(1 for _ in criteo_impressions(path)) == n
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (
        peaks[1] < peaks[0] + 50_000
    )  # the text itself is ten times as long, over a megabyte


def test_a_display_index_may_be_a_file(tmp_path):
    path = written(tmp_path, form_c(draw(5)))
    rows = "".join(f"{token},{feature},7\n" for token, feature in INDEX.items())
    index = written(
        tmp_path,
        f"challenge_index,testbed_feature_id,n\n{rows}11,12,\n149,,3\n",
        "index.csv",
    )
    by_file, by_mapping = (
        fetch_criteo(path=path, display_index=given).X for given in (index, INDEX)
    )
    assert_array_equal(by_file, by_mapping)
    assert by_file.shape == (5, 10)
    part = fetch_criteo(path=path, display_index={2: 3}).X  # the others are unknown
    assert_array_equal(part[:, 2:], np.tile([2.0] + [-1.0] * 7, (5, 1)))


def test_a_bad_display_index_is_located(tmp_path):
    path = written(tmp_path, form_c(draw(1)))
    bad = written(
        tmp_path, "challenge_index,testbed_feature_id\n2,3\n3,four\n", "index.csv"
    )
    with pytest.raises(
        TableError, match=r"line 3 of '.*index.csv' .* expected two whole numbers"
    ):
        fetch_criteo(path=path, display_index=bad)
    bad.write_text("challenge_index,feature\n2,3\n")
    with pytest.raises(
        TableError, match=r"has no column 'testbed_feature_id'. Check display_index"
    ):
        fetch_criteo(path=path, display_index=bad)
    with pytest.raises(
        TableError, match=r"there is no file '.*absent.csv'. Check display_index"
    ):
        fetch_criteo(path=path, display_index=tmp_path / "absent.csv")


def test_the_whole_test_bed_is_not_downloaded_by_accident(cache, tmp_path):
    with pytest.raises(
        TableError, match=r"CriteoBannerFillingChallenge.tar.gz' \(35 GB\) by hand"
    ):
        fetch_criteo()
    with pytest.raises(
        TableError, match=r"there is no file '.*absent.txt'. Check the path"
    ):
        criteo_impressions(tmp_path / "absent.txt")


A = "example 7: c0ffee 0 0.5 1 2 1:300 2:250 3:0"
SHOWN, OTHER = "0 exid:7 11:1 12:1", "0 exid:7 12:0"
B = "shared 7| 1:300 2:250 3_0"
LOGGED = "7 |l 0.999 |p 20.0|f 0:300 1:250 49:1"


@pytest.mark.parametrize(
    ("lines", "at", "message"),
    [
        (["age,visit"], 1, "expected an impression, .* found 'age,visit'"),
        ([], 0, "the file is empty"),
        (
            [A, SHOWN, OTHER, "shared 7| 1:3"],
            4,
            "expected 'example ID: .*found 'shared 7",
        ),
        (
            [A.replace(" 0 0.5", " 2 0.5"), SHOWN, OTHER],
            1,
            "expected 'example ID: HASH CLICK",
        ),
        ([A.replace("0.5", "half"), SHOWN, OTHER], 1, "expected 'example ID.*'half'"),
        ([A.replace(" 1 2 ", " 1 0 ")], 1, "with at least one candidate"),
        ([A.replace("2:250 ", ""), SHOWN, OTHER], 1, "display feature 2 is missing"),
        ([A.replace("300", "inf"), SHOWN, OTHER], 1, "a display feature is not finite"),
        ([A.replace("3:0", "three"), SHOWN, OTHER], 1, "expected 'example ID.*'three'"),
        ([B.replace("3_0", "3"), "0:0.999:0.1 | 12_1"], 1, "expected 'shared ID"),
        (
            [A.replace("0.5", "1.5"), SHOWN, OTHER],
            1,
            r"the propensity must lie in \(0, 1\]",
        ),
        ([A, SHOWN], 2, "expected 2 candidates of example 7 after line 1"),
        (
            [A, SHOWN, OTHER.replace("7", "8")],
            3,
            "expected 2 candidates of example 7 after",
        ),
        (
            [A, SHOWN.replace("12:1", "12:2"), OTHER],
            2,
            "feature 12 .* must be 0 or 1, .*neither",
        ),
        ([A, SHOWN + " 12:0", OTHER], 2, "feature 12 .* must be 0 or 1, found both"),
        (
            [B, "0:0.5:0.1 | 12_1"],
            2,
            "expected the displayed product, '0:COST:PROPENSITY",
        ),
        ([B], 1, "expected the displayed product, '0:COST:PROPENSITY"),
        ([B, "| 12_1"], 2, "expected the displayed product, '0:COST:PROPENSITY"),
        ([B, "0:0.999:0.1 | 12_3"], 2, "feature 12 .* must be 0 or 1, found neither"),
        (
            [B, "0:0.999:0.1 | 12_1", "12_1"],
            3,
            r"expected a candidate, '\| ...', found '12_1'",
        ),
        (
            [B, "0:0.999:0.1 | 12_1", "", "x 8| 1:3 2:4"],
            4,
            "expected 'shared ID. FEATURE",
        ),
        (
            [B.replace("7", "seven"), "0:0.999:0.1 | 12_1"],
            1,
            "expected 'shared ID.*seven",
        ),
        ([B, "0:0.999:0.2 | 12_1"], 1, r"the propensity must lie in \(0, 1\], found 2"),
        (
            [LOGGED, "8 |f 0:300 1:250 49:1"],
            2,
            r"expected the displayed product, 'ID \|l COST",
        ),
        (
            [LOGGED.replace("0.999", "0.5")],
            1,
            r"expected the displayed product, 'ID \|l COST",
        ),
        ([LOGGED.replace("0:300 ", "")], 1, "display feature 1 is missing"),
        (
            [LOGGED.replace("20.0", "0.0")],
            1,
            r"the weight \|p must be above 0, found 0.0",
        ),
        (
            [LOGGED.replace("49:1", "50:1")],
            1,
            "feature 12 .* must be 0 or 1, found neither",
        ),
        ([LOGGED, "", LOGGED], 2, r"expected the displayed product"),
    ],
)
def test_a_malformed_line_is_named_with_file_and_number(tmp_path, lines, at, message):
    path = written(tmp_path, "\n".join(lines))
    with pytest.raises(
        TableError, match=rf"line {at} of '.*log.txt' cannot be read: .*{message}"
    ):
        fetch_criteo(path=path)


# --- the real files -------------------------------------------------------------------------

LOGGED_FILE = REAL / "criteo_train_small_logged_only.txt.gz"
ALL_FILE = REAL / "criteo_train_small_subset4000_all_candidates.txt.gz"
DISPLAY = REAL / "display_feature_indices_derived.csv"


def first_form(path):
    """Write form B as form A would have been, by the README's recipe and not by our parser."""
    out = []
    for block in path.read_text().strip().split("\n\n"):
        header, shown, *others = block.split("\n")
        example, tokens = header.removeprefix("shared ").split("|")
        _, cost, p = shown.split("|")[0].strip().split(":")
        click = int(cost == "0.001")
        propensity = float(p) * (1 if click else 10)
        features = tokens.strip().replace("_", ":")
        out.append(
            f"example {example}: x {click} {propensity!r} 1 {1 + len(others)} {features}"
        )
        for j, line in enumerate([shown, *others]):
            products = line.split("|")[1].split()
            names = " ".join(token.replace("_", ":").rsplit(":", token.count(":"))[0]
                             for token in products)  # fmt: skip
            out.append(f"{click if j == 0 else 0} exid:{example} {names}")
    return "\n".join(out) + "\n"


@needs_files
def test_the_public_sample_is_the_same_in_the_first_form(tmp_path):
    n_clicks = n_rows = n_lines = 0
    for part in ("train", "val", "test"):
        path = REAL / f"testbed_sample_1slot_vw_{part}.txt"
        found = list(criteo_impressions(path))
        assert_same(
            list(criteo_impressions(written(tmp_path, first_form(path)))), found
        )
        n_rows += len(found)
        n_clicks += sum(one.clicked for one in found)
        n_lines += sum(one.n_candidates for one in found)
    assert (n_rows, n_clicks, n_lines) == (69, 4, 311 + 280 + 291)


@needs_files
def test_the_small_training_file_has_its_published_facts():
    data = fetch_criteo(path=LOGGED_FILE)
    assert data.n_rows == len(np.unique(data.extra["example"])) == 20_000
    assert data.y.sum() == 1054
    treated = data.treatment == 1
    assert (treated.sum(), (~treated).sum()) == (10_607, 9_393)
    assert data.y[treated].mean() == pytest.approx(0.0509, abs=5e-5)
    assert data.y[~treated].mean() == pytest.approx(0.0547, abs=5e-5)
    weighted = np.average(data.y, weights=data.sample_weight)
    assert weighted == pytest.approx(0.0055, abs=5e-5)
    inverse = data.sample_weight / data.extra["display_propensity"]
    for clicks, low, high in ((1, 1.0, 2593), (0, 10.0, 47027)):
        some = inverse[data.y == clicks]
        assert low <= some.min() * (1 + 1e-9) < low + 0.05
        assert some.max() == pytest.approx(high, abs=0.5)


@needs_files
def test_all_candidates_agree_with_the_logged_lines():
    some, every = fetch_criteo(path=ALL_FILE), fetch_criteo(path=LOGGED_FILE)
    assert some.n_rows == 4000
    assert some.extra["n_candidates"].sum() == 48_936
    assert (some.extra["n_candidates"].min(), some.extra["n_candidates"].max()) == (
        1,
        69,
    )
    both = (some.extra["n_treated"] > 0) & (
        some.extra["n_treated"] < some.extra["n_candidates"]
    )
    assert both.mean() == pytest.approx(0.87, abs=0.005)
    order = np.argsort(every.extra["example"])
    at = order[np.searchsorted(every.extra["example"][order], some.extra["example"])]
    assert_array_equal(some.X, every.X[at])
    assert_array_equal(some.y, every.y[at])
    assert_array_equal(some.treatment, every.treatment[at])
    assert_allclose(
        some.extra["display_propensity"], every.extra["display_propensity"][at]
    )


@needs_files
def test_two_releases_of_one_impression_agree():
    """Number 13 * exID + 8041 of the challenge is exID of the test-bed: same row, other form."""
    bed = fetch_criteo(path=REAL / "testbed_sample_1slot_vw_train.txt")
    challenge = fetch_criteo(path=LOGGED_FILE)
    place = {number: i for i, number in enumerate(challenge.extra["example"])}
    numbers = 13 * bed.extra["example"] + 8041
    at = [place[number] for number in numbers]
    assert len(at) == 23
    assert_array_equal(bed.X[:, :2], challenge.X[at])
    assert_array_equal(bed.y, challenge.y[at])
    assert_array_equal(bed.treatment, challenge.treatment[at])
    assert_allclose(
        bed.extra["display_propensity"], challenge.extra["display_propensity"][at]
    )


@needs_files
def test_codes_of_display_features_are_those_of_the_dictionary():
    """Token numbers of the challenge stand for the same categories as the test-bed's codes."""
    bed = fetch_criteo(path=REAL / "testbed_sample_1slot_vw_train.txt")
    challenge = fetch_criteo(path=LOGGED_FILE, display_index=DISPLAY)
    place = {number: i for i, number in enumerate(challenge.extra["example"])}
    rows = challenge.X[[place[number] for number in 13 * bed.extra["example"] + 8041]]
    for j in range(2, 10):
        known = rows[:, j] >= 0
        pairs = set(zip(rows[known, j], bed.X[known, j], strict=True))
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
    assert (rows >= 0).mean() > 0.9
