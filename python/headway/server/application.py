"""Finds the application that `APP` names: `module:attribute`, the attribute dotted if need be."""

from __future__ import annotations

import importlib
import sys
import traceback
from typing import Any

from headway.errors import CommandError

Application = Any  # a callable as PEP 3333 defines it


def load_application(specification: str) -> Application:
    """Imports `module:callable` and returns the callable.

    Raises `CommandError` with exit code 2 if there is no such thing, and 1, after the traceback, if
    importing the module failed in the module's own code.
    """
    module_name, colon, attributes = specification.partition(":")
    names = attributes.split(".")
    if not colon or not module_name or not all(name.isidentifier() for name in names):
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
        _explain(module_name)
    except (Exception, SystemExit):
        _explain(module_name)
    raise CommandError(f"APP is {specification!r}: importing {module_name} failed (see above)")


def _explain(module_name: str) -> None:
    print(f"headway serve: importing {module_name} raised:", file=sys.stderr)
    traceback.print_exc()


def _a_type(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
