"""Nothing is said to be so that the rows only fail to exclude."""

import pytest

from unjoined import Uplift
from unjoined.data import campaign_problem


@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
def test_a_gain_below_two_standard_errors_does_not_make_people_differ():
    data = campaign_problem().draw(60, random_state=1)
    model = Uplift(compare=False, n_jobs=1, random_state=0).fit(**data)
    gain = model.heterogeneity_
    assert 1.0 < gain.value / gain.standard_error < 2.0  # it was called probable from one error on
    assert "the rows do not show that people respond differently" in model.reason_
