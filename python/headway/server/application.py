"""Finds the application that `APP` names: `module:attribute`, the attribute dotted if need be."""

from __future__ import annotations

import importlib
import sys
import traceback
from types import TracebackType
from typing import Any

from headway.errors import CommandError

Application = Any  # a callable as PEP 3333 defines it


def load_application(specification: str) -> Application:
    """Imports `module:callable` and returns the callable.

    Raises `CommandError` with exit code 2 if there is no such thing, and 1, after the traceback, if
    importing the module failed in the application's own code.
    """
    module_name, colon, attributes = specification.partition(":")
    names = attributes.split(".")
    is_module_name = all(
        module_name.split(".")
    )  # no empty part: import_module takes no relative one
    if not colon or not is_module_name or not all(name.isidentifier() for name in names):
        raise CommandError(
            f"APP is {specification!r}; it must be module:callable, such as shop.wsgi:application",
            exit_code=2,
        )
    found: Any = _import(module_name, specification)
    place = module_name
    for name in names:
        try:
            found = getattr(found, name)
        except AttributeError:
            raise CommandError(
                f"APP is {specification!r}: {place} has no attribute {name!r}", exit_code=2
            ) from None
        place += f".{name}"
    if not callable(found):
        raise CommandError(
            f"APP is {specification!r}: {place} is {_a_type(found)}, which is not callable",
            exit_code=2,
        )
    return found


def _import(module_name: str, specification: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # Only if it is the module itself, or a package above it, that is not there.
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise CommandError(
                f"APP is {specification!r}: there is no module {missing!r} "
                "in the current directory, in --app-dir, or installed",
                exit_code=2,
            ) from None
        _explain(module_name, error)
    except SystemExit as error:
        code = "" if error.code is None else repr(error.code)
        raise CommandError(
            f"APP is {specification!r}: the application called sys.exit({code}) at import"
        ) from None
    except Exception as error:
        _explain(module_name, error)
    raise CommandError(f"APP is {specification!r}: importing {module_name} failed (see above)")


def _explain(module_name: str, error: Exception) -> None:
    print(f"headway serve: importing {module_name} raised:", file=sys.stderr)
    frames = _from_the_application(error.__traceback__)
    traceback.print_exception(type(error), error, frames)


def _from_the_application(frames: TracebackType | None) -> TracebackType | None:
    """The traceback from the application's outermost frame on: without this module's frame and
    those of importlib below it. `None` if the application never ran, as with a `SyntaxError`."""
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
