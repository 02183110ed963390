"""bench/site_servers.py on windows that are kept: what it searches, scores and tells.

The windows are made here, as a server that keeps up to a rate leaves them. Its load, k6, takes
minutes to build, and is not a part of the tests' environment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
try:
    import site_servers
    from site_servers import OVERLOAD_S, STEP, Search, Windows
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


class Kept:
    """A folder with the windows that a server that sustains `limit` leaves, when they are read."""

    def __init__(self, folder: Path, limit: float) -> None:
        self.folder = folder
        self.limit = limit
        self.rates: list[float] = []

    def windows(self) -> Windows:
        kept = self

        class Made(Windows):
            def window(self, server: site_servers.Server, rate: float, repeat: int = 0) -> Window:
                kept.rates.append(rate)
                return window(rate, 0.02 if rate <= kept.limit else 0.3)

        return Made(self.folder, self.no_site, SECONDS)

    @staticmethod
    def no_site() -> site_servers.Site:
        raise AssertionError("a window was measured")


@pytest.mark.parametrize("limit", [13.0, 41.0, 60.0, 61.5, 190.0])
def test_the_search_finds_the_highest_rate_to_five_percent(tmp_path: Path, limit: float) -> None:
    kept = Kept(tmp_path, limit)
    found = Search(kept.windows(), SERVER).highest(60)
    assert found <= limit < found * STEP * 1.0001
    # Each failure is tried twice.
    assert len(kept.rates) < 25


def test_a_server_that_sustains_nothing_scores_zero(tmp_path: Path) -> None:
    assert Search(Kept(tmp_path, 1.0).windows(), SERVER).highest(60) == 0.0


def test_one_failure_or_a_late_generator_is_enough_against_a_rate() -> None:
    assert site_servers.sustains(window(50, 0.02))
    assert not site_servers.sustains(window(50, 0.02, failures=1))
    assert not site_servers.sustains(window(50, 0.2))
    assert not site_servers.sustains(window(50, 0.02)._replace(lateness_p99_s=0.02))
    assert not site_servers.sustains(window(50, 0.02)._replace(dropped=1))


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
    shapes = ((2, 4), (2, 8))
    limits = {(2, 4): 40.0, (2, 8): 50.0}

    class Measured(Windows):
        """Writes a window where there is none."""

        def _kept(self, server, rate, seconds, after, name):  # type: ignore[no-untyped-def]
            label = server.label.replace(" ", "-")
            file = tmp_path / f"{label}-{server.shape}-{name}.json.gz"
            if not file.exists():
                length_s = seconds + (after[1] if after else 0)
                limit = limits[server.processes, server.threads]
                window(rate, 0.02 if rate <= limit else 0.3, seconds=length_s).written(file)
            return super()._kept(server, rate, seconds, after, name)

    first = site_servers.score(Measured(tmp_path, Kept.no_site, SECONDS), SERVER, shapes, 45)
    assert first is not None
    assert first.server.shape == "2x8"
    assert 50 / STEP < first.rate <= 50
    again = site_servers.score(Windows(tmp_path, Kept.no_site, SECONDS), SERVER, shapes, 45)
    assert again == first
    site_servers.print_scores([first])
    site_servers.print_pages([first])
    said = capsys.readouterr().out
    assert "headway preloaded" in said
    site_servers.write([first], {}, tmp_path / "scores.json")
    [row] = json.loads((tmp_path / "scores.json").read_text())["scores"]
    assert row["rate"] == first.rate
    assert row["at_half"]["requests"] == len(first.at_half.requests)
