"""Serves files through `wsgi.file_wrapper`: what the query string says of them.

`kind` names how the file is opened, `size` its bytes, `seek` and `read` what is done before it is
handed over, `length` the Content-Length, `bare` leaves Content-Length out, `write` is written
first, `code` is the status, `shrink` cuts the file when it is closed, as another process could.
`closed` as the kind is a file that is closed, and whose descriptor another file gets, while the
server asks for it; `/taken` tells what is in that one. `/closed` tells for each file that was
closed since it was last asked how far it had been read.
"""

import gzip
import io
import os
import tempfile
from array import array
from urllib.parse import parse_qsl

SECRET = b"the secret of another file"
closed = []
taken = []


def content(size):
    """Bytes that are wrong wherever a piece is lost or repeated."""
    return array("I", range(size // 4 + 1)).tobytes()[:size]


class Upper:
    """Has the descriptor of one file and the bytes of another."""

    def __init__(self, file):
        self.file = file
        self.fileno, self.tell, self.close = file.fileno, file.tell, file.close

    def read(self, size=-1):
        return self.file.read(size).replace(b"\n", b"|")


def open_file(kind, size):
    data = content(size)
    if kind == "bytes":
        return io.BytesIO(data)
    if kind == "random":
        file = tempfile.TemporaryFile(buffering=1 << 20)  # noqa: SIM115
        file.write(data)
        return file
    if kind == "gzip":
        file = tempfile.NamedTemporaryFile()  # noqa: SIM115
        with gzip.open(file.name, "wb") as packed:
            packed.write(data)
        return gzip.open(file.name)
    if kind == "proc":
        return open("/proc/version", "rb")
    if kind == "pipe":
        read_end, write_end = os.pipe()
        with open(write_end, "wb") as file:
            file.write(data)
        return open(read_end, "rb")
    with tempfile.NamedTemporaryFile(delete=False) as made:
        made.write(data)
    file = open(made.name, "rb", 0 if kind == "raw" else -1)  # noqa: SIM115
    os.unlink(made.name)
    if kind == "closed":
        give_number_away(file)
    return Upper(file) if kind == "upper" else file


def give_number_away(file):
    """Closes the file where a thread that runs beside the server could: after `fileno()` has the
    descriptor. Another file takes its number."""
    fileno, close = file.fileno, file.close

    def number():
        found = fileno()
        close()
        secret = os.memfd_create("secret")
        os.write(secret, SECRET)
        if secret != found:
            os.dup2(secret, found)
            os.close(secret)
        taken.append(found)
        return found

    file.fileno = number


def tell_when_closed(file, shrink):
    """Makes `close` note how far the file was read; sending leaves the file where it was."""
    if not hasattr(file, "__dict__"):
        return
    close, tell = file.close, file.tell

    def noting_close():
        closed.append(tell())
        if shrink is not None:
            os.truncate(f"/proc/self/fd/{file.fileno()}", int(shrink))
        close()

    file.close = noting_close


def application(environ, start_response):
    if environ["PATH_INFO"] == "/closed":
        answer = repr(closed).encode()
        closed.clear()
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [answer]
    if environ["PATH_INFO"] == "/taken":
        start_response("200 OK", [("Content-Type", "text/plain")])
        contents = [os.pread(fd, 100, 0) for fd in taken]
        for fd in taken:
            os.close(fd)
        taken.clear()
        return contents
    if environ["PATH_INFO"] == "/pid":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [str(os.getpid()).encode()]
    query = dict(parse_qsl(environ["QUERY_STRING"]))
    file = open_file(query.get("kind", "buffered"), int(query.get("size", 100_000)))
    tell_when_closed(file, query.get("shrink"))
    if "seek" in query:
        file.seek(int(query["seek"]))
    if "read" in query:
        file.read(int(query["read"]))
    headers = [("Content-Type", "application/octet-stream")]
    if "length" in query:
        headers.append(("Content-Length", query["length"]))
    write = start_response(query.get("code", "200 OK"), headers)
    if "write" in query:
        write(query["write"].encode())
    return environ["wsgi.file_wrapper"](file, 1000)
