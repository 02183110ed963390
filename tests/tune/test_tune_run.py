"""`headway tune run`, with real programs."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch import run_main

from headway.json_shape import find_problem
from headway.tune.document import TuneDocument

# The number depends on the policy that the program runs under, so the right answer is known.
PRINTS_BY_POLICY = """
from headway import gil
print("score:", {"priority": 300, "deadline": 200}.get(gil.snapshot().to_dict()["policy"], 100))
"""


def tune(*words: str) -> list[str]:
    return [sys.executable, "-m", "headway", "tune", "run", *words]


@pytest.mark.slow("runs a program some twenty times")
def test_the_setting_with_the_best_number_wins(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    words = ("--metric", "score: ([0-9]+)", "--switch-interval", "5ms", "--json", str(file))
    done = subprocess.run(
        tune(*words, "-c", PRINTS_BY_POLICY), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert find_problem(document, TuneDocument) == ""
    assert document["winner"] == {"policy": "priority", "switch_interval_s": 0.005}
    assert {"metric", "time_s", "cpu_s", "memory_bytes"} <= document["blocks"][0]["figures"].keys()
    assert "priority at 5 ms: metric 3.00" in done.stdout
    assert "round 1," in done.stderr


def test_ctrl_c_ends_with_what_there_is(tmp_path: Path) -> None:
    file, begun = tmp_path / "result.json", tmp_path / "begun"
    code = f"import time; open({str(begun)!r}, 'w'); time.sleep(60)"
    with subprocess.Popen(
        tune("--json", str(file), "-c", code),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        assert "warm-up" in running.stderr.readline()
        end = time.monotonic() + 30
        while not begun.exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        stdout, _ = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "Undecided" in stdout
    assert json.loads(file.read_text())["result"] == "undecided"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "nothing to run"),
        (["--smaller", "-c", "0"], "--smaller"),
        (["--metric", "(", "-c", "0"], "found '('; allowed: a regex"),
        (["--goal", "p99", "-c", "0"], "--goal: found 'p99'; allowed: one of time, cpu, memory"),
        (["--margin", "-1", "-c", "0"], "allowed: a percentage"),
        (["--policy", "interval", "--switch-interval", "5ms", "-c", "0"], "nothing to try"),
    ],
)
def test_bad_words_are_refused(words: list[str], expected: str) -> None:
    done = run_main("tune", "run", *words)
    assert done.returncode == 2
    assert expected in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["-c", "raise SystemExit(3)"],
            "interval at 5 ms: the program ended with exit status 3; it wrote: nothing",
        ),
        (["--metric", "no: (.)", "-c", "print(1)"], "nothing on the program's stdout matches"),
        (["--metric", "(.*)", "-c", "print('x')"], "must match a number"),
    ],
)
def test_a_program_that_cannot_be_measured_ends_the_experiment(
    words: list[str], expected: str
) -> None:
    done = run_main("tune", "run", "--policy", "interval", *words)
    assert done.returncode == 1
    assert expected in done.stderr


# Notes the policy that a server's process runs under.
NOTES_POLICY = """
from pathlib import Path

from headway import gil

Path(f"seen-{gil.snapshot().to_dict()['policy']}").touch()
"""
WSGI = """
def app(environ, start_response):
    heavy = environ["PATH_INFO"] == "/heavy"
    body = str(sum(range(300_000 if heavy else 10))).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""
ASGI = """
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = str(sum(range(300_000 if scope["path"] == "/heavy" else 10))).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"""
GUNICORN = ["-m", "gunicorn", "app:app", "--threads", "4", "--bind", "127.0.0.1:PORT"]
UVICORN = ["-m", "uvicorn", "app:app", "--port", "PORT"]
UNDER_LOAD = Path(__file__).resolve().parents[2] / "examples" / "under_load.py"


@pytest.mark.slow("starts and loads a server some ten times")
@pytest.mark.parametrize(("app", "server"), [(WSGI, GUNICORN), (ASGI, UVICORN)])
def test_a_server_of_others_is_tuned(tmp_path: Path, app: str, server: list[str]) -> None:
    (tmp_path / "app.py").write_text(NOTES_POLICY + app)
    file = tmp_path / "result.json"
    words = ("--smaller", "--metric", "p99: ([0-9.]+) ms", "--policy", "priority", "--for", "15")
    load = (str(UNDER_LOAD), "--heavy", "/heavy", "--seconds", "0.5", "--", *server)
    done = subprocess.run(
        tune(*words, "--json", str(file), *load),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "seen-interval").exists()
    assert (tmp_path / "seen-priority").exists()
    blocks = json.loads(file.read_text())["blocks"]
    assert [block["cut"] for block in blocks if block["cut"]] == []
    assert all(block["figures"]["metric"] > 0 for block in blocks)
