"""What is found in parts adds up field by field, in lists, tuples and dictionaries too."""

from dataclasses import dataclass

import numpy as np
import pytest

from unjoined.data.fold import Additive, plus


@dataclass(frozen=True, slots=True)
class Sums(Additive):
    n: int
    total: np.ndarray
    by_name: dict


def test_fields_are_added_up_and_neither_argument_changes():
    one = Sums(1, np.array([1.0, 2.0]), {"a": 1, "b": 2})
    two = Sums(4, np.array([3.0, 5.0]), {"b": 10, "c": 20})
    both = one + two
    assert both.n == 5
    assert both.total.tolist() == [4.0, 7.0]
    assert both.by_name == {"a": 1, "b": 12, "c": 20}
    assert one.total.tolist() == [1.0, 2.0]
    assert two.by_name == {"b": 10, "c": 20}


def test_lists_and_tuples_are_added_up_entry_by_entry():
    assert plus([(1, 2.0), (3, 4.0)], [(10, 20.0), (30, 40.0)]) == [
        (11, 22.0),
        (33, 44.0),
    ]
    with pytest.raises(ValueError, match="shorter"):
        plus([1, 2], [1])
