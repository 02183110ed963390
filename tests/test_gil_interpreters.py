"""Several GILs: own-GIL sub-interpreters, and a GIL that comes on in a free-threaded build."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from launch import GIL_ENABLED
from metered import assert_balanced, run_metered

OWN_GILS = sys.version_info >= (3, 12) and GIL_ENABLED

INTERPRETERS = """
try: import _interpreters as interpreters
except ImportError: import _xxsubinterpreters as interpreters
import warnings
warnings.simplefilter("ignore")

def create():
    isolated = {"isolated": True} if sys.version_info < (3, 13) else {"config": "isolated"}
    return interpreters.create(**isolated)

def run(interpreter, code):
    if sys.version_info >= (3, 13): assert interpreters.exec(interpreter, code) is None
    else: interpreters.run_string(interpreter, code)

def by_name():
    report = gil.snapshot().to_dict()
    return report, {row["name"]: row for row in report["gils"]}
"""


def run_with_interpreters(code: str) -> list[object]:
    import textwrap

    return run_metered(INTERPRETERS + textwrap.dedent(code))


@pytest.mark.skipif(not OWN_GILS, reason="sub-interpreters share the GIL, or there is none")
def test_own_gils_appear_by_themselves_and_stay_when_they_end() -> None:
    code = """
        older = create()
        run(older, "x = 1")
        gil.install()
        younger = create()
        work = "import time; time.sleep(0.05); sum(range(10**6))"
        both = (older, younger)
        threads = [threading.Thread(target=run, args=(each, work)) for each in both]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        show([int(older), int(younger)])
        report, gils = by_name()
        show(report)
        interpreters.destroy(younger)
        report, gils = by_name()
        show(report)
    """
    (older, younger), running, ended = run_with_interpreters(code)  # type: ignore[misc]
    for report in (running, ended):
        assert_balanced(report)
    gils = {row["name"]: row for row in running["gils"]}
    assert gils["main"]["interpreters"] == [0]
    for id in (older, younger):
        row = gils[f"interpreter {id}"]
        assert row["interpreters"] == [id]
        assert row["alive"]
        assert row["takes"] > 0
    closed = {row["name"]: row for row in ended["gils"]}[f"interpreter {younger}"]
    assert not closed["alive"]
    assert closed["takes"] >= gils[f"interpreter {younger}"]["takes"]
    assert closed["held_now"] == 0


@pytest.mark.skipif(not OWN_GILS, reason="sub-interpreters share the GIL, or there is none")
def test_many_interpreters_one_after_another_are_bounded() -> None:
    code = """
        gil.install()
        for _ in range(150):
            interpreter = create()
            run(interpreter, "x = 1")
            interpreters.destroy(interpreter)
        show(gil.snapshot().to_dict())
    """
    (report,) = run_with_interpreters(code)
    assert_balanced(report)  # type: ignore[arg-type]
    assert report["unmeasured_events"] == 0  # type: ignore[index]
    gils = report["gils"]  # type: ignore[index]
    assert len(gils) <= 64
    sums = [row for row in gils if row["name"].endswith("ended)")]
    told_apart = len(gils) - len(sums) - 1
    assert told_apart + sum(int(row["name"][1:].split()[0]) for row in sums) == 150


@pytest.mark.skipif(sys.version_info >= (3, 12) or not GIL_ENABLED, reason="own GILs, or none")
def test_interpreters_that_share_the_gil_are_listed_with_it() -> None:
    code = """
        gil.install()
        interpreter = create()
        run(interpreter, "x = 1")
        show([int(interpreter), gil.snapshot().to_dict()])
    """
    ((interpreter, report),) = run_with_interpreters(code)  # type: ignore[misc]
    assert sorted(report["gils"][0]["interpreters"]) == [0, interpreter]
    assert len(report["gils"]) == 1


def test_only_the_main_interpreter_installs() -> None:
    code = """
        import textwrap
        interpreter = interpreters.create()
        run(interpreter, textwrap.dedent('''
            from headway import gil
            from headway.errors import Unsupported
            try: gil.install()
            except Unsupported as error: assert "main interpreter" in str(error)
            else: raise AssertionError("installed")
        '''))
        show("refused")
    """
    if sys.version_info >= (3, 13):
        code = code.replace("interpreters.create()", "create()")
    assert run_with_interpreters(code) == ["refused"]


@pytest.mark.skipif(GIL_ENABLED, reason="for free-threaded builds that run without the GIL")
def test_a_gil_that_comes_on_at_run_time_gets_books(tmp_path: Path) -> None:
    """An extension module that does not declare Py_MOD_GIL_NOT_USED turns the GIL on."""
    source = tmp_path / "needs_gil.c"
    source.write_text(
        "#include <Python.h>\n"
        'static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "needs_gil", 0, 0, 0};\n'
        "PyMODINIT_FUNC PyInit_needs_gil(void) { return PyModuleDef_Init(&definition); }\n"
    )
    module = tmp_path / f"needs_gil{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = sysconfig.get_path("include")
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{include}", source, "-o", module], check=True)
    code = f"""
        import warnings
        warnings.simplefilter("ignore")
        gil.install()
        show(gil.snapshot().to_dict())
        sys.path.insert(0, {str(tmp_path)!r})
        import needs_gil
        until = time.monotonic() + 0.3
        def compute():
            while time.monotonic() < until: pass
        threads = [threading.Thread(target=compute, name=f"t{{index}}") for index in range(3)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        show(gil.snapshot().to_dict())
    """
    off, on = run_metered(code)
    assert (off["gil"], off["gils"]) == ("disabled", [])
    assert on["gil"] == "enabled"
    assert_balanced(on)
    assert on["gils"][0]["name"] == "main"
    assert {"t0", "t1", "t2"} <= {row["name"] for row in on["threads"] if row["contended_takes"]}
