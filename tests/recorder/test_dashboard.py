"""The dashboard in Chromium, against a real `headway telemetry` that has recorded a known story.

Each test also fails on an error in the browser's console, on a request to another
host, and on a dialog, which only a string that was taken for HTML could open.
"""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed here")

import chromium  # noqa: E402
import test_recorded_loops  # noqa: E402
from launch import GIL_ENABLED, environment, python  # noqa: E402
from made_recording import AFTER_PIDS, BEFORE_PIDS, HOSTILE, INTERVAL_S, send  # noqa: E402
from playwright.sync_api import Browser, Locator, Page, expect  # noqa: E402
from recorded import Recorded  # noqa: E402
from served import Served  # noqa: E402
from test_exposition import LOOPS  # noqa: E402
from test_flame_graph_data import LATE  # noqa: E402
from ticks import tick  # noqa: E402

IS_BUILT = files("headway").joinpath("recorder/static/index.html").is_file()
UNKNOWN, TIMES = "\N{EN DASH}", "\N{MULTIPLICATION SIGN}"
PAGES = ("overview", "gil", "loops", "capacity", "endpoints", "slow", "lifecycle", "gc", "compare")

pytestmark = [
    pytest.mark.slow("drives a browser"),
    chromium.needs_chromium,
    pytest.mark.skipif(not IS_BUILT, reason="the dashboard is not built: it needs Node.js"),
]


class Story:
    """A recorder that has heard the whole story, and when its two phases were."""

    def __init__(self, folder: Path) -> None:
        self.recorder = Recorded(folder)
        try:
            end = int(time.time()) - 2
            sent, self.before, self.after = send(self.recorder.socket, end)
            self.recorder.wait_until_received(sent)
        except BaseException:
            self.recorder.stop()
            raise

    def at(self, page: str, phase: tuple[float, float] | None = None, **view: str) -> str:
        start, end = phase or (self.before[0], self.after[1])
        words = "".join(f"&{name}={quote(value)}" for name, value in view.items())
        return f"{self.recorder.url}/#/{page}?from={start}&to={end}{words}"

    def row(self, name: str, phase: tuple[float, float], group: str = "shop") -> str:
        return f"{name}~{phase[0]}~{phase[1]}~group={quote(group)}"


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    told = Story(tmp_path_factory.mktemp("dashboard"))
    yield told
    assert told.recorder.stop() == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.started() as started:
        yield started


class Watched:
    """A browser's page, and what must not happen on it."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.tolerated = re.compile(r"(?!)")
        page.on("console", lambda said: said.type in ("error", "warning") and self.fail(said.text))
        page.on("pageerror", lambda error: self.fail(f"raised: {error}"))
        page.on("dialog", lambda dialog: (self.fail(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self._see(request.url, origin))

    def fail(self, what: str) -> None:
        if not self.tolerated.search(what):
            self.wrong.append(what)

    def _see(self, url: str, origin: str) -> None:
        self.asked.append(url)
        if not url.startswith((f"{origin}/", f"blob:{origin}/")):
            self.wrong.append(f"a request to {url}")


@pytest.fixture
def watched(browser: Browser, story: Story) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1400, "height": 900}, locale="en-US")
    context.set_default_timeout(15_000)
    seen = Watched(context.new_page(), story.recorder.url)
    yield seen
    context.close()
    assert seen.wrong == []


@pytest.fixture
def page(watched: Watched) -> Page:
    return watched.page


def card(page: Page, title: str) -> Locator:
    heading = page.get_by_role("heading", name=title, exact=True)
    return page.locator("section.card").filter(has=heading)


def table_of(page: Page, title: str) -> list[list[str]]:
    """The numbers of a chart, by the button that shows them."""
    chart = card(page, title)
    if not chart.locator("tbody").count():
        chart.get_by_role("button", name="Table").click()
    rows: list[list[str]] = chart.locator("tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return rows


def painted(canvas: Locator, colour: str) -> int:
    """How many pixels of a canvas have a colour of the palette. Axes are grey."""
    expect(canvas).to_be_visible()
    pixels: int = canvas.evaluate(
        """(canvas, name) => {
            const value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
            const parts = value.match(/[0-9a-f]{2}/gi);
            const [red, green, blue] = parts.map(part => parseInt(part, 16));
            const { width, height } = canvas;
            const copy = new OffscreenCanvas(width, height);
            const context = copy.getContext("2d", { willReadFrequently: true });
            context.drawImage(canvas, 0, 0);
            const { data } = context.getImageData(0, 0, width, height);
            let found = 0;
            for (let at = 0; at < data.length; at += 4) {
                const far = Math.abs(data[at] - red) + Math.abs(data[at + 1] - green)
                    + Math.abs(data[at + 2] - blue) + (255 - data[at + 3]);
                if (far < 40) found++;
            }
            return found;
        }""",
        colour,
    )
    return pixels


def wait_until_painted(canvas: Locator, colour: str, pixels: int) -> None:
    """A chart is drawn after its canvas is there."""
    end = time.monotonic() + 20
    while (found := painted(canvas, colour)) <= pixels:
        assert time.monotonic() < end, f"found {found} pixels in {colour}, and not {pixels}"
        canvas.page.wait_for_timeout(50)


def test_the_page_runs_under_a_policy_that_allows_nothing_inline(page: Page, story: Story) -> None:
    answer = page.goto(story.at("gil"))
    assert answer
    policy = answer.header_value("content-security-policy") or ""
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    wait_until_painted(card(page, "Wait of a take").locator("canvas"), "violet", 300)


SERIES = (
    ("overview", "Throughput", "teal"),
    ("overview", "Response time", "blue"),
    ("overview", "Application time", "teal"),
    ("overview", "GIL wait of a request", "amber"),
    ("overview", "Wait of a take of the GIL", "violet"),
    ("overview", "CPU", "teal"),
    ("overview", "Memory", "violet"),
    ("overview", "Capacity", "teal"),
    ("gil", "Where the GIL's time goes", "teal"),
    ("gil", "Takes and drops", "violet"),
    ("gc", "Time in the collector", "amber"),
    ("gc", "Pause", "blue"),
)


@pytest.mark.parametrize("name", ["overview", "gil", "gc"])
def test_charts_over_time_are_drawn_and_their_tables_have_the_numbers(
    page: Page, story: Story, name: str
) -> None:
    page.goto(story.at(name))
    for title, colour in [each[1:] for each in SERIES if each[0] == name]:
        chart = card(page, title)
        expect(chart.locator(".plot canvas")).to_be_visible()
        wait_until_painted(chart.locator("canvas"), colour, 100)
        known = [row for row in table_of(page, title) if any(cell != UNKNOWN for cell in row[1:])]
        assert len(known) > 20, title
        assert all(re.search(r"\d", row[1]) for row in known[:20]), title


def test_the_overview_opens_with_a_verdict_and_figures_with_units(page: Page, story: Story) -> None:
    page.goto(story.at("overview", story.before, group="shop"))
    verdict = page.locator("article.verdict").first
    expect(verdict.get_by_role("heading")).to_be_visible()
    asked = story.recorder.ask(f"summary?from={story.before[0]}&to={story.before[1]}&group=shop")
    expect(verdict.get_by_role("heading")).to_have_text(asked["verdict"]["title"])
    for evidence in asked["verdict"]["evidence"]:
        expect(verdict).to_contain_text(evidence["text"])
    for advice in asked["verdict"]["advice"]:
        expect(verdict).to_contain_text(advice["try"])
    tiles = page.locator(".tile")
    expect(tiles).to_have_count(8)
    throughput = tiles.filter(has_text="Throughput").locator("strong").inner_text()
    assert throughput.endswith(" /s")
    shown = float(throughput.removesuffix(" /s").replace(",", ""))
    assert shown == pytest.approx(asked["summary"]["rps"], rel=0.01)
    expect(tiles.filter(has_text="Response p95").locator("strong")).to_contain_text("ms")
    expect(tiles.filter(has_text="CPU").locator("strong")).to_contain_text("core")


def test_waits_gather_above_the_intervals_multiples_and_after_the_change_they_do_not(
    page: Page, story: Story
) -> None:
    page.goto(story.at("gil", story.after, group="shop", before=story.row("slow", story.before)))
    chart = card(page, "Wait of a take")
    expect(chart.locator(".stats")).to_have_count(2)
    expect(chart).to_contain_text("before: slow")
    expect(chart).to_contain_text("after")
    wait_until_painted(chart.locator("canvas"), "teal", 300)
    wait_until_painted(chart.locator("canvas"), "red", 100)
    wait_until_painted(chart.locator("canvas"), "amber", 300)
    after_over, before_over = 0.0, 0.0
    gathered = dict.fromkeys((1, 2, 3), 0.0)
    for start, _, _, before, _, after in table_of(page, "Wait of a take"):
        start_s = seconds(start)
        if start_s >= 0.95 * INTERVAL_S:
            before_over += percent(before)
            after_over += percent(after)
        for multiple in gathered:
            if 0.95 <= start_s / (multiple * INTERVAL_S) < 1.2:
                gathered[multiple] += percent(before)
    assert before_over > 45
    assert after_over < 1
    assert gathered[1] > gathered[2] > gathered[3] > 3


def seconds(text: str) -> float:
    number, unit = text.split()
    return float(number.replace(",", "")) * {"s": 1, "ms": 1e-3, "µs": 1e-6}[unit]


def percent(text: str) -> float:
    return float(text.removeprefix("< ").removesuffix(" %"))


def test_which_lines_make_threads_wait_and_made_them_wait_before(page: Page, story: Story) -> None:
    page.goto(story.at("gil", story.after, group="shop", before=story.row("slow", story.before)))
    lines = page.get_by_label("Who holds the GIL while others wait: lines")
    expect(lines.get_by_role("columnheader", name="before, per second")).to_be_visible()
    first = lines.locator("tbody tr").first
    expect(first).to_contain_text("score (/srv/shop/recommendations.py:41)")
    expect(first).to_contain_text("/recommend/<int:product>")
    cells = first.locator("td").all_text_contents()
    now_s, before_s = seconds(cells[-2]), seconds(cells[-1])
    assert before_s > 5 * now_s > 0
    expect(lines.locator("tbody tr").nth(2)).to_contain_text("(handoff)")
    lines.get_by_role("button", name="before, per second").click()
    expect(lines.locator("th[aria-sort=descending]")).to_have_text(re.compile("before"))
    page.goto(story.at("gil", story.after, group="shop"))
    expect(lines.locator("tbody tr").first).to_contain_text("score")
    expect(lines.get_by_role("columnheader", name="before, per second")).to_have_count(0)


def flame_graph(page: Page) -> Locator:
    return page.get_by_label("Who holds the GIL while others wait: calls", exact=True)


def call(graph: Locator, name: str) -> Locator:
    """The drawn calls whose names begin like this."""
    return graph.locator(f'.call[aria-label^="{name}"]')


def width(call: Locator) -> float:
    return float(call.locator("rect").get_attribute("width") or "")


def test_a_flame_graph_is_zoomed_searched_and_walked_by_keys(page: Page, story: Story) -> None:
    page.goto(story.at("gil", story.before, group="shop"))
    graph = flame_graph(page)
    score = call(graph, "score (/srv/shop/recommendations.py:41)")
    expect(score).to_have_count(1)
    # The endpoint, its two callers and the line are one below the other, and alike in width.
    endpoint = call(graph, "/recommend/<int:product>")
    whole = width(call(graph, "all"))
    assert whole > width(endpoint) == width(score) > 0.8 * whole
    ys = [
        float(each.locator("rect").get_attribute("y") or "")
        for each in (endpoint, call(graph, "respond").first, score)
    ]
    assert ys == sorted(ys)
    assert ys[0] > 0
    expect(call(graph, "(handoff)")).to_have_count(1)

    score.click()
    assert width(score) == whole
    expect(call(graph, "(handoff)")).to_have_count(0)
    score.press("ArrowUp")
    expect(call(graph, "page (/srv/shop/shop.py:9)").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(call(graph, "(handoff)")).to_have_count(1)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(endpoint).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(score).to_have_count(0)
    graph.get_by_role("button", name="Zoom out").click()
    expect(score).to_have_count(1)

    graph.get_by_label("Search").fill("RECOMMENDATIONS")
    expect(graph.locator(".call.found")).to_have_count(1)
    expect(graph.get_by_role("status")).to_contain_text(re.compile(r"found: 9\d\.\d %"))
    assert "q=RECOMMENDATIONS" in page.url


def test_a_flame_graph_of_one_endpoint(page: Page, story: Story) -> None:
    page.goto(story.at("gil", story.before, group="shop"))
    graph = flame_graph(page)
    graph.get_by_label("Endpoint").select_option("/")
    expect(call(graph, "score")).to_have_count(0)
    expect(call(graph, "respond")).to_have_count(1)
    assert "endpoint=%2F" in page.url
    page.reload()
    expect(graph.get_by_label("Endpoint")).to_have_value("/")
    # A range without this endpoint keeps the choice, and says that nobody waited.
    page.goto(story.at("gil", story.before, group=HOSTILE, endpoint="/"))
    expect(graph).to_contain_text("No thread waited")
    expect(graph.get_by_label("Endpoint")).to_have_value("/")


def test_the_flame_graph_of_an_earlier_range_lies_below(page: Page, story: Story) -> None:
    before = story.row("a", story.before)
    page.goto(story.at("gil", story.after, group="shop", before=before))
    after, earlier = (
        flame_graph(page).get_by_role("group", name=f"Flame graph: {name}")
        for name in ("After", "Before: a")
    )
    for graph in (after, earlier):
        expect(call(graph, "score (")).to_have_count(1)
    # Before, others waited much longer for the line, so the other endpoint had a smaller share.
    shares = [
        width(call(graph, "/").last) / width(call(graph, "all")) for graph in (after, earlier)
    ]
    assert shares[0] > 2 * shares[1]
    flame_graph(page).get_by_label("Search").fill("recommendations")
    expect(flame_graph(page).locator(".call.found")).to_have_count(2)
    call(after, "score (").click()
    expect(call(after, "(handoff)")).to_have_count(0)
    expect(call(earlier, "(handoff)")).to_have_count(1)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_text_of_a_flame_graph_can_be_read(page: Page, story: Story, theme: str) -> None:
    page.goto(story.at("gil", story.before))
    page.get_by_label("Colours").select_option(theme)
    graph = flame_graph(page)
    expect(call(graph, "score")).to_have_count(1)
    for each in graph.locator(".call").filter(has=page.locator("text")).all():
        colours = each.evaluate(
            "call => ['text', 'rect'].map(name => getComputedStyle(call.querySelector(name)).fill)"
        )
        assert chromium.contrast(*colours) >= 4.5, colours


def test_who_holds_the_gil_and_the_longest_holds_with_their_stack(page: Page, story: Story) -> None:
    page.goto(story.at("gil", story.before, group="shop"))
    endpoints = card(page, "Who holds the GIL: endpoints")
    expect(endpoints.locator("tbody tr").first).to_contain_text("/recommend/<int:product>")
    expect(card(page, "Who holds the GIL: threads")).to_contain_text("headway-worker-")
    hold = card(page, "Longest holds").locator("details").first
    expect(hold).to_contain_text("142 ms")
    hold.locator("summary").click()
    expect(hold.locator("pre")).to_contain_text("recommendations.py")


def test_the_map_of_slots_has_a_row_for_each_thread(page: Page, story: Story) -> None:
    page.goto(story.at("capacity", story.before, group="shop"))
    for pid in BEFORE_PIDS:
        chart = card(page, f"Process {pid}")
        wait_until_painted(chart.locator("canvas"), "teal", 1000)
        rows = table_of(page, f"Process {pid}")
        assert {len(row) for row in rows} == {1 + 5}
    chart = card(page, f"Process {BEFORE_PIDS[0]}")
    chart.locator("canvas").hover(position={"x": 300, "y": 30})
    expect(chart.locator(".readout")).to_contain_text(re.compile(r"Thread 1 at .* busy"))


def test_endpoints_are_sorted_and_filtered(page: Page, story: Story) -> None:
    page.goto(story.at("endpoints", story.before, group="shop"))
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Requests", exact=True).click()
    expect(rows.first).to_contain_text("/product/")
    page.get_by_role("button", name="share of GIL held").click()
    expect(rows.first).to_contain_text("/recommend/")
    page.keyboard.press("/")
    page.keyboard.type("product/")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile(r"q=product"))


def test_slow_requests_open_to_their_phases_and_stack(page: Page, story: Story) -> None:
    page.goto(story.at("slow", story.before, group="shop"))
    lines = page.locator("ul.slow > li")
    expect(lines).to_have_count(12)
    first = lines.first
    first.locator("summary").click()
    expect(first).to_contain_text("waiting for the GIL")
    expect(first.locator("pre")).to_contain_text("recommendations.py")
    page.get_by_label("Contains").fill("/recommend/15")
    expect(lines).to_have_count(2)
    page.get_by_label("State").select_option("running")
    expect(lines).to_have_count(0)


def test_lives_and_deaths_say_why(page: Page, story: Story) -> None:
    page.goto(story.at("lifecycle", group="shop"))
    events = card(page, "Events the latest first")
    expect(events).to_contain_text("killed by SIGSEGV")
    expect(events).to_contain_text("reported by the supervisor")
    expect(events).to_contain_text("script reload")
    lives = {row[0]: row for row in table_of(page, "Lifetimes of processes")}
    assert set(lives) == {str(pid) for pid in (*BEFORE_PIDS, *AFTER_PIDS)}
    assert "SIGSEGV" in lives[str(BEFORE_PIDS[0])][5]
    wait_until_painted(card(page, "Lifetimes of processes").locator("canvas"), "red", 8)


def test_passes_of_the_collector(page: Page, story: Story) -> None:
    page.goto(story.at("gc", story.before, group="shop"))
    expect(card(page, "Collections the latest first").locator("tbody tr")).to_have_count(12)
    assert table_of(page, "Pauses")


def test_a_change_of_the_policy_is_marked_in_charts(page: Page, story: Story) -> None:
    page.goto(story.at("overview", group="shop"))
    throughput = card(page, "Throughput")
    plot = throughput.get_by_role("slider")
    plot.press("End")
    expect(throughput.locator("dl")).to_contain_text("setting5 ms, deadline")
    plot.press("Home")
    plot.press("Shift+ArrowRight")
    expect(throughput.locator("dl")).to_contain_text("setting5 ms, interval")
    page.goto(story.at("overview", story.after, group="shop"))
    card(page, "Throughput").get_by_role("slider").press("End")
    expect(throughput.locator("dl")).to_contain_text("requests")
    expect(throughput.locator("dl")).not_to_contain_text("setting")


def test_dragging_over_a_chart_zooms_and_back_undoes_it(page: Page, story: Story) -> None:
    page.goto(story.at("overview"))
    plot = card(page, "Throughput").locator(".u-over")
    box = plot.bounding_box()
    assert box
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, middle, steps=5)
    page.mouse.up()
    whole = story.after[1] - story.before[0]
    page.wait_for_function(f"location.hash !== {as_hash(story.at('overview'))}")
    start, end = map(float, re.findall(r"(?:from|to)=([\d.]+)", page.url))
    assert end - start == pytest.approx(whole / 2, rel=0.05)
    assert start == pytest.approx(story.before[0] + whole / 4, abs=0.03 * whole)
    page.go_back()
    assert page.url == story.at("overview")


def as_hash(url: str) -> str:
    return repr("#" + url.split("#")[1])


def test_a_range_is_typed_and_what_is_none_is_told(page: Page, story: Story) -> None:
    page.goto(f"{story.recorder.url}/#/overview?group=shop")
    page.locator("details.typed > summary").click()
    page.get_by_label("From").fill("yesterdayish")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="is not a time")).to_be_visible()
    page.get_by_label("From").fill(str(int(story.before[0])))
    page.get_by_label("To", exact=True).fill(str(int(story.before[1])))
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page).to_have_url(re.compile(rf"from={int(story.before[0])}\.000&to="))
    expect(page.get_by_role("button", name="Paused")).to_be_visible()
    expect(page.locator(".tile").first).to_contain_text("/s")


def test_the_comparison_grows_row_by_row_and_can_be_taken_away(page: Page, story: Story) -> None:
    page.goto(story.at("overview", story.before, group="shop"))
    # Nobody listens to keys before there is a page.
    expect(card(page, "Throughput")).to_be_visible()
    page.keyboard.press("c")
    expect(page.locator("nav .badge")).to_have_text("1")
    page.goto(
        story.at("gil", story.after, group="shop", row=re.search(r"row=([^&]+)", page.url)[1])
    )
    page.evaluate("location.hash = decodeURIComponent(location.hash)")
    page.keyboard.press("c")
    page.keyboard.press("9")
    rows = page.locator("table.compare tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("deadline")
    ratio_of = re.compile(TIMES + r"([\d.]+)$")
    expect(rows.nth(1).locator("td small", has_text=ratio_of)).to_have_count(9)
    expect(rows.nth(0).locator("td small", has_text=ratio_of)).to_have_count(0)
    rates = [row.locator("td").nth(1).inner_text() for row in rows.all()]
    assert "rpm" in rates[0]
    ratio = float(ratio_of.search(rates[1])[1])
    assert 1.5 < ratio < 2.5
    names = rows.locator("input.name")
    names.nth(0).fill(f"2 {TIMES} 5, 5 ms")
    names.nth(0).press("Tab")
    expect(page).to_have_url(re.compile("2%2520"))
    with page.expect_download() as markdown:
        page.get_by_role("link", name="Markdown", exact=True).click()
    text = Path(markdown.value.path()).read_text()
    assert f"2 {TIMES} 5, 5 ms" in text
    assert text.count("\n|") >= 3
    with page.expect_download() as csv:
        page.get_by_role("link", name="CSV", exact=True).click()
    assert len(Path(csv.value.path()).read_text().splitlines()) == 3
    expect(card(page, "Wait of a take of the GIL").locator(".stats")).to_have_count(2)


def test_a_chart_is_saved_as_a_picture(page: Page, story: Story) -> None:
    page.goto(story.at("gil", story.before))
    for title in ("Wait of a take", "Takes and drops"):
        with page.expect_download() as download:
            card(page, title).get_by_role("button", name="PNG").click()
        picture = Path(download.value.path()).read_bytes()
        assert picture.startswith(b"\x89PNG\r\n")
        assert len(picture) > 5000
        assert download.value.suggested_filename.endswith(".png")


def test_the_values_over_time_are_saved_as_csv(page: Page, story: Story) -> None:
    page.goto(story.at("overview", story.before))
    with page.expect_download() as download:
        page.get_by_role("link", name="These values as CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert len(lines) > 60
    assert lines[0].count(",") == lines[1].count(",") > 5


def test_an_overview_of_groups_with_long_names_lists_them_all(
    watching: Watched, live: Recorded
) -> None:
    """Their names together are longer than what the recorder's server takes as one question."""
    # As many as one process may report for.
    groups = [f"{number} {chr(0x1F308) * 120} {HOSTILE}" for number in range(16)]
    now = time.time()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
        sending.connect(live.socket)
        for number, group in enumerate(groups):
            sending.send(tick(6000 + number, stamp=now, process_group=group))
    live.wait_until_received(len(groups))
    watching.page.goto(f"{live.url}/#/overview?from={now - 60}&to={now + 1}")
    rows = card(watching.page, "Groups in this range").locator("tbody tr")
    expect(rows).to_have_count(len(groups))


@pytest.mark.parametrize("name", PAGES)
def test_hostile_strings_are_shown_as_text(page: Page, story: Story, name: str) -> None:
    row = f"{quote(HOSTILE)}~{story.before[0]}~{story.before[1]}~group={quote(HOSTILE)}"
    page.goto(story.at(name, story.before, row=row, group=HOSTILE, q="<script>alert(2)</script>"))
    expect(page.locator("main .card").first).to_be_visible()
    if name not in ("compare", "endpoints", "slow"):
        expect(page.locator("summary").filter(has_text=HOSTILE).first).to_be_visible()
    if name in ("endpoints", "slow"):
        page.get_by_role("searchbox").fill("onerror")
    if name in ("gil", "endpoints", "slow", "lifecycle", "capacity"):
        expect(page.locator("main").get_by_text(HOSTILE).first).to_be_visible()
    for details in page.locator("main details > summary").all()[:3]:
        details.click()
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1


def test_everything_is_reached_by_keys(page: Page, story: Story) -> None:
    page.goto(story.at("overview"))
    expect(card(page, "Throughput")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    for number, name in enumerate(PAGES, start=1):
        page.keyboard.press(str(number))
        expect(page).to_have_url(re.compile(f"#/{name}"))
        expect(page.locator("nav a[aria-current=page]")).to_have_attribute(
            "href", re.compile(f"#/{name}")
        )
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("1")
    expect(page).to_have_url(re.compile("#/compare"))
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("1")
    plot = card(page, "Throughput").locator(".plot")
    plot.focus()
    when = card(page, "Throughput").locator(".legend .when dd").first
    expect(when).to_have_text("latest")
    page.keyboard.press("Home")
    expect(when).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
    first = when.inner_text()
    page.keyboard.press("ArrowRight")
    expect(when).not_to_have_text(first)


def test_what_has_the_focus_can_be_seen(page: Page, story: Story) -> None:
    page.goto(story.at("overview"))
    expect(card(page, "Throughput")).to_be_visible()
    outlined = 0
    for _ in range(25):
        page.keyboard.press("Tab")
        outlined += page.evaluate(
            "getComputedStyle(document.activeElement).outlineStyle !== 'none'"
        )
    assert outlined == 25


@pytest.mark.parametrize("name", PAGES)
def test_no_page_is_wider_than_a_phone(page: Page, story: Story, name: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(story.at(name, row=story.row("a", story.before)))
    expect(page.locator("main .card").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_dark_and_light_follow_the_system_until_one_is_chosen(page: Page, story: Story) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="light")
    page.goto(story.at("overview"))
    light = page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(background)
    assert light != dark
    page.get_by_label("Colours").select_option("light")
    assert page.evaluate(background) == light
    page.reload()
    expect(page.get_by_label("Colours")).to_have_value("light")
    assert page.evaluate(background) == light


def test_a_chart_is_a_slider_that_says_where_its_cursor_is(page: Page, story: Story) -> None:
    page.goto(story.at("gil", story.before, group="shop"))
    for title, ready in (("Takes and drops", "takes"), ("Wait of a take", "take")):
        slider = card(page, title).get_by_role("slider")
        expect(slider).to_be_visible()
        wait_until_painted(card(page, title).locator("canvas"), "violet", 100)
        slider.focus()
        page.keyboard.press("Home")
        expect(slider).to_have_attribute("aria-valuetext", re.compile(ready))
        first = slider.get_attribute("aria-valuetext")
        page.keyboard.press("ArrowRight")
        expect(slider).not_to_have_attribute("aria-valuetext", first or "")
        at = int(slider.get_attribute("aria-valuenow") or -1)
        assert 0 < at <= int(slider.get_attribute("aria-valuemax") or -1)


def test_lines_of_a_chart_differ_by_their_dashes(page: Page, story: Story) -> None:
    page.goto(story.at("overview"))
    charts = 0
    for title in ("Response time", "GIL wait of a request", "Capacity", "CPU"):
        chart = card(page, title)
        expect(chart.locator(".plot canvas")).to_be_visible()
        dashes = chart.locator(".key line").evaluate_all(
            "lines => lines.map(line => line.getAttribute('stroke-dasharray'))"
        )
        assert len(set(dashes)) == len(dashes), title
        charts += len(dashes) > 1
    assert charts >= 2


def test_a_page_that_fails_leaves_the_others_usable(watched: Watched, story: Story) -> None:
    page = watched.page
    watched.tolerated = re.compile("raised|TypeError")
    page.route(
        "**/api/v1/slots?*",
        lambda route: route.fulfill(json={"times": [], "processes": None}),
    )
    page.goto(story.at("capacity"))
    broken = page.get_by_role("alert").filter(has_text="Capacity cannot be shown")
    expect(broken).to_be_visible()
    page.unroute("**/api/v1/slots?*")
    page.keyboard.press("1")
    expect(card(page, "Throughput")).to_be_visible()
    page.go_back()
    expect(card(page, f"Process {BEFORE_PIDS[0]}")).to_be_visible()


def test_single_keys_can_be_turned_off(page: Page, story: Story) -> None:
    page.goto(story.at("overview"))
    expect(card(page, "Throughput")).to_be_visible()
    page.get_by_role("button", name="Keys and words").click()
    page.get_by_label("Single keys act as shortcuts").uncheck()
    page.keyboard.press("Escape")
    for _ in range(2):
        page.keyboard.press("2")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page).to_have_url(re.compile("#/overview"))
        page.reload()
        expect(card(page, "Throughput")).to_be_visible()
    page.get_by_role("button", name="Keys and words").click()
    page.get_by_label("Single keys act as shortcuts").check()
    page.keyboard.press("Escape")
    page.keyboard.press("2")
    expect(page).to_have_url(re.compile("#/gil"))


def test_charts_are_drawn_in_forced_colours(page: Page, story: Story) -> None:
    page.emulate_media(forced_colors="active")
    page.goto(story.at("overview"))
    chart = card(page, "Throughput")
    expect(chart.locator(".plot canvas")).to_be_visible()
    # The system's colour of text, which a canvas takes by its value.
    is_drawn = """canvas => {
        const probe = document.createElement("span");
        probe.style.color = "CanvasText";
        document.body.append(probe);
        const text = getComputedStyle(probe).color.match(/\\d+/g).slice(0, 3).map(Number);
        probe.remove();
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let found = 0;
        for (let at = 0; at < data.length; at += 4) {
            if (data[at + 3] === 255 && text.every((part, n) => part === data[at + n])) found++;
        }
        return found > 100;
    }"""
    end = time.monotonic() + 20
    while not chart.locator("canvas").evaluate(is_drawn):
        assert time.monotonic() < end
        page.wait_for_timeout(50)
    stroke = "key => getComputedStyle(key).stroke"
    assert chart.locator(".key").first.evaluate(stroke) not in ("none", "")


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Recorded]:
    recorder = Recorded(tmp_path)
    yield recorder
    recorder.stop()


@pytest.fixture
def watching(browser: Browser, live: Recorded) -> Iterator[Watched]:
    context = browser.new_context()
    context.set_default_timeout(15_000)
    seen = Watched(context.new_page(), live.url)
    yield seen
    context.close()
    assert seen.wrong == []


def test_what_was_lost_is_said_on_every_page(watching: Watched, live: Recorded) -> None:
    page = watching.page
    page.goto(f"{live.url}/")
    expect(page.locator("main")).to_be_visible()
    expect(page.get_by_text("Not everything was recorded")).to_have_count(0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
        sending.sendto(b"WSGI what is this", live.socket)
    live.wait_until_received(1)
    for name in PAGES:
        page.goto(f"{live.url}/#/{name}")
        expect(page.get_by_role("status").filter(has_text="1 malformed")).to_be_visible()


def test_a_program_that_serves_nothing_opens_with_what_is_known_of_it(
    watching: Watched, live: Recorded
) -> None:
    convoy = Path(__file__).parent.parent / "gallery" / "programs" / "convoy.py"
    told = environment(HEADWAY=f"telemetry=unix:{live.socket}")
    assert python(convoy, env=told).returncode == 0
    page = watching.page
    page.goto(f"{live.url}/#/overview?last=60")
    for title in ("CPU", "Memory", "GILs", "Who holds the GIL: threads"):
        expect(card(page, title).first).to_be_visible()
    if GIL_ENABLED:
        expect(card(page, "Wait of a take of the GIL")).to_be_visible()
        expect(page.get_by_text("GIL held", exact=True).first).to_be_visible()
    expect(page.get_by_text("compute").first).to_be_visible()
    titles = page.locator("h3, dt").all_text_contents()
    of_requests = ("Throughput", "Response", "Application", "Capacity", "Bytes", "Busy", "Errors")
    assert [title for title in titles if title.strip().startswith(of_requests)] == []
    expect(page.get_by_text("0 requests")).to_have_count(0)


def test_late_event_loops_are_drawn_with_what_they_do(
    watching: Watched, live: Recorded, tmp_path: Path
) -> None:
    page = watching.page
    page.goto(f"{live.url}/#/loops?last=60")
    expect(page.get_by_text("No process with an event loop reported")).to_be_visible()
    program = test_recorded_loops.running(tmp_path, live, "block")
    try:
        blocked = card(page, "What late loops do")
        wait_until_painted(blocked.locator("canvas"), "red", 100)
        wait_until_painted(card(page, "Late iterations").locator("canvas"), "red", 100)
        wait_until_painted(card(page, "Iterations").locator("canvas"), "violet", 100)
        process = page.get_by_label("Processes with event loops, now").locator("tbody tr")
        expect(process).to_have_count(1)
        computed, waited, of_blocked = (
            percent(process.locator("td").nth(column).inner_text()) for column in (4, 5, 6)
        )
        assert of_blocked > max(computed, waited)
    finally:
        program.end(signal.SIGKILL, kills=True)
    assert any(
        percent(row[3]) > max(percent(row[1]), percent(row[2]))
        for row in table_of(page, "What late loops do")
        if UNKNOWN not in row
    )
    page.goto(f"{live.url}/#/overview?last=60")
    expect(page.locator(".tile").filter(has_text="Event loop p99")).to_be_visible()
    expect(page.locator("article.verdict").first).to_contain_text("did not look for events")


def test_the_lines_that_loops_are_late_for_and_their_callers(
    watching: Watched, live: Recorded
) -> None:
    now = time.time()
    hostile = {**LATE["line_names"][0], "line_holder": HOSTILE, "line_endpoint": HOSTILE}
    told = {**LATE, "line_names": [hostile, LATE["line_names"][1]]}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
        sending.sendto(tick(7000, stamp=now, **LOOPS, **told), live.socket)
    live.wait_until_received(1)
    page = watching.page
    page.goto(f"{live.url}/#/loops?from={now - 60}&to={now + 1}")
    rows = page.get_by_label("What loops are late for: lines").locator("tbody tr")
    expect(rows).to_have_count(3)
    for words in ("work (/app.py:7)", "waited", HOSTILE, "50 ms"):
        expect(rows.first).to_contain_text(words)
    graph = page.get_by_label("What loops are late for: calls", exact=True)
    for name in ("(waited)", "(computed)", "(blocked)", "main (/app.py:1)"):
        expect(call(graph, name).first).to_be_visible()
    assert width(call(graph, "work (").first) == pytest.approx(width(call(graph, "main (").first))
    expect(call(graph, "all").first).to_have_attribute("aria-label", re.compile("all late time"))
    assert page.locator("img").count() == 0


def test_a_live_page_goes_on_by_itself_and_a_hidden_one_rests(
    watching: Watched, live: Recorded
) -> None:
    page = watching.page
    page.goto(f"{live.url}/#/lifecycle?last=300")
    expect(page.get_by_text("No process started or ended")).to_be_visible()
    send(live.socket, int(time.time()) - 2)
    expect(page.get_by_text("killed by SIGSEGV").first).to_be_visible()
    page.evaluate(
        """() => { Object.defineProperty(document, "hidden", { value: true, configurable: true });
                   document.dispatchEvent(new Event("visibilitychange")); }"""
    )
    page.wait_for_load_state("networkidle")
    # The requests so far were answered, and none follows for longer than a page waits between two
    # requests.
    page.wait_for_timeout(2500)
    before = len(watching.asked)
    page.wait_for_timeout(3500)
    assert len(watching.asked) == before
    page.evaluate(
        "() => { delete document.hidden; document.dispatchEvent(new Event('visibilitychange')) }"
    )
    page.wait_for_event("request")


def test_a_recorder_that_is_gone_is_said_to_be(watching: Watched, live: Recorded) -> None:
    page = watching.page
    watching.tolerated = re.compile("ERR_CONNECTION|Failed to load resource")
    page.goto(f"{live.url}/")
    expect(page.locator("main")).to_be_visible()
    page.wait_for_load_state("networkidle")
    live.stop()
    expect(page.get_by_role("alert").filter(has_text="does not answer")).to_be_visible()


def test_a_server_that_reports_is_there(watching: Watched, live: Recorded, tmp_path: Path) -> None:
    """From a real `headway serve` through the recorder to the page."""
    server = Served("mirror:application", "--telemetry", f"unix:{live.socket}", "--threads", "3")
    try:
        page = watching.page
        page.goto(f"{live.url}/#/overview?last=60")
        for _ in range(50):
            assert server.get("/").status == 200
        expect(page.locator("tr.group").first).to_be_visible()
        shown = page.locator(".tile").filter(has_text="Throughput")
        expect(shown).to_contain_text("50 requests")
        expect(page.locator(".configured")).to_contain_text("3 threads")
        page.goto(f"{live.url}/#/capacity?last=60")
        expect(page.locator("section.card canvas").first).to_be_visible()
    finally:
        server.stop()
