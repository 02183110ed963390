"""Whether a callable can be called as PEP 3333 calls an application: with two positional arguments,
and without `await`.

Only what is certain counts: a callable whose parameters cannot be seen, as one in C, may be an
application. Reads code objects, because `inspect` imports an extension module into the
application's interpreter.
"""

from __future__ import annotations

from functools import partial
from types import FunctionType, MethodType
from typing import Any, NamedTuple

# CO_* of `inspect`.
VARARGS = 0x04
COROUTINE = 0x80
ASYNC_GENERATOR = 0x200

ASGI = (
    "headway serve serves WSGI applications; serve it with an ASGI server such as uvicorn, or wrap "
    "it in a2wsgi.ASGIMiddleware"
)


class Parameters(NamedTuple):
    is_async: bool
    # How many positional arguments the callable requires and takes; `takes` is `None` for any
    # number.
    requires: int
    takes: int | None
    requires_keyword: bool


def find_mismatch(application: Any, name: str, if_factory: str = "") -> str | None:
    """Returns why the callable is no WSGI application, or `None` if it may be one. `if_factory`
    says what to do if it returns the application."""
    found = _parameters(application)
    if found is None:
        return None
    if found.is_async:
        return f"{name} is asynchronous, as ASGI applications are: {ASGI}"
    if found.requires == 3:
        return f"{name} takes three arguments, as ASGI applications do: {ASGI}"
    if found.takes is not None and found.takes < 2:
        takes = f"takes {('no arguments', 'one argument')[max(found.takes, 0)]}"
    elif found.requires > 2:
        takes = f"requires {found.requires} arguments"
    elif found.requires_keyword:
        takes = "requires a keyword argument"
    else:
        return None
    way_out = f"; if it returns the application, {if_factory}" if if_factory else ""
    called = "a WSGI application is called with two (environ, start_response)"
    return f"{name} {takes}, and {called}{way_out}"


def _parameters(function: Any, bound: int = 0) -> Parameters | None:
    """The parameters after the first `bound` ones, which already have their arguments."""
    if isinstance(function, FunctionType):
        return _of_function(function, bound)
    if isinstance(function, MethodType):
        return _parameters(function.__func__, bound + 1)
    if isinstance(function, partial):
        return None if function.keywords else _parameters(function.func, bound + len(function.args))
    if isinstance(function, type):
        return _of_class(function, bound)
    call = _raw_attribute(type(function), "__call__")
    return _parameters(call, bound + 1) if isinstance(call, FunctionType) else None


def _of_function(function: FunctionType, bound: int) -> Parameters:
    code = function.__code__
    takes = code.co_argcount - bound
    requires = max(takes - len(function.__defaults__ or ()), 0)
    keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return Parameters(
        bool(code.co_flags & (COROUTINE | ASYNC_GENERATOR)),
        requires,
        None if code.co_flags & VARARGS else takes,
        bool(set(keywords) - set(function.__kwdefaults__ or ())),
    )


def _of_class(application: type, bound: int) -> Parameters | None:
    """A class may be an application, whose instances are the iterables of its responses."""
    if type(application).__call__ is not type.__call__:
        return None
    make, initialize = (_raw_attribute(application, each) for each in ("__new__", "__init__"))
    if make is not vars(object)["__new__"]:
        return None
    if initialize is vars(object)["__init__"]:
        return Parameters(False, 0, 0, False)
    return _parameters(initialize, bound + 1) if isinstance(initialize, FunctionType) else None


def _raw_attribute(of: type, name: str) -> Any:
    """The attribute as it stands in the class, without the descriptor protocol."""
    return next((vars(each)[name] for each in of.__mro__ if name in vars(each)), None)
