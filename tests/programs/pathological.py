"""Cases that are hard on a scheduler of the GIL, one at a time: pathological.py CASE

Each does a bounded amount of work, however long that takes, and prints what was done as JSON: how
much by whom, and who had to stand by how often. A *piece* of CPU-bound work takes some 0.1 ms.
"""

import hashlib
import json
import os
import queue
import socket
import statistics
import sys
import threading
import time
import traceback
import zlib

PIECE_S = 0.0001
# An I/O-bound thread's absence. It is longer by what the kernel allows itself: some 50 us.
NAP_S = 0.0002

# The threads that did a piece of work, or came back from I/O, in order.
done = []
stopping = False


def stop_at_exception(failure):
    traceback.print_exception(failure.exc_type, failure.exc_value, failure.exc_traceback)
    os._exit(1)


def loops_of_a_piece():
    loops, fastest = 1_000, 1.0
    for _ in range(50):
        began = time.perf_counter()
        for _ in range(loops):
            pass
        fastest = min(fastest, time.perf_counter() - began)
    return max(1, round(loops * PIECE_S / fastest))


LOOPS = loops_of_a_piece()


def compute(loops=LOOPS):
    for _ in range(loops):
        pass


# The work of threads, until `done` is long enough.


def hog(name):
    while not stopping:
        compute()
        done.append(name)


def sleeper(name):
    """I/O-bound: it wants the GIL for some microseconds."""
    while not stopping:
        time.sleep(NAP_S)
        done.append(name)


def worker(loops):
    """I/O-bound, but it wants the GIL for a part of a piece each time."""

    def work(name):
        while not stopping:
            time.sleep(NAP_S)
            compute(loops)
            done.append(name)

    return work


def spinner(name):
    """Not sleep(0): on 3.10 that is a select() that returns in 0.5 us, from 3.11 on it sleeps."""
    while not stopping:
        time.sleep(1e-9)
        done.append(name)


def turncoat(name):
    """I/O-bound for 20 naps, CPU-bound for 100 pieces, and again."""
    while not stopping:
        for _ in range(20):
            time.sleep(NAP_S)
            done.append(f"{name} napping")
        for _ in range(100):
            compute()
            done.append(name)


DATA = bytes(4_000)
null = os.open(os.devnull, os.O_WRONLY)
# Each drops the GIL for a few microseconds at most.
SHORT_DROPS = {
    "hashlib": lambda: hashlib.sha256(DATA[:2_100]).digest(),
    "zlib": lambda: zlib.crc32(DATA * 2),
    "write": lambda: os.write(null, b"x"),
    "sleep0": lambda: time.sleep(0),
}


def masquerader(drop, pieces):
    def work(name):
        while not stopping:
            for _ in range(pieces):
                compute()
                done.append(name)
            drop()

    return work


def caller_of(drop):
    """Calls of C code that drops the GIL, and hardly anything else."""

    def work(name):
        while not stopping:
            drop()
            done.append(name)

    return work


# Cases


def run(threads, until):
    """Runs threads, by name, until each has done as much as `until` has for it, and joins them."""
    global stopping
    started = [
        threading.Thread(target=work, args=(name,), name=name) for name, work in threads.items()
    ]
    for thread in started:
        thread.start()
    missing = dict(until)
    seen = 0
    while missing:
        time.sleep(0.01)
        upto = len(done)
        for name in done[seen:upto]:
            if name in missing:
                missing[name] -= 1
                if missing[name] <= 0:
                    del missing[name]
        seen = upto
    stopping = True
    for thread in started:
        thread.join()


def case_echo():
    """One I/O-bound thread answers a client in another process, beside a CPU-bound one."""
    here, there = socket.socketpair()
    client = os.fork()
    if client == 0:
        # It takes its time, so that the server has to wait, until the server's end is closed.
        there.close()
        try:
            while True:
                time.sleep(NAP_S)
                here.sendall(b"x")
                if not here.recv(1):
                    break
        except OSError:
            pass
        finally:
            os._exit(0)
    here.close()

    def echo(name):
        with there:
            while not stopping:
                there.sendall(there.recv(1))
                done.append(name)

    run({"io": echo, "hog": hog}, {"io": 200, "hog": 300})
    os.waitpid(client, 0)


def case_pinned():
    """The same, all of it on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    case_echo()


def case_many_io(loops=LOOPS // 10, hog_pieces=300):
    workers = {f"io-{index}": worker(loops) for index in range(64)}
    run({**workers, "hog": hog}, {**dict.fromkeys(workers, 100), "hog": hog_pieces})


def case_saturated():
    """The same, but the I/O-bound threads want several times all of the GIL."""
    case_many_io(LOOPS // 3, 500)


def case_herd():
    workers = {f"io-{index}": worker(LOOPS // 10) for index in range(32)}
    run(workers, dict.fromkeys(workers, 200))


def case_masquerade(kind):
    # A thread that is away for an eighth of its time is I/O-bound to `priority`. Each drop wakes a
    # waiter, a system call that takes microseconds more on a busy virtual machine, so that one
    # piece between two drops can be too few. sleep(0) is away for 50 us in any case.
    pieces = 1 if kind == "sleep0" else 3
    threads = {"honest": hog, "masquerader": masquerader(SHORT_DROPS[kind], pieces)}
    run(threads, {"honest": 2_000, "masquerader": 100})


def case_ping_pong():
    """A queue there, a queue back, and a hog beside them."""
    there, back = queue.Queue(), queue.Queue()

    def ping(name):
        while not stopping:
            there.put(name)
            back.get()
            done.append(name)
        there.put(None)

    def pong(name):
        while there.get() is not None:
            done.append(name)
            back.put(name)

    run({"ping": ping, "pong": pong, "hog": hog}, {"ping": 300, "hog": 300})


def case_turns_cpu_bound():
    threads = {"turncoat": turncoat, "honest": hog, "io": sleeper}
    run(threads, {"turncoat": 1_000, "honest": 500, "io": 100})


def case_spinners():
    threads = {"spinner-0": spinner, "spinner-1": spinner, "io": sleeper, "hog": hog}
    run(threads, {"hog": 300, "io": 100, "spinner-0": 100, "spinner-1": 100})


def case_more_than_cores():
    threads = {f"hog-{index}": hog for index in range(4 * (os.cpu_count() or 1))}
    run(threads, dict.fromkeys(threads, 500))


def case_tiny_calls():
    threads = {f"caller-{index}": caller_of(SHORT_DROPS["zlib"]) for index in range(8)}
    run(threads, dict.fromkeys(threads, 1_000))


def case_short_windows():
    """C code that drops the GIL for less than 0.1 ms, and about as much Python between."""

    def work(name):
        while not stopping:
            hashlib.sha256(DATA * 5).digest()
            compute(LOOPS // 3)
            done.append(name)

    threads = {f"caller-{index}": work for index in range(4)}
    run(threads, dict.fromkeys(threads, 2_000))


CASES = {
    **{name.removeprefix("case_"): case for name, case in globals().items() if "case_" in name},
    **{f"masquerade_{kind}": lambda kind=kind: case_masquerade(kind) for kind in SHORT_DROPS},
}
del CASES["masquerade"]


# The results


def stood_by(name):
    """Between two entries of `name`, how many there are of whoever else has most: the median, and
    what 95 of 100 do not exceed."""
    others, most = {}, []
    for who in done:
        if who == name:
            most.append(max(others.values(), default=0))
            others.clear()
        else:
            others[who] = others.get(who, 0) + 1
    most = sorted(most[1:]) or [0]
    return {"median": statistics.median(most), "p95": most[len(most) * 95 // 100]}


def main():
    threading.excepthook = stop_at_exception
    case = CASES.get(sys.argv[1] if sys.argv[1:] else "")
    if case is None:
        print(f"pathological.py: name one of the cases: {', '.join(CASES)}", file=sys.stderr)
        raise SystemExit(2)
    case()
    counts = {name: done.count(name) for name in dict.fromkeys(done)}
    print(json.dumps({"counts": counts, "stood_by": {name: stood_by(name) for name in counts}}))


if __name__ == "__main__":
    main()
