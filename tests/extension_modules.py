"""Extension modules in C that declare one thing and do another, compiled for this interpreter."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
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
static struct PyModuleDef {name}_definition = {{PyModuleDef_HEAD_INIT, "{name}", 0, {size}, 0}};
PyMODINIT_FUNC PyInit_{name}(void) {{ return PyModule_Create(&{name}_definition); }}
"""
)
# `body` is what Py_mod_exec runs, and returns -1 from if it fails.
MULTI_PHASE = (
    START
    + """
static int {name}_loads;
static int {name}_execute(PyObject *module) {{
    int loads = ++{name}_loads; (void)loads;
    {body}
    return 0;
}}
static PyModuleDef_Slot {name}_slots[] = {{{{Py_mod_exec, {name}_execute}}, {slots} {{0, NULL}}}};
static struct PyModuleDef {name}_definition = {{
    PyModuleDef_HEAD_INIT, "{name}", 0, 0, 0, {name}_slots
}};
PyMODINIT_FUNC PyInit_{name}(void) {{ return PyModuleDef_Init(&{name}_definition); }}
"""
)
WITHOUT_SLOTS = (
    START
    + """
static struct PyModuleDef {name}_definition = {{PyModuleDef_HEAD_INIT, "{name}", 0, 0, 0}};
PyMODINIT_FUNC PyInit_{name}(void) {{ return PyModuleDef_Init(&{name}_definition); }}
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

ENDS_THREADS = (
    START
    + """
#include <pthread.h>
static PyObject *with_gil(PyObject *module, PyObject *unused) { pthread_exit(NULL); }
static PyObject *without_gil(PyObject *module, PyObject *unused) {
    PyEval_SaveThread();
    pthread_exit(NULL);
}
static PyMethodDef ends_threads_functions[] = {
    {"with_gil", with_gil, METH_NOARGS}, {"without_gil", without_gil, METH_NOARGS}, {NULL}
};
static struct PyModuleDef ends_threads_definition = {
    PyModuleDef_HEAD_INIT, "ends_threads", 0, 0, ends_threads_functions
};
PyMODINIT_FUNC PyInit_ends_threads(void) { return PyModule_Create(&ends_threads_definition); }
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
    "ends_threads": ENDS_THREADS,
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


def build(folder: Path, names: Iterable[str]) -> None:
    """The compiled modules, in `folder`: one library with all of them, under the name of each."""
    library = folder / "all.so"
    source = folder / "all.c"
    source.write_text("\n".join(MODULES[name] for name in names))
    assert COMPILER is not None
    # Debian's pyconfig.h includes one that lies beside the folder.
    includes = [f"-I{INCLUDE}", f"-I{INCLUDE.parent}"]
    command = [COMPILER, "-shared", "-fPIC", *includes, os.fspath(source), "-o", library]
    subprocess.run(command, check=True)
    # A link would be loaded once, under one name.
    for name in names:
        shutil.copyfile(library, folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}")
