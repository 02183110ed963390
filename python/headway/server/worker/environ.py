"""The part of the environ that is the same for every request (PEP 3333, "environ Variables"). Runs
in the interpreter that the application is in."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping

from headway import _native


def templates(about: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    """New dicts, for one thread. `about` is what the server knows of itself, for each listener; the
    native part adds its `wsgi.file_wrapper`."""
    return [template(each) for each in about]


def template(about: Mapping[str, object]) -> dict[str, object]:
    return {
        # First, since variables of the configuration are among it.
        **about,
        "GATEWAY_INTERFACE": "CGI/1.1",
        "SERVER_SOFTWARE": _native.SERVER_SOFTWARE,
        "SCRIPT_NAME": "",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.errors": sys.stderr if sys.stderr is not None else open(os.devnull, "w"),
        "wsgi.run_once": False,
        # Not in PEP 3333: the input ends where the body does, chunked or not.
        "wsgi.input_terminated": True,
    }
