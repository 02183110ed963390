"""`--policy` and `--no-kernel-hints`, for every verb that has them.

Which policies there are is known to the extension module alone. Where it cannot be imported, help
is shown without them, and nothing that could use one can run.
"""

from __future__ import annotations

from headway.errors import Unsupported
from headway.meter import engine
from headway.options import Policy, argument

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from headway.quick_arguments import QuickParser


def add_options(parser: argparse.ArgumentParser | QuickParser) -> None:
    """Adds both, as `arguments.policy` and `arguments.kernel_hints`."""
    parser.add_argument(
        "--policy",
        metavar="P",
        type=argument(Policy()),
        default="interval",
        help="the policy that chooses which thread gets the GIL next, and when: see below "
        "(default: interval)",
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
        policies = engine.policies()
    except Unsupported:
        return "policies: none here, because headway's extension module could not be imported\n"
    width = max(map(len, policies))
    lines = [f"  {name:{width}}  {purpose}" for name, purpose in policies.items()]
    return "\n".join(("policies:", *lines, ""))
