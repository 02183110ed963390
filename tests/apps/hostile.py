"""An application that writes to the control socket of its process, which it finds among its
descriptors."""

import contextlib
import os
import socket
import stat
import threading
from array import array
from urllib.parse import unquote

MESSAGES = [
    b'{"event":"requests","count":1,"interpreters":[{}]}',
    b'{"event":"requests","count":1,"interpreters":[1]}',
    b'{"event":"requests","count":1e999,"interpreters":[]}',
    b'{"event":"requests","count":-1,"interpreters":[]}',
    b'{"event":"block","errors":[],"cpu_ns":{},"response":7}',
    b'{"event":"started","pid":1}',
    b'{"event":"ready","switch_interval_s":NaN}',
    b'{"event":"files","states":{"/etc/passwd":{}}}',
    b'{"event":["gil"]}',
    b'{"event":"gil","enabled":1,"undeclared":"all"}',
    b'{"event":"limit"}',
    b"[]",
    b"\xff",
    b'{"event":"requests","count":' + b"1" * 100_000 + b"}",
    b'{"event":' + b"[" * 100_000,
    b'{"event":"gil","enabled":true,"undeclared":[' + b'"",' * 40_000 + b'""]}',
]


def control():
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            found = socket.socket(fileno=os.dup(fd))
            if found.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_SEQPACKET:
                return found
    raise AssertionError("no control socket")


def flood():
    ours = control()
    with contextlib.suppress(OSError):
        while True:
            for message in MESSAGES:
                ours.send(message)


def floods(_):
    threading.Thread(target=flood, daemon=True).start()


def sends(query):
    with control() as ours:
        ours.send(unquote(query).encode())


def sends_descriptors(query):
    """Sends a number of messages, half of them well-formed, with 8 descriptors each."""
    with control() as ours, open(os.devnull) as file:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [file.fileno()] * 8))]
        for number in range(int(query)):
            data = b'{"event":"reporting","started":7}' if number % 2 else b"no message"
            ours.sendmsg([data], rights)


def pid(_):
    pass


PAGES = {f"/{page.__name__}": page for page in (floods, sends, sends_descriptors, pid)}


def application(environ, start_response):
    PAGES[environ["PATH_INFO"]](environ["QUERY_STRING"])
    start_response("200 OK", [])
    return [str(os.getpid()).encode()]
