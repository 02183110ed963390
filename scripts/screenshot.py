"""`make screenshot`: the documents' pictures of the dashboard, from a recording made for them.

The shop of examples/ is served under load for a while as CPython schedules its threads, then again
under the policy `deadline`, both recorded by `headway telemetry`. Chromium then takes the picture
of the page about the GIL, the first run laid under the second, and of the flame graph of the first
run. Everything ends by itself.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote, urlencode

SHOP = Path(__file__).resolve().parent.parent / "examples" / "shop"
sys.path.append(str(SHOP))

from running import running  # noqa: E402

THREADS, LIGHT_VISITORS, HEAVY_VISITORS = 5, 6, 2
# The last ticks of a run, which the server sends as it ends, and the first of the next.
PAUSE_S = 3
WIDTH, HEIGHT = 1360, 900
FLAME_GRAPH = "Who holds the GIL while others wait: calls"

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
        name = quote("interval, as CPython does it", safe="")
        query["before"] = f"{name}~{before[0]:.3f}~{before[1]:.3f}~"
    return f"{url}/#/gil?{urlencode(query)}"


def take_picture(address: str, chromium: str, path: Path, card: str = "") -> None:
    """Of the first screen, or of the card with this label."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root may not use Chromium's sandbox.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=options)
        page = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", locale="en-US"
        )
        page.goto(address)
        if card:
            page.locator(".flame .call").first.wait_for()
            page.get_by_label(card, exact=True).screenshot(path=path)
        else:
            page.locator(".stats").nth(1).wait_for()
            page.locator(".plot canvas").first.wait_for()
            page.wait_for_load_state("networkidle")
            page.screenshot(path=path)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("path", type=Path, help="where the PNG of the page goes")
    parser.add_argument("flame_graph", type=Path, help="where that of the flame graph goes")
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
            after = record(folder, socket, "deadline", arguments.seconds)
            take_picture(address_of(url, after, before), chromium, arguments.path)
            take_picture(address_of(url, before), chromium, arguments.flame_graph, FLAME_GRAPH)
    for path in (arguments.path, arguments.flame_graph):
        print(f"screenshot: {path}, {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
