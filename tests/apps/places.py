"""An application that tells the settings of its process in each place that runs its code: at
import, in a thread that it starts at import, in a request, and in a thread that a request starts.
"""

import ctypes
import json
import os
import resource
import sys
import threading


def stack_bytes():
    """The stack of the calling thread, in whole pages. `threading.stack_size()` would set it."""
    libc = ctypes.CDLL(None)
    libc.pthread_self.restype = ctypes.c_void_p
    attributes = ctypes.create_string_buffer(64)
    libc.pthread_getattr_np(ctypes.c_void_p(libc.pthread_self()), attributes)
    address, size = ctypes.c_void_p(), ctypes.c_size_t()
    libc.pthread_attr_getstack(attributes, ctypes.byref(address), ctypes.byref(size))
    libc.pthread_attr_destroy(attributes)
    return size.value


def tell():
    umask = os.umask(0)
    os.umask(umask)
    with open("/proc/self/comm") as comm:
        name = comm.read().strip()
    return {
        "stack-size": stack_bytes(),
        "cpu-priority": os.getpriority(os.PRIO_PROCESS, 0),
        "display-name": name,
        "umask": umask,
        "home": [os.getcwd(), os.environ["HOME"]],
        "lang": os.environ.get("LANG"),
        "env": os.environ.get("GREETING"),
        "python-path": os.environ["PUT_FIRST"] in sys.path,
        "memory-limit": resource.getrlimit(resource.RLIMIT_DATA)[0],
        "virtual-memory-limit": resource.getrlimit(resource.RLIMIT_AS)[0],
        "cpu-time-limit": resource.getrlimit(resource.RLIMIT_CPU)[0],
        "switch-interval": sys.getswitchinterval(),
    }


def tell_of_gil():
    from headway import gil

    return {"policy": gil.snapshot().to_dict()["policy"]}


def in_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


at_import = {"import": tell()}
# A template has none.
if "NO_THREADS_AT_IMPORT" not in os.environ:
    at_import["thread at import"] = in_thread(tell)


def application(environ, start_response):
    serving = {"environ": environ.get("KEY"), "multiprocess": environ["wsgi.multiprocess"]}
    found = {
        **at_import,
        "request": {**tell(), **tell_of_gil(), **serving},
        "thread of a request": {**in_thread(tell), **tell_of_gil()},
        "pid": os.getpid(),
    }
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(found).encode()]
