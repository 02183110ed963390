"""Access control of an Apache configuration: whether httpd lets every request for an alias pass.

httpd has two generations of rules, and a request must pass both: `Require` (mod_authz_core), and
`Order`, `Allow` and `Deny` (mod_access_compat). Of each generation the last section that covers a
request and has one of its directives decides alone. Headway enforces no rules. It serves an alias
where every request would pass, and this module finds the rules that stand in the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from headway.server.config.apache.sections import (
    CONDITION,
    Coverage,
    Scoped,
    coverage,
    merge_order,
)
from headway.server.config.apache.syntax import Directive

_REQUIRE = ("require", "requireall", "requireany", "requirenone")
_ORDER = ("order", "allow", "deny")
# The directives that decide who may send a request.
ACCESS = (*_REQUIRE, *_ORDER)
AUTHENTICATION = "authtype"
# Each doubles the number of cases.
_MAX_MODULES = 8


def find_closing(scoped: Sequence[tuple[int, Scoped]], path: str, script: str) -> list[Scoped]:
    """The rules by which httpd denies a request for the alias, or may deny one. `scoped` has each
    directive with the order of its host."""
    closing = [*_closing(_REQUIRE, scoped, path, script), *_closing(_ORDER, scoped, path, script)]
    # httpd answers 500 where a request has an AuthType and no Require (AH01627).
    is_decided = any(
        each.directive.key in _REQUIRE and coverage(each.sections, path, script) is Coverage.ALL
        for _, each in scoped
    )
    closing += [
        each
        for _, each in scoped
        if not is_decided
        and each.directive.key == AUTHENTICATION
        and " ".join(each.directive.words).lower() != "none"
        and coverage(each.sections, path, script) is not Coverage.NONE
    ]
    return closing


def is_open(directives: Sequence[Directive]) -> bool:
    """Whether rules that stand together let every request pass."""
    return all(
        passes([each for each in directives if each.key in keys])
        for keys, passes in ((_REQUIRE, _any_granted), (_ORDER, _allows_all))
    )


def _closing(
    keys: tuple[str, ...], scoped: Sequence[tuple[int, Scoped]], path: str, script: str
) -> list[Scoped]:
    rules = [(host, each) for host, each in scoped if each.directive.key in keys]
    rules.sort(key=lambda rule: merge_order(rule[1], rule[0]))
    by_section: dict[tuple[int, int], list[Scoped]] = {}
    for host, each in rules:
        section = id(each.scopes[-1]) if each.scopes else 0
        by_section.setdefault((host, section), []).append(each)
    closing: list[Scoped] = []
    for together in by_section.values():
        covered = coverage(_outside(together[0]), path, script)
        possible = list(_possible(together))
        if covered is Coverage.ALL and all(possible):
            closing = []
        if covered is not Coverage.NONE and not all(map(is_open, possible)):
            closing += together
    return closing


def _outside(scoped: Scoped) -> tuple[Directive, ...]:
    """The sections up to the last one for a part of the URLs or files."""
    inside = _conditions(scoped)
    return scoped.sections[: len(scoped.sections) - len(inside)]


def _conditions(scoped: Scoped) -> list[Directive]:
    """The <IfModule> within the last section for a part of the URLs or files."""
    inside: list[Directive] = []
    for section in reversed(scoped.sections):
        if section.key != CONDITION:
            break
        inside.append(section)
    return inside


def _possible(together: list[Scoped]) -> Iterator[list[Directive]]:
    """The rules of one section, for each way in which httpd may have the modules that they ask
    for."""
    asked = {id(rule): [each.text for each in _conditions(rule)] for rule in together}
    names = sorted({text.lstrip("!") for texts in asked.values() for text in texts})
    if len(names) > _MAX_MODULES:
        raise together[0].directive.refuse(
            f"rules for {len(names)} modules in one section", f"up to {_MAX_MODULES}"
        )
    for has in product((True, False), repeat=len(names)):
        loaded = dict(zip(names, has, strict=True))
        yield [
            rule.directive
            for rule in together
            if all(loaded[text.lstrip("!")] is not text.startswith("!") for text in asked[id(rule)])
        ]


def other_children(rule: Directive) -> list[Directive]:
    """The children of a section of rules, such as <RequireAll>, that are no rules. They have an
    effect as if they stood outside."""
    children = rule.children or []
    nested = [each for child in children if child.key in _REQUIRE for each in other_children(child)]
    return nested + [child for child in children if child.key not in _REQUIRE]


def _any_granted(rules: list[Directive]) -> bool:
    return not rules or any(_is_granted(rule) for rule in rules)


def _is_granted(rule: Directive) -> bool:
    """Whether the rule grants every request by itself."""
    if rule.key == "require":
        return " ".join(rule.words).lower() == "all granted"
    inner = [each for each in rule.children or [] if each.key in _REQUIRE]
    if rule.key == "requireany":
        return any(map(_is_granted, inner))
    return rule.key == "requireall" and bool(inner) and all(map(_is_granted, inner))


def _allows_all(rules: list[Directive]) -> bool:
    """Without an Order, httpd begins with Deny, and Allow goes over it."""
    order, allows_all, denies = "deny,allow", False, False
    for rule in rules:
        if rule.key == "order":
            order = "".join(rule.words).lower()
        elif rule.key == "deny":
            denies = True
        else:
            allows_all |= "all" in map(str.lower, rule.words[1:])
    if order == "deny,allow":
        return allows_all or not denies
    return allows_all and not denies
