"""The page that holds our numbers against the paper's words, made from a results file alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unjoined.reproduce.claims import (
    CONTRADICTED,
    HOLDS,
    NOT_SHOWN,
    WELL,
    describe_leads,
    judge,
    plus_minus,
)
from unjoined.reproduce.figures import figure_names
from unjoined.reproduce.studies import OURS, RIDGES

Block = dict[str, Any]
PAPER_TRIALS = 50
RIDGES_OPTION = " --ridges"
SHOWN_B = (0.0, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0)  # the nearest point of the grid is shown
SEEN = {
    "synthetic": (
        "Figure 1 draws the mean area of FourLogistic, FourNNC and MinMaxGau against b: all are "
        "high at large b, the baselines fall first, MinMaxGau falls at about 2.",
        "Figure 2 draws squared errors of single points at b = 1: those of FourNNC are largest "
        "where the policies differ little (dark), those of MinMaxGau are small.",
    ),
    "email": ("MinMaxGau and FourLogistic lie above FourNNC.",),
    "jobs": ("MinMaxGau lies above FourNNR.",),
    "criteo": ("MinMaxGau lies above both baselines.",),
}
TITLES = {
    "synthetic": "Synthetic data (Figures 1 and 2)",
    "email": "Email (Figure 3a)",
    "jobs": "Jobs (Figure 3b)",
    "criteo": "Criteo (Figure 3c)",
}
CHOICES = {
    "synthetic": """\
- The paper prints `1 / (1 - exp(...))` for policies and outcomes. We take the logistic
  `1 / (1 + exp(...))`.
- The paper does not say how many rows and test points it used.
- The share of the oracle is (AUUC - random) / (AUUC of the true uplift - random): 0 is a random
  order, 1 the true one.
- Uplift lies between -2 and 2 here, so an answer in that range has a squared error of at most 16,
  the dashed line of Figure 2. We call an error above 16 gross. (The limit was 4 at first. We raised
  it after a preview, because it counted answers near 0 as gross.)
- A gap is small or large if it is in the lowest or highest third. Figure 2 has the second feature
  on its horizontal axis, because the policies depend on that feature alone.
- This problem is kind to our default: its log-odds are linear in x, the first form the default
  tries. At b = 0 the policies are the same, and nothing but that form tells the uplift.
  [Which estimator](guide/which-estimator.md) has less kind problems.""",
    "email": """\
- The paper does not name its treatment. Ours is either mail, against none; either was sent with
  probability 2/3. The outcome is a visit.
- The paper does not say how its two policies were made. Ours are those it states for Criteo, on
  standardised features: 1 / (1 + exp(-t 1'x)) and 1 / (1 + exp(t 1'x)).""",
    "jobs": """\
- LaLonde's 297 and 425 people, seven features (the paper counts nine), earnings of 1978.
- Policies are made as for Email.""",
    "criteo": """\
- We have a part of the paper's 100 million impressions, and the tables are as large as
  sub-sampling leaves them.
- Features are the ten of the display. Eight are categories; we replace each by the logarithm of
  how often it occurs. We leave out features of the product: they would reveal the treatment, which
  is its feature 12.
- The file logs the propensity of the product, not of its feature 12. We estimate the latter by
  logistic regression on the display, and leave out rows where it is below 0.2 or above 0.8. The
  sub-sampling and the inverse propensity scores of the test use this estimate.
- As in the paper, clicks are not re-weighted for impressions that are not in the file.""",
}


def paper_page(results: dict[str, Any]) -> str:
    """Return the page of a results file as Markdown; the same results give the same letters."""
    studies, ridges = results["studies"], results.get("ridges", {})
    parts = [_opening(studies, ridges)]
    if studies:
        parts += [_claims(results["claims"]), _settings()]
    for name, block in studies.items():
        parts += [f"## {TITLES[name]}", _size(block), CHOICES[name], *_figures(block)]
        parts.append(_synthetic_table(block) if name == "synthetic" else _real_table(block))
        parts.append(describe_leads(block))
    if ridges:
        parts.append(_ridges(ridges))
    parts.append(_time(studies, ridges))
    return "\n\n".join(parts) + "\n"


def _opening(studies: dict[str, Block], ridges: dict[str, Block]) -> str:
    commands = [
        _commands(blocks, option) for blocks, option in ((studies, ""), (ridges, RIDGES_OPTION))
    ]
    lines = [
        "# The paper's experiments, run again",
        "This page repeats section 6 of Yamane, Yger, Atif and Sugiyama, *Uplift Modeling from "
        "Separate Labels* (NeurIPS 2018), with this library. Its numbers and figures were written "
        "by",
        "```console\n" + "\n".join(filter(None, commands)) + "\n```",
        "to `paper-results.json`, and the page was made from that file, not by hand. The number "
        f"after ± is one standard error over trials. *{OURS}* is the library's default "
        "estimator, which the paper does not have.",
    ]
    blocks = [*studies.values(), *ridges.values()]
    fewer = sorted({block["trials"] for block in blocks})
    if fewer[0] < PAPER_TRIALS or any(block["small"] for block in blocks):
        small = " and small tables" if any(block["small"] for block in blocks) else ""
        lines.append(
            f"**This is a preview**: {' or '.join(map(str, fewer))} trials{small}, where the paper "
            f"has {PAPER_TRIALS} trials. Do not quote its numbers."
        )
    return "\n\n".join(lines)


def _commands(blocks: dict[str, Block], option: str) -> str:
    """Return the command, or one for each study if they were run with different options."""
    options = {
        name: f"{option} --trials {block['trials']} --seed {block['seed']}"
        + " --small" * block["small"]
        for name, block in blocks.items()
    }
    if len(set(options.values())) == 1:
        return f"unjoined reproduce {' '.join(blocks)}{next(iter(options.values()))}"
    return "\n".join(f"unjoined reproduce {name}{given}" for name, given in options.items())


def _claims(claims: list[dict[str, Any]]) -> str:
    lines = [
        "## What the paper says, and what we find",
        "We take each claim apart into checks. A check is about one number, and its verdict "
        "rests on an interval: the mean over trials, two standard errors up and down. The check "
        "**holds** if the whole interval is on the side that the paper claims. It is "
        "**contradicted** if the whole interval is on the other side. It is **not shown** if the "
        "interval covers both; then our trials cannot tell.",
        "A claim is contradicted if one of its checks is, and holds if all of them do. Otherwise "
        "it **holds partly** if some checks hold, and is not shown if none does. The same goes for "
        "a check at many b. Differences between methods are paired by trial. *Relatively well* is "
        f"{WELL} of the oracle. The rules and limits are ours, and we settled them when the "
        "numbers were known. On real data all trials draw from the same people, so a verdict there "
        "is about these people only.",
        "| the paper, section 6.3 | verdict | checks, each with its interval |\n|---|---|---|\n"
        + "\n".join(_claim(claim) for claim in claims),
    ]
    return "\n\n".join(lines)


def _claim(claim: dict[str, Any]) -> str:
    checks = "<br>".join(
        f"*{check['verdict']}*: {check['what']} ({check['found']})" for check in claim["checks"]
    )
    return f"| {claim['claim']} | **{claim['verdict']}** | {checks} |"


def _settings() -> str:
    (low_f, low_g), (high_f, high_g) = RIDGES[0], RIDGES[-1]
    return f"""\
## Settings

- **MinMaxGau** has 100 Gaussian centres. The paper gives sigma = 25 in exp(-|x - c|² / sigma²), so
  the width is 25. Had it meant sigma² = 25, the width would be 5. We show both.
- **Ridges** are not stated in the paper. In each trial and for each width we take one of
  {len(RIDGES)} pairs: ridge_f from {low_f:g} to {high_f:g}, ridge_g from {low_g:g} to {high_g:g}.
  It is the one with the lowest [outcome risk](guide/selection.md) on rows held out in turn (two
  folds of the training rows). That needs no joint labels and sees no test row. We picked this
  rule, and not weighted risk or the estimator's own automatic ridges, by the true uplift of nine
  other synthetic draws at b = 1, 2 and 5.
- **FourLogistic, FourNNC, FourRidge, FourNNR** are four regressions and a ratio. Networks have two
  hidden layers of ten units, as in the paper. Features and real outcomes are standardised.
- **Areas** count ties half.
- **Real data**: all trials draw from the same rows, so standard errors say how much a result
  depends on the draw. For new people they would be larger.
- **Figures**: all methods of a trial see the same rows, so error bars that overlap do not show
  that two methods are alike. The paired differences in the tables compare them better."""


def _size(block: Block) -> str:
    return (
        f"4 × {block['n']:,} rows to train, {block['n_test']:,} to test, {block['trials']} "  # noqa: RUF001
        f"trial{'s' * (block['trials'] != 1)}, seed {block['seed']}, version {block['version']}."
    )


def _figures(block: Block) -> Iterator[str]:
    for file, seen in zip(figure_names(block["study"]), SEEN[block["study"]], strict=True):
        yield (
            "| in the paper | here |\n|---|---|\n"
            f"| {seen} | ![{file.removesuffix('.png')}](images/{file}) |"
        )


def _synthetic_table(block: Block) -> str:
    known = [point["b"] for point in block["by_b"]]
    shown = sorted({min(known, key=lambda b: abs(b - want)) for want in SHOWN_B})
    points = [point for point in block["by_b"] if point["b"] in shown]
    places = [f"b = {p['b']:.3g}" for p in points]
    lines = []
    for title in ("share of the oracle", "squared error"):
        lines += [f"| {title} | {' | '.join(places)} |", "|---" * (len(points) + 1) + "|"]
        for name in points[0]["methods"]:
            rows = [p["methods"][name] for p in points]
            cells = (
                [f"{row['error']:.2g}" for row in rows]
                if title == "squared error"
                else [_number(row, "share") for row in rows]
            )
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    lines.pop()
    lines.append(
        "\nSquared error is the mean over test points and the median over trials, without a "
        "standard error: read it for its order of magnitude. The answer 0 has about 2."
    )
    lines.append("\n| gross errors at b = 1 | small gap | large gap |\n|---|---|---|")
    for name, row in block["gross"].items():
        cells = [f"{_number(row, gap, 100.0, 1)} %" for gap in ("small gap", "large gap")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(row: Block, name: str, factor: float = 1.0, digits: int = 2) -> str:
    numbers = [row[name], row[f"{name}_se"]]
    return " ± ".join(f"{factor * n:.{digits}f}" for n in numbers if n is not None)


def _real_table(block: Block) -> str:
    lines = [
        f"Area under the uplift curve above that of a random order, {block['unit']} per person:\n",
        f"| method | above random | {OURS} is better by |\n|---|---|---|",
    ]
    for name, row in block["methods"].items():
        behind = "" if name == OURS else plus_minus(*block["methods"][OURS]["minus"][name])
        area = plus_minus(row["above_random"], row["above_random_se"])
        lines.append(f"| {name} | {area} | {behind} |")
    return "\n".join(lines)


def _ridges(ridges: dict[str, Block]) -> str:
    first = next(iter(ridges.values()))
    f, g = first["ridges_f"], first["ridges_g"]
    rows = [(name, row) for name, block in ridges.items() for row in block["rows"]]
    lines = [
        "## What the ridges change",
        "",
        f"Our study chose among {len(RIDGES)} pairs of ridges. Here MinMaxGau is fitted with "
        f"{len(f) * len(g)}, ridge_f from {f[0]:g} to {f[-1]:g} and ridge_g from {g[0]:g} to "
        f"{g[-1]:g}, on the same draws. The *rule* is the study's: the lowest held-out risk. The "
        "*best pair* is the single pair with the highest mean in hindsight, which nobody knows "
        "beforehand. The preset is that of the library for width 25. Pairs are ridge_f / ridge_g. "
        "Synthetic rows are shares of the oracle, the others areas above random as in the tables "
        "above.",
        "",
        *_shifts(rows),
        "",
        f"| study | method | rule, {len(RIDGES)} pairs | rule, all pairs | difference "
        f"| chosen at an edge | preset | best of {len(RIDGES)} pairs | best of all pairs |\n"
        + "|---" * 9
        + "|",
    ]
    edges = ({f[0], f[-1]}, {g[0], g[-1]})
    lines += [_ridge_line(name, row, edges) for name, row in rows]
    lines += [
        "",
        "- No grid is so wide that the rule never goes to an edge: with a large ridge_f the answer "
        "shrinks to 0, and the rule goes there when the held-out rows show no uplift.",
        "- With a large ridge_g only the product of the two ridges counts, so many pairs do the "
        "same. Of those within a tenth of a standard error of the best we name the one farthest "
        "from the edges of the grid. If that is at an edge, a wider grid might have a better one.",
        "- The paper's claim about b = 2 is decided at b = 2.08. At b = 1 the policies are close, "
        "and standard errors are large. At b = 0 they are the same, and no ridges can tell the "
        "uplift; b below 1 is left out.",
    ]
    return "\n".join(lines)


def _shifts(rows: list[tuple[str, Block]]) -> Iterator[str]:
    """Yield what the rule gains and loses with all pairs to choose from."""
    places: dict[str, list[str]] = {HOLDS: [], CONTRADICTED: [], NOT_SHOWN: []}
    for name, row in rows:
        places[judge(*row["wide_minus_study"])].append(f"{_place(name, row)}, {row['method']}")
    better, worse = places[HOLDS], places[CONTRADICTED]
    yield (
        f"The verdicts above rest on the {len(RIDGES)} pairs. With all pairs to choose from, the "
        f"rule is clearly better in {len(better)} of {len(rows)} rows and clearly worse in "
        f"{len(worse)}; for the others our trials cannot tell."
    )
    if better:
        yield f"It is better here: {'; '.join(better)}. A verdict there might change."


def _ridge_line(name: str, row: Block, edges: tuple[set[float], set[float]]) -> str:
    cells = [plus_minus(*row[key]) for key in ("study", "wide", "wide_minus_study")]
    cells += [f"{row['at_edge']:.0%}".replace("%", " %"), plus_minus(*row["preset"])]
    for key in ("best_study", "best"):
        f, g = row[f"{key}_pair"]
        edge = ", at an edge" if key == "best" and (f in edges[0] or g in edges[1]) else ""
        cells.append(f"{plus_minus(*row[key])} ({f:g} / {g:g}{edge})")
    return f"| {_place(name, row)} | {row['method']} | " + " | ".join(cells) + " |"


def _place(name: str, row: Block) -> str:
    return f"{name}, b = {row['b']:.3g}" if "b" in row else name


def _time(studies: dict[str, Block], ridges: dict[str, Block]) -> str:
    lines = [
        "## Where the time goes",
        "",
        "Processor time of one core for all trials together, in minutes. `--jobs 2` takes half as "
        "long on two free cores. The time of MinMaxGau includes the choice of its ridges.",
        "",
    ]
    for name, block in studies.items():
        spent = ", ".join(f"{m} {s / 60.0:.1f}" for m, s in block["seconds"].items())
        total = sum(block["seconds"].values()) / 60.0
        lines.append(f"- {name}: {total:.1f} ({spent})")
    if ridges:
        spent = ", ".join(f"{name} {b['seconds'] / 60.0:.1f}" for name, b in ridges.items())
        lines.append(f"- ridges: {spent}")
    return "\n".join(lines)
