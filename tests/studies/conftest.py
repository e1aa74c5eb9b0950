"""Files in the form of the real trials, and where data sets are kept."""

import numpy as np
import pytest


def _write_email(folder, n=1500):
    """Write a file in the form of the e-mail trial, filled at random."""
    rng = np.random.RandomState(0)
    lines = [
        "recency,history_segment,history,mens,womens,zip_code,newbie,channel,segment,visit,"
        "conversion,spend"
    ]
    for _ in range(n):
        cells = [
            rng.randint(1, 13),
            f"{rng.randint(1, 8)}) $",
            round(rng.gamma(2.0, 100.0), 2),
            rng.randint(2),
            rng.randint(2),
            rng.choice(["Urban", "Surburban", "Rural"]),
            rng.randint(2),
            rng.choice(["Phone", "Web", "Multichannel"]),
            rng.choice(["No E-Mail", "Mens E-Mail", "Womens E-Mail"]),
            rng.randint(2),
            0,
            0,
        ]
        lines.append(",".join(map(str, cells)))
    name = "Kevin_Hillstrom_MineThatData_E-MailAnalytics_DataMiningChallenge_2008.03.20.csv"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n")


def _write_jobs(folder, n=600):
    rng = np.random.RandomState(1)
    folder.mkdir(parents=True, exist_ok=True)
    for name, treat in (("nsw_treated.txt", 1), ("nsw_control.txt", 0)):
        rows = [
            [
                treat,
                20 + rng.randint(30),
                8 + rng.randint(6),
                *rng.randint(2, size=4),
                *rng.gamma(1.0, 5000.0, 2).round(2),
            ]
            for _ in range(n // 2)
        ]
        (folder / name).write_text("\n".join(" ".join(map(str, row)) for row in rows))


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A folder with files in the form of the real trials."""
    folder = tmp_path_factory.mktemp("data")
    _write_email(folder / "below")  # files are found one folder down
    _write_jobs(folder)
    return str(folder)


@pytest.fixture
def write_email():
    return _write_email


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty folder for data sets, which the environment names as a user would."""
    monkeypatch.setenv("UNJOINED_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"
