"""The picture at the top of README.md: an echo server and a CPU-bound thread, in virtual time,
under CPython's rule and under `priority`.

Made from two timelines of `headway simulate`. A simulation reads no clock, so the same version
draws the same picture.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

WINDOW_US = 25_000.0
LEFT, WIDTH, LANE, TOP = 96, 700, 26, 34
PANEL = 112
# In a lane, gaps that are narrower than this many pixels are not drawn.
MERGED_PX = 0.6
PANELS = (
    ("stock", "CPython: echo waits 5 ms for each answer"),
    ("priority", "HEADWAY=priority: echo goes first"),
)
STYLE = """
svg { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
.page { fill: #ffffff; } text { fill: #17211f; font-size: 13px; } .title { font-weight: 600; }
.muted { fill: #52605c; } .right { text-anchor: end; } .lane { fill: #f1f4f3; }
.hold { fill: #0b61a4; } .wait { fill: #f0b285; } .answer { fill: #00694f; }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117; } text { fill: #e6edea; } .muted { fill: #9fb0aa; } .lane { fill: #1b2422; }
.hold { fill: #4c9be0; } .wait { fill: #a4561f; } .answer { fill: #3fbf93; }
}
"""


class Slice(NamedTuple):
    """A part of a thread's time, in microseconds from the beginning of the window."""

    thread: str
    name: str
    begin: float
    end: float


def draw(folder: Path) -> bytes:
    """Raises `CalledProcessError`, after the command has written its reason to stderr."""
    height = TOP + len(PANELS) * PANEL - 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {LEFT + WIDTH + 24} '
        f'{height}" aria-labelledby="title"><title id="title">An echo server and a CPU-bound '
        "thread: under CPython's rule it waits 5 ms for each answer, under Headway's policy "
        f"priority some microseconds</title><style>{STYLE}</style>"
        '<rect class="page" width="100%" height="100%"/>'
    ]
    for number, (policy, title) in enumerate(PANELS):
        slices = list(_window(_timeline(policy, folder)))
        parts += _panel(slices, title, TOP + number * PANEL)
    bottom = TOP + len(PANELS) * PANEL - 32
    parts += [
        _text(LEFT, bottom, "0", "muted"),
        _text(LEFT + WIDTH, bottom, f"{WINDOW_US / 1000:.0f} ms", "muted right"),
        *_legend(bottom),
        "</svg>\n",
    ]
    return "\n".join(parts).encode()


def _timeline(policy: str, folder: Path) -> list[dict[str, object]]:
    file = folder / f"{policy}.json"
    command = [sys.executable, "-m", "headway", "simulate", "echo", "--threads", "1"]
    command += ["--policy", policy, "--switch-interval", "5ms", "--timeline", str(file)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    events: list[dict[str, object]] = json.loads(file.read_text())["traceEvents"]
    return events


def _window(events: list[dict[str, object]]) -> Iterator[Slice]:
    """The holds, waits and requests in the window, which begins with the recording."""
    threads = {
        each["tid"]: str(each["args"]["name"])  # type: ignore[index]
        for each in events
        if each.get("name") == "thread_name"
    }
    began: dict[object, tuple[str, float]] = {}
    first = min(float(str(each["ts"])) for each in events if "ts" in each)
    for each in events:
        if each["ph"] == "B" and each["name"] in ("hold", "wait", "request"):
            began[each["tid"]] = str(each["name"]), float(str(each["ts"])) - first
        elif each["ph"] == "E" and each["tid"] in began:
            name, begin = began.pop(each["tid"])
            end = float(str(each["ts"])) - first
            if begin < WINDOW_US:
                yield Slice(threads[each["tid"]], name, begin, min(end, WINDOW_US))


def _panel(slices: list[Slice], title: str, top: float) -> list[str]:
    of_echo = [each for each in slices if each.thread == "echo"]
    answers = [each for each in of_echo if each.name == "hold"]
    requests = sum(each.name == "request" and each.end < WINDOW_US for each in slices)
    computing = [each for each in slices if each.thread.startswith("compute")]
    held = sum(each.end - each.begin for each in computing if each.name == "hold") / WINDOW_US
    waits = [each for each in of_echo if each.name == "wait"]
    return [
        _text(LEFT, top - 14, title, "title"),
        _text(LEFT - 10, top + 17, "echo", "right"),
        _text(LEFT - 10, top + LANE + 22, "compute", "right"),
        _lane(top),
        *_boxes(waits, top, "wait"),
        *_boxes(answers, top, "answer", least_px=2),
        _lane(top + LANE + 5),
        *_boxes([each for each in computing if each.name == "hold"], top + LANE + 5, "hold"),
        _text(
            LEFT + WIDTH,
            top - 14,
            f"{requests:,} answers; compute holds the GIL {100 * held:.0f} % of the time",
            "muted right",
        ),
    ]


def _legend(bottom: float) -> Iterator[str]:
    x = LEFT + 190
    for kind, text in (
        ("wait", "waits for the GIL"),
        ("answer", "holds the GIL"),
        ("hold", "holds the GIL, CPU-bound"),
    ):
        yield f'<rect class="{kind}" x="{x}" y="{bottom - 10}" width="12" height="11"/>'
        yield _text(x + 17, bottom, text, "muted")
        x += 34 + 7 * len(text)


def _lane(top: float) -> str:
    return f'<rect class="lane" x="{LEFT}" y="{top}" width="{WIDTH}" height="{LANE}"/>'


def _boxes(slices: list[Slice], top: float, kind: str, least_px: float = 0.0) -> Iterator[str]:
    merged: list[list[float]] = []
    for each in sorted(slices, key=lambda one: one.begin):
        begin, end = each.begin / WINDOW_US * WIDTH, each.end / WINDOW_US * WIDTH
        end = min(max(end, begin + least_px), WIDTH)
        if merged and begin - merged[-1][1] < MERGED_PX:
            merged[-1][1] = max(end, merged[-1][1])
        else:
            merged.append([begin, end])
    for begin, end in merged:
        yield (
            f'<rect class="{kind}" x="{LEFT + begin:.1f}" y="{top}" '
            f'width="{max(end - begin, 0.5):.1f}" height="{LANE}"/>'
        )


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{text}</text>'
