"""bench/site_servers.py on windows that are kept: what it searches, scores and tells.

The windows are made here, as a server that keeps up to a rate leaves them. Its load, k6, takes
minutes to build, and is not a part of the tests' environment.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
try:
    import site_servers
    from site_servers import OVERLOAD_S, Windows
    from site_window import PAGES, Request, Window
finally:
    sys.path.remove(str(ROOT / "bench"))

SERVER = site_servers.SERVERS["headway"][0]
SECONDS = 15.0


def window(rate: float, latency_s: float, failures: int = 0, seconds: float = SECONDS) -> Window:
    """Requests at even times, as many of each page."""
    count = round(rate * seconds)
    requests = [
        Request(
            PAGES[number % len(PAGES)],
            seconds * number / count,
            latency_s,
            0 if number < failures else 200,
        )
        for number in range(count)
    ]
    return Window("made", rate, seconds, requests, 0.5, 0.1, 0.04, 100_000_000, 0.001, 0)


def no_site() -> site_servers.Site:
    raise AssertionError("a window was measured")


class Made(Windows):
    """Windows of servers that keep up to a rate, by their shape, and fail above twice of it. Writes
    a window where there is none."""

    def __init__(self, folder: Path, limits: dict[str, float]) -> None:
        super().__init__(folder, no_site, SECONDS)
        self.folder = folder
        self.limits = limits
        self.asked: list[tuple[str, float, int]] = []

    def _kept(self, server, rate, seconds, after, seed, name):  # type: ignore[no-untyped-def]
        self.asked.append((server.shape, rate, seed))
        file = self.folder / f"{server.label.replace(' ', '-')}-{server.shape}-{name}.json.gz"
        if not file.exists():
            length_s = seconds + (after[1] if after else 0)
            times = rate / self.limits[server.shape]
            latency_s = 0.1 * times**2 if times <= 2 else 4.0
            failures = 0 if times <= 2 else 50
            window(rate, latency_s, failures, length_s).written(file)
        return super()._kept(server, rate, seconds, after, seed, name)


@pytest.mark.parametrize(
    ("p99_s", "rate"),
    [
        ({50.0: 0.01, 60.0: 0.09}, 60),
        ({50.0: 0.2, 60.0: 0.09}, 0),
        ({50.0: 0.05, 60.0: 0.2, 70.0: 0.09}, 55),
        ({50.0: 0.05, 60.0: math.inf}, 50),
        ({50.0: 0.01, 60.0: 0.0999, 70.0: 10.0}, 60),
        ({}, 0),
    ],
)
def test_the_highest_rate_lies_where_the_p99_crosses_the_limit(
    p99_s: dict[float, float], rate: float
) -> None:
    assert site_servers.highest_rate(p99_s) == pytest.approx(rate, abs=0.1)


def test_half_of_the_rounds_may_not_fail() -> None:
    fast, slow = window(50, 0.02), window(50, 0.04)
    failed = window(50, 0.02, failures=1)
    assert site_servers.light_p99_s([fast, slow]) == pytest.approx(0.03)
    assert site_servers.light_p99_s([fast, slow, failed]) == 0.04
    assert site_servers.light_p99_s([fast, failed]) == math.inf


def test_servers_are_measured_in_turn_and_hopeless_ones_no_further(tmp_path: Path) -> None:
    base = SERVER
    one, other = (base._replace(processes=n, threads=8) for n in (1, 2))
    windows = Made(tmp_path, {"1x8": 20.0, "2x8": 60.0})
    found = site_servers.measure_in_turn(windows, [one, other], [30, 50, 70], [0, 1])
    assert windows.asked == [
        *(("1x8", 30, 0), ("2x8", 30, 0), ("1x8", 50, 0), ("2x8", 50, 0), ("2x8", 70, 0)),
        *(("1x8", 30, 1), ("2x8", 30, 1), ("1x8", 50, 1), ("2x8", 50, 1), ("2x8", 70, 1)),
    ]
    assert {rate: len(each) for rate, each in found[one].items()} == {30: 2, 50: 2}
    assert {rate: len(each) for rate, each in found[other].items()} == {30: 2, 50: 2, 70: 2}


def test_a_window_whose_generator_was_late_counts_nowhere(tmp_path: Path) -> None:
    class Late(Windows):
        def window(self, server: site_servers.Server, rate: float, seed: int = 0) -> Window:
            return window(rate, 0.02)._replace(lateness_p99_s=0.02)

    windows = Late(tmp_path, no_site, SECONDS)
    assert site_servers.best_shape(windows, SERVER, [(2, 4)], 50) is None
    assert site_servers.measure_in_turn(windows, [SERVER], [50], [0]) == {SERVER: {}}
    assert window(50, 0.02)._replace(dropped=1).late
    assert site_servers.score(windows, {SERVER: {}}) == []


def test_the_useful_pages_are_those_before_the_load_falls() -> None:
    overload = window(100, 0.02, seconds=OVERLOAD_S + site_servers.RECOVERY_S)
    # Half of the pages are light.
    assert site_servers.useful_per_s(overload) == pytest.approx(50, abs=1)
    slow = overload._replace(
        requests=[
            r._replace(latency_s=3.0) if r.begin_s < OVERLOAD_S + 4.5 else r
            for r in overload.requests
        ]
    )
    assert site_servers.useful_per_s(slow) == 0
    assert site_servers.recovery_s(overload) == 0
    assert site_servers.recovery_s(slow) == 5


def test_kept_windows_are_read_and_not_measured_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second call tells the same from the files alone."""
    limits = {"2x4": 40.0, "2x8": 50.0}
    rates = [30.0, 45.0, 60.0]

    def measured(windows: Windows) -> dict[site_servers.Server, dict[float, list[Window]]]:
        best = site_servers.best_shape(windows, SERVER, [(2, 4), (2, 8)], 45)
        assert best is not None
        return site_servers.measure_in_turn(windows, [best], rates, [0, 1])

    def scored(windows: Windows) -> list[site_servers.Score]:
        return site_servers.score(windows, measured(windows))

    [first] = scored(Made(tmp_path, limits))
    assert first.server.shape == "2x8"
    assert first.rate == pytest.approx(50, rel=0.02)
    assert first.near.rate == 45
    assert scored(Windows(tmp_path, no_site, SECONDS)) == [first]
    site_servers.print_scores([first])
    site_servers.print_pages([first])
    site_servers.print_curves([first])
    said = capsys.readouterr().out
    assert "headway preloaded" in said
    kept = measured(Windows(tmp_path, no_site, SECONDS))
    site_servers.write([first], kept, {}, tmp_path / "scores.json")
    written = json.loads((tmp_path / "scores.json").read_text())
    [row] = written["scores"]
    assert row["rate"] == first.rate
    assert row["at_half"]["requests"] == len(first.at_half.requests)
    assert [(each["rate"], each["light_p99_s"]) for each in written["windows"]] == [
        (rate, first.p99_s[rate]) for rate in rates for _ in range(2)
    ]
