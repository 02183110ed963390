"""Tells the settings that Headway has given to each place of a program: the main thread, a thread,
sub-interpreters, children and later images.

    places.py FILE

Each place appends one line of JSON to FILE. `run` in it is the pid of the program's main process.
"""

import ctypes
import json
import multiprocessing
import os
import platform
import struct
import subprocess
import sys
import threading
import time

SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}.get(platform.machine(), -1)


def tell(place, file):
    from headway import gil

    line = {
        "run": int(os.environ["PLACES_RUN"]),
        "place": place,
        "pid": os.getpid(),
        "policy": gil.snapshot().to_dict()["policy"] if gil.is_installed() else None,
        "switch_interval_s": sys.getswitchinterval(),
    }
    with open(file, "a") as lines:
        lines.write(json.dumps(line) + "\n")


def tell_hints(file):
    """Tells the shortest slice that the kernel gave to a thread that often waits for the GIL."""
    is_over = False

    def compute():
        while not is_over:
            sum(range(100))

    hog = threading.Thread(target=compute)
    hog.start()
    shortest_ns = slice_ns()
    for _ in range(100):
        time.sleep(0.001)
        shortest_ns = min(shortest_ns, slice_ns())
    is_over = True
    hog.join()
    with open(file, "a") as lines:
        lines.write(json.dumps({"pid": os.getpid(), "slice_ns": shortest_ns}) + "\n")


def slice_ns():
    attributes = ctypes.create_string_buffer(48)
    ctypes.CDLL(None).syscall(SCHED_GETATTR, 0, attributes, 48, 0)
    return struct.unpack_from("IIQiIQQQ", attributes)[5]


def start(place, file):
    subprocess.run([sys.executable, __file__, file, place], check=True)


def replace(place, file):
    os.execv(sys.executable, [sys.executable, __file__, file, place])


def fork(function, *arguments):
    child = os.fork()
    if child == 0:
        function(*arguments)
        os._exit(0)
    os.waitpid(child, 0)


def tell_in_sub_interpreter(file):
    """In one that shares the GIL."""
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters

        own = interpreters.create(isolated=False)
    else:
        own = interpreters.create("legacy")
    code = (
        f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); sys.argv = ['']\n"
        f"import places; places.tell('sub-interpreter', {file!r})"
    )
    interpreters.run_string(own, code)
    interpreters.destroy(own)


def main(file, place=""):
    if place:
        tell(place, file)
    if place == "child":
        fork(start, "child of a child's fork", file)
        replace("next image of a child", file)
    if place:
        return
    os.environ["PLACES_RUN"] = str(os.getpid())
    tell("main thread", file)
    thread = threading.Thread(target=tell, args=("thread", file))
    thread.start()
    thread.join()
    tell_in_sub_interpreter(file)
    fork(tell, "fork", file)
    start("child", file)
    for method in ("fork", "forkserver", "spawn"):
        process = multiprocessing.get_context(method).Process(
            target=tell, args=(f"multiprocessing's {method}", file)
        )
        process.start()
        process.join()
    replace("next image", file)


if __name__ == "__main__":
    if sys.argv[2:] == ["hints"]:
        tell_hints(sys.argv[1])
        subprocess.run([sys.executable, __file__, sys.argv[1], "hints of a child"], check=True)
    elif sys.argv[2:] == ["hints of a child"]:
        tell_hints(sys.argv[1])
    else:
        main(*sys.argv[1:])
