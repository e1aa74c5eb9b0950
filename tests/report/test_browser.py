"""The page in a real browser: Debian's chromium, driven through chromedriver."""

import json
import re
import shutil

import pytest

pytestmark = pytest.mark.browser
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
A4 = 794  # pixels across a sheet
MARGINS = 114


@pytest.fixture(scope="session")
def browser():
    if not (CHROMIUM and DRIVER):
        pytest.skip("NO BROWSER TESTS: chromium and chromedriver are not installed")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    options.set_capability(
        "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
    )
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser, written):
    resize(browser, 1200)
    browser.get(written.path.as_uri())
    return browser


def resize(browser, width):
    size = {
        "width": width,
        "height": 900,
        "deviceScaleFactor": 1,
        "mobile": width < 600,
    }
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def emulate(browser, media="screen", scheme="light"):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"media": media, "features": features}
    )


def put(browser, name, value):
    browser.execute_script(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event('input', { bubbles: true }));",
        name,
        value,
    )


def shown(browser, name):
    return browser.execute_script(
        f"return document.getElementById('{name}').textContent"
    )


def value(browser, name):
    return float(
        browser.execute_script(f"return document.getElementById('{name}').value")
    )


def stages(written):
    found = re.search(
        r'<script type="application/json" id="stages">(.*?)</script>', written.html
    )
    return json.loads(found[1])


def as_number(text):
    return float(re.sub("[^0-9.-]", "", text))


def test_no_request_leaves_and_no_script_fails(opened):
    requests = [
        json.loads(entry["message"])["message"]["params"]["request"]["url"]
        for entry in opened.get_log("performance")
        if '"Network.requestWillBeSent"' in entry["message"]
    ]
    assert all(url.startswith("file:") for url in requests)
    assert [
        e for e in opened.get_log("browser") if e["level"] in ("SEVERE", "WARNING")
    ] == []


def test_hostile_names_are_shown_and_do_nothing(opened, written):
    assert opened.title == "Spring <mailing>"
    # Cells of tables, those below a closed heading too.
    cells = opened.execute_script(
        "return [...document.querySelectorAll('td, th')].map(cell => cell.textContent.trim())"
    )
    assert written.COLUMN in cells
    assert written.LEVEL in cells
    assert opened.execute_script("return document.images.length") == 0


def test_the_slider_and_the_fields_move_together_and_show_the_gain(opened, written):
    data = stages(written)
    share, gain, low, high = next(s for s in data["stages"] if s[0] == 0.4)
    put(opened, "share", "40")
    assert shown(opened, "out-people") == f"{0.4 * data['n']:,.0f}"
    assert as_number(shown(opened, "out-gain")) == pytest.approx(gain, rel=0.01)
    ends = [as_number(end) for end in shown(opened, "out-interval").split(" to ")]
    assert ends == pytest.approx([low, high], rel=0.02, abs=0.5)
    net = data["value"] * gain - data["cost"] * share * data["n"]
    assert as_number(shown(opened, "out-net")) == pytest.approx(net, rel=0.01, abs=0.5)
    assert shown(opened, "out-share") == "0.4"
    put(opened, "budget", str(0.2 * data["n"] * data["cost"]))
    assert value(opened, "percent") == pytest.approx(20.0)
    assert value(opened, "count") == pytest.approx(0.2 * data["n"])
    assert value(opened, "share") == pytest.approx(20.0)
    put(opened, "count", "0")
    assert shown(opened, "out-gain") == "0"


def test_the_slider_obeys_the_keyboard(opened):
    from selenium.webdriver.common.keys import Keys

    unfold = "document.querySelectorAll('details').forEach((e) => { e.open = true; })"
    opened.execute_script(unfold)
    slider = opened.find_element("id", "share")
    opened.execute_script("arguments[0].scrollIntoView()", slider)
    before = value(opened, "share")
    slider.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert value(opened, "share") == pytest.approx(before + 0.2, abs=0.06)
    slider.send_keys(Keys.END)
    assert value(opened, "percent") == 100.0
    assert "percent, gain" in slider.get_attribute("aria-valuetext")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_and_text_stands_out(opened, scheme):
    emulate(opened, scheme=scheme)
    resize(opened, 360)
    wide = "return document.documentElement.scrollWidth"
    assert opened.execute_script(wide) <= 360
    hidden = "const e = document.querySelector('.verdict .scroll');"
    assert opened.execute_script(f"{hidden} return e.scrollWidth - e.clientWidth") <= 0
    pairs = opened.execute_script(
        "const back = getComputedStyle(document.body).backgroundColor;"
        "return ['p', 'a', 'td', '.small', '.label', '.verdict b'].map((s) => {"
        "  const e = document.querySelector(s), c = getComputedStyle(e);"
        "  const panel = e.closest('.verdict');"
        "  const own = panel ? getComputedStyle(panel).backgroundColor : back;"
        "  return [s, s === '.label' ? c.fill : c.color, own]; });"
    )
    for name, front, back in pairs:
        assert contrast(front, back) >= 4.5, (name, front, back)
    emulate(opened)


def contrast(front, back):
    """Return the contrast ratio of two colours, as accessibility guidelines define it."""

    def light(colour):
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [
            p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
        ]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((light(front), light(back)))
    return (high + 0.05) / (low + 0.05)


def test_paper_holds_all_of_it(opened):
    emulate(opened, media="print")
    resize(opened, A4 - MARGINS)
    beyond = opened.execute_script(
        "return Array.from(document.querySelectorAll('main *')).filter((e) =>"
        "  e.getClientRects().length && !e.closest('details') &&"
        "  e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))"
    )
    assert beyond == []
    printed = opened.execute_cdp_cmd(
        "Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69}
    )
    assert len(printed["data"]) > 10_000
    assert (
        opened.execute_script(
            "return document.querySelectorAll('details[open]').length"
        )
        == 0
    )
    emulate(opened)


WORDS = "return document.body.innerText.split(/\\s+/).filter(Boolean).length"
FOLDED = "return document.querySelectorAll('details:not([open])').length"


def test_the_first_page_is_short_and_all_else_is_folded(opened):
    assert opened.execute_script(WORDS) <= 400
    shown = opened.execute_script("return document.body.innerText")
    for name in (
        "Expected gain",
        "Left after costs",
        "Surely pays up to",
        "How far to trust it",
    ):
        assert name in shown
    assert "Fingerprint of the tables" not in shown
    resize(opened, 390)
    height = opened.execute_script("return document.documentElement.scrollHeight")
    assert height <= 3000  # pixels on a phone
    opened.execute_script(
        "document.querySelectorAll('details').forEach(e => { e.open = true; })"
    )
    assert opened.execute_script("return document.documentElement.scrollWidth") <= 390
    clipped = opened.execute_script(
        "return Array.from(document.querySelectorAll('main *')).filter((e) =>"
        "  e.getClientRects().length && !e.closest('.scroll, svg') &&"
        "  e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))"
    )
    assert clipped == []


def test_a_link_to_a_section_opens_it(opened, written):
    opened.get(f"{written.path.as_uri()}#whom")
    assert opened.execute_script("return document.querySelector('#whom details').open")
    assert not opened.execute_script(
        "return document.querySelector('#tables details').open"
    )


def test_paper_has_no_folds(opened):
    """What is printed is all of it but the numbers of charts; afterwards it is folded again."""
    folded = opened.execute_script(FOLDED)
    opened.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    closed = "details:not([open])"
    outside = f"return [...document.querySelectorAll('{closed}')].filter(e => !e.closest('figure'))"
    assert opened.execute_script(f"{outside}.length") == 0
    text = opened.execute_script("return document.body.innerText")
    assert "Fingerprint of the tables" in text
    assert "Balance: where tables differ most" in text
    opened.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert opened.execute_script(FOLDED) == folded
