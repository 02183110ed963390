"""The configuration that scripts/soak_server.py serves: two process groups with the same
application, and every limit that replaces processes. One listens on TCP and on a UNIX socket; the
other one is preloaded, and speaks TLS.

This module does not know processes.
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
from pathlib import Path

from soak_conversation import Address

HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
GROUPS = ("plain", "preloaded")
# Port 0 of a host is for one process group.
PLAIN_HOST, TLS_HOST = "127.0.0.1", "127.0.0.2"
LISTENING = re.compile(r"listening on https?://([\d.]+):(\d+)")


class Configuration:
    """A TOML file in `folder`, and the certificate beside it."""

    def __init__(self, folder: Path, processes: int, request_timeout_s: float) -> None:
        """`processes` of each group. Raises `OSError` or `CalledProcessError`."""
        self.path = folder / "serve.toml"
        self.content = folder / "content"
        self._processes = processes
        self._request_timeout_s = request_timeout_s
        self._socket = folder / "socket"
        self._certificate, self._key = folder / "localhost.pem", folder / "localhost.key"
        self._make_certificate()

    def _make_certificate(self) -> None:
        """By the command: Python's own library makes none."""
        kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
        subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
        files = ("-out", str(self._certificate), "-keyout", str(self._key))
        command = ["openssl", "req", "-x509", *kind, *subject, *files]
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    def write(self, maximum_requests: int, restart_interval_s: float) -> None:
        server: dict[str, object] = {
            "processes": self._processes,
            "threads": 4,
            "policy": "priority" if HAS_GIL else "interval",
            # The mode that the soak itself runs in.
            "free-threading": not HAS_GIL,
            "maximum-requests": maximum_requests,
            "maximum-requests-jitter": maximum_requests // 4,
            "restart-interval": restart_interval_s,
            "request-timeout": self._request_timeout_s,
            "interrupt-timeout": 3,
            "queue-timeout": 20,
            "deadlock-timeout": 60,
            "startup-timeout": 60,
            "graceful-timeout": 12,
            "shutdown-timeout": 5,
            "head-timeout": 3,
            "body-timeout": 5,
            "write-timeout": 3,
            "keep-alive-timeout": 10,
            "access-log": "json",
        }
        application: dict[str, object] = {
            "app": "soak_site:application",
            "app-dir": str(Path(__file__).resolve().parent),
        }
        plain: dict[str, object] = {"bind": [f"{PLAIN_HOST}:0", f"unix:{self._socket}"]}
        preloaded: dict[str, object] = {
            "preload": True,
            "bind": f"{TLS_HOST}:0",
            "tls-certificate": str(self._certificate),
            "tls-key": str(self._key),
        }
        lines = ["[server]", *_rows(server), f"environment = {{ SOAK_FILE = '{self.content}' }}"]
        for name, own in zip(GROUPS, (plain, preloaded), strict=True):
            lines += ["", f"[process-group.{name}]", *_rows(application | own)]
        self.path.write_text("\n".join([*lines, ""]))

    def addresses(self, said: str) -> list[Address]:
        """With the ports that the server says it has; none before it has said all."""
        ports = {host: int(port) for host, port in LISTENING.findall(said)}
        if len(ports) < 2 or "listening on unix:" not in said:
            return []
        context = ssl.create_default_context(cafile=str(self._certificate))
        return [
            Address((PLAIN_HOST, ports[PLAIN_HOST])),
            Address(str(self._socket)),
            Address((TLS_HOST, ports[TLS_HOST]), context),
        ]


def _rows(settings: dict[str, object]) -> list[str]:
    return [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
