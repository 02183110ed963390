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

# For each kind of initialization: how a module declares it, and a module with or without that. In
# several phases (PEP 489), in one, and by slots without a definition (PEP 793, from 3.15 on).
KINDS = {
    "multi-phase": (
        "{Py_mod_gil, Py_MOD_GIL_NOT_USED},",
        """
#include <Python.h>
static PyModuleDef_Slot slots[] = {DECLARES {0, NULL}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "NAME", NULL, 0, NULL, slots};
PyMODINIT_FUNC PyInit_NAME(void) { return PyModuleDef_Init(&definition); }
""",
    ),
    "single-phase": (
        "PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);",
        """
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "NAME", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_NAME(void) {
    PyObject *module = PyModule_Create(&definition);
    DECLARES
    return module;
}
""",
    ),
    "exported": (
        "PySlot_DATA(Py_mod_gil, Py_MOD_GIL_NOT_USED),",
        """
#include <Python.h>
PyABIInfo_VAR(abi);
static PySlot slots[] = {
    PySlot_STATIC_DATA(Py_mod_abi, &abi),
    PySlot_STATIC_DATA(Py_mod_name, "NAME"),
    DECLARES
    PySlot_END
};
PyMODEXPORT_FUNC PyModExport_NAME(void) { return slots; }
""",
    ),
}


def build(folder: Path, name: str, *, kind: str = "multi-phase", declared: bool = False) -> None:
    """Puts `name` into the folder."""
    declares, text = KINDS[kind]
    source = folder / f"{name}.c"
    source.write_text(text.replace("DECLARES", declares * declared).replace("NAME", name))
    compiler = COMPILER if shutil.which(COMPILER) else "cc"
    include = Path(sysconfig.get_path("include"))
    # Debian's pyconfig.h includes one that lies beside the folder.
    includes = [f"-I{include}", f"-I{include.parent}"]
    target = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    command = [compiler, "-shared", "-fPIC", *includes, str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
