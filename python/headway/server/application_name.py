"""The notation of `APP`: `module:callable`, `module:factory()`, or the path of a script file.
Pure."""

from __future__ import annotations

from typing import Any, NamedTuple


class FactoryArguments(NamedTuple):
    positional: list[Any]
    keywords: dict[str, Any]


class ObjectName(NamedTuple):
    """A callable of a module. With `arguments`, it is a factory: calling it returns the
    application."""

    module: str
    attributes: list[str]
    arguments: FactoryArguments | None


def parse_object_name(text: str) -> ObjectName | None:
    """Returns `None` if `text` is the path of a script file, or no name at all. As under gunicorn,
    the arguments of a factory are literals."""
    module, _, attribute = text.partition(":")
    attribute, parenthesis, arguments = attribute.partition("(")
    attributes = attribute.split(".")
    # No part of the module's name is empty, because `import_module` would take it as relative.
    is_module = "/" not in module and all(module.split("."))
    if "\0" in text or not is_module or not all(map(str.isidentifier, attributes)):
        return None
    if not parenthesis:
        return ObjectName(module, attributes, None)
    read = _read_arguments(arguments)
    return read and ObjectName(module, attributes, read)


def _read_arguments(text: str) -> FactoryArguments | None:
    """The arguments of a call whose opening parenthesis comes before `text`."""
    # Imported here, because most applications have no factory.
    import ast

    try:
        call = ast.parse(f"factory({text}", mode="eval").body
        # Another function means that more follows the call, as in `factory().app`.
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            return None
        positional = [ast.literal_eval(each) for each in call.args]
        keywords = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    named = {name: value for name, value in keywords.items() if name is not None}
    return FactoryArguments(positional, named) if len(named) == len(call.keywords) else None
