"""The drawing of a profile in Chromium, opened as a file, in light and dark.

Each test also fails on an error in the browser's console and on a request for
anything but files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed here")

import chromium  # noqa: E402
from made_profiles import PROFILES, ordinary  # noqa: E402
from playwright.sync_api import Browser, Locator, Page  # noqa: E402

from headway.profile import flame_graph  # noqa: E402

# For each text that is seen: itself, its box, its colour, and the colour that it stands on.
TEXTS = """() => [...document.querySelectorAll("text")].filter(
    each => each.textContent && getComputedStyle(each).display !== "none"
).map(each => {
    const box = each.getBBox();
    const ground = each.closest(".call")?.querySelector("rect") ?? document.querySelector(".page");
    const within = ground.getBBox();
    return {
        said: each.textContent, left: box.x - within.x, top: box.y - within.y,
        right: within.x + within.width - box.x - box.width,
        bottom: within.y + within.height - box.y - box.height,
        colour: getComputedStyle(each).fill,
        ground: getComputedStyle(ground).fill,
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
    with chromium.page_of_files(browser, 1230, 700, request.param) as opened:
        yield opened


@pytest.fixture
def drawing(page: Page, tmp_path: Path) -> Page:
    """The ordinary profile, opened."""
    path = tmp_path / "profile.svg"
    path.write_text(flame_graph.draw(ordinary()))
    page.goto(path.as_uri())
    return page


def call(page: Page, name: str, side: str = "holders") -> Locator:
    return page.locator(f'.side[data-side="{side}"] .call[data-label^="{name}"]')


def width(located: Locator) -> float:
    return float(located.locator("rect").get_attribute("width") or "")


def check_texts(page: Page) -> int:
    texts = page.evaluate(TEXTS)
    for each in texts:
        assert min(each["left"], each["top"], each["right"], each["bottom"]) >= 0, each["said"]
        assert chromium.contrast(each["colour"], each["ground"]) >= 4.5, each["said"]
    return len(texts)


@pytest.mark.parametrize("which", PROFILES)
def test_all_texts_are_within_their_calls_and_can_be_read(
    page: Page, tmp_path: Path, which: str
) -> None:
    path = tmp_path / "profile.svg"
    path.write_text(flame_graph.draw(PROFILES[which]()))
    page.goto(path.as_uri())
    assert check_texts(page) >= 3


def test_a_click_zooms_and_escape_resets(drawing: Page) -> None:
    whole = width(call(drawing, "all"))
    before = width(call(drawing, "crunch"))
    assert before < whole
    call(drawing, "crunch").click()
    assert width(call(drawing, "crunch")) == whole
    # Its callers stay, as wide; the calls beside it go.
    assert width(call(drawing, "work")) == whole
    assert not call(drawing, "<lambda>").is_visible()
    # The other side is as it was.
    assert call(drawing, "dumps", "waiters").is_visible()
    check_texts(drawing)
    drawing.keyboard.press("Escape")
    assert width(call(drawing, "crunch")) == before
    assert call(drawing, "<lambda>").is_visible()
    call(drawing, "do_GET").click()
    assert call(drawing, "do_GET").text_content() is not None
    assert call(drawing, "do_GET").locator("text").text_content() == "do_GET (pages.py:61)"
    drawing.get_by_text("Reset (Esc)").click()
    assert width(call(drawing, "crunch")) == before
    assert not drawing.get_by_text("Reset (Esc)").is_visible()


def test_a_search_marks_calls_and_counts_each_time_once(drawing: Page) -> None:
    field = drawing.get_by_role("searchbox", name="Search functions and files")
    field.fill("PRICES")
    found = drawing.locator(".found")
    # `work` and both that it calls, on the holders' side alone.
    assert found.count() == 3
    said = drawing.get_by_role("status")
    assert said.text_content() == "found: holders 82.1 %, waiters 0.0 %"
    check_texts(drawing)
    field.fill("dumps")
    assert said.text_content() == "found: holders 7.7 %, waiters 82.1 %"
    field.press("Escape")
    assert found.count() == 0
    assert said.text_content() == ""


def test_keys_move_between_calls_and_zoom(drawing: Page) -> None:
    call(drawing, "all").focus()
    focused = drawing.locator(":focus")
    for key, name in (
        ("ArrowDown", "run"),
        ("ArrowDown", "work"),
        ("ArrowDown", "crunch"),
        ("ArrowRight", "<lambda>"),
        ("ArrowLeft", "crunch"),
        ("ArrowUp", "work"),
    ):
        drawing.keyboard.press(key)
        assert (focused.get_attribute("data-label") or "").startswith(name)
    drawing.keyboard.press("Enter")
    assert width(call(drawing, "work")) == width(call(drawing, "all"))
    # Tab leaves the calls: one of each side can be reached by it.
    assert drawing.locator('.call[tabindex="0"]').count() == 2


def test_dark_is_dark(drawing: Page) -> None:
    ground = drawing.evaluate(TEXTS)[0]["ground"]
    prefers_dark = drawing.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert (chromium.luminance(ground) < 0.1) == prefers_dark


def test_it_is_complete_without_scripts(browser: Browser, tmp_path: Path) -> None:
    """In an <img> no script runs, and nothing may be there that needs one."""
    drawn = flame_graph.draw(ordinary())
    (tmp_path / "profile.svg").write_text(drawn)
    (tmp_path / "still.svg").write_text(drawn[: drawn.index("<script>")] + "</svg>")
    shots = []
    for name in ("profile", "still"):
        html = tmp_path / f"{name}.html"
        html.write_text(f'<!DOCTYPE html><img src="{name}.svg" alt="">')
        page = browser.new_page(viewport={"width": 1230, "height": 500})
        page.goto(html.as_uri())
        assert page.evaluate("document.querySelector('img').naturalWidth") == flame_graph.WIDTH
        shots.append(page.screenshot())
        page.close()
    assert shots[0] == shots[1]
