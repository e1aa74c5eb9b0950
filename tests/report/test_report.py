"""The page says what the objects it was made of say, shows no single person, and runs nothing."""

import csv
import json
import re
import warnings
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from unjoined import SeparateLabels, TwoStageUplift
from unjoined.data import SimulatedProblem, campaign_problem, paper_problem
from unjoined.errors import InputError, TableError, UnjoinedWarning
from unjoined.evaluate import cross_evaluate, cross_fit, plan_study
from unjoined.report import Origin, Terms, report, report_with_numbers
from unjoined.report.page import fingerprint
from unjoined.targeting import learn_rule, profit_rule, top_share_rule

pytestmark = pytest.mark.usefixtures("two_folds")


class Page(HTMLParser):
    """Elements, attributes and texts of a page, as a browser would find them."""

    VOID = ("meta", "input", "br", "link", "img")

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.texts, self.problems = [], [], [], []
        self.feed(html)
        self.problems += self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(tag)

    def handle_data(self, data):
        self.texts.append((tuple(self.open), data))

    def tags(self, name):
        return [attrs for tag, attrs in self.elements if tag == name]

    def text(self):
        return " ".join(
            data
            for where, data in self.texts
            if where[-1:] not in (("script",), ("style",))
        )


@pytest.fixture(scope="module")
def page(written):
    return Page(written.html)


def stages(written):
    found = re.search(
        r'<script type="application/json" id="stages">(.*?)</script>', written.html
    )
    return json.loads(found[1])


def test_the_page_is_well_formed_small_and_in_the_promised_order(written, page):
    assert page.problems == []
    assert written.path.stat().st_size < 3_000_000
    sections = [attrs["id"] for attrs in page.tags("section")]
    assert sections == ["verdict", "tables", "ranking", "whom", "drivers", "method"]
    assert [tag for tag, _ in page.elements if tag in ("h1", "h2")][:2] == ["h1", "h2"]


def test_nothing_is_fetched_and_only_our_own_script_may_run(written, page):
    for _, attrs in page.elements:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            if name in attrs:
                assert attrs[name].startswith(("#", "data:text/csv")), attrs
        assert not any(name.startswith("on") or name == "style" for name in attrs)
    style = re.search(r"<style>(.*?)</style>", written.html, re.DOTALL)[1]
    assert "url(" not in style
    assert "@import" not in style
    policy = next(a["content"] for a in page.tags("meta") if "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_hostile_names_are_text(written, page):
    assert len(page.tags("script")) == 2
    assert page.tags("img") == []
    charts = [attrs for attrs in page.tags("svg") if attrs.get("aria-hidden") != "true"]
    assert len(page.tags("title")) == 1 + len(charts)
    text = page.text()
    assert written.COLUMN in text
    assert written.LEVEL in text
    assert "<b>north</b>" in text
    assert "Spring <mailing>" in text


def test_every_chart_has_a_title_and_its_numbers_and_every_input_a_label(page):
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    for attrs in page.tags("svg"):
        if attrs.get("aria-hidden") != "true":
            assert attrs["role"] == "img"
            assert set(attrs["aria-labelledby"].split()) <= set(ids)
    for table in page.tags("th"):
        assert table["scope"] in ("row", "col")


def test_gains_are_those_of_the_models_record(written):
    found = stages(written)
    uplift = written.model.predict(written.people)
    assert found["n"] == len(uplift)
    for share, gain, low, high in found["stages"][1::9]:
        rule = top_share_rule(uplift, share)
        expected = written.model.gain_.gain(uplift, rule)
        assert gain == pytest.approx(expected.value, rel=1e-5, abs=1e-6)
        assert (low, high) == pytest.approx(expected.interval(0.95), rel=1e-5)
    rule = profit_rule(uplift, value=written.TERMS.value, cost=written.TERMS.cost)
    assert found["chosen"] == pytest.approx(rule.mean())
    assert all(share == 0 or share * len(uplift) >= 20 for share, *_ in found["stages"])


def test_areas_and_curve_are_those_of_the_evaluation(written, page):
    text = page.text()
    average = written.evaluation.average.interval(0.95)
    half = 50 * (average[1] - average[0])
    places = max(0, 1 - int(np.floor(np.log10(half))))  # two digits of the uncertainty
    for estimate in (
        written.evaluation.average,
        written.evaluation.auuc,
        written.evaluation.qini,
    ):
        low, high = estimate.interval(0.95)
        said = (
            f"{100 * low:+.{n}f} to {100 * high:+.{n}f}" for n in (places, places + 1)
        )
        assert any(words in text for words in said)


def test_what_a_firmer_answer_needs_is_what_the_planner_says(written, page):
    low, high = written.evaluation.average.interval(0.95)
    found = re.search(r"takes about ([\d,]+) rows in each outcome table", page.text())
    rows = int(found[1].replace(",", ""))
    quantity, wanted = "average", (high - low) / 4
    for name in ("average", "qini"):
        estimate = getattr(written.evaluation, name)
        if estimate.interval(0.95)[0] <= 0.0 <= estimate.interval(0.95)[1]:
            quantity, wanted = name, 0.7 * abs(estimate.value)
    plan = plan_study(written.data, quantity=quantity, half_width=wanted)
    assert rows == pytest.approx(plan.needed.rows, rel=0.1)  # rounded up to two digits
    assert rows >= plan.needed.rows
    assert re.fullmatch(r"\d{1,2}0*", str(rows))


def test_the_verdict_is_no_better_than_that_of_the_tables(written, page):
    order = ("red", "amber", "green")
    found = page.tags("section")[0]["class"].split()[1]
    assert order.index(found) <= order.index(written.diagnosis.colour)
    assert f"({found})" in page.text()


def test_the_first_screen_says_what_two_populations_cannot_show(page):
    text = " ".join(page.text().split())
    first = text[
        : text.index(
            "Do these tables identify uplift?", text.index("How far to trust it")
        )
    ]
    assert (
        "if people respond alike in 'south' and <b>north</b>, which these tables"
        in first
    )
    assert "Not tested: that people with the same features respond alike" in first
    assert "you can act on it" not in text


def test_a_ranking_is_no_reason_for_care_if_everyone_is_treated(tmp_path):
    """The effect is the same for all, so that no order is better than another."""
    problem = SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 1)),
        policies={
            k: (lambda X, e=e: np.full(len(X), e)) for k, e in (("A", 0.9), ("B", 0.1))
        },
        outcome=lambda X, treated, rng: treated + rng.standard_normal(len(X)),
        outcome_mean=lambda X, treated: treated + 0.0,
    )
    data = problem.draw(400, random_state=0)
    model = TwoStageUplift().fit(**data)
    for share, colour in ((1.0, "note"), (0.3, "amber")):
        path = tmp_path / f"{share}.html"
        _, numbers = report_with_numbers(model, data, path, terms=Terms(share=share))
        ranking = next(r for r in numbers["reasons"] if "random order" in r["words"])
        assert "do not show that the ranking beats" in ranking["words"]
        assert ranking["colour"] == colour


def test_no_value_of_a_person_and_no_rare_category_is_in_the_page(written, page):
    assert written.RARE not in written.html
    told = set(re.findall(r"\d+\.\d+", page.text()))
    for X in (written.data.X, written.people):
        rows = {f"{value:.6g}" for value in X["age"]} | {
            f"{value:.2f}" for value in X["spend"]
        }
        assert not {number for number in rows & told if len(number) > 6}


@pytest.mark.filterwarnings(
    "ignore::unjoined.errors.ColumnWarning"
)  # of gaps that the fit had not
def test_missing_cells_of_any_column_are_counted(written, tmp_path):
    people = written.people.copy()
    people.loc[people.index[:40], "town"] = None
    people.loc[people.index[50:57], "age"] = np.nan
    given = {"diagnosis": written.diagnosis, "evaluation": written.evaluation}
    path = report(
        written.model, written.data, tmp_path / "gaps.html", people=people, **given
    )
    (said,) = re.findall(
        r"Missing values among the people:</b> (.*?)\.</p>", path.read_text("utf-8")
    )
    shares = people.isna().mean()
    assert f"town {100 * shares['town']:.3g}%" in said
    assert f"spend {100 * shares['spend']:.3g}%" in said
    assert "age in fewer than 20 people" in said


def test_segments_hold_everyone_once_and_twenty_at_least(written):
    table = written.html.partition("Segments, the best first")[2].partition("</table>")[
        0
    ]
    rows = re.findall(
        r'<th scope="row">[^<]+</th><td>(\d+)</td><td>([-+.\d]+)</td>', table
    )
    people, predicted = [int(n) for n, _ in rows], [float(each) for _, each in rows]
    assert sum(people) == len(written.people)
    assert min(people) >= max(20, 0.05 * len(written.people))
    assert predicted == sorted(predicted, reverse=True)


def test_curves_are_partial_dependences_with_the_models_own_error(written):
    model, X = written.model, written.people
    changed = X.assign(age=30.0)
    found = model.mean_change(X, changed)
    assert found.value == pytest.approx(
        np.mean(model.predict(changed) - model.predict(X))
    )
    assert model.mean_change(X, X).value == 0.0
    assert model.mean_change(X, X).standard_error == 0.0
    assert found.standard_error > 0.0


def test_equal_policies_give_a_red_report_that_advises_nothing(tmp_path):
    data = paper_problem(b=0.0).draw(100, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UnjoinedWarning
        )  # of weak identification, rightly
        model = TwoStageUplift().fit(**data)
        evaluation = cross_evaluate(TwoStageUplift(), data, n_folds=2, random_state=0)
        path = report(model, data, tmp_path / "red.html", evaluation=evaluation)
    page = Page(path.read_text("utf-8"))
    assert page.tags("section")[0]["class"] == "verdict red"
    assert "Do not choose people by these scores yet." in page.text()
    assert "Treat the" not in page.text()
    assert "advised" not in page.text()
    assert page.tags("input") == []
    assert "Qini" not in page.text()  # numbers without an interval would be noise
    assert "rank by it" not in page.text()
    assert (
        f"to these tables, as numbers of fingerprint {model.run_['data']}"
        in page.text()
    )


def test_a_model_of_other_rows_is_not_said_to_be_of_these_tables(written, page):
    assert f"to rows of fingerprint {written.model.run_['data']}" in page.text()


def test_any_cell_changes_the_fingerprint_and_the_order_of_rows_does_not(written):
    data = written.data
    mixed = data.take(np.random.default_rng(0).permutation(data.n_rows))
    assert fingerprint(mixed) == fingerprint(data)
    for name in ("y", "treatment"):
        column = data[name].copy()
        at = np.flatnonzero(~np.isnan(column))[0]
        column[at] = 1.0 - column[at]
        assert fingerprint(
            SeparateLabels(**dict(data) | {name: column})
        ) != fingerprint(data)


def test_a_half_is_rounded_as_the_script_of_the_page_does(written, tmp_path):
    terms = Terms(unit="purchases", value=1000.0, cost=0.5, share=0.35)
    found = {
        "diagnosis": written.diagnosis,
        "evaluation": written.evaluation,
        "terms": terms,
    }
    people = written.people[:300]  # 105 are treated, for 52.5
    path = report(
        written.model, written.data, tmp_path / "r.html", people=people, **found
    )
    assert (
        json.loads(re.search(r'id="stages">(.*?)<', path.read_text())[1])[
            "money_places"
        ]
        == 0
    )
    assert "which costs 53." in Page(path.read_text("utf-8")).text()


def test_names_beside_bars_have_room_also_where_letters_are_largest(page):
    named = [
        (float(attrs["x"]), text.strip())
        for attrs, text in zip(
            (a for t, a in page.elements if t == "text"),
            (d for where, d in page.texts if where[-1:] == ("text",) and d.strip()),
            strict=True,
        )
        if attrs.get("text-anchor") == "end"
    ]
    assert any(
        text.startswith("<script>") for _, text in named
    )  # cut off at 18 letters
    assert all(room >= 0.6 * 13.5 * len(text) for room, text in named)


def test_the_shaded_part_of_the_gap_lies_around_zero(page):
    assert "Between -0.2 and 0.2, where it is shaded" in " ".join(page.text().split())


CLEAR = SimulatedProblem(
    features=lambda n, rng: rng.standard_normal((n, 2)),
    policies={"A": lambda X: np.full(len(X), 0.9), "B": lambda X: np.full(len(X), 0.1)},
    outcome=lambda X, treated, rng: (
        treated * X[:, 0] + 0.1 * rng.standard_normal(len(X))
    ),
    outcome_mean=lambda X, treated: treated * X[:, 0],
)


@pytest.mark.parametrize(
    ("problem", "helps"), [(CLEAR, True), (campaign_problem(), False)]
)
def test_a_list_is_advised_without_a_doubt_only_if_its_gain_is_above_zero(
    problem, helps, tmp_path
):
    data = problem.draw(150, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnjoinedWarning)  # few rows
        model = TwoStageUplift().fit(**data)
        evaluation = cross_evaluate(TwoStageUplift(), data, n_folds=2, random_state=0)
        _, numbers = report_with_numbers(
            model,
            data,
            tmp_path / "r.html",
            evaluation=evaluation,
            terms=Terms(share=0.3),
        )
    assert (numbers["treated"]["gain"]["low"] > 0.0) == helps
    assert ("The tables do not show that it helps." in numbers["verdict"]) != helps
    assert (
        "treat the 30% of people with the highest scores" in numbers["verdict"].lower()
    )


def test_a_gain_that_is_known_for_half_of_the_people_is_called_a_best_guess(tmp_path):
    def policy(often):
        return lambda X: np.where(X[:, 0] < 0.0, often, 0.5)  # alike from 0 on

    problem = SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 1)),
        policies={"A": policy(0.9), "B": policy(0.1)},
        outcome=lambda X, treated, rng: treated + 0.1 * rng.standard_normal(len(X)),
        outcome_mean=lambda X, treated: treated + 0.0,
    )
    data = problem.draw(300, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnjoinedWarning)
        model = TwoStageUplift().fit(**data)
        evaluation = cross_evaluate(TwoStageUplift(), data, n_folds=2, random_state=0)
        path, numbers = report_with_numbers(
            model,
            data,
            tmp_path / "r.html",
            evaluation=evaluation,
            terms=Terms(share=1.0),
        )
    assert numbers["treated"]["gain"]["low"] > 0.0
    found = re.search(
        r"treat everyone. The tables identify uplift for about (\d+)% of them",
        numbers["verdict"],
    )
    assert found[1] == f"{100 * evaluation.speaks_for:.0f}"
    assert evaluation.speaks_for < 0.8  # from which on it is not worth a word
    text = Page(path.read_text("utf-8")).text()
    part = re.search(
        r"Of this, ([\d.,]+) \(95% interval: .*?\) was measured: it comes from the (\d+)%",
        text,
    )
    assert part[2] == found[1]
    whole = numbers["treated"]["gain"]["value"]
    assert float(part[1].replace(",", "")) == pytest.approx(
        whole * int(found[1]) / 100, rel=0.02
    )
    assert f"They are {100 - int(found[1])}% of those advised" in text


def test_a_file_is_replaced_only_if_that_is_allowed(written, tmp_path):
    path = tmp_path / "mine.html"
    path.write_text("precious")
    with pytest.raises(TableError, match="exists"):
        report(written.model, written.data, path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_tables_of_few_rows_are_refused(written, tmp_path):
    at = np.concatenate([written.data.rows(k, p)[:15] for k in ("outcome", "treatment")
                         for p in written.data.populations])  # fmt: skip
    with pytest.raises(InputError, match="averages of 20 people"):
        report(written.model, written.data.take(at), tmp_path / "few.html")
    with pytest.raises(InputError, match="19 people to score"):
        report(
            written.model,
            written.data,
            tmp_path / "few.html",
            people=written.people[:19],
        )


def test_terms_that_make_no_sense_are_refused():
    cases = (
        ({"budget": 10.0}, "cost per person above 0"),
        ({"budget": 10.0, "cost": 1.0, "share": 0.2}, "give one"),
        ({"cost": -1.0}, "cost"),
        ({"value": -5.0}, "turn it round"),
        ({"share": 1.2}, "share"),
    )
    for terms, match in cases:
        with pytest.raises(InputError, match=match):
            Terms(**terms)


def test_rules_follow_the_terms():
    uplift = np.array([0.3, 0.1, 0.02, -0.2])
    assert Terms().rule(uplift).tolist() == [1, 1, 1, 0]
    assert Terms(value=10.0, cost=0.5).rule(uplift).tolist() == [1, 1, 0, 0]
    assert Terms(share=0.25).rule(uplift).tolist() == [1, 0, 0, 0]
    assert Terms(cost=2.0, budget=4.0).rule(uplift).tolist() == [1, 1, 0, 0]


def test_the_rule_is_that_of_the_function(written):
    terms = written.TERMS
    rule = learn_rule(
        written.model,
        written.data,
        value=terms.value,
        cost=terms.cost,
        crossfit=cross_fit(written.data, random_state=0),
        random_state=0,
    )
    section = written.html.partition("A rule that people can read")[2]
    said = " ".join(unescape(re.sub("<[^>]+>", " ", section)).split())
    for leaf in rule.leaves:
        assert leaf.where in said
    for sentence in rule.sentences():
        assert sentence in said


def test_the_card_holds_the_gain_and_the_largest_share_that_surely_pays(written):
    """By the stages of the page: the interval stays above what treating costs."""
    card = written.html.partition('<dl class="facts key">')[2].partition("</dl>")[0]
    data = stages(written)
    sure = [s for s, _, low, _ in data["stages"] if s and low is not None
            and data["value"] * low > data["cost"] * s * data["n"]]  # fmt: skip
    expected = f"{max(sure):.0%} of people" if sure else "nobody"
    assert f"<dt>Surely pays up to</dt><dd>{expected}</dd>" in card
    assert f"{written.TERMS.unit}</dd>" in card
    assert "purchases" in card


def test_a_larger_share_of_a_free_treatment_is_said_to_bring_more(written, tmp_path):
    """The page asks for 5 %, and its own table knows a share that gains more."""
    found = {"evaluation": written.evaluation, "held_out": True}
    for terms, says in (
        (Terms(unit="purchases", share=0.05), True),
        (Terms(unit="purchases", share=1.0), False),
        (Terms(unit="purchases"), False),
    ):
        path = tmp_path / f"{terms.share}.html"
        report(
            written.model,
            written.data,
            path,
            people=written.people,
            terms=terms,
            **found,
        )
        text = path.read_text("utf-8")
        assert ("costs nothing here: " in text) is says
        if says:
            data = re.search(r'id="stages">(.*?)</script>', text)[1]
            best = max(json.loads(data)["stages"], key=lambda stage: stage[1])[0]
            assert f"costs nothing here: treating {best:.0%} of people" in text
            assert "more than the 5% asked for" in text


def test_markdown_is_a_model_card_in_which_names_do_nothing(written, tmp_path):
    found = {"evaluation": written.evaluation, "held_out": True}
    path = tmp_path / "card.md"
    origin = Origin(title="Spring <mailing>", author="A|b *c*")
    report(written.model, written.data, path, people=written.people,
           terms=written.TERMS, origin=origin, **found)  # fmt: skip
    text = path.read_text("utf-8")
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "Model details",
        "Intended use",
        "Factors",
        "Metrics",
        "Evaluation data",
        "Training data",
        "Quantitative analyses",
        "Caveats and recommendations",
    ]
    assert "<" not in text
    assert "A\\|b \\*c\\*" in text
    cells = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines()
             if line.startswith("| ")]  # fmt: skip
    assert cells
    for block in re.findall(r"(?:^\| .*\n?)+", text, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1  # no name adds a column
    assert written.RARE not in text


def test_segments_as_a_table_are_those_of_the_page(written, tmp_path):
    found = {"evaluation": written.evaluation, "held_out": True}
    path = report(written.model, written.data, tmp_path / "segments.csv",
                  people=written.people, terms=written.TERMS, **found)  # fmt: skip
    rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
    assert sum(int(row["people"]) for row in rows) == len(written.people)
    assert all(int(row["people"]) >= 20 for row in rows)
    predicted = [float(row["predicted"]) for row in rows]
    assert predicted == sorted(predicted, reverse=True)
    weights = [int(row["people"]) for row in rows]
    mean = np.average(predicted, weights=weights)
    assert mean == pytest.approx(written.model.predict(written.people).mean())
