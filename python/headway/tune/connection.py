"""The connection to a running server: its status socket, on which `headway tune` stays connected.

`headway.server.supervisor.tuning` is the other end.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypedDict, cast

from headway import json_shape
from headway.errors import CommandError, reason_of
from headway.options import SocketPath
from headway.server.supervisor.status import TUNE_NAME
from headway.tune.setting import Setting

TIMEOUT_S = 10.0
# Far more than the buckets of a distribution take.
MAX_LINE_BYTES = 1_048_576
# The server ends a lease that is not renewed for 4 s.
RENEWAL_S = 1.0
LISTENING = 0x10000  # __SO_ACCEPTCON in the flags of /proc/net/unix


class Opened(TypedDict):
    """The group that is tuned. `threads` and `interpreters` are those of each process; `own_gil`
    says that the interpreters have GILs of their own."""

    group: str
    policy: str
    switch_interval_s: float
    processes: int
    threads: int
    interpreters: int
    own_gil: bool


class Distribution(TypedDict):
    """Durations, as `headway.report.distributions` has them."""

    count: int
    sum_ns: int
    min_ns: int | None
    max_ns: int | None
    buckets: list[tuple[int, int]]


class Counts(TypedDict):
    """The answered requests of a block. Not whole if processes ended or began meanwhile."""

    errors: int
    cpu_ns: int
    response: Distribution
    is_whole: bool


class Connection:
    """A lease on a server. After `close` the server has the setting of before."""

    def __init__(self, address: str, group: str | None) -> None:
        """Raises CommandError."""
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(TIMEOUT_S)
        try:
            self._socket.bind(TUNE_NAME + f"{os.getpid()}-{secrets.token_hex(8)}".encode())
            self._socket.connect(SocketPath().parse(address))
        except OSError as error:
            self._socket.close()
            raise CommandError(f"{address}: {reason_of(error)}; is the server running?") from None
        self._lines = self._socket.makefile("rb")
        try:
            self.opened = cast(Opened, self._ask(Opened, command="open", group=group))
        except BaseException:
            self.close()
            raise

    @property
    def present(self) -> Setting:
        return Setting(self.opened["policy"], self.opened["switch_interval_s"])

    def check(self, settings: Iterable[Setting]) -> None:
        """Raises CommandError (exit code 2) if the server cannot try one of the settings."""
        present = self.present
        if self.opened["own_gil"] and any(each[:2] != present[:2] for each in settings):
            raise CommandError(
                f"process group {self.opened['group']} has interpreters with GILs of their own, "
                "and policies and switch intervals are tried on the GIL of a process only",
                exit_code=2,
            )

    def try_setting(self, setting: Setting) -> None:
        self._ask_for("try", setting)

    def apply(self, setting: Setting) -> None:
        """The setting stays when the connection is closed."""
        self._ask_for("apply", setting)

    def begin_block(self) -> None:
        self._ask(command="block", action="begin")

    def end_block(self) -> None:
        self._ask(command="block", action="end")

    def read_block(self, path: str | None) -> Counts:
        return cast(Counts, self._ask(Counts, command="block", action="read", path=path))

    def wait(self, seconds: float) -> None:
        """Keeps the lease meanwhile."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, RENEWAL_S))
            self._ask(command="renew")

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def _ask_for(self, command: str, setting: Setting) -> None:
        self._ask(
            command=command,
            policy=setting.policy,
            switch_interval_s=setting.switch_interval_s,
        )

    def _ask(self, shape: object = object, **message: object) -> object:
        """Raises CommandError for an error of the server, and if it has gone."""
        try:
            # A server that has closed the connection has given the reason before.
            with suppress(BrokenPipeError):
                self._socket.sendall(json.dumps(message).encode() + b"\n")
            line = self._lines.readline(MAX_LINE_BYTES)
        except OSError as error:
            raise CommandError(f"{self._address}: {reason_of(error)}") from None
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            raise CommandError(f"{self._address}: the server has ended the experiment") from None
        if isinstance(answer, dict) and "error" in answer:
            raise CommandError(f"{self._address}: {answer['error']}")
        if problem := json_shape.find_problem(answer, shape):
            raise CommandError(f"{self._address}: the answer is not that of a server: {problem}")
        return answer


def find_address(server: str) -> str:
    """The status socket that SERVER names: unix:PATH, or a server's pid file. Raises CommandError
    (exit code 2)."""
    try:
        SocketPath().parse(server)
    except ValueError:
        pass
    else:
        return server
    try:
        pid = int(Path(server).read_text())
    except OSError as error:
        raise CommandError(f"SERVER {server!r}: {reason_of(error)}", 2) from None
    except ValueError:
        allowed = f"{SocketPath.allowed}, or the file of --pid-file"
        raise CommandError(f"SERVER: found {server!r}; allowed: {allowed}", 2) from None
    for path in _listening(pid):
        address = f"unix:{path}"
        try:
            Connection(address, None).close()
        except CommandError as error:
            # A socket that serves HTTP answers something else.
            if "not that of a server" in str(error) or "has ended" in str(error):
                continue
        return address
    raise CommandError(f"SERVER {server!r}: the server (pid {pid}) has no --status-socket", 2)


def _listening(pid: int) -> list[str]:
    """The paths of UNIX sockets on which a process listens."""
    folder = Path(f"/proc/{pid}")
    try:
        descriptors = list((folder / "fd").iterdir())
        lines = (folder / "net" / "unix").read_text().splitlines()[1:]
    except OSError as error:
        raise CommandError(f"pid {pid}: {reason_of(error)}; is the server running?") from None
    targets = set()
    for each in descriptors:
        with suppress(FileNotFoundError):  # the process has closed it meanwhile
            targets.add(os.readlink(each))
    rows = [line.split(maxsplit=7) for line in lines]
    return [
        row[7]
        for row in rows
        if len(row) > 7 and int(row[3], 16) & LISTENING and f"socket:[{row[6]}]" in targets
    ]
