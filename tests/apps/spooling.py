"""Spools uploads to a file, on a disk that is full after 100 KB: RLIMIT_FSIZE stands in for it."""

import resource
import tempfile

LIMIT_BYTES = 100_000
resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))


def application(environ, start_response):
    stream, total = environ["wsgi.input"], 0
    with tempfile.TemporaryFile() as file:
        while piece := stream.read(16_384):
            total += file.write(piece)
            file.flush()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"%d" % total]
