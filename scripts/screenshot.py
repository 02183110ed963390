"""`make screenshot`: the documents' pictures of the dashboard, from a recording made for them.

The shop of examples/ is served under load for a while as CPython schedules its threads, then again
under the policy `priority`, both recorded by `headway telemetry`. Chromium then takes two pictures,
light and dark: the chart of the waits for the GIL, the first run under the second, with an arrow to
the median of each; and the flame graph of the first run, with an arrow to the line that others wait
for most. The figures at the arrows are those that the page shows. Everything ends by itself.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, urlencode

SHOP = Path(__file__).resolve().parent.parent / "examples" / "shop"
sys.path.append(str(SHOP))

from running import running  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

THREADS, LIGHT_VISITORS, HEAVY_VISITORS = 5, 6, 2
# The last ticks of a run, which the server sends as it ends, and the first of the next.
PAUSE_S = 3
POLICY = "priority"
# As wide as a page of Markdown is shown.
WIDTH, HEIGHT = 900, 1200
# To the left of an arrow's point, in pixels, for its label.
LEAST_ROOM = 240
CHART = "Wait of a take"
FLAME_GRAPH = "Who holds the GIL while others wait: calls"
SCHEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")

Phase = tuple[float, float]


def record(folder: Path, socket: str, policy: str, seconds: float) -> Phase:
    """One run of the shop under load; returns when it was, its first second left out."""
    options = ("--threads", str(THREADS), "--policy", policy, "--telemetry", f"unix:{socket}")
    command = ("serve", "shop:app", "--bind", "127.0.0.1:0", *options)
    with running(folder / f"{policy}.log", command) as (url, _):
        host, port = url.removeprefix("http://").split(":")
        start = time.time()
        load = [sys.executable, "load.py", host, port, "--seconds", str(seconds)]
        load += ["--light", str(LIGHT_VISITORS), "--heavy", str(HEAVY_VISITORS)]
        done = subprocess.run(load, cwd=SHOP, stdout=subprocess.DEVNULL, timeout=seconds + 60)
        if done.returncode != 0:
            raise SystemExit("screenshot: the load did not come through")
        end = time.time()
    time.sleep(PAUSE_S)
    return start + 1, end


def address_of(url: str, phase: Phase, before: Phase | None = None) -> str:
    query = {"from": f"{phase[0]:.3f}", "to": f"{phase[1]:.3f}"}
    if before is not None:
        name = quote("CPython", safe="")
        query["before"] = f"{name}~{before[0]:.3f}~{before[1]:.3f}~"
    return f"{url}/#/gil?{urlencode(query)}"


@contextmanager
def opened(address: str, chromium: str, scheme: Literal["light", "dark"]) -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root may not use Chromium's sandbox.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=options)
        page = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT},
            device_scale_factor=2,
            color_scheme=scheme,
            locale="en-US",
            # For the styles of the arrows.
            bypass_csp=True,
        )
        page.goto(address)
        yield page
        browser.close()


# Draws an arrow in `color` from a text to a point, both in pixels of the element `holder`. The text
# is above the beginning of an arrow that points down, and below that of one that points up.
ARROW = """(holder, { text, color, at, from }) => {
    const names = "http://www.w3.org/2000/svg";
    const make = (name, attributes) => {
        const made = document.createElementNS(names, name);
        for (const key in attributes) made.setAttribute(key, attributes[key]);
        return made;
    };
    holder.style.position = "relative";
    const box = holder.getBoundingClientRect();
    const layer = make("svg", { width: box.width, height: box.height });
    layer.style.cssText = "position: absolute; left: 0; top: 0; overflow: visible;";
    layer.style.pointerEvents = "none";
    const [x, y] = at, [startX, startY] = from;
    const angle = Math.atan2(y - startY, x - startX);
    const wing = (turn) => [x - 11 * Math.cos(angle + turn), y - 11 * Math.sin(angle + turn)];
    const stroke = { stroke: color, "stroke-width": 2.5, fill: "none", "stroke-linecap": "round" };
    layer.append(
        make("path", { ...stroke, d: `M${startX} ${startY}L${x} ${y}` }),
        make("path", { ...stroke, d: `M${wing(0.45)}L${x} ${y}L${wing(-0.45)}` }),
    );
    const label = make("text", {
        x: startX, y: y > startY ? startY - 7 : startY + 19, fill: color, "font-size": 17,
        "font-weight": 700,
        "text-anchor": "middle",
    });
    label.textContent = text;
    layer.append(label);
    holder.append(layer);
}"""


def take_chart(address: str, chromium: str, path: Path, scheme: Literal["light", "dark"]) -> None:
    """The chart of the waits without its controls, with an arrow to the median of each run."""
    with opened(address, chromium, scheme) as page:
        page.locator(".stats").nth(1).wait_for()
        page.locator(".drawing canvas").first.wait_for()
        page.wait_for_load_state("networkidle")
        card = page.get_by_label(CHART, exact=True)
        plot = card.locator(".drawing").first
        box = plot.bounding_box()
        assert box is not None
        layers = card.locator(".stats")
        for number, name in enumerate(("CPython", f"HEADWAY={POLICY}")):
            median = layers.nth(number).locator("dd").nth(1).inner_text()
            hue = layers.nth(number).locator("dt").first.locator("svg *, i").first
            color = hue.evaluate(
                "e => { const s = getComputedStyle(e);"
                " return s.stroke != 'none' ? s.stroke : s.backgroundColor }"
            )
            x = place_of(page, seconds(median), box)
            start = (-140, 0.22) if number == 0 else (-80, 0.45)
            # A label at the left edge would be cut off.
            if x - box["x"] < LEAST_ROOM:
                start = (-start[0] * 2, start[1])
            plot.evaluate(
                ARROW,
                {
                    "text": f"{name}: {median}",
                    "color": color,
                    "at": [x - box["x"], box["height"] * 0.72],
                    "from": [x - box["x"] + start[0], box["height"] * start[1]],
                },
            )
        hide = ".tools, p.note, .readout, .stats { display: none !important }"
        page.add_style_tag(content=hide)
        page.mouse.move(0, 0)
        card.screenshot(path=path)


def place_of(page: Page, wanted_s: float, box: dict[str, float]) -> float:
    """Where on the chart's axis this time is, as the page reads it out below the chart."""
    low, high = box["x"], box["x"] + box["width"]
    for _ in range(12):
        middle = (low + high) / 2
        page.mouse.move(middle, box["y"] + box["height"] / 2)
        bar = re.search(r"([\d.]+ \S+) to ", page.locator(".readout").first.inner_text())
        if bar is None or seconds(bar[1]) <= wanted_s:
            low = middle
        else:
            high = middle
    return low


def seconds(shown: str) -> float:
    """A time as the dashboard shows it, such as 49.2 µs."""
    number, unit = shown.split()
    return float(number) * {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


# The call that itself, without what it calls, is widest: its text and its place in the graph.
WIDEST = """graph => {
    const calls = [...graph.querySelectorAll(".call")].map(call => ({
        name: call.querySelector("title").textContent,
        box: call.querySelector("rect").getBBox(),
    }));
    const own = ({ box }) => box.width - calls
        .filter(other => other.box.y === box.y + box.height
            && other.box.x >= box.x - 0.5 && other.box.x < box.x + box.width - 0.5)
        .reduce((sum, other) => sum + other.box.width, 0);
    const lines = calls.filter(call => call.name.includes(".py:"));
    const widest = lines.reduce((a, b) => (own(a) >= own(b) ? a : b));
    const { x, y, width, height } = widest.box;
    return { name: widest.name.split("\\n")[0], x, y, width, height,
        share: own(widest) / calls[0].box.width,
        // Of the calls that can be seen.
        bottom: Math.max(...calls.filter(({ box }) => box.width > 8).map(
            ({ box }) => box.y + box.height)) };
}"""
# Draws a frame around the call.
MARK = """(graph, { x, y, width, height }) => {
    const frame = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [key, value] of Object.entries({ x, y, width, height })) {
        frame.setAttribute(key, value);
    }
    frame.style.cssText = "fill: none; stroke: currentColor; stroke-width: 3";
    graph.append(frame);
}"""


def take_flame_graph(
    address: str, chromium: str, path: Path, scheme: Literal["light", "dark"]
) -> None:
    """The flame graph without its controls, with the line marked that makes the others wait."""
    with opened(address, chromium, scheme) as page:
        page.locator(".flame .call").first.wait_for()
        page.wait_for_load_state("networkidle")
        card = page.get_by_label(FLAME_GRAPH, exact=True)
        graph = card.locator(".flame svg").first
        widest = graph.evaluate(WIDEST)
        where = re.search(r"\((?:.*/)?([^/]+)\)", widest["name"])
        assert where is not None, widest
        middle = widest["x"] + widest["width"] / 2
        page.add_style_tag(
            content="label, .zoom, .pointed { display: none !important }"
            ".flame svg { overflow: visible; margin-bottom: 54px }"
        )
        graph.evaluate(MARK, widest)
        card.locator(".flame").evaluate(
            ARROW,
            {
                "text": f"{where[1]}: {100 * widest['share']:.0f} % of the waiting",
                "color": graph.evaluate("e => getComputedStyle(e).color"),
                "at": [middle, widest["y"] + widest["height"] + 3],
                "from": [middle + 40, widest["bottom"] + 20],
            },
        )
        card.screenshot(path=path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument(
        "--seconds", type=float, default=40.0, help="how long each run is (default: %(default)s)"
    )
    arguments = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("screenshot: there is no Chromium: scripts/debian-packages installs it")
    with tempfile.TemporaryDirectory(prefix="screenshot-") as name:
        folder = Path(name)
        socket = str(folder / "telemetry.sock")
        recorder = ["telemetry", "--listen", f"unix:{socket}", "--http", "127.0.0.1:0"]
        with running(folder / "telemetry.log", [*recorder, "--no-store"]) as (url, _):
            before = record(folder, socket, "interval", arguments.seconds)
            after = record(folder, socket, POLICY, arguments.seconds)
            for scheme in SCHEMES:
                end = "" if scheme == "light" else f"_{scheme}"
                for take, address, picture in (
                    (take_chart, address_of(url, after, before), "dashboard"),
                    (take_flame_graph, address_of(url, before), "flame_graph"),
                ):
                    path = arguments.folder / f"{picture}{end}.png"
                    take(address, chromium, path, scheme)
                    print(f"screenshot: {path}, {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
