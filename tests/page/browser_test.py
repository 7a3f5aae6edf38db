"""The page as a reader sees it: in a browser without a network."""

import shutil

import pytest

from lpes_evo.page import write_page

pytestmark = pytest.mark.slow

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PICTURES = ["positions", "curve", "convergence-evaluations", "convergence-tokens", "convergence-seconds",
            "diversity", "control-points", "drift-by-layer", "drift-of-arms", "drift-retrieval"]  # fmt: skip


@pytest.fixture(scope="module")
def page_file(searched, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    run = shutil.copytree(searched("ga"), folder / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lpes_evo.page._drift._N_DRAWS", 3)
        assert write_page(run).missing == ()
    return run / "report.html"


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no chromium is installed to load a page with")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        # Chromium refuses to run as root with its sandbox, and the page is our own.
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_opens_offline_with_every_picture_and_in_silence(
    browser, page_file, tmp_path, width, scheme
):
    context = browser.new_context(
        offline=True, viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    heard, requests = [], []
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(page_file.as_uri(), wait_until="load")
    assert page.locator("figure").evaluate_all("all => all.map(one => one.id)") == PICTURES
    for name in PICTURES:
        svg = page.locator(f"#{name} svg")
        box = svg.bounding_box()
        assert box["width"] > 300
        assert box["height"] > 180
        drawn = svg.evaluate("svg => { const box = svg.getBBox(); return [box.width, box.height]; }")
        assert min(drawn) > 100
        assert svg.locator("title").text_content()
        # Markers and letters are drawn by reference, which must lead into the same picture.
        broken = svg.evaluate(
            "svg => [...svg.querySelectorAll('use')].filter(use => !svg.querySelector(use.getAttribute('href'))).length"
        )
        assert broken == 0
        assert svg.locator("use").count() > 10
    # Nothing but tables and wide pictures, within frames of their own, is wider than the screen.
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert [url for url in requests if not url.startswith("data:")] == [page_file.as_uri()]
    assert heard == []
    ink, paper = page.evaluate(
        "() => { const style = getComputedStyle(document.body); return [style.color, style.backgroundColor]; }"
    )
    assert (brightness(ink) < brightness(paper)) == (scheme == "light")
    assert abs(brightness(ink) - brightness(paper)) > 180
    shot = tmp_path / f"{width}-{scheme}.png"
    page.screenshot(path=shot, full_page=True)
    assert shot.read_bytes().startswith(b"\x89PNG")
    assert shot.stat().st_size > 100_000
    context.close()


def brightness(color):
    """The mean of a colour's channels, 0 to 255."""
    channels = color.partition("(")[2].rstrip(")").split(",")[:3]
    return sum(map(float, channels)) / 3


def test_the_page_can_be_printed(browser, page_file, tmp_path):
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(page_file.as_uri())
    printed = page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert printed.startswith(b"%PDF")
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    context.close()
