"""`headway top unix:PATH`: receives the reports of processes itself, and keeps them in memory only.

It uses the recorder's own parts, without store and site. The receiver's thread receives datagrams,
and the calling thread answers questions in the same way as the recorder's API.
"""

from __future__ import annotations

import time
from urllib.parse import urlencode

from headway.errors import CommandError
from headway.recorder.query.history import History
from headway.recorder.query.query import BadQuery, Query
from headway.recorder.receive.datagrams import DatagramReceiver
from headway.recorder.receive.receiver import Recorder
from headway.recorder.site.api import QUERIES
from headway.report import columns
from headway.top.source import Answer, NoAnswer, Parameters

# Write permission allows a process to report, as with `headway telemetry`.
SOCKET_MODE = 0o660
MAX_PATH_BYTES = 107
POLL_S = 0.05


class SocketSource:
    """A source that listens from its construction until `close`."""

    def __init__(self, path: str) -> None:
        """Raises CommandError with exit code 2 if the socket cannot be opened."""
        self.name = f"unix:{path}"
        if not path or "\0" in path or len(path.encode(errors="surrogateescape")) > MAX_PATH_BYTES:
            allowed = f"unix:PATH with 1 to {MAX_PATH_BYTES} bytes is allowed"
            raise CommandError(f"found {columns.name(self.name)!r}, where {allowed}", 2)
        try:
            datagrams = DatagramReceiver(path, SOCKET_MODE, None)
        except CommandError as error:
            # The same error as that of `headway telemetry --listen`, without the option's name.
            raise CommandError(str(error).removeprefix("--listen "), error.exit_code) from None
        self._recorder = Recorder(datagrams)
        recorder = self._recorder
        self._history = History(recorder.live, recorder.known, health=recorder.health)
        self._recorder.start()

    def ask(self, path: str, query: Parameters = ()) -> Answer:
        try:
            return QUERIES[path](self._history, Query(urlencode(query)))
        except BadQuery as error:
            raise NoAnswer(str(error)) from error

    def wait(self, seconds: float) -> None:
        """Waits until this time has passed since the first report. Raises NoAnswer if no report
        came within twice the time."""
        deadline_s = time.monotonic() + 2 * seconds
        while not any(sender.last_seen for sender in self._recorder.known()):
            if time.monotonic() > deadline_s:
                raise NoAnswer(f"no process reported to {self.name} within {2 * seconds:g} s")
            time.sleep(POLL_S)
        time.sleep(seconds)

    def close(self) -> None:
        self._recorder.stop()
