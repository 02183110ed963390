"""`headway detach`: ends what `headway attach --keep` has left on."""

from __future__ import annotations

import argparse

from headway.attach.target import PID
from headway.options import argument

DESCRIPTION = """\
Ends what `headway attach --keep` has left on in a process: its GIL is CPython's own again, or has
the policy of before. Does nothing else.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("pid", metavar="PID", type=argument(PID), help="the process")


def run(arguments: argparse.Namespace) -> int:
    from headway.attach import target
    from headway.attach.session import Session
    from headway.programs import signals

    found = target.find(arguments.pid)
    signals.watch()
    with Session(found) as session:
        (was_on,) = session.ask("detach")
    if was_on:
        print(f"headway detach: process {arguments.pid} is as it was before --keep")
    else:
        print(f"headway detach: headway attach has left nothing on in process {arguments.pid}")
    return 0
