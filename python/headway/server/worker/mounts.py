"""Several applications in one process group, each below its own URL path. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headway.server.worker.application import Application


def mount(applications: Sequence[tuple[str, Application]]) -> Application:
    """Returns an application that dispatches to the given ones, each with its URL path.

    The longest matching path decides. Only whole segments match: /shop matches /shop and
    /shop/cart, not /shopping. A single application at the root is returned unchanged.
    """
    if [path for path, _ in applications] == [""]:
        return applications[0][1]
    # As in PATH_INFO, each byte of the UTF-8 form is a character (PEP 3333, "Unicode Issues").
    as_in_environ = [(path.encode().decode("latin-1"), each) for path, each in applications]
    by_length = sorted(as_in_environ, key=lambda each: len(each[0]), reverse=True)

    def dispatch(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        wanted = environ["PATH_INFO"]
        for path, application in by_length:
            if wanted == path or wanted.startswith(f"{path}/"):
                environ["SCRIPT_NAME"] += path
                environ["PATH_INFO"] = wanted[len(path) :]
                answer: Iterable[bytes] = application(environ, start_response)
                return answer
        start_response("404 Not Found", [("Content-Type", "text/plain")])
        return [b"Not Found\n"]

    return dispatch
