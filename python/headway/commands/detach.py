"""`headway detach`: ends what `headway attach --keep` has left on."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from headway.attach.target import PID
from headway.errors import Error
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
    """Returns 1 if a process of the tree could not be reached."""
    from headway.attach import target
    from headway.programs import signals

    if not arguments.tree:
        found = target.find(arguments.pid)
        signals.watch()
        _detach(found)
        return 0
    every, refusals = target.find_tree(arguments.pid)
    signals.watch()
    problems: dict[int, Error] = {**refusals}
    for each in every:
        try:
            _detach(each)
        except Error as error:
            problems[each.pid] = error
    for pid, problem in problems.items():
        print(f"headway detach: without process {pid}: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _detach(found: Target) -> None:
    from headway.attach.session import Session

    with Session(found) as session:
        (was_on,) = session.ask("detach")
    if was_on:
        print(f"headway detach: process {found.pid} is as it was before --keep")
    else:
        print(f"headway detach: headway attach has left nothing on in process {found.pid}")
