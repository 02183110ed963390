"""`headway detach`: ends what `headway attach --keep` has left on."""

from __future__ import annotations

import argparse

from headway.options import Whole, argument

DESCRIPTION = """\
Ends measuring and scheduling in a process in which `headway attach --keep` has left a policy on:
its GIL is CPython's own again. Does nothing where none is on.
"""
PID = Whole(1, (1 << 22) - 1)


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
    said = "is CPython's again" if was_on else "was CPython's already"
    print(f"headway detach: the GIL of process {arguments.pid} {said}")
    return 0
