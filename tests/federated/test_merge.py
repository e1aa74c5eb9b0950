"""Merging: every table is counted once, however its sums come to lie beside each other."""

import numpy as np
import pytest

from unjoined import SeparateLabels
from unjoined.cli.entry import main
from unjoined.data.rows import separate_labels
from unjoined.errors import InputError
from unjoined.federated import (
    aggregate_rows,
    fourier_plan,
    merge_sums,
    read_sums,
    write_sums,
)

NAMES = ["north", "south"]
PLAN = fourier_plan(
    {"age": (0.0, 1.0), "income": (0.0, 1.0)},
    NAMES,
    outcome_values=(0, 1),
    n_functions=3,
)
SAME = r"hold the same (outcome|treatment) rows of population '(north|south)' as sums"


def table(seed, kind, populations=NAMES, n=1000):
    """Return rows of one kind, half of them of either population."""
    rng = np.random.default_rng(seed)
    return {
        "X": rng.uniform(-2.0, 2.0, size=(n, 2)),
        **separate_labels(rng.integers(0, 2, n).astype(float), np.full(n, kind)),
        "population": np.resize(populations, n),
    }


def of(rows):
    return aggregate_rows(rows, PLAN)


def written(found, path):
    """Return sums as somebody else gets them: through a file."""
    return read_sums(write_sums(found, path))


def test_a_file_merged_with_itself_is_refused(tmp_path):
    found = written(of(table(0, "outcome")), tmp_path / "a")
    with pytest.raises(InputError, match=f"sums 2 {SAME} 1"):
        merge_sums([found, found])


def test_a_file_merged_with_a_merge_that_contains_it_is_refused(tmp_path):
    parts = [of(table(i, "outcome")) for i in range(4)]
    pair = written(merge_sums(parts[:2]), tmp_path / "pair")
    three = written(merge_sums([pair, parts[2]]), tmp_path / "three")
    for i in range(3):
        with pytest.raises(InputError, match=f"sums 3 {SAME} 1"):
            merge_sums([three, parts[3], parts[i]])
    assert merge_sums([three, parts[3]]).n_rows("outcome", 0) == 4 * 500


def test_two_merges_that_share_a_file_are_refused():
    a, b, c = (of(table(i, "treatment")) for i in range(3))
    with pytest.raises(InputError, match=f"sums 2 {SAME} 1"):
        merge_sums([merge_sums([a, b]), merge_sums([b, c])])


@pytest.mark.parametrize("kind", ["outcome", "treatment"])
def test_the_same_table_added_up_twice_is_refused(kind):
    """In another order and other chunks, so that sums differ in their last digits."""
    rows = table(0, kind, n=20_000)
    order = np.random.default_rng(9).permutation(20_000)

    def chunks():
        for at in np.array_split(order, 7):
            yield {name: values[at] for name, values in rows.items()}

    again = of(SeparateLabels.from_chunks(chunks))
    first = of(rows)
    gram = [found.sums.total(kind, 0).gram for found in (first, again)]
    assert not np.array_equal(*gram)
    with pytest.raises(InputError, match=f"sums 2 {SAME} 1"):
        merge_sums([first, again])


def test_one_table_that_two_files_share_is_enough():
    rows = table(0, "outcome")
    south = {
        name: values[rows["population"] == "south"] for name, values in rows.items()
    }
    with pytest.raises(InputError, match="the same outcome rows of population 'south'"):
        merge_sums([of(rows), of(south)])


def test_sums_of_different_rows_merge():
    parts = [of(table(i, kind)) for i in range(3) for kind in ("outcome", "treatment")]
    merged = merge_sums(parts)
    for kind in ("outcome", "treatment"):
        rows = [table(i, kind) for i in range(3)]
        together = of(
            {name: np.concatenate([part[name] for part in rows]) for name in rows[0]}
        )
        for k in (0, 1):
            np.testing.assert_allclose(
                merged.sums.total(kind, k).gram,
                together.sums.total(kind, k).gram,
                rtol=1e-9,
            )


def run(*words):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code or 0


def test_the_command_line_refuses_a_file_twice(tmp_path, capsys):
    path, other = tmp_path / "a.sums", tmp_path / "b.sums"
    write_sums(of(table(0, "outcome")), path)
    write_sums(of(table(1, "outcome")), other)
    out = tmp_path / "out.sums"
    copy = tmp_path / "copy.sums"
    copy.write_bytes(path.read_bytes())
    assert run("merge", path, path, path, path, "--out", out) == 2
    assert not out.exists()
    capsys.readouterr()
    assert run("merge", path, copy, "--out", out) == 2
    assert "hold the same outcome rows" in " ".join(capsys.readouterr().err.split())
    assert not out.exists()
    assert run("merge", path, other, "--out", out) == 0
    assert run("merge", out, path, "--out", tmp_path / "again.sums") == 2
    assert not (tmp_path / "again.sums").exists()
