"""The application of scripts/interpreter_matrix.py."""


def app(environ, start_response):  # type: ignore[no-untyped-def]
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]
