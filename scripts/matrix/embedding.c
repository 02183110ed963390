/* A program of its own with CPython inside, for scripts/interpreter_matrix.py: it configures the
 * interpreter and hands it the command line, as uWSGI or mod_wsgi do with their own. */
#include <Python.h>

int main(int argc, char **argv) {
    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    PyStatus status = PyConfig_SetBytesArgv(&config, argc, argv);
    if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (PyStatus_Exception(status)) Py_ExitStatusException(status);
    return Py_RunMain();
}
