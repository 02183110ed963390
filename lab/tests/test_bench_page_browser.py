"""The page of `headway bench --html` in Chromium, opened as a file, as its readers do.

Each test also fails on an error in the browser's console, on a request for anything
but the file, and on a dialog, which only a string that was taken for HTML could open.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed here")
pytest.importorskip("matplotlib", reason="matplotlib is not installed here")

import chromium  # noqa: E402
from made_results import METADATA, Made, made_results  # noqa: E402
from playwright.sync_api import Browser, BrowserContext, Page, expect  # noqa: E402

from headway_lab import page as bench_page  # noqa: E402

HOSTILE = "<img src=x onerror=alert(1)>"
PHONE = {"width": 360, "height": 740}
# Of the page and of each text in it: colour and the ground that it stands on, as three numbers.
CONTRASTS = """() => {
    const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
    const ground = element => {
        for (; element; element = element.parentElement) {
            const colour = numbers(getComputedStyle(element).backgroundColor);
            if (colour.length === 3 || colour[3] > 0) return colour.slice(0, 3);
        }
        return null;
    };
    const found = [];
    const texts = document.evaluate("//body//text()[normalize-space()]", document, null, 7);
    for (let place = 0; place < texts.snapshotLength; place += 1) {
        const element = texts.snapshotItem(place).parentElement;
        if (element.closest("title, desc")) continue;
        const style = getComputedStyle(element);
        const colour = element.closest("svg") ? style.fill : style.color;
        found.push([element.textContent, numbers(colour).slice(0, 3), ground(element)]);
    }
    return found;
}"""

pytestmark = [
    pytest.mark.slow("drives a browser"),
    chromium.needs_chromium,
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.started() as started:
        yield started


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    made.set_default_timeout(15_000)
    yield made
    made.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    class Hostile(Made):
        prefix = HOSTILE

    path = tmp_path_factory.mktemp("page") / "page.html"
    bench_page.write(str(path), METADATA, [(Hostile(), made_results(HOSTILE))])
    return path


@pytest.fixture
def page(context: BrowserContext, file: Path) -> Iterator[Page]:
    wrong: list[str] = []
    asked: list[str] = []
    opened = context.new_page()
    opened.on("console", lambda said: wrong.append(said.text))
    opened.on("pageerror", lambda error: wrong.append(f"raised: {error}"))
    opened.on("dialog", lambda dialog: (wrong.append("a dialog"), dialog.dismiss()))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(file.as_uri())
    yield opened
    assert wrong == []
    assert asked == [file.as_uri()]


def test_tables_and_charts_can_be_seen(page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    tables = page.get_by_role("table")
    assert tables.count() == 3
    expect(page.get_by_role("table", name=f"{HOSTILE}stock: requests/s")).to_be_visible()
    drawings = page.get_by_role("img")
    assert drawings.count() == 3
    for drawing in drawings.all():
        expect(drawing).to_be_visible()
        box = drawing.bounding_box()
        assert box
        assert box["width"] > 500
        assert box["height"] > 200
    assert page.locator("img").count() == 0
    described = page.get_by_role("img", name=f"{HOSTILE}stock: by interval")
    expect(described.locator("text", has_text="100 µs")).to_be_visible()


def test_lines_have_colours_of_the_style_sheet_and_publications_are_dashed(page: Page) -> None:
    drawing = page.get_by_role("img").first
    strokes = drawing.locator("path").evaluate_all(
        """paths => paths.map(path => getComputedStyle(path))
                         .map(style => [style.stroke, style.strokeDasharray])"""
    )
    colour = page.evaluate(
        """() => {
            const probe = document.createElement("i");
            probe.style.color = "var(--series-0)";
            document.body.append(probe);
            const found = getComputedStyle(probe).color;
            probe.remove();
            return found;
        }"""
    )
    dashes = {dash != "none" for stroke, dash in strokes if stroke == colour}
    assert dashes == {True, False}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    grounds = set()
    for text, colour, ground in page.evaluate(CONTRASTS):
        grounds.add(tuple(ground))
        assert contrast(colour, ground) >= 4.5, (text, colour, ground)
    # The page's own, and that of tables' heads: all light, or all dark.
    assert len(grounds) == 2
    assert {luminance(ground) > 0.5 for ground in grounds} == {scheme == "light"}


def luminance(colour: tuple[float, ...]) -> float:
    """WCAG 2, relative luminance."""
    parts = [part / 255 for part in colour]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_page_is_no_wider_than_a_phone_and_its_tables_scroll(page: Page) -> None:
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    boxes = page.locator(".scroll")
    assert boxes.count() == 6
    wider = boxes.evaluate_all("all => all.map(box => box.scrollWidth > box.clientWidth)")
    assert any(wider)
    for box, is_wider in zip(boxes.all(), wider, strict=True):
        box.focus()
        expect(box).to_be_focused()
        if is_wider:
            box.evaluate("box => box.scrollTo(box.scrollWidth, 0)")
            assert box.evaluate("box => box.scrollLeft") > 0


def test_texts_of_charts_are_large_enough_on_a_phone(page: Page) -> None:
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    heights = page.locator("svg text").evaluate_all(
        """all => all.map(text => {
            const svg = text.ownerSVGElement;
            return text.getBBox().height * svg.clientWidth / svg.viewBox.baseVal.width;
        })"""
    )
    assert min(heights) >= 10


def test_a_cell_leads_to_the_reason_why_it_is_empty(page: Page) -> None:
    page.get_by_role("link", name="[2]").first.click()
    reason = page.locator(":target")
    expect(reason).to_contain_text("echo_server.py ended")
    expect(reason).to_be_in_viewport()


def test_paper_is_light_and_shows_all_of_a_table(page: Page, tmp_path: Path) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(255, 255, 255)"
    assert {
        box.evaluate("box => getComputedStyle(box).overflowX")
        for box in page.locator(".scroll").all()
    } == {"visible"}
    assert page.pdf(path=tmp_path / "page.pdf").startswith(b"%PDF")
