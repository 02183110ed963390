"""`headway serve`: its command line, as settings for the supervisor."""

from __future__ import annotations

import argparse
import ipaddress
import os
from collections.abc import Callable
from typing import Any

from headway import policies
from headway.server.binding import Address, parse_address
from headway.server.serving import LOG_FORMS
from headway.server.settings import Mount, ProcessGroup, ServerSettings
from headway.server.supervisor import supervise

DESCRIPTION = """\
Serves a WSGI application (PEP 3333) over HTTP/1.1. The threads of a process share the work:
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
MAX_PROCESSES = 1000
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
        "--processes",
        metavar="N",
        type=_argument(_parse_count_up_to(MAX_PROCESSES)),
        default=1,
        help=f"worker processes, each with its own threads and GIL, 1 to {MAX_PROCESSES} (1)",
    )
    parser.add_argument(
        "--threads",
        metavar="N",
        type=_argument(_parse_count_up_to(MAX_THREADS)),
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
    log_form, log_path = arguments.access_log
    group = ProcessGroup(
        mounts=(Mount("", arguments.application),),
        binds=(arguments.bind,),
        processes=arguments.processes,
        threads=arguments.threads,
        policy=arguments.policy,
        kernel_hints=arguments.kernel_hints,
        switch_interval_s=arguments.switch_interval,
        python_path=(os.path.abspath(arguments.app_dir or ""),),
        graceful_timeout_s=arguments.graceful_timeout,
        access_log=log_form,
        access_log_path=log_path,
    )
    settings = ServerSettings((group,))
    return supervise(settings, lambda: settings)


def _argument(parse: Any) -> Any:
    """`parse` for argparse: a `ValueError` becomes the one line that the user sees."""

    def parse_argument(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None

    return parse_argument


def _parse_count_up_to(maximum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if text.isascii() and text.isdecimal() and 1 <= int(text) <= maximum:
            return int(text)
        raise ValueError(f"it must be a whole number from 1 to {maximum}")

    return parse


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
