"""Pages that report on their process, and harm it as applications should not.

Imports only what a worker has imported by then: a process that has become another user may not be
able to read the standard library, where Python lies in somebody's home.
"""

import os
import resource
import signal
import sys
import threading
import time

# Each import leaves a line, where a test asks for it.
if "IMPORTED" in os.environ:
    with open(os.environ["IMPORTED"], "a") as imported:
        imported.write(f"{os.getpid()}\n")

if os.path.exists(os.environ.get("FAIL_WHILE_EXISTS", "")):
    raise RuntimeError("told not to start")

if os.path.exists(os.environ.get("SLEEP_WHILE_EXISTS", "")):
    time.sleep(600)

PRELOADED = os.getpid()


def command_name():
    with open("/proc/self/comm") as file:
        return file.read().strip()


def pid(environ):
    return os.getpid()


def preloaded(environ):
    return PRELOADED


def slow(environ):
    time.sleep(float(environ["QUERY_STRING"]))
    return os.getpid()


def held(environ):
    """Returns when the file that the query names is removed, and creates it when it begins."""
    path = environ["QUERY_STRING"]
    open(path, "w").close()
    while os.path.exists(path):
        time.sleep(0.005)
    return os.getpid()


def never(environ):
    threading.Event().wait()


def exits(environ):
    os._exit(int(environ["QUERY_STRING"]))


def crashes(environ):
    signal.raise_signal(signal.SIGSEGV)


def leaves_a_child(environ):
    child = os.fork()
    if child == 0:
        # A test waits for the end of what the server says.
        os.closerange(1, 3)
        time.sleep(600)
        os._exit(0)
    return child


def multiprocess(environ):
    return int(environ["wsgi.multiprocess"])


def identity(environ):
    umask = os.umask(0)
    os.umask(umask)
    return {
        "uid": os.getuid(),
        "gid": os.getgid(),
        "groups": sorted(os.getgroups()),
        "umask": umask,
        "cwd": os.getcwd(),
        "home": os.environ.get("HOME"),
        "environment": os.environ.get("GREETING"),
        "lang": os.environ.get("LANG"),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "name": command_name(),
        "path": sys.path[0],
        "argv": sys.argv,
        "stack": threading.stack_size(),
        "data": resource.getrlimit(resource.RLIMIT_DATA)[0],
        "address_space": resource.getrlimit(resource.RLIMIT_AS)[0],
    }


def application(environ, start_response):
    name = environ["PATH_INFO"].strip("/")
    answer = globals()[name](environ)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [repr(answer).encode()]
