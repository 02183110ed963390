"""Cases with known answers for the contention profile: `charged.py CASE` prints what
`headway.profile.table` has about them, as JSON."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType

from headway import gil
from headway.profile import table

BACKTRACKING = re.compile("(a+)+$")
NUMBERS = [(number * 7919) % 20_000_003 for number in range(2_000_000)]
BASE = 7**80_000


class Deadline:
    """Over after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def is_over(self) -> bool:
        return time.monotonic() >= self.end


def spin(seconds: float) -> int:
    end, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        count += 1
    return count


def thirty() -> None:
    end = time.perf_counter() + 0.03
    while time.perf_counter() < end:
        pass


def seventy() -> None:
    end = time.perf_counter() + 0.07
    while time.perf_counter() < end:
        pass


# How long the functions of `shares` took, in seconds. A busy machine lengthens the shorter more.
TAKEN_S = {"thirty": 0.0, "seventy": 0.0}


def shares(deadline: Deadline) -> None:
    while not deadline.is_over():
        for function in (thirty, seventy):
            began = time.perf_counter()
            function()
            TAKEN_S[function.__name__] += time.perf_counter() - began


def backtrack(deadline: Deadline) -> None:
    while not deadline.is_over():
        BACKTRACKING.match("a" * 22 + "b")


def sort(deadline: Deadline) -> None:
    while not deadline.is_over():
        sorted(NUMBERS)


def power(deadline: Deadline) -> None:
    while not deadline.is_over():
        BASE**12


def recurse(depth: int) -> None:
    if depth == 0:
        spin(0.01)
    else:
        recurse(depth - 1)


def recursion(deadline: Deadline) -> None:
    while not deadline.is_over():
        recurse(300)


def numbers() -> Iterator[int]:
    while True:
        spin(0.01)
        yield 1


def generator(deadline: Deadline) -> None:
    for _ in numbers():
        if deadline.is_over():
            return


def decorated(function: Callable[[], None]) -> Callable[[], None]:
    def wrapper() -> None:
        function()

    return wrapper


@decorated
def inside_a_decorator() -> None:
    end = time.perf_counter() + 0.01
    while time.perf_counter() < end:
        pass


def decorator(deadline: Deadline) -> None:
    while not deadline.is_over():
        inside_a_decorator()


def code_of_text(deadline: Deadline) -> None:
    names = {"is_over": deadline.is_over}
    exec(compile("while not is_over():\n    sum(range(100))\n", "<made up>", "exec"), names)


def code_that_is_freed(deadline: Deadline) -> None:
    """Each function is freed after its only call; another one soon has its address."""
    number = 0
    while not deadline.is_over():
        number += 1
        text = f"def made_{number}():\n    return sum(range(1_000))\nmade_{number}()\n"
        exec(compile(text, f"<made up {number}>", "exec"), {})


# The field of code objects with the name that a profile has.
NAME = "co_qualname" if sys.version_info >= (3, 11) else "co_name"
# How many functions `distinct_stacks` has made and called.
MADE = 0


def distinct_stacks(deadline: Deadline) -> None:
    """No two calls have the same stack, since each is of a function of its own."""
    global MADE
    sys.setswitchinterval(0.0005)
    code = (lambda: sum(range(200))).__code__
    while not deadline.is_over():
        for number in range(MADE, MADE + 1_000):
            FunctionType(code.replace(**{NAME: f"made_{number}"}), {})()
        MADE += 1_000


def anonymous(deadline: Deadline) -> None:
    compute = lambda: sum(range(20_000))  # noqa: E731 - a lambda is the subject
    while not deadline.is_over():
        compute()


SENDER, RECEIVER = socket.socketpair()


def parse() -> None:
    end = time.perf_counter() + 0.004
    while time.perf_counter() < end:
        pass


def reply() -> None:
    SENDER.send(b"x")


def parse_and_reply(deadline: Deadline) -> None:
    sys.setswitchinterval(0.02)
    SENDER.setblocking(False)
    RECEIVER.setblocking(False)
    while not deadline.is_over():
        parse()
        reply()
        RECEIVER.recv(8)


IS_WAITED_FOR = threading.Event()


def alone(deadline: Deadline) -> None:
    while not deadline.is_over():
        spin(0.02)


def beside(deadline: Deadline) -> None:
    while not deadline.is_over():
        spin(0.02)


def busy_alone(deadline: Deadline) -> None:
    """Half of the time beside a thread that waits, half without."""
    IS_WAITED_FOR.clear()
    time.sleep(0.05)
    alone(Deadline(0.7))
    IS_WAITED_FOR.set()
    beside(deadline)


def threads_that_end(deadline: Deadline) -> None:
    while not deadline.is_over():
        short = [threading.Thread(target=spin, args=(0.002,)) for _ in range(10)]
        for thread in short:
            thread.start()
        for thread in short:
            thread.join()


def hundred_threads(deadline: Deadline) -> None:
    many = [threading.Thread(target=beside, args=(deadline,)) for _ in range(100)]
    for thread in many:
        thread.start()
    for thread in many:
        thread.join()


CASES: dict[str, Callable[[Deadline], None]] = {
    case.__name__: case
    for case in (
        shares,
        backtrack,
        sort,
        power,
        recursion,
        generator,
        decorator,
        code_of_text,
        code_that_is_freed,
        distinct_stacks,
        anonymous,
        parse_and_reply,
        busy_alone,
        threads_that_end,
        hundred_threads,
    )
}


def wait_often(is_done: threading.Event) -> None:
    while not is_done.is_set():
        IS_WAITED_FOR.wait()
        time.sleep(0.0005)


def run(case: Callable[[Deadline], None], seconds: float) -> None:
    IS_WAITED_FOR.set()
    is_done = threading.Event()
    waiter = threading.Thread(target=wait_often, args=(is_done,), name="waiter")
    waiter.start()
    case(Deadline(seconds))
    is_done.set()
    IS_WAITED_FOR.set()
    waiter.join()


def resident_bytes() -> int:
    """The memory of this process that is not backed by files."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    kilobytes = re.findall(r"Rss(?:Anon|Shmem):\s+(\d+) kB", status)
    return 1024 * sum(map(int, kilobytes))


def main() -> None:
    case = CASES[sys.argv[1]]
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 1.5
    gil.install()
    bytes_before = resident_bytes()
    profiling = gil.profile()
    profiling.start()
    before = gil.snapshot()
    holder = threading.Thread(target=run, args=(case, seconds), name="holder")
    holder.start()
    holder.join()
    bytes_after = resident_bytes()
    after = gil.snapshot()
    profile = profiling.stop()
    threads = (after - before).to_dict()["threads"]
    print(
        json.dumps(
            {
                "table": table.tabulate(profile).to_dict(),
                "stacks": [
                    [[frame.function for frame in held.stack], held.end, held.waited_ns]
                    for held in profile.holders
                ],
                "waiters": {
                    waited.thread: waited.stack[-1].function
                    for waited in sorted(profile.waiters, key=lambda each: each.waited_ns)
                    if waited.stack
                },
                "taken_s": TAKEN_S,
                "made": MADE,
                "grown_bytes": bytes_after - bytes_before,
                "charged_waits_s": sum(each.waited_ns for each in profile.waiters) / 1e9,
                "report_waited_s": sum(thread["waited_s"] or 0 for thread in threads),
            }
        )
    )


if __name__ == "__main__":
    main()
