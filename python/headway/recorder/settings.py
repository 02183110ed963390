"""The settings of `headway telemetry` and the default locations of its files. Pure except for
reading the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from headway.address import Address
from headway.recorder.store.store import DEFAULT_LIMIT_BYTES

SOCKET_NAME = "headway-telemetry.sock"
STORE_NAME = "telemetry.sqlite"


@dataclass(frozen=True)
class Settings:
    """The settings. `None` stands for a part that is turned off."""

    listen: str | None
    http: Address | None
    store: str | None
    socket_mode: int = 0o660
    socket_group: str | None = None
    store_limit_bytes: int = DEFAULT_LIMIT_BYTES
    recordings: dict[str, str] = field(default_factory=dict)
    token: str | None = None
    # Additional host names under which the site may be requested, in lower case.
    allow_hosts: tuple[str, ...] = ()
    tls_certificate: str | None = None
    tls_key: str | None = None
    otlp: str | None = None
    otlp_interval_s: float = 15.0
    otlp_headers: dict[str, str] = field(default_factory=dict)


def default_socket() -> str:
    """The socket of the recorder for this user's processes, or for the whole machine if the user is
    root."""
    if os.geteuid() == 0:
        return f"/run/headway/{SOCKET_NAME}"
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/headway-{os.geteuid()}"
    return os.path.join(runtime, SOCKET_NAME)


def default_store() -> str:
    if os.geteuid() == 0:
        return f"/var/lib/headway/{STORE_NAME}"
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "headway", STORE_NAME)
