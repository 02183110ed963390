"""More pages: what PEP 3333 says beside its main road, and what applications get wrong there."""

import sys
import threading
import time
from urllib.parse import parse_qsl
from zlib import crc32

from pages import Closing, application, page, text, unchecked  # noqa: F401 (what is served)

from headway import gil

after_an_error = "nothing"


@page
def environ_types(environ, start_response):
    """The violations of PEP 3333: a builtin dict, native strings, the streams' methods."""
    wrong = [] if type(environ) is dict else [f"environ is a {type(environ).__name__}"]
    for key, value in environ.items():
        if type(key) is not str:
            wrong.append(f"{key!r} is no str")
        if "." not in key and type(value) is not str:
            wrong.append(f"{key} is a {type(value).__name__}")
    for stream, names in {
        "wsgi.input": ("read", "readline", "readlines", "__iter__"),
        "wsgi.errors": ("flush", "write", "writelines"),
    }.items():
        wrong += [f"{stream} has no {name}" for name in names if not hasattr(environ[stream], name)]
    wrong += [key for key in ("SERVER_NAME", "SERVER_PORT", "REQUEST_METHOD") if not environ[key]]
    text(start_response)
    return [repr(wrong).encode()]


@page
def environ_is_mine(environ, start_response):
    """An application may change its environ; the next request gets another."""
    found = environ.get("mine", "nothing")
    environ["mine"] = "something"
    environ["SERVER_NAME"] = "changed"
    text(start_response)
    return [found.encode()]


@page
def input_sizes(environ, start_response):
    """The input by every size: `abc`, `defg`, an empty line, `h` and no line end."""
    stream = environ["wsgi.input"]
    found = [stream.read(0), stream.readline(0), stream.readline(2), stream.readline(-1)]
    found += [stream.read(2), stream.readline(100), stream.readline()]
    found += [stream.readlines(0), stream.read(), stream.read(None), stream.readline(None)]
    found += [list(stream), stream.readlines(), stream.read(-1)]
    text(start_response)
    return [repr(found).encode()]


@page
def input_calls(environ, start_response):
    """The results of the calls in the query string, such as `read=10&readline=5`."""
    stream, found = environ["wsgi.input"], []
    for name, size in parse_qsl(environ["QUERY_STRING"]):
        data = getattr(stream, name)(int(size))
        found.append((len(data), crc32(data)))
    text(start_response)
    return [repr(found).encode()]


@page
def input_after_an_error(environ, start_response):
    """Reads from a body that ends early, after a read of more than there is has raised."""
    global after_an_error
    stream = environ["wsgi.input"]
    try:
        stream.read(200_000)
    except OSError as error:
        after_an_error = f"{type(error).__name__} {len(stream.read(90_000))}"
    text(start_response)
    return []


@page
def what_was_after_the_error(environ, start_response):
    text(start_response)
    return [after_an_error.encode()]


@page
def input_misused(environ, start_response):
    """The exceptions that arguments of a wrong type or number lead to."""
    stream, raised = environ["wsgi.input"], []
    for call in (
        lambda: stream.read("1"),
        lambda: stream.read(1.0),
        lambda: stream.read(1, 2),
        lambda: stream.readline(b""),
        lambda: stream.read(1 << 70),
        lambda: stream.write(b""),
    ):
        try:
            call()
        except Exception as error:
            raised.append(type(error).__name__)
    text(start_response)
    return [" ".join(raised).encode()]


@page
def error_lines(environ, start_response):
    environ["wsgi.errors"].writelines(["one of two\n", "two of two: \xe9\n"])
    environ["wsgi.errors"].flush()
    text(start_response)
    return []


@page
def fields(environ, start_response):
    """Order, repetition, case and latin-1 are the application's; so are Date and Server."""
    fields = [("Set-Cookie", "a=1"), ("X-\x41bC", "\xe9"), ("set-cookie", "b=2"), ("X-Empty", "")]
    start_response("299 Fein \xfc", [*fields, ("Date", "today"), ("Server", "mine")])
    return [b"fields\n"]


@page
def hop_by_hop(environ, start_response):
    """The fields of the query string, which a server sets itself (PEP 3333)."""
    fields = parse_qsl(environ["QUERY_STRING"])
    start_response("200 OK", [("Content-Type", "text/plain"), ("X-Kept", "yes"), *fields])
    return [b"one\n"]


class OneBlock:
    """Of length one, and so of known Content-Length (PEP 3333)."""

    def __len__(self):
        return 1

    def __iter__(self):
        yield b"the only block"


@page
def one_block(environ, start_response):
    text(start_response)
    return OneBlock()


@page
def a_tuple(environ, start_response):
    text(start_response)
    return (b"a ", b"", b"tuple")


@page
def started_by_the_first_block(environ, start_response):
    """PEP 3333: the first iteration may be what calls start_response."""

    class Late:
        def __iter__(self):
            text(start_response)
            yield b"late, and in time\n"

    return Late()


@page
def started_too_late(environ, start_response):
    yield b"a block, and then\n"
    text(start_response)


@page
def raises_before_the_first_block(environ, start_response):
    text(start_response, ("X-Lost", "1"))
    yield b""
    raise ValueError("raised on purpose")


@page
def recovers_before_the_first_block(environ, start_response):
    """Nothing is sent by an empty block, so an error handler may still replace the head."""
    text(start_response, ("X-Lost", "1"))
    yield b""
    try:
        raise ValueError("handled")
    except ValueError:
        start_response("503 Recovered", [("Content-Type", "text/plain")], sys.exc_info())
    yield b"recovered\n"


@page
def endless(environ, start_response):
    """Streams until its client goes away."""
    text(start_response)
    Closing([]).close()
    sys.modules["pages"].closed.clear()

    def blocks():
        while True:
            yield b"x" * 65536

    return Closing(blocks())


@page
def closing_unstarted(environ, start_response):
    sys.modules["pages"].closed.clear()
    return Closing([b"block\n"])


@page
def closing_unwanted(environ, start_response):
    """A body where none is allowed."""
    sys.modules["pages"].closed.clear()
    start_response("304 Not Modified", [("ETag", '"x"')])
    return Closing([b"not wanted\n"])


@page
def garbage(environ, start_response):
    """Returns what is no iterable of bytes, by the name in the query string."""
    text(start_response)
    things = {"none": None, "int": 7, "bytes": b"hello", "str": "hello", "type": int}
    things |= {"list": [1], "mixed": [b"one", "two"], "bytearray": [bytearray(b"x")]}
    return things[environ["QUERY_STRING"]]


@page
def writes_garbage(environ, start_response):
    write = text(start_response)
    try:
        write("text")
    except TypeError:
        write(b"")
        write(b"bytes only\n")
    return []


@page
def no_interim(environ, start_response):
    """An interim status is not an application's to send."""
    raised = []
    for status in ("100 Continue", "101 Switching Protocols", "103 Early Hints"):
        try:
            start_response(status, [])
        except ValueError as error:
            raised.append(type(error).__name__)
    text(start_response)
    return [" ".join(raised).encode()]


@page
def swallows_errors_of_the_client(environ, start_response):
    """Answers although the body could not be read."""
    try:
        environ["wsgi.input"].read()
        found = b"all of it\n"
    except OSError as error:
        found = type(error).__name__.encode() + b": " + str(error).encode()
    text(start_response)
    return [found]


class CountingDrops(Closing):
    """Its only block is of the size that it is given. Counts how often this thread drops the GIL
    from when the server asks for the block until it asks for another."""

    def __iter__(self):
        size = self.blocks
        before = drops_of_this_thread()
        yield b"x" * size
        drops[size] = drops_of_this_thread() - before
        counted.set()


drops = {}
counted = threading.Event()


def drops_of_this_thread():
    """Of both kinds: the drop before a send counts as forced if another thread has waited for a
    switch interval."""
    native_id = threading.get_native_id()
    rows = [row for row in gil.snapshot().to_dict()["threads"] if row["native_id"] == native_id]
    return sum(row["voluntary_drops"] + row["forced_drops"] for row in rows)


@page
def counting_drops(environ, start_response):
    size = int(environ["QUERY_STRING"])
    text(start_response, ("Content-Length", str(size)))
    return CountingDrops(size)


@page
def drops_of(environ, start_response):
    counted.wait(20)
    counted.clear()
    text(start_response)
    return [str(drops[int(environ["QUERY_STRING"])]).encode()]


@page
def changing_list(environ, start_response):
    """A list that another thread changes as soon as it can."""
    blocks = [b"a" * 2_000_000] * 4
    others = [b"b" * 1_500_000] * 3

    def change():
        nonlocal others
        end = time.monotonic() + 0.05
        # Once a round, at whose end this thread may lose the GIL.
        while time.monotonic() < end:
            blocks[:], others = others, blocks[:]

    threading.Thread(target=change).start()
    text(start_response)
    return blocks
