"""Files as companies have them, from `init` to `report` without an edit; the truth is known."""

import tomllib

import pytest
from companies import COMPANIES, SHARE, journey

from unjoined import read_table

pytestmark = pytest.mark.usefixtures("two_folds")

EXPECTED = {
    "telecom": {
        "outcomes": {"nord": "umsatz_nord.csv", "süd": "umsatz_süd.csv"},
        "treatments": {
            "nord": "telefonaktion_nord.csv",
            "süd": "telefonaktion_süd.csv",
        },
        "outcome": "Umsatz",
        "treatment": "Angerufen",
        "table": "kunden.csv",
    },
    "hospital": {
        kind: {
            "city": f"city/{kind}.xlsx",
            "hill": f"hill/{kind}.csv",
            "lake": f"lake/{kind}.parquet",
        }
        for kind in ("outcomes", "treatments")
    }
    | {"outcome": "recovered", "treatment": "programme", "table": "patients.csv"},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_a_company_gets_its_list_and_report_without_an_edit(tmp_path, name):
    company = COMPANIES[name]
    found = journey(company, tmp_path, rows=400, people=100, seed=0)
    settings = tomllib.loads(found.settings)
    assert {key: settings[key] for key in EXPECTED[name]} == EXPECTED[name]
    assert "treated" not in settings  # ja, nein, 1 and 0 need no word of the user's
    assert settings["keep"] == company.identifier
    assert found.told["treated"] == SHARE * 100
    listed = read_table(tmp_path / "list.csv", text=[company.identifier])
    assert sorted(listed[company.identifier].to_pylist()) == [
        f"K{i:07d}" for i in range(100)
    ]
    assert sum(listed["treat"].to_pylist()) == SHARE * 100
    assert max(found.share_of_best, found.clean_of_best) <= 1.0
    assert "<html" in (tmp_path / "report.html").read_text("utf-8")
