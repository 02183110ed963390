"""The layer between a socket and HTTP, in the form that the native part takes: TLS, trusted
proxies, and the handing over of connections."""

from __future__ import annotations

from collections.abc import Mapping

from headway import _native
from headway.errors import CommandError
from headway.server.settings import ProcessGroup


def read_tls(group: ProcessGroup) -> object | None:
    """Reads the group's certificate and key. Call it while the process may still read them, before
    it becomes the group's user. Raises `CommandError` with a line that names the file."""
    if group.tls is None:
        return None
    try:
        return _native.server_read_tls(group.tls.certificate, group.tls.key)
    except ValueError as error:
        raise CommandError(f"process group {group.name!r}: {error}", exit_code=2) from None


def native_transport(group: ProcessGroup, tls: object | None) -> Mapping[str, object]:
    """The options of `_native.server_open` for this layer; `tls` is the result of `read_tls`."""
    return {
        "tls": tls,
        "proxy_protocol_from": group.proxy_protocol_from,
        "trusted_proxies": group.trusted_proxies,
        "trusted_proxy_headers": group.trusted_proxy_headers,
    }


def native_handover(group: ProcessGroup, handover: tuple[int, int] | None) -> Mapping[str, object]:
    """The options of `_native.server_open` for the handing over of connections, with the
    descriptors of the queues that connections come from and go to."""
    receive_fd, send_fd = handover or (-1, -1)
    return {
        "background_paths": group.background if handover else (),
        "is_background": group.is_background,
        "handed_over_fd": receive_fd,
        "hand_over_fd": send_fd,
    }
