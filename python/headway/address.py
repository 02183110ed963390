"""Addresses to listen on: HOST:PORT, unix:PATH, or a descriptor passed by a service manager."""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple


class Address(NamedTuple):
    """An address to listen on: `path` for a Unix socket, `fd` for a socket that a service manager
    has opened, else `host` and `port` (0: any free port)."""

    host: str
    port: int
    path: str | None = None
    fd: int | None = None

    def __str__(self) -> str:
        if self.fd is not None:
            return f"fd://{self.fd}"
        if self.path is not None:
            return f"unix:{self.path}"
        return f"{self._host_in_urls}:{self.port}"

    @property
    def _host_in_urls(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def environ(self) -> dict[str, str]:
        """The variables of the WSGI environ that describe the address. A literal IPv6 address is in
        brackets, as in URLs (RFC 3875, 4.1.14)."""
        return {"SERVER_NAME": self._host_in_urls, "SERVER_PORT": str(self.port)}

    @property
    def is_any_port(self) -> bool:
        return self.port == 0 and self.fd is None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it: a UNIX socket, localhost, a loopback address."""
        if self.path is not None or self.host == "localhost":
            return self.fd is None
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            # A host name may resolve to any address.
            return False


def parse_address(text: str) -> Address:
    """Parses `HOST:PORT`, `[IPV6]:PORT`, `unix:PATH` or `fd://N`. Raises a `ValueError` whose text
    describes the allowed addresses."""
    if text.startswith("fd://"):
        number = text.removeprefix("fd://")
        if not number.isascii() or not number.isdecimal() or not 3 <= int(number) < 65536:
            raise ValueError("fd:// needs a descriptor that systemd passes, from fd://3 on")
        return Address("localhost", 0, fd=int(number))
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path or "\0" in path:
            raise ValueError("unix: needs a path, such as unix:/run/shop.sock")
        return Address("localhost", 80, path)
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    is_host = host.isprintable() and _can_be_looked_up(host) and not set("[]") & set(host)
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65535
    if not colon or not is_host or not is_port:
        raise ValueError("it must be HOST:PORT with a port from 0 to 65535, or unix:PATH")
    return Address(host, int(port))


def _can_be_looked_up(host: str) -> bool:
    try:
        # getaddrinfo encodes in the same way, and raises UnicodeError, not OSError, for an invalid
        # name such as a..b.
        return host.encode("idna") != b""
    except UnicodeError:
        return False
