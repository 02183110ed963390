"""Says whether the interpreter that runs this file can build and run Headway.

Usage: PYTHON -I check_python.py VERSION

VERSION is `any` (a GIL build from 3.10 on), `3.13`, `3.13t` (free-threaded) or `3.13w` (the witness
that scripts/get-pythons builds). Prints the interpreter's path and exits 0, or prints in one line
what is wrong and exits 1. Any Python 3 may be asked, hence the plain language; nothing is imported
before the version is known.
"""

import sys

OLDEST = (3, 10)


def found_version():
    # type: () -> str
    import sysconfig

    suffix = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    if "-DGIL_WITNESS" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        suffix = "w"
    return "%d.%d%s" % (sys.version_info[0], sys.version_info[1], suffix)


def base_executable():
    # type: () -> str
    """The interpreter itself where this one belongs to a virtual environment."""
    if sys.prefix == sys.base_prefix:
        return sys.executable
    base = getattr(sys, "_base_executable", None)
    return str(base or sys.executable)


def starts(executable):
    # type: (str) -> bool
    import subprocess

    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    child = subprocess.run([executable, "-I", "-c", program], stdout=subprocess.PIPE)
    return child.stdout.decode().split() == ["%d.%d" % sys.version_info[:2]]


def trouble(wanted):
    # type: (str) -> str | None
    """What keeps this interpreter from being used, or None."""
    if sys.version_info < OLDEST:
        return "it is Python %d.%d; Headway needs 3.10 or newer" % sys.version_info[:2]
    if sys.implementation.name != "cpython":
        return "it is %s; Headway needs CPython" % sys.implementation.name
    found = found_version()
    if wanted not in ("any", found):
        return "it is Python %s, not %s" % (found, wanted)
    if wanted == "any" and found.endswith("t"):
        return "it is a free-threaded build; name it (%s) where one is wanted" % found
    if wanted == "any" and found.endswith("w"):
        return "it is the witness, which counts what it does; name it (%s)" % found

    import os
    import sysconfig
    import tempfile

    headers = sysconfig.get_paths()["include"]
    if not os.path.exists(os.path.join(headers, "Python.h")):
        return "its headers are missing from %s: install python%s-dev" % (headers, found)
    try:
        import venv
    except ImportError:
        return "its venv module is missing: install python%s-venv" % found
    if not starts(sys.executable):
        return "a child started from sys.executable (%s) does not run" % sys.executable
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, symlinks=True)
        if not starts(os.path.join(directory, "bin", "python")):
            return "a virtual environment made by it does not run"
    return None


if __name__ == "__main__":
    reason = trouble(sys.argv[1])
    print(reason or base_executable())
    sys.exit(1 if reason else 0)
