"""One self-contained HTML file: facts, words and charts put into a template, written whole."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from unjoined._support import import_extra
from unjoined._typing import Frame, MatrixLike, RandomState
from unjoined._validation import KINDS
from unjoined.data.chunks import feature_matrix
from unjoined.data.encode import TableEncoder
from unjoined.data.fold import hash_features, hash_with
from unjoined.data.labels import SeparateLabels
from unjoined.data.write import replace_file, write_table
from unjoined.errors import InputError, TableError
from unjoined.evaluate.estimate import NEARLY_ALL, PLENTY, STRONG, ResultTable
from unjoined.evaluate.tables import was_fitted_to
from unjoined.evaluate.verdict import COLOURS
from unjoined.report.advice import (
    STRENGTH,
    TELL,
    Speech,
    advise,
    advise_arms,
    arm_numbers,
    firmer,
    turning_point,
    verdict_numbers,
)
from unjoined.report.drivers import FEWEST
from unjoined.report.facts import ArmFacts, Facts, Origin, Terms
from unjoined.report.figures import (
    FULL_GAP,
    Chart,
    bins_figure,
    curve_figure,
    driver_figure,
    gain_chart,
    gap_figure,
    hidden_figure,
    importance_chart,
    share_alike,
)
from unjoined.words import (
    clusters_in_words,
    in_digits,
    known_in_words,
    percent,
    relative_in_words,
)

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

if TYPE_CHECKING:
    from unjoined.evaluate.arms import ArmEvaluation
    from unjoined.evaluate.diagnosis import Diagnosis
    from unjoined.evaluate.evaluate import Evaluation

MARKDOWN, CSV = (
    ".md",
    ".csv",
)  # endings of a model card and of segments; others are pages
SEGMENT = ("treatment", "where", "people", "predicted", "measured", "low", "high")
MOST_DRIVERS = 8  # features with a chart of their own
MOST_OPEN = 2  # reasons for care that are not folded
MOST_BYTES = 3_000_000
SHOWN_SHARES = (0.05, *(k / 10 for k in range(1, 11)))  # of the printed table


def report(
    model: Any,
    data: SeparateLabels | Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    people: MatrixLike | None = None,
    terms: Terms | None = None,
    origin: Origin | None = None,
    diagnosis: Diagnosis | None = None,
    evaluation: Evaluation | ArmEvaluation | None = None,
    held_out: bool = False,
    never_harms: bool = False,
    overwrite: bool = False,
    random_state: RandomState = 0,
) -> Path:
    """Write a report on a fitted model: whom to treat, what it brings, how far to trust it.

    Parameters
    ----------
    model : fitted estimator
        Any of this package. Of an `ArmUplift` the page says who gets which treatment, then has a
        part for each.
    data : SeparateLabels
        The tables it was fitted to, or others with ``held_out``; 20 rows or more each.
    path : path
        The HTML file to write. It opens from disk, fetches nothing, and holds averages of 20
        people or more, never a row. One that ends in .md gets a model card in Markdown, one in
        .csv the segments.
    people : array or data frame of shape (n, d), optional
        The people to choose from. Default: those of the tables.
    terms : Terms, optional
        Words for the outcome, its worth, the cost of treating, a share or a budget.
    origin : Origin, optional
        Title, the command that makes the report again, columns left out.
    diagnosis : Diagnosis, optional
        Of these tables and people, if there is one already. Default: `diagnose`. Of one treatment.
    evaluation : Evaluation or ArmEvaluation, optional
        Of this model, if there is one already. Default: `cross_evaluate` on ``data``, which fits
        the model anew for each of five folds; with ``held_out``, `evaluate_uplift`.
    held_out : bool, default=False
        Whether the model was fitted to other rows than ``data``.
    never_harms : bool, default=False
        Whether treatment can do nobody harm, for the bounds that a red report tells.
    overwrite : bool, default=False
        Whether a file at ``path`` may be replaced.
    random_state : int, RandomState or None, default=0
        Seed for folds and samples.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    TableError
        The file exists, or its folder does not.
    InputError
        There are too few rows for averages of 20.
    MissingExtraError
        Jinja2 is not installed.

    Notes
    -----
    Costs a diagnosis, five fits of the model unless an evaluation is given, and some hundred
    predictions for 500 people for the curves.

    Examples
    --------
    >>> from unjoined import Uplift
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(1000, random_state=0)
    >>> model = Uplift(random_state=0).fit(**data)
    >>> report(model, data, "report.html").name  # doctest: +SKIP
    'report.html'
    """
    return report_with_numbers(
        model,
        data,
        path,
        overwrite=overwrite,
        random_state=random_state,
        people=people,
        terms=terms,
        origin=origin,
        diagnosis=diagnosis,
        evaluation=evaluation,
        held_out=held_out,
        never_harms=never_harms,
    )[0]


def report_with_numbers(
    model: Any,
    data: SeparateLabels | Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    random_state: RandomState = 0,
    **options: Any,
) -> tuple[Path, dict[str, Any]]:
    """Write a report as `report` does; return the file and the numbers of its verdict."""
    target = Path(path)
    if target.exists() and not overwrite:
        raise TableError(
            f"{str(target)!r} exists, so it is not replaced. Name another file, or allow it with "
            "overwrite=True (--force)."
        )
    ending = target.suffix.lower()
    environment = _environment(ending)
    tables = data if isinstance(data, SeparateLabels) else SeparateLabels(**data)
    kind = ArmFacts if hasattr(model, "models_") else Facts
    facts = kind(model, tables, random_state=random_state, **options)
    if ending == CSV:
        written = write_table(_segments_of(facts), target)
    else:
        text = (render_markdown if ending == MARKDOWN else render)(
            facts, environment, random_state
        )
        # What a terminal or an editor would obey; markup was escaped before.
        text = CONTROLS.sub(
            lambda found: found[0].encode("unicode_escape").decode(), text
        )
        written = replace_file(target, lambda file: file.write_text(text, "utf-8"))
    if isinstance(facts, ArmFacts):
        return written, arm_numbers(facts)
    return written, verdict_numbers(facts)


def _environment(ending: str) -> Any:
    """Return Jinja's environment for a kind of file: everything that is put in is escaped."""
    jinja = import_extra("jinja2", extra="report")
    is_markdown = ending == MARKDOWN
    environment = jinja.Environment(
        loader=jinja.PackageLoader("unjoined.report", "."),
        autoescape=not is_markdown,
        finalize=_as_markdown if is_markdown else None,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": in_digits, "percent": percent}
    return environment


class Markdown(str):
    """Text that is Markdown already."""

    __slots__ = ()


def _as_markdown(value: Any) -> str:
    """Return a value as Markdown shows it as it is, on one line."""
    if isinstance(value, Markdown):
        return value
    text = " ".join(str(value).split())
    text = re.sub(r"([\\`*_\[\]|#~])", r"\\\1", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _markdown_table(table: ResultTable) -> Markdown:
    """Return a table with its title, as Markdown has tables."""
    title, columns, rows = table
    lines = [columns, ["---"] * len(columns), *rows]
    said = [
        f"| {' | '.join(c if c == '---' else _as_markdown(c) for c in line)} |"
        for line in lines
    ]
    return Markdown("\n".join([f"*{_as_markdown(title)}*", "", *said]))


def render_markdown(facts: Facts | ArmFacts, environment: Any, seed: Any) -> str:
    """Return the report as a model card in Markdown."""
    arms = facts.arms if isinstance(facts, ArmFacts) else {"": facts}
    speeches = {arm: Speech(own) for arm, own in arms.items()}
    if isinstance(facts, ArmFacts):
        verdict = advise_arms(facts, speeches)
    else:
        verdict = advise(facts, speeches[""])
    parts = [(arm, _parts_of_card(own, speeches[arm])) for arm, own in arms.items()]
    text: str = environment.get_template("report.md").render(
        facts=facts,
        verdict=verdict,
        parts=parts,
        table=_markdown_table,
        held_out=next(iter(arms.values())).held_out,
        tables=(
            "The tables",
            ("table", "population", "rows", "label"),
            [
                (t.kind, str(t.population), f"{t.n_rows:,}", t.words)
                for t in facts.data.summary()
            ],
        ),
        **_frame(facts, seed),
    )
    return text


def _parts_of_card(facts: Facts, speech: Speech) -> dict[str, ResultTable]:
    """Return the tables of a model card on one treatment; without rows if nothing is told."""
    evaluation, terms = facts.evaluation, facts.terms
    ends = f"{speech.percent} interval"
    measures = [("average uplift", evaluation.average), ("AUUC", evaluation.auuc)]
    measures.append(("Qini", evaluation.qini))
    shares = [(name, stage) for name, stage in _share_table(facts)["rows"]]
    segments = facts.segments if facts.is_told else []
    return {
        "segments": (
            f"Segments, the best first: uplift in {terms.unit} {speech.per}",
            ("people where", "people", "predicted", "measured at such scores", ends),
            [
                (g["name"], f"{g['people']:,}", speech.rate(g["predicted"]))
                + (("", "") if g["gain"] is None else speech.rates(g["gain"]))
                for g in segments
            ],
        ),
        "measures": (
            f"Gains {speech.per}, in {terms.unit}",
            ("what", "estimate", ends),
            [(name, *speech.rates(e)) for name, e in measures if facts.is_told],
        ),
        "shares": (
            "What each share is expected to bring",
            ("share", "people", f"gain in {terms.unit}", ends),
            [
                (name, f"{stage.people:,.0f}", *speech.gain(stage))
                for name, stage in shares
                if facts.is_told
            ],
        ),
    }


def _segments_of(facts: Facts | ArmFacts) -> Frame:
    """Return the segments as a table of numbers, outcome units per person."""
    arms = facts.arms if isinstance(facts, ArmFacts) else {"": facts}
    rows: dict[str, list[Any]] = {name: [] for name in SEGMENT}
    for arm, own in arms.items():
        for group in own.segments if own.is_told else ():
            gain = group["gain"]
            ends = (None, None, None)
            if gain is not None:
                ends = (gain.value, *gain.interval(own.level))
            each = (
                arm or "treat",
                group["name"],
                group["people"],
                group["predicted"],
                *ends,
            )
            for name, value in zip(SEGMENT, each, strict=True):
                rows[name].append(
                    value
                    if not isinstance(value, float) or np.isfinite(value)
                    else None
                )
    return import_extra("pyarrow", extra="cli").table(rows)


def _frame(facts: Facts | ArmFacts, seed: Any) -> dict[str, Any]:
    """Return what stands around the sections: when it was made, by what and from which columns."""
    return {
        "missing": _missing(facts),
        "about": _about(facts, seed),
        "day": _day(),
        "version": version("unjoined"),
        "left_out": [*map(str, facts.data.left_out), *facts.origin.left_out],
    }


def render(facts: Facts | ArmFacts, environment: Any, seed: Any) -> str:
    """Return the page."""
    folder = files("unjoined.report")
    style, script = (
        (folder / name).read_text("utf-8") for name in ("report.css", "report.js")
    )
    several: list[tuple[str, str]] = []
    if isinstance(facts, ArmFacts):
        speeches = {arm: Speech(own) for arm, own in facts.arms.items()}
        verdict = advise_arms(facts, speeches)
        template = environment.get_template("sections.html")
        for j, (arm, own) in enumerate(facts.arms.items(), 1):
            said = _sections(own, speeches[arm], verdict)
            part = template.render(said, prefix=f"arm-{j}-", level=3)
            several.append((arm, part))
        first = facts.arms[several[0][0]]
        shown = {"diagnosis": first.diagnosis, "terms": facts.terms, "slider": None}
    else:
        speech = Speech(facts)
        verdict = advise(facts, speech)
        shown = _sections(facts, speech, verdict)
    text: str = environment.get_template("report.html").render(
        shown,
        facts=facts,
        verdict=verdict,
        arms=several,
        prefix="",
        level=2,
        most_open=MOST_OPEN,
        n_tables=sum(table.kind in KINDS for table in facts.data.summary()),
        how=getattr(facts.model, "reason_", ""),
        **_frame(facts, seed),
        style=style,
        script=script,
        hashed=_hash,
    )
    if len(text.encode()) > MOST_BYTES:
        raise InputError(
            "the report is larger than 3 MB; shorten the names of columns."
        )
    return text


def _sections(
    facts: Facts, speech: Speech, verdict: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the sections on one treatment show, between verdict and method."""
    diagnosis = facts.diagnosis
    gains = gain_chart(facts, speech)
    strength = diagnosis.identification
    known = filter(
        None,
        (
            known_in_words(strength, diagnosis.known_worth),
            clusters_in_words(strength),
        ),
    )
    return {
        "facts": facts,
        "terms": facts.terms,
        "speech": speech,
        "verdict": verdict,
        "evaluation": facts.evaluation,
        "relative": _relative(facts),
        "diagnosis": diagnosis,
        "strength": next(
            word for least, word in STRENGTH if diagnosis.strength >= least
        ),
        "strong": STRONG,
        "plenty": PLENTY,
        "gap": gap_figure(diagnosis, facts.data.n_rows),
        "alike": 0.0 if diagnosis.gap is None else share_alike(diagnosis.gap),
        "gap_words": ""
        if diagnosis.gap is None
        else diagnosis.gap_in_words(diagnosis.gap),
        "known": known,
        "full_gap": FULL_GAP,
        "nearly_all": NEARLY_ALL,
        "hidden": hidden_figure(facts) if facts.is_told else None,
        "turns": turning_point(facts),
        "regions": [
            r for r in diagnosis.regions if r.share * facts.data.n_rows >= FEWEST
        ],
        "curve": curve_figure(facts, speech),
        "bins": bins_figure(facts, speech),
        "gains": gains,
        "shares": _share_table(facts),
        "slider": _slider(facts, speech, gains),
        "drivers": [
            driver_figure(driver, speech)
            for driver in facts.drivers[:MOST_DRIVERS]
            if len(driver.values) > 1
        ],
        "importance": importance_chart(facts.drivers, speech),
        "tell": TELL[diagnosis.colour],
        "colours": COLOURS,
        "has_band": any(driver.has_band for driver in facts.drivers),
        "firmer": firmer(facts, speech),
    }


def _relative(facts: Facts) -> str:
    """Say how large the average is beside what the outcome would be untreated."""
    relative = facts.evaluation.relative
    return "" if relative is None else f"; {relative_in_words(relative, facts.level)}"


def _hash(text: str) -> str:
    """Return what a security policy knows a text by, so that the browser runs nothing else."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _share_table(facts: Facts) -> dict[str, Any]:
    """Return what shares bring, for paper and as a file to download."""
    terms, lines = facts.terms, []
    for stage in facts.stages:
        spent = terms.cost * stage.people
        money = stage.net(terms) if terms.has_money else ()
        numbers = [
            stage.share,
            stage.people,
            stage.gain,
            stage.low,
            stage.high,
            spent,
            *money,
        ]
        lines.append(
            ",".join(f"{each:.6g}" if np.isfinite(each) else "" for each in numbers)
        )
    head = "share,people,gain,low,high,cost" + ",net,net_low,net_high" * terms.has_money
    wanted = {
        min(facts.stages, key=lambda s: abs(s.share - share)) for share in SHOWN_SHARES
    }
    shown = [
        stage for stage in facts.stages if stage in wanted or stage == facts.chosen
    ]
    return {
        "rows": [(percent(stage.share), stage) for stage in shown],
        "href": "data:text/csv;charset=utf-8,"
        + quote("\n".join([head, *lines]) + "\n"),
    }


def _slider(facts: Facts, speech: Speech, chart: Chart) -> dict[str, Any]:
    """Return what the script needs to follow the slider; unbounded ends are null."""
    terms, (across, upward) = facts.terms, chart.scales
    return {
        "n": len(facts.people),
        "cost": terms.cost,
        "value": terms.value,
        "unit": terms.unit,
        "currency": terms.currency,
        "gain_places": speech.gain_places,
        "money_places": speech.money_places,
        "chosen": facts.chosen.share,
        "x": across,
        "y": upward,
        "stages": [
            [
                s.share,
                *(
                    float(f"{v:.7g}") if np.isfinite(v) else None
                    for v in (s.gain, s.low, s.high)
                ),
            ]
            for s in facts.stages
        ],
    }


def _missing(facts: Facts | ArmFacts) -> str:
    """Say how many people lack each feature."""
    counts = {c.name: int(np.isnan(c.values).sum()) for c in facts.people.columns}
    said = [
        f"{name} {percent(n / len(facts.people))}"
        if n >= FEWEST
        else f"{name} in fewer than {FEWEST} people"
        for name, n in counts.items()
        if n
    ]
    return ", ".join(said) or "none"


def fingerprint(data: SeparateLabels) -> str:
    """Return 16 hexadecimal digits that change with any cell, but not with the order of rows."""
    framed = data.feature_names is not None
    X = TableEncoder("codes").fit(data.X).encode(data.X).matrix if framed else data.X
    X = np.ascontiguousarray(feature_matrix(X))
    kind = np.array(
        [KINDS.index(each) for each in np.asarray(data.kind)], dtype=np.float64
    )
    _, place = np.unique(np.asarray(data.population).astype(str), return_inverse=True)
    labels = [data.checked.label]
    if data.checked.joint is not None:
        labels.append(data.checked.joint)
    rows = hash_with(
        hash_features(np.nan_to_num(X)),
        *(np.nan_to_num(label, nan=-1.0) for label in labels),
        kind,
        place.astype(np.float64),
    )
    with np.errstate(over="ignore"):
        return f"{int(rows.sum(dtype=np.uint64)):016x}"


def _day() -> str:
    """Return the day of the report, or the one that a repeatable build names."""
    when = os.environ.get("SOURCE_DATE_EPOCH")
    day = datetime.fromtimestamp(int(when), UTC) if when else datetime.now(UTC)
    return f"{day:%Y-%m-%d}"


def _run_in_words(facts: Facts | ArmFacts) -> str:
    """Say by what the model was fitted, and to which rows."""
    if (run := getattr(facts.model, "run_", None)) is None:
        return "not known"
    with_what = ", ".join(
        f"{name} {number}" for name, number in run["versions"].items()
    )
    if was_fitted_to(
        facts.model, facts.data
    ):  # its rows are numbers, so their fingerprint differs
        return f"{with_what}; to these tables, as numbers of fingerprint {run['data']}"
    return f"{with_what}; to rows of fingerprint {run['data']}"


def _about(facts: Facts | ArmFacts, seed: Any) -> list[tuple[str, str]]:
    """Return what made the report."""
    packages = ("unjoined", "numpy", "scipy", "scikit-learn")
    return [
        ("Model", repr(facts.model)),
        ("Seeds", f"model {facts.model.get_params()['random_state']}, report {seed}"
         if "random_state" in facts.model.get_params() else f"report {seed}"),
        ("Fingerprint of the tables", fingerprint(facts.data)),
        ("The model was fitted with", _run_in_words(facts)),
        (
            "Versions",
            ", ".join(
                [
                    *(f"{name} {version(name)}" for name in packages),
                    f"Python {platform.python_version()}",
                ]
            ),
        ),
        ("Command that makes it again", facts.origin.command or "not known; made from Python"),
    ]  # fmt: skip
