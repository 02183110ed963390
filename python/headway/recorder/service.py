"""The service `headway telemetry`: starts and ends socket, receiver, store, site and OTLP exporter
in the right order."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack

from headway.address import Address
from headway.errors import CommandError, reason_of
from headway.owned_folder import make_owned
from headway.recorder.export import otlp
from headway.recorder.query.history import History
from headway.recorder.receive.datagrams import DatagramReceiver
from headway.recorder.receive.receiver import Recorder
from headway.recorder.records.health import Health
from headway.recorder.settings import Settings, default_socket
from headway.recorder.store.reading import Reader
from headway.recorder.store.recording import open_recording
from headway.recorder.store.store import Store
from headway.server import stderr
from headway.server.settings import ProcessGroup, Tls

SITE_THREADS = 4
# Less than what a server waits for the recorder of its dashboard (`STOP_TIMEOUT_S`), which commits
# what it received last after its site has ended.
SITE_GRACEFUL_TIMEOUT_S = 5.0


class Service:
    """The recorder and its other parts; `stack` ends them in the right order."""

    def __init__(self, settings: Settings, stack: ExitStack) -> None:
        """Raises `CommandError`."""
        self._settings = settings
        self._stack = stack
        recordings = {
            name: open_recording(name, path) for name, path in settings.recordings.items()
        }
        exporter = None
        if settings.otlp is not None:
            exporter = otlp.make_exporter(settings.otlp, settings.otlp_headers)
        if settings.listen is not None and settings.listen == default_socket():
            make_socket_folder(os.path.dirname(settings.listen))
        if settings.store is not None:
            make_store_folder(os.path.dirname(settings.store))
        datagrams = None
        if settings.listen is not None:
            datagrams = DatagramReceiver(
                settings.listen, settings.socket_mode, settings.socket_group
            )
            stack.callback(datagrams.close)
        self._store = None
        if settings.store is not None:
            self._store = Store(settings.store, settings.store_limit_bytes, tell)
            stack.callback(self._store.close)
        self.recorder = Recorder(datagrams, self._store, tell=tell)
        store = self._store
        self.history = History(
            self.recorder.live,
            self.recorder.known,
            Reader(store.path) if store else None,
            recordings,
            self.health,
            (lambda: not store.error) if store else (lambda: True),
            totals=self.recorder.totals,
        )
        self._pusher = None
        if settings.otlp is not None and exporter is not None:
            interval_s = settings.otlp_interval_s
            self._pusher = otlp.Pusher(self.history, exporter, settings.otlp, interval_s, tell)

    def start(self) -> None:
        """Starts the recorder, then the exporter. They end in the reverse order."""
        self.recorder.start()
        self._stack.callback(self.recorder.stop)
        # Before the store's writer is closed: a reader cannot remove SQLite's log.
        self._stack.callback(self.history.close)
        if self._settings.listen is not None:
            tell(f"receiving at unix:{self._settings.listen}")
        if self._pusher is not None:
            self._pusher.start()
            self._stack.callback(self._pusher.stop)

    def health(self) -> Health:
        health = self.recorder.health()
        health["store"] = self._store.health() if self._store else None
        return health

    def serve(self, address: Address, wait: Callable[[], object]) -> None:
        """Serves the site until `wait` returns."""
        from headway.recorder.site.application import UNBUILT_TEXT, has_dashboard, make_site
        from headway.server.worker.program import serve_while

        settings = self._settings
        if not has_dashboard():
            tell(UNBUILT_TEXT)
        tls = None
        if settings.tls_certificate and settings.tls_key and not address.is_local:
            tls = Tls(settings.tls_certificate, settings.tls_key)
        group = ProcessGroup(
            binds=(address,),
            threads=SITE_THREADS,
            tls=tls,
            graceful_timeout_s=SITE_GRACEFUL_TIMEOUT_S,
        )
        site = make_site(self.history, settings)
        serve_while(wait, site, group, lambda where: tell(f"showing at {where}"), "--http")


# `stderr` counts lost texts without a lock, and several threads of the recorder write.
_telling = threading.Lock()


def tell(line: str) -> None:
    """Writes a line to the recorder's log, which is stderr. For any thread. Raises nothing: a line
    that cannot be written is lost."""
    with _telling:
        stderr.tell(f"headway telemetry: {line}\n")


def make_socket_folder(path: str) -> None:
    """Creates the folder of the default socket. In one of another user, that user could receive
    the reports instead. Raises `CommandError`."""
    try:
        problem = make_owned(path)
    except OSError as error:
        problem = reason_of(error)
    if problem:
        raise CommandError(f"--listen: {path}: {problem}", exit_code=2)


def make_store_folder(path: str) -> None:
    """Creates the folder `path`; "" stands for the current folder. Raises `CommandError`."""
    try:
        os.makedirs(path or os.curdir, mode=0o755, exist_ok=True)
    except OSError as error:
        raise CommandError(f"--store: {path}: {reason_of(error)}", exit_code=2) from None
