"""LimitRequestBody in sections: the largest body for all applications of a process group.

Headway has one limit for a process group. Where httpd has another one for a part of its requests,
the directive cannot be followed.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.server.config.apache.contents import Contents
from headway.server.config.apache.core import read_core
from headway.server.config.apache.groups import Group
from headway.server.config.apache.sections import Coverage, Scoped, coverage, find_last
from headway.server.config.configuration import Value

_KEY = "limitrequestbody"
_OPTION = "max-body-size"
# Since httpd 2.4.53.
DEFAULT = Value(2**30, "httpd's default")


class BodyLimit(NamedTuple):
    """The limit, and the directives that are not followed."""

    value: Value
    left_out: list[Scoped]


def read_body_limit(contents: Contents, group: Group) -> BodyLimit:
    found: list[Scoped | None] = []
    partial: list[Scoped] = []
    for host in group.hosts:
        of_hosts = [
            (order, Scoped(directive, ()))
            for order, each in enumerate((contents.main, host))
            for directive in each.directives
            if directive.key == _KEY
        ]
        limits = [each for each in contents.scoped_in(host) if each[1].directive.key == _KEY]
        for alias in group.aliases.values():
            covered = [
                (order, each, coverage(each.sections, alias.path, alias.script))
                for order, each in limits
            ]
            partial += [each for _, each, how in covered if how is Coverage.PART]
            whole = [(order, each) for order, each, how in covered if how is Coverage.ALL]
            found.append(find_last((_KEY,), of_hosts + whole, alias.path, alias.script))
    values = [each and read_core(each.directive)[_OPTION] for each in found]
    smallest = min((value or DEFAULT for value in values), key=_in_order, default=DEFAULT)
    if len({(value or DEFAULT).value for value in values}) > 1:
        return BodyLimit(smallest, [*partial, *filter(None, found)])
    return BodyLimit(smallest, partial)


def _in_order(limit: Value) -> float:
    """0 means no limit."""
    return float(limit.value or "inf")
