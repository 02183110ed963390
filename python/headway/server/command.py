"""`headway serve`: serves a WSGI application from one process with several threads."""

from __future__ import annotations

import argparse
import ipaddress
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from headway import _native, gil, policies
from headway.errors import CommandError, Unsupported
from headway.server import table
from headway.server.application import load_application
from headway.server.binding import Address, bind, parse_address
from headway.server.serving import LOG_FORMS, Server
from headway.server.settings import ProcessGroup, Tls
from headway.server.transport import native_transport

DESCRIPTION = """\
Serves a WSGI application (PEP 3333) over HTTP/1.1 from one process. Its threads share the work:
whichever takes up a request reads it, takes the GIL once, calls the application and writes the
response. SIGINT or SIGTERM ends it after the requests that clients have sent by then; then a table
on stderr shows, by path, response times and how long requests waited for the GIL, exactly.
"""

EXAMPLES = """\
examples:
  headway serve shop.wsgi:application
  headway serve shop:app --bind 0.0.0.0:8080 --threads 8 --access-log json
  headway serve shop:app --bind unix:/run/shop.sock --access-log common:/var/log/shop.log
  headway serve shop:app --policy priority  light pages need not wait for one that computes

what clients are allowed:
  75 s    without a request on a connection that is kept open
  30 s    for the head of a request
  60 s    for the first 64 KiB of its body, and from one piece of the rest to the next
  60 s    without taking anything of the response; then the connection is cut off. A streamed
          response keeps its thread meanwhile; a list or tuple is sent without one
"""

MAX_THREADS = 1000
# CPython keeps the switch interval in whole microseconds.
MIN_SECONDS = 1e-6
MAX_SWITCH_INTERVAL_S = 1000
MAX_GRACEFUL_TIMEOUT_S = 3600
PROXY_HEADERS = (
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = DESCRIPTION
    parser.epilog = f"{policies.describe()}\n{EXAMPLES}"
    parser.add_argument(
        "application",
        metavar="APP",
        help="module:callable; the attribute may be dotted. The current directory is on sys.path",
    )
    parser.add_argument(
        "--bind",
        metavar="HOST:PORT | unix:PATH",
        type=_argument(parse_address),
        default=Address("127.0.0.1", 8000),
        help="where to listen (127.0.0.1:8000); port 0 takes a free one and says which",
    )
    parser.add_argument(
        "--threads",
        metavar="N",
        type=_argument(_parse_threads),
        default=4,
        help=f"threads that run requests, 1 to {MAX_THREADS} (4)",
    )
    parser.add_argument(
        "--switch-interval",
        metavar="S",
        type=_argument(_parse_seconds_up_to(MAX_SWITCH_INTERVAL_S)),
        help="sys.setswitchinterval() in seconds (CPython's own: 0.005)",
    )
    policies.add_options(parser)
    parser.add_argument(
        "--access-log",
        metavar="FORM[:PATH]",
        type=_argument(_parse_access_log),
        default=("off", None),
        help="a line per request with its gil_wait_time: common, combined, json (every phase) or "
        "off (the default); to stdout, or appended to the file PATH",
    )
    parser.add_argument(
        "--tls-certificate",
        metavar="FILE",
        help="PEM file with the whole chain; with --tls-key, serve HTTPS",
    )
    parser.add_argument("--tls-key", metavar="FILE", help="PEM file with the private key")
    parser.add_argument(
        "--proxy-protocol-from",
        metavar="NETWORK,...",
        type=_argument(_parse_networks),
        default=(),
        help="peers that begin a connection with the PROXY protocol; unix: those of UNIX sockets",
    )
    parser.add_argument(
        "--trusted-proxies",
        metavar="NETWORK,...",
        type=_argument(_parse_networks),
        default=(),
        help="peers whose fields about a request's origin are believed",
    )
    parser.add_argument(
        "--trusted-proxy-headers",
        metavar="NAME,...",
        type=_argument(_parse_proxy_headers),
        default=ProcessGroup.trusted_proxy_headers,
        help="which of them they set: Forwarded, X-Forwarded-For, -Proto, -Host, -Port "
        "(X-Forwarded-For,X-Forwarded-Proto). Others than these no application gets to see",
    )
    parser.add_argument(
        "--app-dir",
        metavar="DIR",
        type=_argument(_parse_directory),
        default=None,
        help="look for APP here instead of in the current directory",
    )
    parser.add_argument(
        "--graceful-timeout",
        metavar="S",
        type=_argument(_parse_seconds_up_to(MAX_GRACEFUL_TIMEOUT_S)),
        default=15.0,
        help="how long requests may take after SIGINT or SIGTERM (15); a second signal "
        "ends at once",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serves until a signal comes; returns the exit code."""
    sys.path.insert(0, os.path.abspath(arguments.app_dir or ""))
    listener, address = bind(arguments.bind)
    try:
        log_form, log_path = arguments.access_log
        log_fd = -1 if log_form == "off" else _open_log(log_path)
        application = load_application(arguments.application)
        if arguments.switch_interval is not None:
            sys.setswitchinterval(arguments.switch_interval)
        _install_meter(arguments.policy, arguments.kernel_hints)
        server = Server(
            application,
            listener,
            address,
            threads=arguments.threads,
            log_form=log_form,
            log_fd=log_fd,
            transport=native_transport(
                ProcessGroup(
                    tls=_tls(arguments.tls_certificate, arguments.tls_key),
                    proxy_protocol_from=arguments.proxy_protocol_from,
                    trusted_proxies=arguments.trusted_proxies,
                    trusted_proxy_headers=arguments.trusted_proxy_headers,
                )
            ),
        )
        scheme = "https" if arguments.tls_key else "http"
        return _serve(server, scheme, arguments.graceful_timeout)
    finally:
        listener.close()
        if address.path is not None:
            os.unlink(address.path)


def _tls(certificate: str | None, key: str | None) -> Tls | None:
    """Raises `CommandError` for files that are missing or no good."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        given, missing = ("certificate", "key") if certificate else ("key", "certificate")
        raise CommandError(f"--tls-{given} needs --tls-{missing} beside it", exit_code=2)
    try:
        _native.server_check_tls(certificate, key)
    except ValueError as error:
        raise CommandError(f"--tls-certificate, --tls-key: {error}", exit_code=2) from None
    return Tls(certificate, key)


def _serve(server: Server, scheme: str, graceful_timeout_s: float) -> int:
    stop_signal = _StopSignal()
    server.start()
    where = server.address if server.address.path is not None else f"{scheme}://{server.address}"
    print(f"headway serve: listening on {where}", file=sys.stderr, flush=True)
    stop_signal.wait()
    server.stop()
    cut_off = server.join(graceful_timeout_s)
    report = gil.snapshot().to_dict() if gil.is_installed() else None
    sys.stderr.write("\n" + table.draw(server.requests(), report))
    if not cut_off:
        return 0
    threads = "1 thread was" if cut_off == 1 else f"{cut_off} threads were"
    print(
        f"headway serve: {threads} still in the application after {graceful_timeout_s:g} s "
        "(--graceful-timeout) and cut off",
        file=sys.stderr,
    )
    # A thread that hangs in the application would hang the end of the interpreter too, or be
    # killed in the middle of it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


class _StopSignal:
    """Waits for SIGINT or SIGTERM. From the first one on, the next has its default effect."""

    def __init__(self) -> None:
        # A pipe, since a handler may interrupt its own thread anywhere, a lock included.
        self._read_fd, self._write_fd = os.pipe()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def wait(self) -> None:
        os.read(self._read_fd, 1)

    def _note(self, *_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.write(self._write_fd, b"!")


def _install_meter(policy: str, kernel_hints: bool) -> None:
    """Serving goes on without the meter, but not without a policy that was asked for."""
    try:
        gil.install(policy, kernel_hints=kernel_hints)
    except Unsupported as reason:
        if policy != "interval":
            raise CommandError(f"--policy {policy}: {reason}") from None
        print(f"headway serve: GIL waits are not measured: {reason}", file=sys.stderr)


def _open_log(path: str | None) -> int:
    if path is None:
        return os.dup(1)
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandError(f"--access-log {path}: {reason}", exit_code=2) from None


def _argument(parse: Any) -> Any:
    """`parse` for argparse: a `ValueError` becomes the one line that the user sees."""

    def parse_argument(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None

    return parse_argument


def _parse_threads(text: str) -> int:
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_THREADS:
        return int(text)
    raise ValueError(f"it must be a whole number from 1 to {MAX_THREADS}")


def _parse_seconds_up_to(maximum: int) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if MIN_SECONDS <= seconds <= maximum:
            return seconds
        raise ValueError(f"it must be a number of seconds from {MIN_SECONDS:f} to {maximum}")

    return parse


def _parse_access_log(text: str) -> tuple[str, str | None]:
    form, colon, path = text.partition(":")
    if form not in LOG_FORMS or (colon and not path) or (colon and form == "off"):
        raise ValueError("it must be common, combined or json, perhaps with :PATH, or off")
    return form, path or None


def _parse_networks(text: str) -> tuple[str, ...]:
    networks = tuple(part.strip() for part in text.split(","))
    for network in networks:
        if network != "unix":
            ipaddress.ip_network(network)
    return networks


def _parse_proxy_headers(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if unknown := [name for name in names if name.lower() not in PROXY_HEADERS]:
        raise ValueError(f"{unknown[0]} is none of {', '.join(PROXY_HEADERS)}")
    return names


def _parse_directory(text: str) -> str:
    if not os.path.isdir(text):
        raise ValueError("it must be a directory")
    return text
