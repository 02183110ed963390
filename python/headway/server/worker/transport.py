"""What lies between a socket and HTTP, as the native part takes it: TLS, and whom to believe."""

from __future__ import annotations

from collections.abc import Mapping

from headway import _native
from headway.errors import CommandError
from headway.server.settings import ProcessGroup


def read_tls(group: ProcessGroup) -> object | None:
    """The group's certificate and key. To be called while the process may still read them,
    before it becomes the group's user. Raises `CommandError`, a line that names the file."""
    if group.tls is None:
        return None
    try:
        return _native.server_read_tls(group.tls.certificate, group.tls.key)
    except ValueError as error:
        raise CommandError(f"process group {group.name!r}: {error}", exit_code=2) from None


def native_transport(group: ProcessGroup, tls: object | None) -> Mapping[str, object]:
    """For `_native.server_open`; `tls` is what `read_tls` returned."""
    return {
        "tls": tls,
        "proxy_protocol_from": group.proxy_protocol_from,
        "trusted_proxies": group.trusted_proxies,
        "trusted_proxy_headers": group.trusted_proxy_headers,
    }
