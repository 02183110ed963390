"""The statements of the page about Jupyter."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from recipe_list import named
from recipe_run import Tool, reports, running_client
from recipe_tool import BIN, ROOT, need, tool_of

pytestmark = pytest.mark.slow("starts a Jupyter kernel")

JUPYTER = named("jupyter")
TIMEOUT_S = 60

RUN = """
import sys
from pathlib import Path
from notebook import connect, run
client = connect(Path(sys.argv[1]))
print(run(client, sys.argv[2]))
client.stop_channels()
"""


def printed_by_cell(tool: Tool, code: str) -> str:
    """Runs a cell, and returns the text that it prints."""
    file = tool.place.folder / "kernel.json"
    return subprocess.run(
        [str(BIN / "python"), "-c", RUN, str(file), code],
        cwd=ROOT / "examples" / "recipes",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    ).stdout


def test_a_kernel_specification_turns_it_on_for_its_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(JUPYTER.packages)
    value = f"priority,report={tmp_path}/reports/%p.json"
    install = [str(BIN / "python"), "-m", "ipykernel", "install", "--prefix", str(tmp_path)]
    install += ["--name", "priority", "--env", "HEADWAY", value]
    subprocess.run(install, check=True, capture_output=True, timeout=TIMEOUT_S)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    recipe = JUPYTER._replace(command=f"{JUPYTER.command} --kernel=priority")
    with tool_of(recipe, "") as tool:
        with running_client(recipe, tool.place) as client:
            client.latencies()
        assert tool.stop() == 0, tool.output()
        (kernel,) = reports(tool.place._replace(folder=tmp_path))
    assert kernel.policy == "priority"
    assert {"MainThread", "Shell channel", "IOPub"} <= {thread.name for thread in kernel.threads}


def test_a_cell_shows_the_report() -> None:
    with tool_of(JUPYTER, JUPYTER.value) as tool:
        shown = printed_by_cell(tool, "from headway import gil\nprint(gil.snapshot())")
        assert tool.stop() == 0, tool.output()
        # The policy alone prints nothing.
        assert "\nheadway" not in tool.output()
    assert "policy priority" in shown
    assert "Shell channel" in shown
