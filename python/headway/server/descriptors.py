"""The number of files that a worker may have open (RLIMIT_NOFILE). Each connection is one.

The soft limit is 1024 on most systems, because select() overwrites memory if it gets a higher
descriptor. Programs that need more descriptors raise the limit. Programs that the application
starts inherit it.
"""

from __future__ import annotations

import contextlib
import resource

# Descriptors that the server and the application need besides connections.
OTHERS = 256


def raise_limit(max_connections: int) -> None:
    """Raises the soft limit for this number of connections, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _least(max_connections + OTHERS, hard)
    if _least(soft, wanted) != wanted:
        # If this is forbidden, the server has fewer descriptors, and accepts fewer connections.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def within_reach() -> int:
    """How many connections the hard limit allows, at most."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 2**63 - 1 if hard == resource.RLIM_INFINITY else max(hard - OTHERS, 0)


def _least(one: int, other: int) -> int:
    limits = [each for each in (one, other) if each != resource.RLIM_INFINITY]
    return min(limits, default=resource.RLIM_INFINITY)
