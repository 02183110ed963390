"""Many small applications, one per path; some behave badly on purpose. `application` is checked by
wsgiref.validate on both sides wherever its pages allow it; `unchecked` serves the same pages bare.
"""

import os
import sys
import threading
import time
from wsgiref.validate import validator

PAGES = {}
closed = threading.Event()
released = threading.Event()


def page(function):
    PAGES["/" + function.__name__] = function
    return function


def text(start_response, *extra, status="200 OK"):
    return start_response(status, [("Content-Type", "text/plain"), *extra])


def unchecked(environ, start_response):
    name = environ["PATH_INFO"]
    if name not in PAGES:
        text(start_response, status="404 Not Found")
        return [b"no such page\n"]
    return PAGES[name](environ, start_response)


application = validator(unchecked)


@page
def hello(environ, start_response):
    text(start_response)
    return [b"hello\n"]


@page
def environ(environ, start_response):
    """Every string of the environ, a line each."""
    text(start_response)
    lines = [f"{key}={value!r}" for key, value in sorted(environ.items())]
    return ["\n".join(lines).encode()]


@page
def echo(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or -1))
    text(start_response)
    return [body]


@page
def count(environ, start_response):
    """Reads the body piece by piece, of QUERY_STRING bytes, without a length."""
    total, stream = 0, environ["wsgi.input"]
    while piece := stream.read(int(environ["QUERY_STRING"] or 10_000)):
        total += len(piece)
    text(start_response)
    return [str(total).encode()]


@page
def lines(environ, start_response):
    """The body by each way of reading that PEP 3333 names."""
    stream = environ["wsgi.input"]
    found = [stream.readline(), stream.readline(), *stream.readlines(1), next(iter(stream))]
    found += [*stream, stream.read(10), stream.readline()]
    text(start_response)
    return [repr(found).encode()]


@page
def unread(environ, start_response):
    text(start_response)
    return [b"did not look\n"]


@page
def stream(environ, start_response):
    text(start_response)
    yield b""
    yield b"first,"
    yield b"second\n"


@page
def handshake(environ, start_response):
    """Waits between two blocks for a line of the body, which the client sends after the first."""
    text(start_response)
    yield b"one\n"
    answer = environ["wsgi.input"].readline()
    yield b"you said " + answer


@page
def answers_before_it_reads(environ, start_response):
    """The whole response, of QUERY_STRING bytes, and then the body."""
    block = b"x" * int(environ["QUERY_STRING"])
    text(start_response, ("Content-Length", str(len(block))))
    yield block
    READ.append(len(environ["wsgi.input"].read()))


READ = []


@page
def last_read(environ, start_response):
    text(start_response)
    return [str(READ.pop()).encode()]


@page
def sized_stream(environ, start_response):
    text(start_response, ("Content-Length", "6"))
    yield b"abc"
    yield b"def"


@page
def writer(environ, start_response):
    write = text(start_response)
    write(b"written,")
    return [b"returned\n"]


@page
def writes_nothing(environ, start_response):
    """The client has the head when it sends the rest of what is read here."""
    write = text(start_response)
    write(b"")
    write(b"")
    return [environ["wsgi.input"].readline()]


@page
def nothing(environ, start_response):
    text(start_response)
    return []


@page
def no_content(environ, start_response):
    start_response("204 No Content", [])
    return []


@page
def not_modified(environ, start_response):
    start_response("304 Not Modified", [("ETag", '"x"')])
    return []


@page
def sent_file(environ, start_response):
    text(start_response)
    return environ["wsgi.file_wrapper"](open(__file__, "rb"), 1000)


@page
def log(environ, start_response):
    environ["wsgi.errors"].write("a line for wsgi.errors\n")
    environ["wsgi.errors"].flush()
    text(start_response)
    return [b"logged\n"]


class Closing:
    """An iterable that tells through `closed` that its `close` was called."""

    def __init__(self, blocks, error=None):
        self.blocks, self.error = blocks, error

    def __iter__(self):
        yield from self.blocks
        if self.error:
            raise self.error

    def close(self):
        closed.set()


@page
def closing(environ, start_response):
    closed.clear()
    text(start_response)
    return Closing([b"block\n"])


class ClosingLate(Closing):
    """Its `close` goes on until somebody asks for `/release`."""

    def close(self):
        released.wait(20)
        closed.set()


@page
def large_closing_late(environ, start_response):
    """One block, more than a socket takes at once."""
    closed.clear()
    released.clear()
    block = b"x" * int(environ["QUERY_STRING"])
    text(start_response, ("Content-Length", str(len(block))))
    return ClosingLate([block])


@page
def release(environ, start_response):
    """Lets the `close` of `large_closing_late` end; says whether it had before."""
    was_over = closed.is_set()
    released.set()
    text(start_response)
    return [b"was over\n" if was_over else b"goes on\n"]


@page
def was_closed(environ, start_response):
    text(start_response)
    return [b"yes\n" if closed.wait(5) else b"no\n"]


@page
def raises(environ, start_response):
    raise ValueError("raised on purpose")


@page
def raises_after_start(environ, start_response):
    text(start_response, ("X-Lost", "1"))
    raise ValueError("raised on purpose")


@page
def raises_midway(environ, start_response):
    closed.clear()
    text(start_response)
    return Closing([b"some of it"], ValueError("raised on purpose"))


@page
def raises_midway_sized(environ, start_response):
    text(start_response, ("Content-Length", "20"))
    return Closing([b"some of it"], ValueError("raised on purpose"))


@page
def raises_in_close(environ, start_response):
    class Broken(Closing):
        def close(self):
            raise ValueError("raised in close")

    text(start_response)
    return Broken([b"whole\n"])


@page
def exits(environ, start_response):
    sys.exit("an application must not end the server")


@page
def error_page(environ, start_response):
    """PEP 3333's own example: an error handler replaces a head that is not sent yet."""
    try:
        text(start_response, ("X-Lost", "1"))
        raise ValueError("handled")
    except ValueError:
        text2 = [("Content-Type", "text/plain")]
        start_response("500 Handled", text2, sys.exc_info())
        return [b"handled\n"]


@page
def late_error_page(environ, start_response):
    """The head is sent, so start_response raises what it was given."""
    write = text(start_response)
    write(b"sent")
    try:
        raise ValueError("too late")
    except ValueError:
        start_response("500 Lost", [("Content-Type", "text/plain")], sys.exc_info())
    return [b"never\n"]


@page
def starts_twice(environ, start_response):
    text(start_response)
    try:
        text(start_response)
    except AssertionError as error:
        return [f"AssertionError: {error}\n".encode()]
    return [b"no error\n"]


@page
def never_starts(environ, start_response):
    return [b"lost\n"]


@page
def too_short(environ, start_response):
    text(start_response, ("Content-Length", "20"))
    return [b"ten bytes."]


@page
def too_long(environ, start_response):
    text(start_response, ("Content-Length", "3"))
    return [b"abcdef"]


@page
def returns_text(environ, start_response):
    text(start_response)
    return ["not bytes"]


@page
def bad_headers(environ, start_response):
    """The message of start_response for each head that it must refuse."""
    refused = []
    heads = [
        ("200 OK", [("X", "a\r\nSet-Cookie: stolen=1")]),
        ("200 OK\r\nX: y", []),
        ("OK", []),
        (200, []),
        ("200 OK", (("X", "y"),)),
        ("200 OK", [("X", 1)]),
        ("200 OK", [("X", "€")]),
        ("200 OK", [["X", "y"]]),
        ("200 OK", [("Content-Length", "-1")]),
    ]
    for status, headers in heads:
        try:
            start_response(status, headers)
        except (ValueError, TypeError) as error:
            refused.append(type(error).__name__)
    text(start_response)
    return [" ".join(refused).encode()]


@page
def kept_input(environ, start_response):
    """Uses the input of the request before this one, which is over."""
    kept = KEPT.pop() if KEPT else None
    KEPT.append(environ["wsgi.input"])
    text(start_response)
    if kept is None:
        return [b"kept\n"]
    try:
        kept.read()
    except RuntimeError as error:
        return [f"RuntimeError: {error}\n".encode()]
    return [b"no error\n"]


KEPT = []


@page
def slow(environ, start_response):
    time.sleep(float(environ["QUERY_STRING"] or 0.2))
    text(start_response)
    return [b"slow\n"]


@page
def held(environ, start_response):
    """Creates the file that QUERY_STRING names, and answers when it is removed."""
    path = environ["QUERY_STRING"]
    open(path, "w").close()
    while os.path.exists(path):
        time.sleep(0.005)
    text(start_response)
    return [b"held\n"]


@page
def spin(environ, start_response):
    """Holds the GIL as pure Python does, for QUERY_STRING seconds of processor time."""
    # In one write: the supervisor has the same stderr.
    os.write(2, b"spinning\n")
    end = time.thread_time() + float(environ["QUERY_STRING"])
    while time.thread_time() < end:
        pass
    text(start_response)
    return [b"spun\n"]


@page
def large(environ, start_response):
    text(start_response)
    return [b"x" * int(environ["QUERY_STRING"])]


@page
def large_stream(environ, start_response):
    text(start_response)
    for _ in range(int(environ["QUERY_STRING"]) // 65536):
        yield b"x" * 65536


@page
def thread(environ, start_response):
    text(start_response)
    return [threading.current_thread().name.encode()]


def end_of(child):
    _, status = os.waitpid(child, 0)
    return f"child ended with {os.waitstatus_to_exitcode(status)}\n".encode()


@page
def forks(environ, start_response):
    """Forks, as careless code does, and lets the child return from the application."""
    child = os.fork()
    text(start_response)
    if child == 0:
        return [b"from the child\n"]
    return [end_of(child)]


@page
def forks_and_writes(environ, start_response):
    child = os.fork()
    write = text(start_response)
    if child == 0:
        write(b"from the child\n")
        return []
    write(end_of(child))
    return []


@page
def forks_and_yields(environ, start_response):
    text(start_response)
    child = os.fork()
    if child == 0:
        yield b"from the child\n"
        return
    yield end_of(child)


@page
def forks_in_midstream(environ, start_response):
    """The head is out; the child has nothing more to say."""
    text(start_response)
    yield b"forking, "
    child = os.fork()
    if child == 0:
        return
    yield end_of(child)


@page
def forks_and_raises(environ, start_response):
    text(start_response)
    yield b"forking, "
    child = os.fork()
    if child == 0:
        raise ValueError("raised in the child")
    yield end_of(child)


not_callable = "a string"
