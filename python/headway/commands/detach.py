"""`headway detach`: ends what `headway attach --keep` has left on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from headway.attach.target import PID
from headway.errors import CommandError, Error
from headway.options import argument

if TYPE_CHECKING:
    from headway.attach.target import Target

DESCRIPTION = """\
Ends what `headway attach --keep` has left on in a process: its GIL is CPython's own again, or has
the policy of before. Does nothing else.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("pid", metavar="PID", type=argument(PID), help="the process")
    parser.add_argument(
        "--tree", action="store_true", help="the process and all Python processes that it started"
    )


def run(arguments: argparse.Namespace) -> int:
    from headway.attach import rights, target
    from headway.attach.session import Session
    from headway.programs import signals

    found = [target.find(arguments.pid)]
    if arguments.tree:
        found += target.descendants(arguments.pid)
    signals.watch()
    reached = 0
    with ExitStack() as stack:
        sessions = []
        for each in found:
            try:
                sessions.append(stack.enter_context(Session(each)))
            except Error as error:
                _leave_out(each, error, found)
        rights.drop()
        for session in sessions:
            try:
                session.greet()
                (was_on,) = session.ask("detach")
            except Error as error:
                _leave_out(session.target, error, found)
                continue
            reached += 1
            pid = session.target.pid
            if was_on:
                print(f"headway detach: process {pid} is as it was before --keep")
            else:
                print(f"headway detach: headway attach has left nothing on in process {pid}")
    if not reached:
        raise CommandError("--tree: none of the processes could be reached", exit_code=2)
    return 0


def _leave_out(left_out: Target, error: Error, found: Sequence[Target]) -> None:
    """Tells it, unless it is the only process. Then it raises the error."""
    if not found[1:]:
        raise error
    print(f"headway detach: without process {left_out.pid}: {error}", file=sys.stderr)
