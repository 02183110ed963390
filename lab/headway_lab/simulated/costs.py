"""The processor time of the experiments' programs, measured with CPython 3.13 on one machine.

`Machine` has the costs of GILs and of the kernel's scheduling. These are the times for which a
thread runs its own code, on a core of its own. A calibration file has the values of another
machine. This module does not know experiments, or how anything was measured.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from headway_lab.simulated.scenario import Distribution


@dataclass(frozen=True)
class Costs:
    """Costs in nanoseconds, each for one execution."""

    # A byte through a TCP connection of the loopback device. send() includes the receiver's work in
    # the kernel, up to its wake-up, so recv() is little more than a copy.
    tcp_send_ns: Distribution = 5_270
    tcp_receive_ns: Distribution = 1_320
    # The Python code of an echo server's thread between recv() and send(), and between send() and
    # recv().
    echo_server_ns: Distribution = 40
    # The client's code between two requests.
    echo_client_ns: Distribution = 450
    # `n -= 1` and the check whether to go on.
    decrement_ns: float = 28
    # Sending a UDP packet to another process; receiving one that has arrived; the Python code that
    # handles it; and a signal to its sender.
    udp_send_ns: Distribution = 6_000
    udp_receive_ns: Distribution = 1_100
    ping_ns: Distribution = 1_000
    kill_ns: Distribution = 2_000
    # A call of each of ccbench's workloads, which are C code except the first; and the Python code
    # between two calls.
    pi_digits_ns: float = 163_000
    find_definitions_ns: float = 1_460_000
    bz2_ns: float = 244_000
    sha1_ns: float = 77_000
    zlib_ns: float = 67_000
    between_calls_ns: Distribution = 3_000
    # For a page: reading and parsing the request and writing the response, without the GIL; and the
    # Python code before the page's own work, and after it.
    http_ns: Distribution = 10_000
    http_python_ns: Distribution = 4_000
    # A client's work for one request, in Python and in the kernel.
    http_client_ns: Distribution = 60_000

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
