"""The estimator to start with: nothing to choose, and what it found in words."""

from __future__ import annotations

from typing import Any

from unjoined._typing import RandomState
from unjoined.estimators.mixture import MixtureUplift


class Uplift(MixtureUplift):
    """Uplift from separate labels, with everything chosen for you.

    Fits `MixtureUplift`, the likelihood of the tables.

    Examples
    --------
    >>> from unjoined import Uplift
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(500, random_state=0)
    >>> model = Uplift(random_state=0).fit(**data)
    """

    def __init__(
        self,
        *,
        categorical_features: Any = (),
        n_jobs: int | None = -1,
        random_state: RandomState = None,
    ) -> None:
        super().__init__(
            categorical_features=categorical_features, n_jobs=n_jobs, random_state=random_state
        )
