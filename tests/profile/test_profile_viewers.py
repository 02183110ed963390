"""The real pprof and the real speedscope open what is written, and find the same times in it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_profiles import HOSTILE, PROFILES, empty, hostile, ordinary, two_gils

from headway.profile import profile_file
from headway.profile.model import Profile

VIEWERS = Path(__file__).resolve().parents[2] / ".venvs/profile-viewers"
PPROF = VIEWERS / "pprof"
SPEEDSCOPE = VIEWERS / "speedscope/dist/release/index.html"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
TIMEOUT_S = 60
CELLS = """() => [...document.querySelectorAll("tr")].map(
    row => [...row.querySelectorAll("td")].map(cell => cell.textContent.trim())
)"""

pytestmark = pytest.mark.slow("starts pprof, or speedscope in a browser")
needs_pprof = pytest.mark.skipif(
    not PPROF.exists(), reason="there is no pprof: scripts/profile-viewers"
)


def written(folder: Path, profile: Profile, ending: str) -> Path:
    path = folder / f"profile{ending}"
    profile_file.write_profile(profile, str(path))
    return path


def pprof(path: Path, *options: str) -> str:
    """The output of pprof, which must not complain of anything."""
    environment = {**os.environ, "PPROF_TMPDIR": str(path.parent), "HOME": str(path.parent)}
    done = subprocess.run(
        [PPROF, *options, path], capture_output=True, env=environment, timeout=TIMEOUT_S
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def top(path: Path, *options: str) -> dict[str, tuple[int, int]]:
    """The nanoseconds of each function: its own, and those with what it calls."""
    # All nodes, in a unit that is exact.
    shown = pprof(path, "-top", "-nodecount=0", "-nodefraction=0", "-unit=ns", *options)
    rows = {}
    for line in shown.partition("flat%")[2].splitlines()[1:]:
        flat, _, _, cumulative, _, *name = line.split(maxsplit=5)
        rows[name[0] if name else ""] = (number(flat), number(cumulative))
    return rows


def number(text: str) -> int:
    return int(text.removesuffix("ns"))


@needs_pprof
@pytest.mark.parametrize("name", [name for name in PROFILES if name != "hostile"])
def test_pprof_finds_the_time_waited_on_both_sides(tmp_path: Path, name: str) -> None:
    profile = PROFILES[name]()
    path = written(tmp_path, profile, ".pb.gz")
    for options in ((), ("-sample_index=0",), ("-sample_index=delay_waiters",)):
        assert sum(own for own, _ in top(path, *options).values()) == profile.waited_ns


@needs_pprof
def test_pprof_finds_functions_lines_and_labels(tmp_path: Path) -> None:
    path = written(tmp_path, ordinary(), ".pb.gz")
    found = top(path)
    assert found["crunch"] == (1_200_000_000, 1_200_000_000)
    assert found["work"] == (0, 1_600_000_000)
    # pprof would take these names for templates of C++.
    assert found["<lambda>"][0] == 400_000_000
    assert found["<module>"][0] == 100_000_000
    assert found["(handoff)"][0] == 90_000_000
    assert top(path, "-lines")["crunch /home/me/shop/jobs/prices.py:8"][0] == 1_200_000_000
    callers = pprof(path, "-peek=^crunch$")
    assert "|   work" in callers
    assert top(path, "-tagfocus=waiter=http-3")["crunch"][0] == 100_000_000
    assert top(path, "-sample_index=delay_waiters", "-tagfocus=thread=http-2") == {
        "dumps": (600_000_000, 600_000_000),
        **dict.fromkeys(("do_GET", "serve_forever", "run"), (0, 600_000_000)),
    }
    shown = pprof(path, "-raw")
    assert "PeriodType: delay_holders nanoseconds" in shown
    assert "Duration: 3s" in shown
    assert (
        "delay_holders/nanoseconds[dflt] delay_waiters/nanoseconds readings_holders/count" in shown
    )
    assert "end:[forced] gil:[main] side:[holders] thread:[worker] waiter:[http-1]" in shown
    assert pprof(path, "-comments").splitlines()[:2] == ["program: app.py", "pid: 4242"]


@needs_pprof
def test_pprof_shows_hostile_names_as_they_are(tmp_path: Path) -> None:
    path = written(tmp_path, hostile(), ".pb.gz")
    shown = HOSTILE.encode("utf-8", "backslashreplace").decode()
    assert shown in pprof(path, "-top")


class Speedscope:
    """speedscope's page in Chromium."""

    def __init__(self, browser: object, folder: Path) -> None:
        self.browser, self.folder = browser, folder

    def open(self, path: Path) -> tuple[dict[str, str], dict[str, tuple[str, str]], list[str]]:
        """Opens a file as `speedscope FILE` does. Returns the time of each profile if there are
        several, the total and own time of each function of the first, and what speedscope
        complained of."""
        loader = self.folder / "loader.js"
        content = base64.b64encode(path.read_bytes()).decode()
        call = f"speedscope.loadFileFromBase64({json.dumps(path.name)}, {json.dumps(content)})"
        loader.write_text(call)
        page = self.browser.new_page()  # type: ignore[attr-defined]
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(f"raised: {error}"))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        page.goto(f"{SPEEDSCOPE.as_uri()}#view=sandwich&localProfilePath={loader}")
        page.get_by_text("Symbol Name").or_(page.get_by_text("Hi there!")).first.wait_for()
        profiles, functions = {}, {}
        for cells in page.evaluate(CELLS):
            if len(cells) != 3:
                # A heading, or the words that there is nothing.
                continue
            # A function's total, its own time and its name; or a profile's number, name and time.
            first, second, third = cells
            if first.isdecimal():
                profiles[second] = third
            else:
                functions[third] = (first.split()[0], second.split()[0])
        page.close()
        return profiles, functions, wrong


@pytest.fixture(scope="module")
def speedscope(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Speedscope]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed here")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: scripts/debian-packages")
    if not SPEEDSCOPE.exists():
        pytest.skip("there is no speedscope: scripts/profile-viewers")
    with sync_api.sync_playwright() as playwright:
        # Root may not use Chromium's sandbox; speedscope needs WebGL, here without a graphics card.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*options, "--enable-unsafe-swiftshader"]
        )
        yield Speedscope(browser, tmp_path_factory.mktemp("speedscope"))
        browser.close()


TIMES = {
    "crunch": ("1.20s", "1.20s"),
    "<lambda>": ("400.00ms", "400.00ms"),
    "dumps": ("150.00ms", "150.00ms"),
    "<module>": ("100.00ms", "100.00ms"),
    "(handoff)": ("90.00ms", "90.00ms"),
    "(not recorded)": ("10.00ms", "10.00ms"),
    "work": ("1.60s", "0.00ns"),
    "do_GET": ("150.00ms", "0.00ns"),
    "serve_forever": ("150.00ms", "0.00ns"),
    "run": ("1.75s", "0.00ns"),
}


@pytest.mark.parametrize("ending", [".json", ".pb.gz"])
def test_speedscope_finds_the_times(speedscope: Speedscope, tmp_path: Path, ending: str) -> None:
    """It reads pprof's files too, and shows their default type."""
    _, rows, wrong = speedscope.open(written(tmp_path, ordinary(), ending))
    assert (rows, wrong) == (TIMES, [])


def test_speedscope_reads_collapsed_stacks(speedscope: Speedscope, tmp_path: Path) -> None:
    _, rows, wrong = speedscope.open(written(tmp_path, ordinary(), ".txt"))
    assert wrong == []
    assert rows["crunch (/home/me/shop/jobs/prices.py:8)"] == ("1,200,000,000",) * 2
    assert len(rows) == len(TIMES)


def test_speedscope_lists_the_sides_of_each_gil(speedscope: Speedscope, tmp_path: Path) -> None:
    profiles, _, wrong = speedscope.open(written(tmp_path, two_gils(), ".json"))
    assert wrong == []
    assert profiles == {
        "holders of the GIL main": "1.95s",
        "waiters for the GIL main": "1.95s",
        "holders of the GIL worker": "80.00ms",
        "waiters for the GIL worker": "80.00ms",
    }


@pytest.mark.parametrize("name", [name for name in PROFILES if name != "empty"])
def test_speedscope_complains_of_nothing(speedscope: Speedscope, tmp_path: Path, name: str) -> None:
    _, rows, wrong = speedscope.open(written(tmp_path, PROFILES[name](), ".json"))
    assert wrong == []
    assert bool(rows) == bool(PROFILES[name]().waited_ns)


def test_speedscope_says_that_an_empty_file_is_empty(
    speedscope: Speedscope, tmp_path: Path
) -> None:
    _, _, wrong = speedscope.open(written(tmp_path, empty(), ".json"))
    assert wrong == ["Successfully imported profile, but it's empty!"]
