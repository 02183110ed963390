"""Sections of an Apache configuration: which requests of an alias each covers, and the order in
which httpd merges them.

httpd matches `<Directory>` and `<Files>` with the script, and `<Location>` with the URL path of
each request. So the first two cover all requests of an alias or none, and the third may cover a
part of them. Where this module cannot tell, the answer is a part: such a section may deny, and
grants nothing.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from headway.server.config.apache.syntax import Directive

# Sections whose contents apply to a part of the URLs or files.
SCOPES = ("directory", "directorymatch", "files", "filesmatch", "location", "locationmatch")

_WILDCARD = re.compile(r"[*?\[]")
# Regular expressions that PCRE, with bytes, and Python understand alike.
_COMMON_REGEX = re.compile(
    r"(?:[\w/~,@%:= -]|\\[./_-]|\.|\[\^?(?![\w./-]*--)[\w./-]+\]"
    r"|\((?:\?:)?(?![*+?])|[)|^$]|[*+?]\??(?![*+?]))*",
    re.ASCII,
)


class Coverage(enum.IntEnum):
    """Which of an alias's requests a section covers."""

    NONE = 0
    PART = 1
    ALL = 2


CONDITION = "ifmodule"


class Scoped(NamedTuple):
    """A directive that applies where all of `sections`, the outermost first, match. Some of them
    may be `<IfModule>` for a module that httpd may have or not."""

    directive: Directive
    sections: tuple[Directive, ...]

    @property
    def scopes(self) -> tuple[Directive, ...]:
        """The sections for a part of the URLs or files."""
        return tuple(each for each in self.sections if each.key != CONDITION)


def coverage(sections: tuple[Directive, ...], path: str, script: str) -> Coverage:
    """Which of the requests for `script` below the URL path `path` all of `sections` cover."""
    found = min((_coverage(each, path, script) for each in sections), default=Coverage.ALL)
    if any(each.key.startswith("files") for each in sections[:-1]):
        # httpd may not look into it.
        return min(found, Coverage.PART)
    return found


def covers_path(wanted: str, path: str) -> Coverage:
    """Which of the requests below `path` are for the URL path `wanted` or one below it."""
    bare = wanted.removesuffix("/")
    if not wanted.startswith("/") or "//" in wanted:
        return Coverage.PART
    if f"{path}/".startswith(f"{bare}/"):
        # `/x/` does not cover a request for `/x` itself.
        return Coverage.PART if bare == path and bare != wanted and bare else Coverage.ALL
    return Coverage.PART if bare.startswith(f"{path}/") else Coverage.NONE


def may_match(pattern: str, path: str) -> bool:
    """Whether the regular expression may match a URL path at or below `path`."""
    literal = _literal_beginning(pattern)
    if literal is None:
        return True
    if pattern == f"^{literal}$":
        return f"{literal}/".startswith(f"{path}/")
    return _may_begin(literal, path)


def applies_at(section: Directive, path: str, script: str) -> bool:
    """Whether the section covers a request for the alias's own URL path. Raises `CommandError`
    where this cannot be told."""
    if section.key == CONDITION:
        return not section.text.startswith("!")
    if section.key.startswith("location") and (_is_regex(section) or _has_wildcard(section)):
        pattern = _pattern(section)
        if pattern is not None:
            found = pattern.search if _is_regex(section) else pattern.fullmatch
            return found(path or "/") is not None
    elif section.key.startswith("location"):
        return f"{path}/".startswith(f"{_wanted(section).rstrip('/')}/")
    else:
        covered = _coverage(section, path, script)
        if covered is not Coverage.PART:
            return covered is Coverage.ALL
    allowed = "letters, digits, . - _ / and ( | ) * + ? ^ $ or simple [sets]"
    raise section.refuse(_wanted(section), f"{allowed}, for mod_wsgi's directives in it")


def merge_order(scoped: Scoped, host_order: int) -> tuple[int, ...]:
    """The place of a directive among those that httpd merges, of which the last one wins: directly
    in a host, in `<Directory>` with fewer before more components, in a `<Directory>` with a regular
    expression, in `<Files>`, in `<Location>`. Among equals, the main server's come before a virtual
    host's."""
    ranks = [_rank(section) for section in scoped.scopes]
    around, last = [(-1, 0), (-1, 0), *ranks][-2:]
    return (*last, *around, host_order)


def find_possible(
    key: str, scoped: Sequence[tuple[int, Scoped]], path: str, script: str
) -> list[Scoped]:
    """The directives of a name that may hold for a request of the alias: the last one in httpd's
    order that holds for all, and the later ones that hold for a part. `scoped` has each directive
    with the order of its host."""
    possible: list[Scoped] = []
    # A stable sort leaves the later of two equal directives last.
    for _, each in sorted(scoped, key=lambda each: merge_order(each[1], each[0])):
        covered = coverage(each.sections, path, script)
        if each.directive.key == key and covered is not Coverage.NONE:
            possible = [each] if covered is Coverage.ALL else [*possible, each]
    return possible


def _rank(section: Directive) -> tuple[int, int]:
    if section.key.startswith("files"):
        return 2, 0
    if section.key.startswith("location"):
        return 3, 0
    if _is_regex(section):
        # httpd sorts these too, by the slashes of their text.
        return 1, _wanted(section).count("/")
    return 0, len([name for name in normalized(_wanted(section)).split("/") if name])


def normalized(path: str) -> str:
    """The path as httpd compares it: without `//`, `/./` and `/../`, and a slash at the end."""
    return os.path.normpath(f"/{path.lstrip('/')}") if path.startswith("/") else path


def _coverage(section: Directive, path: str, script: str) -> Coverage:
    if section.key == CONDITION:
        return Coverage.PART
    if section.key.startswith("location"):
        return _of_location(section, path)
    if not script.isascii() and (_is_regex(section) or _has_wildcard(section)):
        # httpd matches bytes.
        return Coverage.PART
    script = normalized(script)
    if section.key.startswith("files"):
        return _of_files(section, os.path.basename(script))
    if _is_regex(section):
        return _of_directory_pattern(section, script)
    return _of_directory(section, os.path.dirname(script))


def _of_location(section: Directive, path: str) -> Coverage:
    wanted = _wanted(section)
    if _is_regex(section):
        return Coverage.PART if may_match(wanted, path) else Coverage.NONE
    if found := _WILDCARD.search(wanted):
        # A backslash takes the meaning of what follows, so nothing is known of the beginning.
        begins = "\\" in wanted or _may_begin(wanted[: found.start()], path)
        return Coverage.PART if begins else Coverage.NONE
    return covers_path(wanted, path)


def _of_files(section: Directive, name: str) -> Coverage:
    pattern = _pattern(section)
    if pattern is None:
        return Coverage.PART
    found = pattern.search(name) if _is_regex(section) else pattern.fullmatch(name)
    return Coverage.ALL if found else Coverage.NONE


def _of_directory(section: Directive, folder: str) -> Coverage:
    wanted = normalized(_wanted(section))
    if not wanted.startswith("/"):
        return Coverage.PART
    if not _has_wildcard(section):
        below = f"{folder.rstrip('/')}/".startswith(f"{wanted.rstrip('/')}/")
        return Coverage.ALL if below else Coverage.NONE
    pattern, names = _pattern(section), folder.split("/")
    if pattern is None:
        return Coverage.PART
    above = ("/".join(names[: end + 1]) for end in range(len(names)))
    return Coverage.ALL if any(map(pattern.fullmatch, above)) else Coverage.NONE


def _of_directory_pattern(section: Directive, script: str) -> Coverage:
    """httpd's versions differ in whether they match the directory, with a slash at its end or
    without, or the script."""
    pattern = _pattern(section)
    if pattern is None:
        return Coverage.PART
    folder = os.path.dirname(script)
    if all(map(pattern.search, (folder, f"{folder}/", script))):
        return Coverage.ALL
    above = [script]
    while above[-1] != "/":
        above.append(os.path.dirname(above[-1]))
    found = any(pattern.search(each) or pattern.search(f"{each}/") for each in above)
    return Coverage.PART if found else Coverage.NONE


def _is_regex(section: Directive) -> bool:
    return section.key.endswith("match") or section.words[:1] == ["~"]


def _has_wildcard(section: Directive) -> bool:
    return _WILDCARD.search(_wanted(section)) is not None


def _wanted(section: Directive) -> str:
    words = section.words[1:] if section.words[:1] == ["~"] else section.words
    if not words:
        raise section.refuse("nothing", "a path")
    return words[-1] if _is_regex(section) else words[0]


def _pattern(section: Directive) -> re.Pattern[str] | None:
    """The regular expression or the path with wildcards; `None` where httpd's language has other
    rules than Python's."""
    wanted = _wanted(section)
    if _is_regex(section):
        return _compiled(section) if _COMMON_REGEX.fullmatch(wanted) else None
    if section.key.startswith("directory"):
        wanted = normalized(wanted)
    elif section.key.startswith("files") and "/" in wanted:
        return None
    if set("[]\\") & set(wanted) and _has_wildcard(section):
        return None
    # As in httpd, `*` and `?` match no slash.
    text = re.escape(wanted).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    return re.compile(text)


def _compiled(section: Directive) -> re.Pattern[str] | None:
    try:
        return re.compile(_wanted(section))
    except re.error as error:
        raise section.refuse(_wanted(section), f"a regular expression ({error})") from None
    except RecursionError:
        return None


def _may_begin(literal: str, path: str) -> bool:
    """Whether a URL path at or below `path` may begin with `literal`."""
    return f"{path}/".startswith(literal) or literal.startswith(f"{path}/")


def _literal_beginning(pattern: str) -> str | None:
    """The text with which every match of the pattern begins at the begin of the subject; `None` if
    it is not known."""
    if not pattern.startswith("^") or "|" in pattern or not _COMMON_REGEX.fullmatch(pattern):
        return None
    found = re.match(r"(?:[\w/~,@%:=-]|\\[./_-])*", pattern[1:], re.ASCII)
    assert found is not None, "the pattern matches the empty text"
    literal = found[0]
    if pattern[1 + found.end() : 2 + found.end()] in ("?", "*", "+"):
        literal = re.sub(r"\\?.\Z", "", literal)
    return literal.replace("\\", "")
