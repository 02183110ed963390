"""What lies between a socket and HTTP, as the native part takes it: TLS, and whom to believe.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.server.settings import ProcessGroup

# For `_native.server_open`: lists of strings.
Transport = Mapping[str, Sequence[str]]


def native_transport(group: ProcessGroup) -> Transport:
    return {
        "tls": [group.tls.certificate, group.tls.key] if group.tls else [],
        "proxy_protocol_from": list(group.proxy_protocol_from),
        "trusted_proxies": list(group.trusted_proxies),
        "trusted_proxy_headers": list(group.trusted_proxy_headers),
    }


PLAIN = native_transport(ProcessGroup())
