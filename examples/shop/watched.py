"""The shop, and under /gil what Headway's meter has seen of this process so far, as JSON.

`demo.py` serves this one. The server installs the meter; here it is only read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import shop
from headway import gil

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    if environ["PATH_INFO"] != "/gil":
        return shop.app(environ, start_response)
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(gil.snapshot().to_dict()).encode()]
