"""The names of application groups: the values of %{RESOURCE} and the like in WSGIApplicationGroup.

mod_wsgi computes the name for each request. Headway computes it when the configuration has been
read, from the ServerName, the first Listen of the process group and the alias, and refuses names
that depend on the request. Without WSGIApplicationGroup the name is %{RESOURCE}, which gives each
alias an interpreter of its own.
"""

from __future__ import annotations

import os
import re
import socket

from headway.server.config.apache.hosts import Alias
from headway.server.config.configuration import Value
from headway.server.config.option_types import GLOBAL

DEFAULT_PORTS = (80, 443)
ALLOWED = (
    "a name, %{GLOBAL}, %{RESOURCE}, %{SERVER}, %{HOST}, or %{ENV:NAME} of a variable that is set"
)


def name_of(alias: Alias, port: int, warnings: list[str]) -> Value:
    """The application group of an alias that is served on `port`, "" for the main interpreter."""
    written = alias.application_group
    text = written.value
    if found := re.fullmatch(r"%\{ENV:([^}]+)\}", text):
        text = os.environ.get(found[1], "")
    if text == GLOBAL:
        return written._replace(value="")
    if not text or text.startswith("%{ENV:"):
        raise alias.group_directive.refuse(written.value or "nothing", ALLOWED)
    if not text.startswith("%"):
        return written._replace(value=text)
    host = alias.server_name or socket.gethostname()
    server = host if port in DEFAULT_PORTS else f"{host}:{port}"
    if text == "%{HOST}":
        warnings.append(
            f"{written.origin}: %{{HOST}} is taken for {host}, whatever Host a client asks for"
        )
    names = {"%{RESOURCE}": f"{server}|{alias.path}", "%{SERVER}": server, "%{HOST}": server}
    if text not in names:
        raise alias.group_directive.refuse(written.value, ALLOWED)
    return written._replace(value=names[text])
