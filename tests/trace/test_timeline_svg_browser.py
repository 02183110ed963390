"""The drawing of a timeline in Chromium, opened as a file, in light and dark.

Each test also fails on an error in the browser's console and on a request for
anything but the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed here")

import chromium  # noqa: E402
from made_timelines import convoy, quick  # noqa: E402
from playwright.sync_api import Browser, Page  # noqa: E402

from headway.trace import svg  # noqa: E402

# For each text: itself, its box, its colour, and the colour of the page.
TEXTS = """() => [...document.querySelectorAll("text")].map(each => {
    const box = each.getBBox(), numbers = colour => colour.match(/[\\d.]+/g).map(Number);
    return {
        said: each.textContent, left: box.x, right: box.x + box.width, bottom: box.y + box.height,
        colour: numbers(getComputedStyle(each).fill), kind: each.getAttribute("class"),
        page: numbers(getComputedStyle(document.querySelector(".page")).fill),
    };
})"""

pytestmark = [
    pytest.mark.slow("drives a browser"),
    chromium.needs_chromium,
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.started() as started:
        yield started


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    with chromium.page_of_files(browser, 1000, 1000, request.param) as opened:
        yield opened


def luminance(colour: list[float]) -> float:
    """As the Web Content Accessibility Guidelines define it."""
    parts = [each / 255 for each in colour[:3]]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("which", ["convoy", "many", "quick"])
def test_all_texts_are_within_the_drawing_and_can_be_read(
    page: Page, tmp_path: Path, which: str
) -> None:
    made = {
        "convoy": lambda: convoy(100),
        "many": lambda: convoy(10, 39),
        "quick": lambda: quick(1000),
    }[which]()
    path = tmp_path / "timeline.svg"
    path.write_text(svg.draw(made))
    page.goto(path.as_uri())
    height = float(page.evaluate("document.documentElement.getAttribute('height')"))
    texts = page.evaluate(TEXTS)
    assert len(texts) > 20
    for each in texts:
        assert each["left"] >= 0, each["said"]
        assert each["right"] <= svg.WIDTH, each["said"]
        assert each["bottom"] <= height, each["said"]
        if "on-" not in each["kind"]:
            dark, light = sorted((luminance(each["colour"]), luminance(each["page"])))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, each["said"]


def test_dark_is_dark(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "timeline.svg"
    path.write_text(svg.draw(convoy()))
    page.goto(path.as_uri())
    ground = page.evaluate(TEXTS)[0]["page"]
    prefers_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert (luminance(ground) < 0.1) == prefers_dark
