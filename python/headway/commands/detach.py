"""`headway detach`: ends what `headway attach --keep` has left on."""

from __future__ import annotations

import argparse
import sys
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
    from headway.attach import target
    from headway.programs import signals

    found = [target.find(arguments.pid)]
    if arguments.tree:
        found += target.descendants(arguments.pid)
    signals.watch()
    reached = 0
    for each in found:
        try:
            _detach(each)
            reached += 1
        except Error as error:
            if not found[1:]:
                raise
            print(f"headway detach: without process {each.pid}: {error}", file=sys.stderr)
    if not reached:
        raise CommandError("--tree: none of the processes could be reached", exit_code=2)
    return 0


def _detach(found: Target) -> None:
    from headway.attach.session import Session

    with Session(found) as session:
        (was_on,) = session.ask("detach")
    if was_on:
        print(f"headway detach: process {found.pid} is as it was before --keep")
    else:
        print(f"headway detach: headway attach has left nothing on in process {found.pid}")
