"""The extension module's names, as type checkers and as the interpreter see them."""

import ast
from importlib.resources import files

import pytest

from headway import _native

pytestmark = pytest.mark.free_threading


def test_the_stub_names_what_the_module_has() -> None:
    stub = ast.parse((files("headway") / "_native.pyi").read_text())
    declared = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    for node in stub.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            declared.add(node.target.id)
    assert declared == {name for name in dir(_native) if not name.startswith("_")}
