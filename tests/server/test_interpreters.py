"""Application groups at work: which interpreter runs what, when one is made, recycled and ended."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from launch import run_main
from served import APPS, TIMEOUT_S, Served
from supervised import Supervised

pytestmark = pytest.mark.free_threading

HAS_OWN_GILS = sys.version_info >= (3, 12)
HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
OWN_GIL = pytest.param(
    True,
    id="own GIL",
    marks=pytest.mark.skipif(not HAS_OWN_GILS, reason="own GILs came with CPython 3.12"),
)
SHARED_GIL = pytest.param(
    False,
    id="shared GIL",
    marks=pytest.mark.slow("with own GILs it is the same") if HAS_OWN_GILS else (),
)
own_or_shared = pytest.mark.parametrize("own_gil", [SHARED_GIL, OWN_GIL])
can_ask_others = pytest.mark.skipif(
    sys.version_info < (3, 13),
    reason="up to 3.12 nobody can ask a thread of another interpreter to drop a shared GIL",
)
needs_own_gils = pytest.mark.skipif(
    not (HAS_OWN_GILS and HAS_GIL), reason="own GILs are of builds with a GIL, from 3.12 on"
)


WAITS = "a request waits\n"


class Asked(NamedTuple):
    """Requests that were sent, and the answers as they come."""

    threads: list[threading.Thread]
    answers: list[dict[str, Any]]


class Tenants(Supervised):
    """tests/apps/tenant.py in application groups; a group is a dict of `ApplicationGroup` fields
    and its `path`."""

    def __init__(
        self,
        directory: Path,
        *groups: dict[str, Any],
        environment: Any = None,
        status_socket: str | None = None,
        **fields: Any,
    ) -> None:
        mounts, application_groups = [], []
        for group in groups:
            path = group.pop("path", "")
            application = group.pop("application", "tenant:app")
            mounts.append(
                {"path": path, "application": application, "application_group": group["name"]}
            )
            if group["name"] not in [each["name"] for each in application_groups]:
                application_groups.append({"python_path": []} | group)
        process_group = {"mounts": mounts, "application_groups": application_groups, "threads": 4}
        super().__init__(
            directory, process_group | fields, environment=environment, status_socket=status_socket
        )

    def ask(self, target: str) -> dict[str, Any]:
        response = self.get(target)
        assert response.status == 200, (response, self.stderr)
        facts: dict[str, Any] = json.loads(response.body)
        return facts

    def ask_at_once(self, target: str, count: int) -> list[dict[str, Any]]:
        return self._gather(self._begin(target, count))

    def ask_side_by_side(self, gate: Path, count: int) -> list[dict[str, Any]]:
        """All of them are in the application until the last of them is. `gate` is TENANT_FILE."""
        waiting = self.stderr.count(WAITS) + count
        asked = self._begin("/do/wait", count)
        self.wait_until(lambda: self.stderr.count(WAITS) == waiting)
        gate.touch()
        found = self._gather(asked)
        gate.unlink()
        return found

    def _begin(self, target: str, count: int) -> Asked:
        found: list[dict[str, Any]] = []
        threads = [
            threading.Thread(target=lambda: found.append(self.ask(target))) for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        return Asked(threads, found)

    def _gather(self, asked: Asked) -> list[dict[str, Any]]:
        for thread in asked.threads:
            thread.join()
        assert len(asked.answers) == len(asked.threads), self.stderr
        return asked.answers

    def wait_for_interpreter(self, target: str, after: int) -> dict[str, Any]:
        """Until a newer interpreter than that answers."""
        end = time.monotonic() + TIMEOUT_S
        while (facts := self.ask(target))["interpreter"] <= after:
            assert time.monotonic() < end, self.stderr
            time.sleep(0.01)
        return facts


@own_or_shared
def test_each_application_group_has_its_modules(tmp_path: Path, own_gil: bool) -> None:
    groups = (
        {"name": "", "path": "/main"},
        {"name": "shop", "own_gil": own_gil, "python_path": [str(tmp_path)]},
        {"name": "admin", "path": "/admin", "own_gil": own_gil},
        {"name": "admin", "path": "/admin/log"},
    )
    with Tenants(tmp_path, *groups) as server:
        shop, admin, log = (server.ask(each) for each in ("/a", "/admin/a", "/admin/log/a"))
        main = server.ask("/main/a")
        again = server.ask("/a%2Fb/%41")
        server.ask("/do/add_handler")
        assert [server.ask(each)["handlers"] for each in ("/", "/admin/")] == [1, 0]
    assert len({shop["interpreter"], admin["interpreter"], main["interpreter"]}) == 3
    assert main["interpreter"] == 0
    assert log["interpreter"] == admin["interpreter"]
    assert len({each["pid"] for each in (shop, admin, main)}) == 1
    assert [each["requests"] for each in (shop, admin, log, main, again)] == [1, 1, 2, 1, 2]
    assert shop["headway.application_group"] == "shop"
    assert shop["headway.process_group"] == "main"
    assert (log["SCRIPT_NAME"], log["PATH_INFO"]) == ("/admin/log", "/a")
    assert (again["SCRIPT_NAME"], again["PATH_INFO"]) == ("", "/a/b/A")
    assert shop["path"][:2] == [str(tmp_path), str(APPS)]
    assert admin["path"][0] == str(APPS)
    assert server.stderr.count("atexit of the tenant") == 3
    # The table at the end has a row for each interpreter and path.
    assert "\ninterpreter  path" in server.stderr
    for row in ("shop         /a ", "admin        /admin/a ", "%{GLOBAL}    /main/a "):
        assert row in server.stderr


def test_a_path_beyond_ascii_leads_to_its_application_group(tmp_path: Path) -> None:
    groups = ({"name": "shop"}, {"name": "café", "path": "/café"})
    with Tenants(tmp_path, *groups) as server:
        facts = server.ask("/caf%C3%A9/x")
    assert facts["headway.application_group"] == "café"
    assert facts["SCRIPT_NAME"] == "/café".encode().decode("latin-1")


@own_or_shared
def test_several_interpreters_share_one_application(tmp_path: Path, own_gil: bool) -> None:
    group = {"name": "shop", "interpreters": 2, "own_gil": own_gil}
    gate = tmp_path / "gate"
    with Tenants(tmp_path, group, threads=2, environment={"TENANT_FILE": str(gate)}) as server:
        answers = server.ask_side_by_side(gate, 2)
    assert len({each["interpreter"] for each in answers}) == 2
    assert {each["pid"] for each in answers} == {answers[0]["pid"]}
    # One thread each; but there is an equivalent application elsewhere.
    assert not answers[0]["wsgi.multithread"]
    assert answers[0]["wsgi.multiprocess"]
    assert "shop#1 " in server.stderr
    assert "shop#2 " in server.stderr


@own_or_shared
def test_the_main_interpreter_is_one_of_several(tmp_path: Path, own_gil: bool) -> None:
    group = {"name": "", "interpreters": 2, "own_gil": own_gil, "maximum_requests": 3}
    gate = tmp_path / "gate"
    environment = {"TENANT_FILE": str(gate)}
    with Tenants(tmp_path, group, threads=2, preload=True, environment=environment) as server:

        def other() -> int:
            """The interpreter that serves beside the main one."""
            answers = server.ask_side_by_side(gate, 2)
            assert not answers[0]["wsgi.multithread"]
            main, other = sorted(each["interpreter"] for each in answers)
            assert main == 0
            return other

        first = other()
        # It is recycled, and the main one is not.
        server.wait_until(lambda: other() > first > 0)
    assert "%{GLOBAL}#1 " in server.stderr
    assert "%{GLOBAL}#2 " in server.stderr


@needs_own_gils
def test_a_gil_is_called_after_its_application_group(tmp_path: Path) -> None:
    groups = (
        {"name": "shop", "interpreters": 2, "own_gil": True, "switch_interval_s": 0.02},
        {"name": "admin", "path": "/admin", "own_gil": True},
        {"name": "blog", "path": "/blog"},
    )
    with Tenants(tmp_path, *groups, switch_interval_s=0.001) as server:
        intervals = [server.ask(each)["switch_interval"] for each in ("/", "/admin", "/blog")]
    assert intervals == [0.02, 0.001, 0.001]
    for name in ("main", "shop#1", "shop#2", "admin"):
        assert f"({name}): held" in server.stderr, server.stderr
    assert "(blog)" not in server.stderr, "it shares the GIL of the main interpreter"


@pytest.mark.skipif(not HAS_GIL, reason="no GIL to take turns with")
@can_ask_others
def test_an_application_group_has_a_switch_interval_on_a_shared_gil(tmp_path: Path) -> None:
    """A hundred to one, and far enough from alike for a machine that is busy."""
    groups = (
        {"name": "patient", "switch_interval_s": 0.1},
        {"name": "hasty", "path": "/hasty", "switch_interval_s": 0.001},
    )
    gate = tmp_path / "gate"
    environment = {"TENANT_FILE": str(gate)}
    with Tenants(
        tmp_path, *groups, policy="priority", threads=2, environment=environment
    ) as server:
        found: dict[str, int] = {}

        def count(target: str) -> None:
            found[target] = server.ask(target)["rounds"]

        threads = [
            threading.Thread(target=count, args=(target,))
            for target in ("/do/count", "/hasty/do/count")
        ]
        for thread in threads:
            thread.start()
        server.wait_until(lambda: server.stderr.count(WAITS) == 2)
        gate.touch()
        for thread in threads:
            thread.join()
    assert found["/do/count"] > 2 * found["/hasty/do/count"] > 0


def test_an_interpreter_on_demand_is_made_by_its_first_request(tmp_path: Path) -> None:
    group = {"name": "shop", "on_demand": True}
    statement = {"TENANT_AT_IMPORT": "import os; os.write(2, b'imported\\n')"}
    with Tenants(tmp_path, group, environment=statement) as server:
        assert "imported" not in server.stderr
        answers = server.ask_at_once("/", 4)
        assert len({each["interpreter"] for each in answers}) == 1
    assert server.stderr.count("imported") == 1


def test_an_interpreter_on_demand_is_tried_again(tmp_path: Path) -> None:
    group = {"name": "shop", "on_demand": True, "application": "late:app"}
    module = tmp_path / "late.py"
    with Tenants(tmp_path, group, python_path=[str(tmp_path), str(APPS)]) as server:
        module.write_text("1 / 0\n")
        answer = server.get("/")
        assert (answer.status, answer.body) == (500, b"The application could not be loaded.\n")
        server.wait_for(r"ZeroDivisionError(.*\n)+.*application group shop: APP is 'late:app'")
        module.write_text("from tenant import app\n")
        # The source has the size and time of a moment ago no more.
        os.utime(module, (1, 1))
        assert server.ask("/")["requests"] == 1


@own_or_shared
def test_an_interpreter_is_recycled_and_the_process_is_not(tmp_path: Path, own_gil: bool) -> None:
    group = {"name": "shop", "own_gil": own_gil, "maximum_requests": 5}
    with Tenants(tmp_path, group) as server:
        first = server.ask("/")
        for _ in range(4):
            server.ask("/")
        second = server.wait_for_interpreter("/", first["interpreter"])
        assert second["pid"] == first["pid"]
        assert second["requests"] == 1
        server.wait_for("atexit of the tenant")
        for _ in range(4):
            server.ask("/")
        server.wait_for_interpreter("/", second["interpreter"])


@own_or_shared
def test_a_request_ends_in_the_interpreter_where_it_began(tmp_path: Path, own_gil: bool) -> None:
    group = {"name": "shop", "own_gil": own_gil, "maximum_requests": 3}
    gate = tmp_path / "gate"
    with Tenants(tmp_path, group, environment={"TENANT_FILE": str(gate)}) as server:
        first = server.ask("/")
        slow: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: slow.append(server.ask("/do/wait")))
        thread.start()
        server.wait_until(lambda: server.ask("/")["requests"] >= 2)
        server.wait_for_interpreter("/", first["interpreter"])
        assert not slow
        assert "atexit" not in server.stderr
        gate.touch()
        thread.join()
        server.wait_for("atexit")
    assert slow[0]["interpreter"] == first["interpreter"]


def test_a_thread_that_never_ends_keeps_its_interpreter(tmp_path: Path) -> None:
    group = {"name": "shop", "maximum_requests": 1}
    with Tenants(tmp_path, group) as server:
        first = server.ask("/do/start_daemon")
        server.wait_for_interpreter("/", first["interpreter"])
        server.wait_for("application group shop: 1 of its threads did not end, so its interpreter")
    assert "\npath " in server.stderr, "the table comes all the same"


@pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 2), reason="3.12.1 never ends such an interpreter"
)
@own_or_shared
def test_threads_of_the_application_are_waited_for(tmp_path: Path, own_gil: bool) -> None:
    group = {"name": "shop", "own_gil": own_gil}
    with Tenants(tmp_path, group) as server:
        server.ask("/do/start_thread")
    assert "the tenant's thread ends\natexit of the tenant\n" in server.stderr


def test_an_application_that_fails_is_told_before_it_serves(tmp_path: Path) -> None:
    command = ["tenant:app", "--application-group", "shop"]
    server = refused(*command, TENANT_AT_IMPORT="raise ValueError('no database')")
    assert "ValueError: no database" in server
    assert server.endswith("APP is 'tenant:app': importing tenant failed (see above)\n"), server
    missing = refused("tenant:nothing", "--application-group", "shop", status=2)
    assert "APP is 'tenant:nothing': tenant has no attribute 'nothing'" in missing


@needs_own_gils
def test_a_module_that_refuses_is_named_with_the_way_out() -> None:
    command = ["tenant:app", "--per-interpreter-gil"]
    said = refused(*command, TENANT_AT_IMPORT="import faulthandler").splitlines()[-1]
    assert "the extension module faulthandler refuses an interpreter with a GIL of its own" in said
    assert "--application-group %{GLOBAL}" in said
    assert "headway audit" in said


def refused(app: str, *options: str, status: int = 1, **environment: str) -> str:
    """The messages of a `headway serve` that fails to start."""
    words = ["-m", "headway", "serve", app, "--app-dir", str(APPS), "--bind", "127.0.0.1:0"]
    done = subprocess.run(
        [sys.executable, *words, *options],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == status, done.stderr
    assert "listening on" not in done.stderr
    return done.stderr


@own_or_shared
def test_a_request_is_interrupted_in_its_interpreter(tmp_path: Path, own_gil: bool) -> None:
    groups = ({"name": "", "path": "/main"}, {"name": "shop", "own_gil": own_gil})
    limits = {"request_timeout_s": 0.3, "interrupt_timeout_s": 10.0, "threads": 1}
    with Tenants(tmp_path, *groups, **limits) as server:
        assert server.get("/do/compute").status == 504
        server.wait_for("GET /do/compute has run for")
        server.wait_for("headway.errors.RequestTimeout")
        assert server.get("/main/do/compute").status == 504
        # The thread's next requests are not interrupted.
        assert [server.ask(each)["requests"] for each in ("/", "/main/")] == [2, 2]
        assert "tenant.py:" in server.stderr, "the stack is of the interpreter"


def test_the_applications_errors_are_told(tmp_path: Path) -> None:
    with Tenants(tmp_path, {"name": "shop"}) as server:
        assert server.get("/do/fail").status == 500
        server.wait_for("in GET /do/fail\n(.*\n)+ZeroDivisionError")
        assert server.ask("/")["requests"] == 2


@pytest.mark.parametrize("name", ["", "shop"])
def test_what_is_restricted(tmp_path: Path, name: str) -> None:
    group = {"name": name, "restrict_stdin": True, "restrict_stdout": True, "restrict_signal": True}
    statement = "import signal; signal.signal(signal.SIGUSR2, print)" if not name else ""
    environment = {"TENANT_AT_IMPORT": statement}
    with Tenants(tmp_path, group, environment=environment) as server:
        assert server.get("/do/read_stdin").status == server.get("/do/print").status == 500
        server.wait_for(r"OSError: sys\.stdin is restricted")
        server.wait_for(r"OSError: sys\.stdout is restricted")
        assert ("handler for signal 12 was ignored" in server.stderr) == (not name)


def test_what_is_not_restricted(tmp_path: Path) -> None:
    with Tenants(tmp_path, {"name": "shop"}) as server:
        assert server.get("/do/print").status == 200
    assert "printed by the tenant\n" in server.stdout


@needs_own_gils
@pytest.mark.slow("load for some seconds")
def test_interpreters_come_and_go_under_load(tmp_path: Path) -> None:
    """Every answer is whole, and no interpreter is left: each ran its atexit handlers."""
    group = {"name": "shop", "interpreters": 2, "own_gil": True, "maximum_requests": 10}
    with Tenants(tmp_path, group) as server:
        seen: Counter[int] = Counter()
        while len(seen) < 30:
            seen.update(each["interpreter"] for each in server.ask_at_once("/", 8))
    assert server.stderr.count("atexit of the tenant") >= 30
    assert re.search(r"\n\d+ ended GILs \(shop#1\): held ", server.stderr)
    assert "did not end" not in server.stderr
    assert "Exception ignored" not in server.stderr


def test_status_tells_what_became_of_the_interpreters(tmp_path: Path) -> None:
    groups = (
        {"name": "shop", "maximum_requests": 2},
        {"name": "admin", "path": "/admin", "on_demand": True},
        {"name": "", "path": "/main"},
    )
    path = str(tmp_path / "status")
    with Tenants(tmp_path, *groups, status_socket=path) as server:
        first = server.ask("/")["interpreter"]
        server.ask("/")
        server.wait_for_interpreter("/", first)
        done = run_main("status", f"unix:{path}")
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert re.search(r"\n    interpreter shop: \d+ requests, recycled 1 time\n", said), said
    assert "\n    interpreter admin: 0 requests, not made yet\n" in said
    assert "\n    interpreter %{GLOBAL}: 0 requests\n" in said


def test_flags_make_application_groups() -> None:
    command = ["tenant:app", "--application-group", "shop", "--mount", "/more=tenant:app"]
    with Served(*command, "--interpreters-on-demand") as server:
        one, two = (json.loads(server.get(each).body) for each in ("/", "/more/"))
    assert one["interpreter"] == two["interpreter"] != 0
    assert two["headway.application_group"] == "shop"
