"""`headway status`: asks a running server who is alive, and shows it."""

from __future__ import annotations

import argparse
import json
import socket
import sys
from typing import cast

from headway import json_shape
from headway.errors import CommandError, reason_of
from headway.options import SocketPath, refusal
from headway.report import columns
from headway.server.supervisor import status
from headway.server.supervisor.status_document import Status

TIMEOUT_S = 10.0
# More than fits into the server's buffer.
MAX_ANSWER_BYTES = 4 * status.SEND_BUFFER_BYTES

DESCRIPTION = """\
Shows the processes of a server that was started with --status-socket: the state of each, how often
processes ended, and the reason of the last end.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("address", metavar="unix:PATH", help="the server's --status-socket")
    parser.add_argument(
        "--json", action="store_true", help="print the JSON document instead of a table"
    )


def run(arguments: argparse.Namespace) -> int:
    document = _ask(arguments.address)
    if arguments.json:
        print(json.dumps(document, indent=2))
    else:
        lines = status.draw(document).split("\n")
        sys.stdout.write("\n".join(map(columns.printable, lines)))
    return 0


def _ask(address: str) -> Status:
    try:
        path = SocketPath().parse(address)
    except ValueError:
        raise CommandError(refusal(repr(address), SocketPath()), exit_code=2) from None
    pieces, size = [], 0
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(path)
            while (piece := connection.recv(65_536)) and size < MAX_ANSWER_BYTES:
                pieces.append(piece)
                size += len(piece)
    except OSError as error:
        reason = reason_of(error)
        raise CommandError(f"{address}: {reason}; is the server running?") from None
    try:
        document = json.loads(b"".join(pieces))
        problem = json_shape.find_problem(document, Status)
    except (ValueError, RecursionError):
        problem = "no JSON"
    if problem:
        raise CommandError(
            f"{address}: the answer is not that of a headway server: {problem}", exit_code=2
        )
    return cast(Status, document)
