"""A program that `headway attach` looks into, as its user has it: without Headway, and with threads
of a kind that the argument names. It answers lines on stdin with what it sees of itself.

    convoy     a thread that sleeps for moments, beside one that computes
    alone      the main thread computes
    asleep     every thread is in a long call
    no-main    the main thread has ended, the others go on; nothing answers
    children   two forked children like `convoy`
    crowd      like `convoy`, with a thousand threads that wait
    forking    like `convoy`, and the main thread forks
    calls      like `convoy`, and a thread is in long calls without the GIL
    inner      like `convoy`, with the threads in an interpreter of its own
"""

import gc
import hashlib
import json
import os
import sys
import threading
import time
import warnings

woken = 0
ended = False


def light():
    global woken
    while not ended:
        time.sleep(0.0005)
        woken += 1


def compute():
    while not ended:
        sum(range(1000))


def start(*more):
    for work in (light, compute, *more):
        threading.Thread(target=work, name=work.__name__, daemon=True).start()


def seen():
    thread = threading.Thread
    return {
        "woken": woken,
        "headway": sorted(name for name in sys.modules if name.partition(".")[0] == "headway"),
        "path": sys.path,
        "switch_interval": sys.getswitchinterval(),
        "callbacks": len(gc.callbacks),
        "meta_path": len(sys.meta_path),
        "wrapped": [thread._set_native_id.__module__, thread.name.fset.__module__],
        "python_threads": threading.active_count(),
        "threads": len(os.listdir("/proc/self/task")),
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def answer():
    for line in sys.stdin:
        if line.strip() == "seen":
            print(json.dumps(seen()), flush=True)
        elif line.strip() == "snapshot":
            from headway import gil

            print(json.dumps(gil.snapshot().to_dict()), flush=True)


def call():
    while not ended:
        hashlib.pbkdf2_hmac("sha256", b"a password", b"salt", 200_000)


def fork():
    # Of a fork beside threads.
    warnings.simplefilter("ignore", DeprecationWarning)
    while not ended:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        time.sleep(0.01)


kind = sys.argv[1]
print("ready", flush=True)
if kind == "convoy":
    start()
    answer()
    ended = True
elif kind == "crowd":
    event = threading.Event()
    for _ in range(1000):
        threading.Thread(target=event.wait, daemon=True).start()
    start()
    answer()
    ended = True
elif kind == "forking":
    start()
    threading.Thread(target=answer, daemon=True).start()
    fork()
elif kind == "calls":
    start(call)
    answer()
    ended = True
elif kind == "inner":
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    inner = interpreters.create()
    work = """if True:
        import threading, time
        def compute():
            while True:
                sum(range(1000))
        threading.Thread(target=compute, daemon=False).start()
        while True:
            time.sleep(0.0005)
    """
    run = getattr(interpreters, "exec", None) or interpreters.run_string
    threading.Thread(target=run, args=(inner, work), name="inner", daemon=True).start()
    start()
    answer()
    ended = True
    os._exit(0)
elif kind == "alone":
    threading.Thread(target=answer, daemon=True).start()
    while True:
        sum(range(1000))
elif kind == "asleep":
    threading.Thread(target=answer, daemon=True).start()
    time.sleep(3600)
elif kind == "no-main":
    for work in (light, compute):
        threading.Thread(target=work, name=work.__name__).start()
elif kind == "children":
    children = []
    for _ in range(2):
        children.append(os.fork())
        if children[-1] == 0:
            start()
            time.sleep(3600)
    answer()
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
