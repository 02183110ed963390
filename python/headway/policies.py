"""`--policy` and `--no-kernel-hints`, for every verb that has them.

Which policies there are is known to the extension module alone. Where it cannot be imported, help
is shown without them, and nothing that could use one can run.
"""

from __future__ import annotations

import argparse

from headway import gil
from headway.errors import Unsupported


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds both, as `arguments.policy` and `arguments.kernel_hints`."""
    parser.add_argument(
        "--policy",
        metavar="P",
        type=_policy,
        default="interval",
        help="who gets the GIL next, and when: see below (default: interval)",
    )
    parser.add_argument(
        "--no-kernel-hints",
        dest="kernel_hints",
        action="store_false",
        help="do not ask the kernel to run I/O-bound threads sooner when they wake up",
    )


def describe() -> str:
    """The policies, as a paragraph of help with a newline at its end."""
    try:
        policies = gil.policies()
    except Unsupported:
        return "policies: none here, because headway's extension module could not be imported\n"
    width = max(map(len, policies))
    lines = [f"  {name:{width}}  {purpose}" for name, purpose in policies.items()]
    return "\n".join(("policies:", *lines, ""))


def _policy(text: str) -> str:
    policies = gil.policies()
    if text not in policies:
        raise argparse.ArgumentTypeError(f"{text!r} is no policy; there are {', '.join(policies)}")
    return text
