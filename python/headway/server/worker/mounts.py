"""Several applications in one process group, each below a path of its own. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headway.server.worker.application import Application


def mount(applications: Sequence[tuple[str, Application]]) -> Application:
    """One application of those given with the URL path below which each lives.

    The longest path that fits decides, and only whole segments fit: /shop has /shop and /shop/cart,
    not /shopping. An application at the root alone is returned as it is.
    """
    if [path for path, _ in applications] == [""]:
        return applications[0][1]
    # As PATH_INFO has it: each byte of the UTF-8 form is a character (PEP 3333, "Unicode Issues").
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
