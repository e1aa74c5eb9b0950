"""Pictures of a report: ``python tools/screenshot.py REPORT.html FOLDER``.

Needs chromium and chromedriver. Writes desktop and phone, light and dark, and the printed sheets as
report.pdf. ``docs/images/report.png`` is made without arguments, from a simulated campaign.
"""

import base64
import shutil
import sys
import tempfile
from pathlib import Path

import pandas as pd
from selenium import webdriver

from unjoined import SeparateLabels, Uplift
from unjoined.data import campaign_problem
from unjoined.report import Origin, Terms, report

IMAGE = Path(__file__).parents[1] / "docs" / "images" / "report.png"
VIEWS = {"desktop": (1180, 900), "phone": (390, 844)}


def browser() -> webdriver.Chrome:
    """Start chromium without a window."""
    options = webdriver.ChromeOptions()
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    options.binary_location = shutil.which("chromium") or ""
    # Named, so that selenium does not look for one on the network.
    return webdriver.Chrome(
        options, webdriver.ChromeService(shutil.which("chromedriver"))
    )


def show(driver: webdriver.Chrome, width: int, height: int, scheme: str) -> None:
    """Set the size of the screen and whether it is light or dark."""
    size = {
        "width": width,
        "height": height,
        "deviceScaleFactor": 1,
        "mobile": width < 600,
    }
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def take(driver: webdriver.Chrome, path: Path, *, whole: bool) -> None:
    """Write what is on the screen, or the whole page."""
    options = {"format": "png", "captureBeyondViewport": whole}
    picture = driver.execute_cdp_cmd("Page.captureScreenshot", options)
    path.write_bytes(base64.b64decode(picture["data"]))


def draw_image() -> None:
    """Make the picture of the documentation."""
    problem = campaign_problem()
    drawn = problem.draw(5000, random_state=0)
    names = list(problem.feature_names or ())
    data = SeparateLabels(**{**drawn, "X": pd.DataFrame(drawn.X, columns=names)})
    model = Uplift(random_state=0).fit(**data)
    people = pd.DataFrame(problem.draw_joint(2000, random_state=1).X, columns=names)
    with tempfile.TemporaryDirectory() as folder:
        page = report(
            model,
            data,
            Path(folder) / "report.html",
            people=people,
            terms=Terms(unit="purchases", value=30.0, cost=1.0, currency="EUR"),
            origin=Origin(title="Spring mailing: whom to mail"),
        )
        driver = browser()
        show(driver, 1180, 990, "light")  # down to the last part, folded
        driver.get(page.as_uri())
        take(driver, IMAGE, whole=False)
        driver.quit()


def main() -> None:
    """Take all pictures of a page, or make the one of the documentation."""
    if len(sys.argv) == 1:
        draw_image()
        return
    page, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    driver = browser()
    driver.get(page.as_uri())
    for name, size in VIEWS.items():
        for scheme in ("light", "dark"):
            show(driver, *size, scheme)
            take(driver, folder / f"{name}-{scheme}.png", whole=True)
    show(driver, *VIEWS["desktop"], "light")
    sheets = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
    printed = driver.execute_cdp_cmd("Page.printToPDF", sheets)
    (folder / "report.pdf").write_bytes(base64.b64decode(printed["data"]))
    driver.quit()


if __name__ == "__main__":
    main()
