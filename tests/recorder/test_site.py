"""The site: what it answers, to whom, and what no answer ever does."""

from __future__ import annotations

import csv
import http.client
import io
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import pytest
from recorded import Recorded
from ticks import message, send, tick

from headway.errors import CommandError
from headway.recorder.site import api
from headway.recorder.site.access import read_token
from headway.report import columns

HOSTILE = '</script><img src=x onerror="alert(1)">\x1b[2J=1+1|`'
SECONDS = 20
TOKEN = "0123456789abcdef-secret"
STARTED = 5


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(recorder: Recorded, target: str, method: str = "GET", **headers: str) -> Answer:
    parts = urlsplit(recorder.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    body = headers.pop("body", None)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, target, body, named)
    answer = connection.getresponse()
    found = {name.lower(): value for name, value in answer.getheaders()}
    read = Answer(answer.status, found, answer.read())
    connection.close()
    return read


def tell(recorder: Recorded, now: float) -> int:
    """Twenty seconds of two processes, one of which began in the middle."""
    datagrams = []
    for second in range(SECONDS):
        stamp = now - SECONDS + second + 1
        for pid, begins in ((100, 0), (200, 10)):
            if second >= begins:
                datagrams.append(
                    tick(
                        pid,
                        second + 2,
                        stamp,
                        process_started_stamp=now - SECONDS + begins,
                        process_group=HOSTILE if pid == 200 else "shop",
                        switch_interval=0.005 if pid == 100 else 0.002,
                        policy="priority" if pid == 100 else "deadline",
                        gil_mode="enabled",
                        gils=[
                            {
                                "gil_name": "main",
                                "gil_wall": 1.0,
                                "gil_held": 0.25,
                                "gil_idle": 0.75,
                                "gil_wait": [(0.005, 3)],
                            }
                        ],
                        endpoints=[{"endpoint_name": HOSTILE, "endpoint_requests": 10}],
                    )
                )
    datagrams.append(
        message(
            STARTED,
            100,
            1,
            now - SECONDS,
            hostname="alpha",
            process_group="shop",
            process_started_stamp=now - SECONDS,
        )
    )
    send(recorder.socket, *datagrams)
    return len(datagrams)


class Told(Recorded):
    """A recorder that has heard all of it; `now` is when that ended."""

    now: float


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    running = Told(tmp_path_factory.mktemp("site"))
    try:
        running.now = time.time()
        running.wait_until_received(tell(running, running.now))
        yield running
    finally:
        assert running.stop() == 0, running.stderr


def span(recorder: Told) -> str:
    now = recorder.now
    return f"from={now - SECONDS}&to={now + 0.5}"


def test_now_tells_of_all_groups_and_processes(recorder: Told) -> None:
    answer = ask(recorder, "/api/v1/now?window=30").json
    assert {each["group"] for each in answer["groups"]} == {"shop", columns.printable(HOSTILE)}
    assert [each["pid"] for each in answer["processes"]] == [200, 100]
    assert answer["total"]["summary"]["requests"] == 300
    assert answer["recorder"]["received"] == 31
    for each in (answer["total"], *answer["groups"], *answer["processes"]):
        assert each["verdict"]["title"]
        assert each["config"]["gil_mode"] == "enabled"


def test_rates_are_those_of_the_time_that_was_recorded(recorder: Told) -> None:
    now = recorder.now
    for before in (0, 60):
        found = ask(
            recorder, f"/api/v1/summary?from={now - SECONDS - before}&to={now + 0.5}&group=shop"
        ).json
        assert found["summary"]["requests"] == 200
        assert found["summary"]["rps"] == pytest.approx(10, rel=0.1)
        assert found["summary"]["processes"] == pytest.approx(1, rel=0.1)
        assert found["summary"]["cpu_per_process"] == pytest.approx(0.25, rel=0.1)


def test_a_series_adds_up(recorder: Told) -> None:
    answer = ask(recorder, f"/api/v1/series?{span(recorder)}&points=10").json
    found = [each["summary"]["requests"] for each in answer["points"] if each["summary"]]
    assert sum(found) == 300
    assert answer["switch_intervals"] == [0.002, 0.005]
    assert [each["event"] for each in answer["markers"]] == ["process_started"]
    assert all(
        after["time"] > before["time"]
        for before, after in zip(answer["points"], answer["points"][1:], strict=False)
    )


def test_a_recorder_that_is_younger_than_the_range_shows_its_own_life(recorder: Told) -> None:
    answer = ask(recorder, "/api/v1/series?from=-86400&points=288").json
    assert recorder.now - SECONDS - 1 <= answer["from"] <= recorder.now - SECONDS + 1
    assert answer["step"] == 1.0
    assert ask(recorder, "/api/v1/slots?from=-86400").json["times"][0] >= answer["from"] - 1


def test_a_point_has_the_setting_that_all_processes_have(recorder: Told) -> None:
    def settings(selection: str) -> set[str | None]:
        answer = ask(recorder, f"/api/v1/series?{span(recorder)}&points=10{selection}").json
        return {each["setting"] for each in answer["points"] if each["summary"]}

    assert settings("&pid=100") == {"5 ms, priority"}
    assert settings("&pid=200") == {"2 ms, deadline"}
    # While both ran, it is nobody's.
    assert settings("") == {"5 ms, priority", None}


def test_distributions_and_holders_are_of_the_selection(recorder: Told) -> None:
    waits = ask(recorder, f"/api/v1/distribution?metric=take_wait&{span(recorder)}&pid=200").json
    assert waits["histogram"]["count"] == 30
    assert waits["switch_intervals"] == [0.002]
    held = ask(recorder, f"/api/v1/holders?{span(recorder)}&group=shop").json
    assert held["gils"][0]["held"] == pytest.approx(5.0)
    assert held["gils"][0]["handoff"] == 0.0
    assert held["endpoints"][0]["name"] == HOSTILE
    assert held["endpoints"][0]["requests"] == 200
    assert (held["threads"], held["interpreters"], held["holds"]) == ([], [], [])


def test_slots_are_of_processes(recorder: Told) -> None:
    answer = ask(recorder, f"/api/v1/slots?{span(recorder)}&points=20").json
    by_pid = {each["pid"]: each["busy"] for each in answer["processes"]}
    assert set(by_pid) == {100, 200}
    assert all(len(busy) == len(answer["times"]) for busy in by_pid.values())
    assert [0.5, 0.25] in by_pid[100]
    assert None in by_pid[200]


def test_a_comparison_names_rows_and_sets_them_against_the_first(recorder: Told) -> None:
    now = recorder.now
    name = quote(HOSTILE, safe="")
    row = f"{now - SECONDS}~{now + 0.5}"
    rows = f"row={name}~{row}~group%3Dshop&row=~{row}~pid%3D200"
    first, second = ask(recorder, f"/api/v1/compare?{rows}").json["rows"]
    assert first["name"] == HOSTILE
    assert second["name"].startswith("1 x 2, 2 ms")
    assert (first["summary"]["requests"], second["summary"]["requests"]) == (200, 100)
    table = ask(recorder, f"/api/v1/compare.md?{rows}")
    assert table.headers["content-type"].startswith("text/markdown")
    lines = table.body.decode().splitlines()
    assert len(lines) == 4
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    assert "<img" not in lines[2].replace("\\<", "")
    listed = list(
        csv.DictReader(io.StringIO(ask(recorder, f"/api/v1/compare.csv?{rows}").body.decode()))
    )
    assert [float(each["rpm"]) for each in listed] == pytest.approx([600, 600], rel=0.1)
    formula = ask(recorder, f"/api/v1/compare.csv?row=%3D1%2B1~{row}~").body.decode()
    assert "\n'=1+1," in formula
    series = ask(recorder, f"/api/v1/series.csv?{span(recorder)}&points=5").body.decode()
    assert sum(int(each["requests"] or 0) for each in csv.DictReader(io.StringIO(series))) == 300


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("summary?from=x", 400, "from: found 'x'; allowed: seconds since 1970"),
        ("summary?from=-1&to=-5", 400, "the range must have a length"),
        ("summary?from=1", 400, "400 days at most"),
        ("summary?from=nan", 400, "from: found 'nan'"),
        ("series?points=0", 400, "points: found '0'; allowed: a number from 1 to 2000"),
        ("summary?pid=-1", 400, "pid: found '-1'; allowed: a process id"),
        ("distribution?metric=%1b[2J", 400, r"metric: found '\\x1b[2J'; allowed: response,"),
        ("compare?row=a~b", 400, "row: found 'a~b'; allowed: NAME~FROM~TO~QUERY"),
        ("compare?" + "row=a~-2~-1~&" * 51, 400, "found 51 of them; allowed: 50 at most"),
        ("now?" + "a=1&" * 1001, 400, "more than 1000 parameters"),
        ("summary?recording=no", 404, "there is no 'no'; there are: none was opened"),
        ("nothing", 404, "there is no /api/v1/nothing; there are: now, series"),
    ],
)
def test_a_bad_question_gets_one_line(recorder: Told, target: str, status: int, said: str) -> None:
    answer = ask(recorder, f"/api/v1/{target}")
    assert answer.status == status
    assert said in answer.json["error"]
    assert "\n" not in answer.json["error"]


def test_every_question_can_be_asked_of_an_empty_range(recorder: Told) -> None:
    for name in api.QUERIES:
        assert (
            ask(recorder, f"/api/v1/{name}?from=1000&to=2000&metric=hold&row=a~1000~2000~").status
            == 200
        )


def test_an_absurd_figure_leaves_the_others(tmp_path: Path) -> None:
    running = Recorded(tmp_path)
    try:
        now = time.time()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            for number in range(6):
                absurd = tick(
                    300,
                    number + 1,
                    now - 5 + number,
                    request_count=100,
                    cgroup_cpu_limit=5e-324,
                    cgroup_periods=10,
                    cgroup_throttled_periods=5,
                )
                sender.sendto(absurd, running.socket)
        running.wait_until_received(6)
        answer = ask(running, "/api/v1/now")
        assert answer.status == 200
        assert answer.json["total"]["summary"]["requests"] == 600
        assert b"Infinity" not in answer.body
    finally:
        assert running.stop() == 0, running.stderr


def test_every_answer_forbids_what_the_dashboard_does_not_need(recorder: Told) -> None:
    for target in ("/", "/api/v1/now", "/metrics", "/nothing", "/assets/none.js", "/../etc/passwd"):
        answer = ask(recorder, target)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        if target.startswith("/api"):
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "target", ["/assets/../site.py", "/assets/%2e%2e/site.py", "/site.py", "/assets/", "/assets/.x"]
)
def test_nothing_but_the_dashboards_files_is_served(recorder: Told, target: str) -> None:
    assert ask(recorder, target).status == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "127.0.0.1:1"}, 200),
        ({"Host": "localhost:8888"}, 200),
        ({"Host": "LOCALHOST"}, 200),
        ({"Host": "[::1]:8888"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "evil.example:8888"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 200),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
    ],
)
def test_only_this_machine_and_its_own_pages_may_ask(
    recorder: Told, headers: dict[str, str], status: int
) -> None:
    assert ask(recorder, "/api/v1/now", **headers).status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(recorder: Told, method: str) -> None:
    answer = ask(recorder, "/api/v1/now", method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_head_has_no_body(recorder: Told) -> None:
    answer = ask(recorder, "/api/v1/lifecycle", "HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


def test_beyond_this_machine_a_token_is_wanted(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    running = Recorded(tmp_path, "--http", "0.0.0.0:0", "--token-file", str(token))
    try:
        parts = urlsplit(running.url)
        running.url = f"http://127.0.0.1:{parts.port}"
        anywhere = {"Host": "recorder.example"}
        assert ask(running, "/api/v1/now", **anywhere).status == 401
        assert ask(running, "/metrics", **anywhere).status == 401
        assert ask(running, "/", **anywhere).headers["location"] == "login"
        wrong = ask(running, "/api/v1/now", Authorization="Bearer wrong", **anywhere)
        assert (wrong.status, wrong.headers["www-authenticate"]) == (401, "Bearer")
        right = ask(running, "/api/v1/now", Authorization=f"Bearer {TOKEN}", **anywhere)
        assert right.status == 200

        form = {"Content_Type": "application/x-www-form-urlencoded"}
        assert b"<form" in ask(running, "/login", **anywhere).body
        refused = ask(running, "/login", "POST", body="token=wrong", **form, **anywhere)
        assert (refused.status, "set-cookie" in refused.headers) == (401, False)
        flooded = ask(running, "/login", "POST", body="x=1&" * 20 + "token=1", **form, **anywhere)
        assert flooded.status == 400
        foreign = ask(
            running, "/login", "POST", body=f"token={TOKEN}", Origin="http://evil.example", **form
        )
        assert foreign.status == 403
        welcome = ask(
            running,
            "/login",
            "POST",
            body=f"token={TOKEN}",
            Origin="http://recorder.example",
            **form,
            **anywhere,
        )
        assert (welcome.status, welcome.headers["location"]) == (303, "./")
        cookie = welcome.headers["set-cookie"]
        assert "; HttpOnly; SameSite=Strict" in cookie
        assert TOKEN not in cookie
        shown = ask(running, "/api/v1/now", Cookie=cookie.split(";")[0], **anywhere)
        assert shown.status == 200
        forged = ask(running, "/api/v1/now", Cookie="headway-session=x", **anywhere)
        assert forged.status == 401
    finally:
        assert running.stop() == 0, running.stderr


def test_a_name_that_is_allowed_may_be_asked_for(tmp_path: Path) -> None:
    running = Recorded(tmp_path, "--allow-host", "Headway.Example")
    try:
        assert ask(running, "/api/v1/now", Host="headway.example:80").status == 200
        assert ask(running, "/api/v1/now", Host="other.example").status == 421
    finally:
        assert running.stop() == 0, running.stderr


@pytest.mark.parametrize("content", [b"", b"short", b"two words of some length", b"\xff" * 30])
def test_a_token_that_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(CommandError, match=r"one word of 16 ASCII characters") as caught:
        read_token(str(path))
    assert caught.value.exit_code == 2


def test_a_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("a-token-of-some-length\n")
    assert read_token(str(path)) == "a-token-of-some-length"
    with pytest.raises(CommandError, match="no such file"):
        read_token(str(tmp_path / "none"))
