"""Finds the application that `APP` names: `module:attribute`, where the attribute may be dotted,
`module:factory()`, or the path of a script file that defines `application`, as in mod_wsgi."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType
from typing import Any

from headway.errors import CommandError, reason_of
from headway.server.application_name import FactoryArguments, parse_object_name
from headway.server.worker.calling_convention import find_mismatch

Application = Any  # a callable as PEP 3333 defines it


SCRIPT_ATTRIBUTE = "application"
# CPython's error message for an extension module that refuses an own-GIL interpreter:
# `_PyImport_CheckSubinterpIncompatibleExtensionAllowed` in Python/import.c.
REFUSAL = re.compile(r"module (\S+) does not support loading in subinterpreters")


class ImportFailed(CommandError):
    """The application's own code failed at import. `details` is the traceback as text."""

    def __init__(self, message: str, details: str) -> None:
        super().__init__(message)
        self.details = details


def load_application(specification: str) -> Application:
    """Imports `module:callable`, or runs the script file, and returns the callable; for
    `module:factory()`, returns what the factory returns.

    Raises `CommandError` with exit code 2 if `specification` names no WSGI application, and
    `ImportFailed` if the application's own code raised an exception.
    """
    name = parse_object_name(specification)
    if name is None:
        if "/" in specification:
            return _load_script(specification)
        raise CommandError(
            f"APP is {specification!r}; it must be module:callable, such as "
            "shop.wsgi:application, or module:factory()",
            exit_code=2,
        )
    found: Any = _import_module(name.module, specification)
    place = name.module
    for attribute in name.attributes:
        try:
            found = getattr(found, attribute)
        except AttributeError:
            raise CommandError(
                f"APP is {specification!r}: {place} has no attribute {attribute!r}", exit_code=2
            ) from None
        place += f".{attribute}"
    if_factory = f"name it as '{specification}()'"
    if name.arguments is not None:
        _check_callable(found, place, specification)
        found = _call_factory(found, name.arguments, place, specification)
        place, if_factory = f"the result of {place}()", ""
    _check_callable(found, place, specification)
    mismatch = find_mismatch(found, place, if_factory)
    if mismatch is not None:
        raise CommandError(f"APP is {specification!r}: {mismatch}", exit_code=2)
    return found


def _check_callable(found: Any, place: str, specification: str) -> None:
    if not callable(found):
        raise CommandError(
            f"APP is {specification!r}: {place} is {_a_type(found)}, which is not callable",
            exit_code=2,
        )


def _call_factory(
    factory: Any, arguments: FactoryArguments, place: str, specification: str
) -> Application:
    try:
        return factory(*arguments.positional, **arguments.keywords)
    except (Exception, SystemExit) as error:
        traceback_of_factory = error.__traceback__ and error.__traceback__.tb_next
        if isinstance(error, TypeError) and traceback_of_factory is None:
            # The factory did not run: it cannot be called with these arguments.
            raise CommandError(f"APP is {specification!r}: {error}", exit_code=2) from None
        raise _failure(specification, f"calling {place}", error) from None


def _load_script(path: str) -> Application:
    # As in mod_wsgi, each file has a module name of its own that no import statement can contain.
    name = f"_headway_{path}"
    loader = SourceFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except OSError as error:
        if error.filename == path:
            reason = reason_of(error)
            raise CommandError(f"APP is {path!r}: {reason}", exit_code=2) from None
        raise _failure(path, f"importing {path}", error) from None
    except (Exception, SystemExit) as error:
        raise _failure(path, f"importing {path}", error) from None
    return _script_application(module, path)


def _script_application(module: ModuleType, path: str) -> Application:
    found = getattr(module, SCRIPT_ATTRIBUTE, None)
    if not callable(found):
        raise CommandError(
            f"APP is {path!r}: the script has no callable {SCRIPT_ATTRIBUTE!r}", exit_code=2
        )
    mismatch = find_mismatch(
        found, SCRIPT_ATTRIBUTE, f"the script must call it and assign {SCRIPT_ATTRIBUTE}"
    )
    if mismatch is not None:
        raise CommandError(f"APP is {path!r}: {mismatch}", exit_code=2)
    return found


def _import_module(module_name: str, specification: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # APP is wrong only if the missing module is the named module or a package above it.
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise CommandError(
                f"APP is {specification!r}: there is no module {missing!r} "
                "in the current directory, in --app-dir, or installed",
                exit_code=2,
            ) from None
        raise _failure(specification, f"importing {module_name}", error) from None
    except (Exception, SystemExit) as error:
        raise _failure(specification, f"importing {module_name}", error) from None


def _failure(specification: str, what: str, error: BaseException) -> CommandError:
    if isinstance(error, SystemExit):
        code = "" if error.code is None else repr(error.code)
        return CommandError(
            f"APP is {specification!r}: the application called sys.exit({code}) at import"
        )
    frames = _from_the_application(error.__traceback__)
    told = "".join(traceback.format_exception(type(error), error, frames))
    return ImportFailed(
        f"APP is {specification!r}: {what} failed (see above)",
        f"{what} raised:\n{told.rstrip()}",
    )


def _from_the_application(frames: TracebackType | None) -> TracebackType | None:
    """The traceback from the application's outermost frame on, without the frames of this module
    and importlib that precede it. `None` if the application never ran, as with a `SyntaxError`."""
    while frames is not None:
        code, module = frames.tb_frame.f_code, frames.tb_frame.f_globals.get("__name__")
        is_importlib = module == "importlib" or code.co_filename.startswith("<frozen importlib")
        if module != __name__ and not is_importlib:
            break
        frames = frames.tb_next
    return frames


def _a_type(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
