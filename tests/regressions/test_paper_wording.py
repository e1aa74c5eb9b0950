"""Nothing is said to be so that the rows only fail to exclude."""

import pytest

from unjoined import Uplift
from unjoined.data import campaign_problem


@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
@pytest.mark.parametrize("seed", range(3))
def test_a_gain_that_chance_explains_does_not_make_people_differ(seed):
    """Two hundred rows of people who buy seldom; a gain of one standard error was enough."""
    data = campaign_problem().draw(60, random_state=seed)
    model = Uplift(n_jobs=1, random_state=0).fit(**data)
    assert model.heterogeneity_.value < 1.0
    assert "The rows do not show that people respond differently" in model.reason_
