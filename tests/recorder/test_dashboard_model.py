"""web/src/model.ts describes what the recorder's API answers: the TypeScript compiler takes real
answers as values of its types, without a key too many or too few."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from made_recording import send
from recorded import Recorded
from test_exposition import LOOPS
from test_flame_graph_data import LATE
from ticks import tick

WEB = Path(__file__).resolve().parents[2] / "web"
COMPILER = WEB / "node_modules/.bin/tsc"

pytestmark = [
    pytest.mark.slow("records a story of some hundred thousand datagrams"),
    pytest.mark.skipif(
        not COMPILER.exists() or shutil.which("node") is None,
        reason="there is no TypeScript compiler: the dashboard has not been built here",
    ),
]


def test_answers_have_the_types_of_the_model(tmp_path: Path) -> None:
    recorder = Recorded(tmp_path)
    try:
        sent, before, after = send(recorder.socket, int(time.time()) - 2)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            looping = tick(7000, stamp=after[1] - 1, **LOOPS, **LATE)
            sending.sendto(looping, recorder.socket)
        recorder.wait_until_received(sent + 1)
        span = f"from={before[0]}&to={after[1]}"
        row = f"row~{before[0]}~{after[1]}~"
        answers = {
            "Now": recorder.ask("now?window=10"),
            "Measured": recorder.ask(f"summary?{span}"),
            "Series": recorder.ask(f"series?{span}&points=30"),
            "Distribution": recorder.ask(f"distribution?{span}&metric=take_wait"),
            "Slots": recorder.ask(f"slots?{span}&points=10"),
            "SlowAnswer": recorder.ask(f"slow?{span}&limit=20"),
            "LifecycleAnswer": recorder.ask(f"lifecycle?{span}&limit=20"),
            "GcAnswer": recorder.ask(f"gc?{span}&limit=20"),
            "Holders": recorder.ask(f"holders?{span}"),
            "Flame": recorder.ask(f"flame_graph?{span}"),
            "LoopUse": recorder.ask(f"summary?{span}")["summary"]["loops"],
            "Comparison": recorder.ask(f"compare?row={row}"),
        }
    finally:
        assert recorder.stop() == 0
    assert all(answers["Holders"].values())
    assert answers["SlowAnswer"]["events"]
    assert refused(tmp_path, answers) == ""
    # The check sees a key that is missing, one that is new, and another type.
    bad = dict(answers["Distribution"])
    for change in ({}, {**bad, "more": 1}, {**bad, "switch_intervals": "5 ms"}):
        assert "answers.ts" in refused(tmp_path, {"Distribution": change})


def refused(folder: Path, answers: dict[str, object]) -> str:
    """The compiler's errors on the answers."""
    lines = [f'import type {{ {", ".join(answers)} }} from "{WEB}/src/model";']
    for number, (name, answer) in enumerate(answers.items()):
        lines.append(f"export const answer{number}: {name} = {json.dumps(answer)};")
    (folder / "answers.ts").write_text("\n".join(lines))
    settings = {
        "extends": f"{WEB}/tsconfig.json",
        "compilerOptions": {"types": []},
        "files": ["answers.ts"],
        "include": [],
    }
    (folder / "tsconfig.json").write_text(json.dumps(settings))
    run = [COMPILER, "--noEmit", "--pretty", "false", "--project", folder / "tsconfig.json"]
    return subprocess.run(run, capture_output=True, text=True, timeout=120).stdout
