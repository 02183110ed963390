"""`headway serve` beside other WSGI servers at "hello" in Flask and in Django, loaded by wrk.

As server_hello.py, with applications of the tests.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence

import sitting
from server_hello import add_shapes, measure_applications
from side_by_side import add_options

from headway.programs.processes import ProgramError

NAME = "server_frameworks"
FRAMEWORKS = ("flask", "django")
SHAPES = ("1x1", "1x4")


def measure(options: argparse.Namespace) -> sitting.Experiments:
    for framework in options.framework:
        if importlib.util.find_spec(framework) is None:
            raise ProgramError(
                f"{sys.executable} has no {framework}: install bench/requirements.txt "
                "(make bench does)",
                2,
            )
    return measure_applications(NAME, options.framework, options)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=5, seconds=4.0, quick_seconds=1.0, policies=())
    parser.add_argument(
        "--framework",
        nargs="+",
        choices=FRAMEWORKS,
        default=FRAMEWORKS,
        help="which (default: both)",
    )
    add_shapes(parser, SHAPES)
    add_options(parser)
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
