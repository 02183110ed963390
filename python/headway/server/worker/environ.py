"""The part of the environ that is the same for every request (PEP 3333, "environ Variables"). This
module runs in the application's interpreter."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping

from headway import _native


def templates(about: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    """Returns new dicts for one thread, one per listener. `about` has the server's variables for
    each listener; the native part adds `wsgi.file_wrapper`."""
    return [template(each) for each in about]


def template(about: Mapping[str, object]) -> dict[str, object]:
    return {
        # First, so that variables of the configuration do not override those below.
        **about,
        "GATEWAY_INTERFACE": "CGI/1.1",
        "SERVER_SOFTWARE": _native.SERVER_SOFTWARE,
        "SCRIPT_NAME": "",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https" if _says_https(about) else "http",
        "wsgi.errors": sys.stderr if sys.stderr is not None else open(os.devnull, "w"),
        "wsgi.run_once": False,
        # Not in PEP 3333: `wsgi.input` ends with the body, chunked or not.
        "wsgi.input_terminated": True,
    }


def _says_https(about: Mapping[str, object]) -> bool:
    """As in mod_wsgi, HTTPS in the configuration tells the scheme, for a proxy that speaks TLS."""
    return str(about.get("HTTPS", "")).lower() in ("on", "1")
