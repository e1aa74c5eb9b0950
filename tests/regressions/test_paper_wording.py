"""Nothing is said to be so that the rows only fail to exclude."""

import pytest

from unjoined import Uplift
from unjoined.data import campaign_problem


@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
def test_forms_that_share_their_weight_do_not_make_people_differ():
    data = campaign_problem().draw(60, random_state=1)
    model = Uplift(n_jobs=1, random_state=0).fit(**data)
    assert model.candidates_.differ < 0.8  # forms in which people differ have most of it, not all
    assert "The rows do not show that people respond differently" in model.reason_
