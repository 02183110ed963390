"""`headway telemetry`: the recorder, and the site that shows what it has."""

from __future__ import annotations

import argparse
import errno
import time
from contextlib import ExitStack

from headway.errors import CommandError
from headway.options import Bytes, ListenAddress, Octal, Seconds, SocketPath, argument
from headway.recorder.export import otlp
from headway.recorder.service import Service
from headway.recorder.settings import Settings, default_socket, default_store
from headway.recorder.shutdown import ending
from headway.recorder.site.access import read_token
from headway.recorder.store.recording import parse_moment, parse_recordings, take_away
from headway.recorder.store.store import DEFAULT_LIMIT_BYTES, MIN_LIMIT_BYTES
from headway.server.settings import DEFAULT_DASHBOARD

DESCRIPTION = """\
Receives the reports of processes, keeps their history in a SQLite database, and serves a dashboard,
a JSON API and /metrics for Prometheus. Processes of `headway serve` and `headway run` report to it
with --telemetry unix:PATH, an Apache with mod_wsgi with WSGITelemetryService unix:PATH. At its
start it prints this PATH.
"""

EXAMPLES = """\
examples:
  headway telemetry                          receive, store, and show on http://127.0.0.1:8888/
  headway telemetry --listen unix:/run/headway/telemetry.sock --socket-group www-data
  headway telemetry --no-store               keep the last minutes only, in memory
  headway telemetry --recording before=monday.sqlite
                                             compare with another store
  headway telemetry --export monday.sqlite --from -86400
                                             copy the last day into a file, and end
  headway telemetry --otlp http://collector.example:4318
                                             push what /metrics shows to OpenTelemetry
  headway telemetry --http 0.0.0.0:8888 --token-file token --tls-certificate c --tls-key k
                                             show the site to other hosts, such as to Prometheus

Each host has a recorder. Prometheus or an OpenTelemetry Collector joins the metrics of many hosts.
Times of --from and --to are seconds since 1970, negative seconds before now such as -3600, or local
dates such as 2026-11-22T04:00.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLES
    receiving = parser.add_argument_group("receiving")
    receiving.add_argument(
        "--listen",
        metavar="unix:PATH",
        type=argument(SocketPath()),
        help=f"the datagram socket that processes send to (default: unix:{default_socket()})",
    )
    receiving.add_argument(
        "--socket-mode",
        metavar="OCTAL",
        type=argument(Octal()),
        default=0o660,
        help="permissions of the socket; users who may write to it may report (default: 0660)",
    )
    receiving.add_argument(
        "--socket-group",
        metavar="NAME",
        help="the group of the socket (default: the recorder's own)",
    )
    keeping = parser.add_argument_group("keeping")
    keeping.add_argument(
        "--store", metavar="FILE", help=f"the database (default: {default_store()})"
    )
    keeping.add_argument("--no-store", action="store_true", help="store nothing")
    keeping.add_argument(
        "--store-limit",
        metavar="SIZE",
        type=argument(Bytes(MIN_LIMIT_BYTES)),
        default=DEFAULT_LIMIT_BYTES,
        help="maximum size of the database; the oldest data of the finest resolution is deleted "
        "first (default: 900M)",
    )
    keeping.add_argument(
        "--export", metavar="FILE", help="copy a part of the store to FILE, and end"
    )
    keeping.add_argument(
        "--from", dest="from_", metavar="TIME", help="with --export: the begin of the part"
    )
    keeping.add_argument(
        "--to", metavar="TIME", help="with --export: the end of the part (default: now)"
    )
    showing = parser.add_argument_group("showing")
    showing.add_argument(
        "--http",
        metavar="HOST:PORT | unix:PATH",
        type=argument(ListenAddress()),
        help=f"the address of the site (default: {DEFAULT_DASHBOARD}); an address that other "
        "machines reach needs --token-file",
    )
    showing.add_argument("--no-http", action="store_true", help="serve no site")
    showing.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="accept requests for this host name too, such as that of a proxy; may be given "
        "several times",
    )
    showing.add_argument(
        "--recording",
        metavar="NAME=FILE",
        action="append",
        default=[],
        help="another store, to compare with; it is only read; may be given several times",
    )
    pushing = parser.add_argument_group("pushing metrics (needs OpenTelemetry's SDK)")
    pushing.add_argument(
        "--otlp",
        metavar="URL",
        type=_otlp_url,
        help="push the metrics of /metrics to this URL by OTLP over HTTP, such as "
        "http://127.0.0.1:4318",
    )
    pushing.add_argument(
        "--otlp-interval",
        metavar="S",
        type=argument(Seconds(1, 3600)),
        help=f"seconds between two pushes, 1 to 3600 (default: {otlp.DEFAULT_INTERVAL_S:g})",
    )
    pushing.add_argument(
        "--otlp-header",
        metavar="NAME=VALUE",
        type=_otlp_header,
        action="append",
        default=[],
        help="a header for --otlp, such as a token; may be given several times; the environment "
        "variable OTEL_EXPORTER_OTLP_HEADERS hides it from other users of the machine",
    )
    remote = parser.add_argument_group("showing to other hosts")
    remote.add_argument(
        "--token-file",
        metavar="FILE",
        help="a file with the token, one word, that clients of the site have to send",
    )
    remote.add_argument(
        "--tls-certificate",
        metavar="FILE",
        help="serve the site by TLS to other machines, with this certificate (PEM)",
    )
    remote.add_argument("--tls-key", metavar="FILE", help="the certificate's private key (PEM)")


def run(arguments: argparse.Namespace) -> int:
    """Records until a signal ends it; returns the exit code."""
    for option in ("store", "export"):
        if getattr(arguments, option) == "":
            raise CommandError(f"--{option}: found ''; allowed: the path of a file", exit_code=2)
    if arguments.export:
        return _export(arguments)
    for option in ("from", "to"):
        if getattr(arguments, "from_" if option == "from" else option) is not None:
            raise CommandError(f"--{option}: allowed with --export only", exit_code=2)
    return record(read_settings(arguments))


def read_settings(arguments: argparse.Namespace) -> Settings:
    """Raises `CommandError` with exit code 2 for what does not go together."""
    if arguments.store and arguments.no_store:
        raise CommandError("--store and --no-store: only one of them is allowed", exit_code=2)
    if arguments.http and arguments.no_http:
        raise CommandError("--http and --no-http: only one of them is allowed", exit_code=2)
    if bool(arguments.tls_certificate) != bool(arguments.tls_key):
        raise CommandError("--tls-certificate and --tls-key: TLS needs both", exit_code=2)
    for option in ("otlp_interval", "otlp_header"):
        if getattr(arguments, option) and not arguments.otlp:
            raise CommandError(
                f"--{option.replace('_', '-')}: allowed with --otlp only", exit_code=2
            )
    http = None if arguments.no_http else arguments.http or DEFAULT_DASHBOARD
    if http is not None and not http.is_local and not arguments.token_file:
        raise CommandError(
            f"--http {http}: other hosts can reach this address, so --token-file FILE is required",
            exit_code=2,
        )
    return Settings(
        listen=arguments.listen or default_socket(),
        http=http,
        store=None if arguments.no_store else _store(arguments),
        socket_mode=arguments.socket_mode,
        socket_group=arguments.socket_group,
        store_limit_bytes=arguments.store_limit,
        recordings=parse_recordings(arguments.recording),
        token=read_token(arguments.token_file) if arguments.token_file else None,
        allow_hosts=tuple(name.lower() for name in arguments.allow_host),
        tls_certificate=arguments.tls_certificate,
        tls_key=arguments.tls_key,
        otlp=arguments.otlp,
        otlp_interval_s=arguments.otlp_interval or otlp.DEFAULT_INTERVAL_S,
        otlp_headers=dict(arguments.otlp_header),
    )


def _store(arguments: argparse.Namespace) -> str:
    if arguments.store:
        return str(arguments.store)
    store = default_store()
    if store.startswith("~"):
        raise CommandError(
            "--store: this user has no home directory, in which the history would be: give --store "
            "FILE (of headway serve: --dashboard-store FILE), or --no-store",
            exit_code=2,
        )
    return store


def record(settings: Settings) -> int:
    """Everything that the settings ask for, until a signal comes. Raises `CommandError`."""
    try:
        # From the beginning, so that whatever was received by then is committed.
        with ending() as wait, ExitStack() as stack:
            service = Service(settings, stack)
            service.start()
            if settings.http is None:
                wait()
            else:
                service.serve(settings.http, wait)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise CommandError(f"{error.strerror}: ulimit -n, or the machine, allows no more") from None
    return 0


def _export(arguments: argparse.Namespace) -> int:
    now = time.time()
    if arguments.from_ is None:
        raise CommandError("--export needs --from TIME", exit_code=2)
    start = parse_moment(arguments.from_, "--from", now)
    end = now if arguments.to is None else parse_moment(arguments.to, "--to", now)
    if start >= end:
        raise CommandError("--from must be before --to", exit_code=2)
    take_away(_store(arguments), arguments.export, start, end)
    return 0


def _otlp_url(text: str) -> str:
    try:
        return otlp.parse_url(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}; {error}") from None


def _otlp_header(text: str) -> tuple[str, str]:
    try:
        return otlp.parse_header(text)
    except ValueError as error:
        # The text of the option may be a secret.
        raise argparse.ArgumentTypeError(str(error)) from None
