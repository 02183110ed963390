"""Builds extension modules for a test: what declares that it can run without a GIL, and what does
not."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

COMPILER = shlex.split(sysconfig.get_config_var("CC") or "cc")[0]
needs_compiler = pytest.mark.skipif(
    not (shutil.which(COMPILER) or shutil.which("cc")),
    reason=f"no C compiler ({COMPILER} or cc) to build an extension module with",
)

# Initialized in several phases (PEP 489), and in one.
PHASES = """
#include <Python.h>
static PyModuleDef_Slot slots[] = {%s {0, NULL}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "%s", NULL, 0, NULL, slots};
PyMODINIT_FUNC PyInit_%s(void) { return PyModuleDef_Init(&definition); }
"""
PHASE = """
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "%s", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_%s(void) {
    PyObject *module = PyModule_Create(&definition);
    %s
    return module;
}
"""


def build(folder: Path, name: str, *, phases: bool = True, declared: bool = False) -> None:
    """Puts `name` into the folder."""
    if phases:
        text = PHASES % ("{Py_mod_gil, Py_MOD_GIL_NOT_USED}," if declared else "", name, name)
    else:
        call = "PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);" if declared else ""
        text = PHASE % (name, name, call)
    source = folder / f"{name}.c"
    source.write_text(text)
    compiler = COMPILER if shutil.which(COMPILER) else "cc"
    include = sysconfig.get_path("include")
    target = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    command = [compiler, "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
