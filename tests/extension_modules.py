"""Extension modules in C that declare one thing and do another, compiled for this interpreter."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

INCLUDE = Path(sysconfig.get_path("include"))
COMPILER = shutil.which("cc")
MISSING = (
    "no C compiler (cc)"
    if COMPILER is None
    else f"no Python headers in {INCLUDE}"
    if not (INCLUDE / "Python.h").exists()
    else ""
)

START = "#include <Python.h>\n#include <unistd.h>\n"
SINGLE_PHASE = (
    START
    + """
static struct PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "{name}", 0, {size}, 0}};
PyMODINIT_FUNC PyInit_{name}(void) {{ return PyModule_Create(&definition); }}
"""
)
# `body` is what Py_mod_exec runs, and returns -1 from if it fails.
MULTI_PHASE = (
    START
    + """
static int loads;
static int execute(PyObject *module) {{ loads++; {body} return 0; }}
static PyModuleDef_Slot slots[] = {{{{Py_mod_exec, execute}}, {slots} {{0, NULL}}}};
static struct PyModuleDef definition = {{
    PyModuleDef_HEAD_INIT, "{name}", 0, 0, 0, slots
}};
PyMODINIT_FUNC PyInit_{name}(void) {{ return PyModuleDef_Init(&definition); }}
"""
)
WITHOUT_SLOTS = (
    START
    + """
static struct PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "{name}", 0, 0, 0}};
PyMODINIT_FUNC PyInit_{name}(void) {{ return PyModuleDef_Init(&definition); }}
"""
)
# CPython 3.15: slots without a definition (PEP 793).
EXPORTED = (
    START
    + """
PyABIInfo_VAR(abi);
static PySlot slots[] = {
    PySlot_STATIC_DATA(Py_mod_abi, &abi),
    PySlot_STATIC_DATA(Py_mod_name, "exported"),
    PySlot_DATA(Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED),
    PySlot_DATA(Py_mod_gil, Py_MOD_GIL_NOT_USED),
    PySlot_END
};
PyMODEXPORT_FUNC PyModExport_exported(void) { return slots; }
"""
)


def _slot(name: str, value: str) -> str:
    """Left out where this CPython has no such slot, as careful modules do."""
    return f"\n#ifdef {name}\n{{{name}, {value}}},\n#endif\n"


OWN_GIL = _slot("Py_mod_multiple_interpreters", "Py_MOD_PER_INTERPRETER_GIL_SUPPORTED")
SHARED_GIL = _slot("Py_mod_multiple_interpreters", "Py_MOD_MULTIPLE_INTERPRETERS_SUPPORTED")
NONE = _slot("Py_mod_multiple_interpreters", "Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED")
NO_GIL = _slot("Py_mod_gil", "Py_MOD_GIL_NOT_USED")
GIL = _slot("Py_mod_gil", "Py_MOD_GIL_USED")
BOTH = OWN_GIL + NO_GIL

REFUSES_TWICE = 'if (loads > 1) { PyErr_SetString(PyExc_ImportError, "once only"); return -1; }'
NEEDS_ITS_APPLICATION = """
if (!PyDict_GetItemString(PyEval_GetBuiltins(), "the_application")) {
    PyErr_SetString(PyExc_ImportError, "not without the application"); return -1;
}
"""

MODULES = {
    "single_static": SINGLE_PHASE.format(name="single_static", size=-1),
    "single_sized": SINGLE_PHASE.format(name="single_sized", size=0),
    "without_slots": WITHOUT_SLOTS.format(name="without_slots"),
    **{
        name: MULTI_PHASE.format(name=name, slots=slots, body=body)
        for name, slots, body in (
            ("undeclared", "", ""),
            ("modern", BOTH, ""),
            ("shared_only", SHARED_GIL + NO_GIL, ""),
            ("main_only", NONE + GIL, ""),
            ("crashes", BOTH, "if (loads > 1) abort();"),
            ("hangs", BOTH, "if (loads > 1) for (;;) pause();"),
            ("once_only", BOTH, REFUSES_TWICE),
            ("dependent", BOTH, NEEDS_ITS_APPLICATION),
        )
    },
}


if sys.version_info >= (3, 15):
    MODULES["exported"] = EXPORTED


def build(name: str, folder: Path) -> Path:
    """The compiled module, in `folder`."""
    source = folder / f"{name}.c"
    source.write_text(MODULES[name])
    module = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    assert COMPILER is not None
    # Debian's pyconfig.h includes one that lies beside the folder.
    includes = [f"-I{INCLUDE}", f"-I{INCLUDE.parent}"]
    command = [COMPILER, "-shared", "-fPIC", *includes, os.fspath(source), "-o", module]
    subprocess.run(command, check=True)
    return module
