"""Reports that the tests read: a plain one, and one whose names try to break out of the page."""

import numpy as np
import pandas as pd
import pytest

from unjoined import SeparateLabels, Uplift
from unjoined.data import campaign_problem
from unjoined.evaluate import diagnose, evaluate_uplift
from unjoined.report import Origin, Terms, report

COLUMN = "<script>document.title='taken'</script>"
LEVEL = '"><img src=x onerror="document.title=\'taken\'">'
RARE = "village-of-seven"
TERMS = Terms(unit="purchases", value=30.0, cost=1.0, currency="EUR")


class Written:
    """A report and what it was made of."""

    COLUMN, LEVEL, RARE, TERMS = COLUMN, LEVEL, RARE, TERMS

    def __init__(self, path, model, data, people, diagnosis, evaluation):
        self.path, self.model, self.data = path, model, data
        self.people, self.diagnosis, self.evaluation = people, diagnosis, evaluation
        self.html = path.read_text("utf-8")


def tables(n, seed):
    """Draw the campaign as a frame with a hostile column, hostile categories and a rare one."""
    data = campaign_problem().draw(n, random_state=seed)
    X = pd.DataFrame(
        np.asarray(data.X), columns=["age", COLUMN, "orders", "spend", "member"]
    )
    rng = np.random.default_rng(seed)
    X["town"] = rng.choice([LEVEL, "</title>", "plain & simple"], len(X))
    X.loc[rng.permutation(len(X))[:7], "town"] = RARE
    X.loc[rng.permutation(len(X))[:40], "spend"] = np.nan
    names = {"north": "<b>north</b>", "south": "'south'"}
    population = [names[name] for name in np.asarray(data.population)]
    return SeparateLabels(X, data.y, data.treatment, population)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    data, held = tables(400, 0), tables(400, 1)
    model = Uplift(random_state=0).fit(**data)
    people = tables(300, 2).X
    found = {
        "diagnosis": diagnose(held, people),
        "evaluation": evaluate_uplift(model, held, random_state=0),
    }
    path = tmp_path_factory.mktemp("report") / "report.html"
    origin = Origin(
        title="Spring <mailing>", command="unjoined report --model 'a b.skops'"
    )
    report(
        model,
        held,
        path,
        people=people,
        terms=TERMS,
        origin=origin,
        held_out=True,
        **found,
    )
    return Written(path, model, held, people, *found.values())
