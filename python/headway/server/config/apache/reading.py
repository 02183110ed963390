"""Reads an Apache file as httpd does, with includes, variables and conditional sections. The result
has only directives that apply.

Knows `Define`, `Include`, `LoadModule`, `ServerRoot` and `<If...>` by name, and returns all other
directives. Parses the files in the order in which httpd reads them.
"""

from __future__ import annotations

import glob
import operator
import os
import re

from headway.errors import CommandError, reason_of
from headway.server.config.apache.syntax import Directive, parse_lines
from headway.server.config.files import ConfigurationFiles

MAX_INCLUDE_DEPTH = 32
# The version of httpd against which <IfVersion> is compared.
VERSION = (2, 4, 66)
# The modules that Headway replaces, and those that every httpd 2.4 contains.
BUILT_IN = ("authz_core", "core", "http", "log_config", "so", "unixd", "version", "wsgi")
MODULES = {f"mod_{name}.c" for name in BUILT_IN} | {f"{name}_module" for name in BUILT_IN}
CONDITIONS = ("ifmodule", "ifdefine", "ifversion", "iffile")
COMPARISONS = {
    "=": operator.eq,
    "==": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def read_file(path: str, files: ConfigurationFiles) -> tuple[ApacheReader, list[Directive]]:
    """Reads a configuration. A file without LoadModule, such as that of a virtual host, is a part
    of one: what it has for any module then counts, since httpd may have loaded the module."""
    reader = ApacheReader(path, files)
    directives = reader.read(path)
    if reader.asks_for_modules and not reader.loads_modules:
        reader = ApacheReader(path, files, has_all_modules=True)
        directives = reader.read(path)
    return reader, directives


class ApacheReader:
    """One reading of a configuration. `server_root` is known when it has ended.

    With `has_all_modules` the contents of `<IfModule NAME>` apply for each module, and sections for
    a module that is not there are among the directives.
    """

    def __init__(
        self, path: str, files: ConfigurationFiles, *, has_all_modules: bool = False
    ) -> None:
        self._files = files
        self.has_all_modules = has_all_modules
        self.server_root = os.path.dirname(os.path.abspath(path))
        self.loads_modules = False
        self.asks_for_modules = False
        # The sections whose module or variable the files do not name, except those that apply for
        # that reason.
        self.conditions: list[Directive] = []
        self._variables: dict[str, str] = {}
        self._modules = MODULES | {"core.c", "http_core.c"}

    def read(self, path: str, depth: int = 0) -> list[Directive]:
        """The directives of the file that apply. Those of an included file take the place of the
        Include."""
        try:
            text = self._files.read(path, "surrogateescape")
        except OSError as error:
            raise CommandError(f"{path}: {reason_of(error)}", exit_code=2) from None
        return self._evaluate(parse_lines(path, text), depth)

    def _evaluate(self, directives: list[Directive], depth: int) -> list[Directive]:
        kept = []
        for directive in directives:
            key = directive.key
            if key in CONDITIONS:
                if self._holds(directive):
                    kept += self._evaluate(directive.children or [], depth)
                elif key == "ifmodule" and self.has_all_modules:
                    directive.children = self._evaluate(directive.children or [], depth)
                    kept.append(directive)
                continue
            directive.text = self._substitute(directive.text)
            if key in ("include", "includeoptional"):
                kept += self._include(directive, depth)
            elif directive.children is not None:
                directive.children = self._evaluate(directive.children, depth)
                kept.append(directive)
            elif key in ("define", "undefine", "loadmodule", "serverroot"):
                self._note(directive)
            else:
                kept.append(directive)
        return kept

    def _substitute(self, text: str) -> str:
        """Replaces `${NAME}` by the value of `Define` or the environment. As in httpd, unknown
        names stay."""

        def value(found: re.Match[str]) -> str:
            name = found[1]
            return self._variables.get(name) or os.environ.get(name) or found[0]

        return re.sub(r"\$\{([^}]*)\}", value, text)

    def _note(self, directive: Directive) -> None:
        words = directive.words
        if not words:
            raise directive.refuse("nothing", "a name")
        if directive.key == "define":
            self._variables[words[0]] = words[1] if len(words) > 1 else ""
        elif directive.key == "undefine":
            self._variables.pop(words[0], None)
        elif directive.key == "serverroot":
            self.server_root = words[0]
        else:
            self.loads_modules = True
            self._modules.add(words[0])
            if len(words) > 1:
                name, _ = os.path.splitext(os.path.basename(words[1]))
                self._modules.add(f"{name}.c")

    def _holds(self, section: Directive) -> bool:
        argument = section.words[0] if section.words else ""
        if not argument:
            raise section.refuse("nothing", "what it depends on")
        if section.key == "ifversion":
            return self._is_version(section)
        wanted = not argument.startswith("!")
        name = self._substitute(argument.removeprefix("!"))
        if section.key == "iffile":
            return os.path.exists(os.path.join(self.server_root, name)) is wanted
        known = self._modules if section.key == "ifmodule" else self._variables
        if name in known:
            return wanted
        self.asks_for_modules |= section.key == "ifmodule"
        has_all = section.key == "ifmodule" and self.has_all_modules
        if has_all or wanted:
            self.conditions.append(section)
        return has_all is wanted

    def _is_version(self, section: Directive) -> bool:
        found = re.fullmatch(r"(!?)\s*([<>]=?|==?)?\s*([0-9]+(?:\.[0-9]+){0,2})", section.text)
        if not found:
            raise section.refuse(section.text, "one of = > >= < <= and a version such as 2.4")
        version = tuple(map(int, found[3].split(".")))
        # Only the given parts are compared, so 2.4 matches every 2.4.x.
        holds = COMPARISONS[found[2] or "="](VERSION[: len(version)], version)
        return bool(holds) is not bool(found[1])

    def _include(self, directive: Directive, depth: int) -> list[Directive]:
        if len(directive.words) != 1:
            raise directive.refuse(directive.text or "nothing", "the name of a file")
        if depth >= MAX_INCLUDE_DEPTH:
            raise directive.refuse(f"the {depth + 1}th file within another", "no circle of files")
        name = os.path.join(self.server_root, directive.words[0])
        paths = [name] if os.path.exists(name) else sorted(glob.glob(name))
        if not paths and directive.key == "include":
            raise directive.refuse(name, "a file that exists, or IncludeOptional")
        kept = []
        for path in paths:
            for each in _files_below(path):
                kept += self.read(each, depth + 1)
        return kept


def _files_below(path: str) -> list[str]:
    """The file itself, or every file in the directory, in the order of their names."""
    if not os.path.isdir(path):
        return [path]
    return [file for name in sorted(os.listdir(path)) for file in _files_below(f"{path}/{name}")]
