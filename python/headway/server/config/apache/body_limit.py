"""LimitRequestBody in sections: the largest body for all applications of a process group.

Headway has one limit for a process group. Where httpd has another one for a part of its requests,
the directive cannot be followed.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.server.config.apache.contents import Contents
from headway.server.config.apache.core import read_core
from headway.server.config.apache.groups import Group
from headway.server.config.apache.sections import (
    Coverage,
    Scoped,
    coverage,
    find_possible,
)
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
    values: list[Value] = []
    limits: list[Scoped] = []
    for host in group.hosts:
        of_hosts = [
            (order, Scoped(directive, ()))
            for order, each in enumerate((contents.main, host))
            for directive in each.directives
            if directive.key == _KEY
        ]
        scoped = of_hosts + contents.scoped_in(host)
        for alias in group.aliases.values():
            possible = find_possible(_KEY, scoped, alias.path, alias.script)
            is_sure = possible and (
                coverage(possible[0].sections, alias.path, alias.script) is Coverage.ALL
            )
            values += [] if is_sure else [DEFAULT]
            values += [read_core(each.directive)[_OPTION] for each in possible]
            limits += possible
    is_one = len({value.value for value in values}) == 1
    return BodyLimit(min(values, key=_in_order), [] if is_one else limits)


def _in_order(limit: Value) -> float:
    """0 means no limit."""
    return float(limit.value or "inf")
