"""Plain rules for sums that leave an organisation, and no promise beyond them."""

from dataclasses import fields, replace

import numpy as np
import pytest

from tests.helpers import fit_centring
from unjoined import MinMaxUplift
from unjoined.cli.entry import main
from unjoined.data import paper_problem
from unjoined.data.rows import label_rows, separate_labels
from unjoined.errors import InputError
from unjoined.federated import (
    PlannedSums,
    aggregate_rows,
    fourier_plan,
    merge_sums,
    write_sums,
)
from unjoined.model import FourierBasis, GaussianBasis, LinearBasis
from unjoined.model.basis import Scaling, StackedBasis

NAMES = ["a", "b"]
PLAN = fourier_plan(
    {"x": (0.0, 1.0), "z": (0.0, 1.0)}, NAMES, n_functions=4, n_groups=2
)


def table(kind="outcome", n=2000, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=n) if kind == "outcome" else rng.integers(0, 2, n).astype(float)
    return {
        "X": rng.uniform(-2.0, 2.0, size=(n, 2)),
        **separate_labels(y, np.full(n, kind)),
        "population": np.resize(NAMES, n),
    }


def with_basis(basis, plan=PLAN):
    return replace(plan, basis=basis, critic=basis)


def aimed(rows, width=1e-3):
    """Return the plan of somebody who wants to know the label of the first row."""
    return with_basis(
        StackedBasis(LinearBasis(2), GaussianBasis(rows["X"][:1].copy(), width))
    )


def test_a_narrow_gaussian_at_a_person_is_refused():
    rows = table()
    with pytest.raises(
        InputError, match=r"functions of other kinds.*GaussianBasis.*fourier_plan"
    ):
        aggregate_rows(rows, aimed(rows), min_count=500)


def test_the_command_line_refuses_a_plan_aimed_at_a_person(tmp_path, capsys):
    rows = table()
    mine = rows["population"] == "a"
    path, out = tmp_path / "rows.csv", tmp_path / "out.sums"
    lines = [
        f"{x},{z},{y}"
        for (x, z), y in zip(rows["X"][mine], rows["y"][mine], strict=True)
    ]
    path.write_text("\n".join(["x,z,sold", *lines]))
    plan = write_sums(PlannedSums.of_no_rows(aimed(rows)), tmp_path / "plan")
    words = [
        "aggregate",
        "--plan",
        plan,
        "--outcomes",
        f"a={path}",
        "--outcome",
        "sold",
    ]
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in [*words, "--out", out]])
    assert stop.value.code == 2
    assert "by which a single row could be singled out" in " ".join(
        capsys.readouterr().err.split()
    )
    assert not out.exists()


def combs(rows, highest):
    """Return Fourier functions that add up to a peak at the first row."""
    steps = np.arange(1, 6) * highest / 5
    frequencies = np.zeros((2, 5))
    frequencies[0] = steps
    return FourierBasis(frequencies, -rows["X"][0, 0] * steps)


def test_other_plans_that_could_be_aimed_are_refused():
    cases = (
        (
            lambda rows: with_basis(GaussianBasis(rows["X"][:3], 9.0)),
            "other kinds .GaussianBasis",
        ),
        (lambda rows: with_basis(combs(rows, 3.0)), "other kinds .FourierBasis"),
        (
            lambda rows: with_basis(StackedBasis(LinearBasis(2), combs(rows, 500.0))),
            "frequencies of up to 500 per spread, where 6.28 is allowed",
        ),
        (
            lambda rows: replace(PLAN, critic=LinearBasis(2)),
            "functions of the critic's own",
        ),
        (
            lambda rows: replace(
                PLAN,
                centring=(
                    fit_centring(
                        label_rows(**paper_problem(b=5.0).draw(50, random_state=0)),
                        np.random.RandomState(0),
                    ),
                ),
            ),
            "functions to be subtracted from the labels",
        ),
    )
    for change, message in cases:
        rows = table()
        with pytest.raises(InputError, match=f"the plan holds .*{message}"):
            aggregate_rows(rows, change(rows))


def test_a_width_that_makes_functions_too_fine_is_refused_when_the_plan_is_made():
    with pytest.raises(
        InputError, match=r"width=0.01 makes functions so fine .* or more"
    ):
        fourier_plan({"x": (0.0, 1.0)}, NAMES, width=0.01)


@pytest.mark.parametrize(
    "scaling",
    [Scaling(np.zeros(2), np.full(2, 1e-9)), Scaling(np.full(2, 1e4), np.ones(2))],
)
def test_a_scale_that_makes_functions_finer_than_they_look_is_refused(scaling):
    with pytest.raises(
        InputError, match=r"plan says that feature '[xz]' is about .* right value"
    ):
        aggregate_rows(table(), replace(PLAN, scaling=scaling))


def test_one_row_with_all_the_weight_does_not_pass_for_many():
    """A hundred rows to a group by count, and one by weight."""
    rows = table()
    weight = np.full(2000, 1e-9)
    weight[7] = 1.0
    with pytest.raises(
        InputError, match=r"has \d+ rows, worth 1.0 of equal weight, fewer than"
    ):
        aggregate_rows(rows | {"sample_weight": weight}, PLAN)


@pytest.mark.parametrize("kind", ["outcome", "treatment"])
def test_no_more_sums_of_labels_than_half_of_the_rows(kind):
    plan = replace(PLAN, n_groups=1)
    p = plan.size
    sums = p if kind == "outcome" else p * (p + 1) // 2
    rows = table(kind, n=2 * (2 * sums - 2))
    with pytest.raises(
        InputError, match=f"{2 * sums - 2} rows, .* 2 for each of its {sums} sums"
    ):
        aggregate_rows(rows, plan, min_count=1)
    enough = aggregate_rows(table(kind, n=100 * sums), plan, min_count=1)
    assert enough.n_rows(kind, 0) == 50 * sums


def test_labels_can_be_solved_for_where_rows_are_fewer():
    """Why the rule is there: p functions at p rows give the labels to rounding.

    That is the plainest case. Two rows to a sum do not make labels safe.
    """
    rows = table(n=PLAN.size)
    phi, y = PLAN.values(rows["X"]), rows["y"]
    np.testing.assert_allclose(np.linalg.solve(phi.T, phi.T @ y), y, atol=1e-6)


def test_one_table_under_two_names_is_refused(tmp_path):
    """Else outcomes do not differ at all: an effect of nought, with an interval of nought."""
    rows = table()
    one = rows["population"] == "a"
    for name in ("X", "y"):
        rows[name][~one] = rows[name][one]
    said = "outcome rows of populations 'a' and 'b' have the same sums"
    with pytest.raises(InputError, match=said):
        aggregate_rows(rows, PLAN)
    parts = [
        aggregate_rows(
            {k: v[rows["population"] == name] for k, v in rows.items()}, PLAN
        )
        for name in NAMES
    ]
    with pytest.raises(InputError, match=said):
        merge_sums(parts)
    merged = merge_sums(
        [aggregate_rows(table(), PLAN), aggregate_rows(table("treatment"), PLAN)]
    )
    for field in fields(merged.sums):
        outcomes = getattr(merged.sums, field.name)[0]
        outcomes[1] = outcomes[0]
    with pytest.raises(InputError, match=said):
        MinMaxUplift().fit_moments(replace(merged, tables=()))


def test_a_person_unlike_all_others_is_added_up_and_nobody_is_told_otherwise(
    capsys, tmp_path
):
    """No rule hides such a person: what the command says must not promise it."""
    rows = table()
    rows["X"][5, 0] = 40.0
    assert aggregate_rows(rows, PLAN).n_rows("outcome", 0) == 1000
    lines = [f"{x},{z},{y}" for (x, z), y in zip(rows["X"], rows["y"], strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,z,sold", *lines]))
    write_sums(PlannedSums.of_no_rows(PLAN), tmp_path / "plan")
    words = [
        "aggregate",
        "--plan",
        tmp_path / "plan",
        "--outcomes",
        f"a={tmp_path / 'rows.csv'}",
    ]
    with pytest.raises(SystemExit):
        main(
            [
                str(w)
                for w in [*words, "--outcome", "sold", "--out", tmp_path / "out.sums"]
            ]
        )
    said = " ".join(capsys.readouterr().out.split())
    assert "Sums are data about people" in said
    assert "under a contract" in said


def test_tables_of_everyday_size_pass():
    """Normal features and the default number of functions: four thousand rows to a table."""
    rng = np.random.default_rng(0)
    plan = fourier_plan({f"x{i}": (0.0, 1.0) for i in range(6)}, NAMES)
    rows = table("treatment", n=8000) | {"X": rng.normal(size=(8000, 6))}
    assert aggregate_rows(rows, plan).n_rows("treatment", 0) == 4000
