"""Every check on user input. Each returns the clean value, or says what is wrong.

A message names the argument as the user typed it, what was expected, what was found (at
most five values) and what to do. Code behind these checks trusts its arguments.
"""

from unjoined._validation._features import (
    check_columns,
    check_feature_sizes,
    check_finite_features,
    check_numbers,
    check_numeric_columns,
    check_row_width,
)
from unjoined._validation._labels import (
    KINDS,
    OUTCOME,
    TARGET,
    TREATMENT,
    OutcomeCoding,
    check_cells,
    check_kind,
    check_labels,
    check_length,
    check_outcome,
    check_population,
    check_treatment,
    check_weight,
    is_kind,
)
from unjoined._validation._message import LARGEST, SMALLEST
from unjoined._validation._parameters import (
    check_count,
    check_not_negative,
    check_option,
    check_positive,
    check_share,
    check_word_or,
)
from unjoined._validation._values import (
    check_both_arms,
    check_cost,
    check_one_per_row,
    check_outcome_is_binary,
    check_probability,
    check_propensity,
    check_same_length,
    check_treated,
    check_vector,
)

__all__ = [
    "KINDS",
    "LARGEST",
    "OUTCOME",
    "SMALLEST",
    "TARGET",
    "TREATMENT",
    "OutcomeCoding",
    "check_both_arms",
    "check_cells",
    "check_columns",
    "check_cost",
    "check_count",
    "check_feature_sizes",
    "check_finite_features",
    "check_kind",
    "check_labels",
    "check_length",
    "check_not_negative",
    "check_numbers",
    "check_numeric_columns",
    "check_one_per_row",
    "check_option",
    "check_outcome",
    "check_outcome_is_binary",
    "check_population",
    "check_positive",
    "check_probability",
    "check_propensity",
    "check_row_width",
    "check_same_length",
    "check_share",
    "check_treated",
    "check_treatment",
    "check_vector",
    "check_weight",
    "check_word_or",
    "is_kind",
]
