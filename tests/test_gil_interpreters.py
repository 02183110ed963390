"""Several GILs: own-GIL sub-interpreters, and a GIL that comes on in a free-threaded build."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from launch import GIL_ENABLED
from metered import assert_balanced, run_metered

pytestmark = pytest.mark.free_threading

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


@pytest.mark.skipif(not OWN_GILS, reason="sub-interpreters share the GIL, or there is none")
def test_a_gil_keeps_its_counters_however_many_interpreters_are_made_after_its_own() -> None:
    """There is room for 61 own GILs. The newest are not measured, until one ends."""
    code = """
        gil.install()
        every = [create() for _ in range(64)]
        for each in every: run(each, "x = 1")
        show([[int(each) for each in every], gil.snapshot().to_dict()])
        interpreters.destroy(every[5])
        fresh = create()
        run(fresh, "x = 1")
        show([int(every[5]), int(fresh), gil.snapshot().to_dict()])
    """
    (ids, full), (ended, fresh, report) = run_with_interpreters(code)  # type: ignore[misc]

    def measured(report: dict[str, object]) -> list[int]:
        rows: list[dict[str, object]] = report["gils"]  # type: ignore[assignment]
        alive = [row["interpreters"] for row in rows if row["alive"] and row["interpreters"]]
        return sorted(ids[0] for ids in alive)  # type: ignore[index]

    assert_balanced(full)
    assert measured(full) == [0, *ids[:61]]
    assert full["unmeasured_gils"] == 3
    assert_balanced(report)
    assert measured(report) == sorted({0, *ids[:61], fresh} - {ended})
    assert report["unmeasured_gils"] == 3


@pytest.mark.skipif(not OWN_GILS, reason="sub-interpreters share the GIL, or there is none")
def test_a_gil_is_named_by_a_thread_that_holds_it_before_and_after_the_install() -> None:
    code = """
        from headway import _native
        name = "from headway import _native; _native.gil_name_gil({!r})".format
        early, late, nameless = create(), create(), create()
        run(early, name(b"shop#1"))
        gil.install()
        run(late, name("caf\\u00e9 ".encode() * 20))
        run(nameless, "x = 1")
        _native.gil_name_gil(b"%{GLOBAL}")
        ids = [int(each) for each in (early, late, nameless)]
        run(early, "x = 1")
        show([ids, gil.snapshot().to_dict()])
        gil.uninstall()
        gil.install()
        for each in (early, late, nameless): run(each, "x = 1")
        show(gil.snapshot().to_dict())
    """
    (ids, named), again = run_with_interpreters(code)  # type: ignore[misc]
    long_name = ("café " * 20).encode()[:64].decode(errors="ignore")
    names = {0: "%{GLOBAL}", ids[0]: "shop#1", ids[1]: long_name, ids[2]: f"interpreter {ids[2]}"}
    for report in (named, again):
        assert {row["interpreters"][0]: row["name"] for row in report["gils"]} == names


@pytest.mark.skipif(not GIL_ENABLED, reason="without a GIL there is nothing to name")
def test_a_forked_child_keeps_the_name_of_the_main_gil() -> None:
    code = """
        from headway import _native
        _native.gil_name_gil(b"%{GLOBAL}")
        gil.install()
        if os.fork() == 0:
            show(gil.snapshot().to_dict())
            sys.stdout.flush()
            os._exit(0)
        assert os.wait()[1] == 0
    """
    (forked,) = run_with_interpreters(code)
    assert [row["name"] for row in forked["gils"]] == ["%{GLOBAL}"]  # type: ignore[index]


@pytest.mark.skipif(not OWN_GILS, reason="there are no own GILs, so all share the main one")
def test_an_interpreter_that_shares_the_main_gil_does_not_rename_it() -> None:
    code = """
        gil.install()
        if sys.version_info >= (3, 13): interpreter = interpreters.create("legacy")
        else: interpreter = interpreters.create(isolated=False)
        run(interpreter, "from headway import _native; _native.gil_name_gil(b'shop')")
        show([int(interpreter), gil.snapshot().to_dict()])
    """
    ((interpreter, report),) = run_with_interpreters(code)  # type: ignore[misc]
    (row,) = report["gils"]
    assert (row["name"], sorted(row["interpreters"])) == ("main", [0, interpreter])


@pytest.mark.skipif(not OWN_GILS, reason="sub-interpreters share the GIL, or there is none")
def test_a_name_may_be_used_again_and_only_the_main_interpreter_matches() -> None:
    code = """
        from headway import _native
        gil.install()
        name = "from headway import _native; _native.gil_name_gil(b'shop')"
        ended = create()
        run(ended, name)
        interpreters.destroy(ended)
        _native.gil_match_interpreters()
        fresh = create()
        run(fresh, name)
        run(fresh, "try: _native.gil_match_interpreters()\\n"
            "except RuntimeError as error: assert 'main interpreter' in str(error)\\n"
            "else: raise AssertionError('matched')")
        show([int(ended), int(fresh), gil.snapshot().to_dict()])
    """
    ((ended, fresh, report),) = run_with_interpreters(code)  # type: ignore[misc]
    assert_balanced(report)
    rows = {row["interpreters"][0]: row for row in report["gils"]}
    assert [rows[id]["name"] for id in (ended, fresh)] == ["shop", "shop"]
    assert [rows[id]["alive"] for id in (ended, fresh)] == [False, True]


@pytest.mark.skipif(not OWN_GILS, reason="sub-interpreters share the GIL, or there is none")
@pytest.mark.slow("makes hundreds of interpreters")
def test_hundreds_of_interpreters_under_a_pool_of_threads_keep_their_books_bounded() -> None:
    """No thread ends and no snapshot is taken meanwhile: only `gil_match_interpreters` folds. Each
    thread has a row on each GIL, so there are more than there is room for."""
    code = """
        import queue
        from headway import _native
        gil.install()
        inboxes, outbox = [queue.SimpleQueue() for _ in range(12)], queue.SimpleQueue()
        def work(inbox):
            while (job := inbox.get()) is not None:
                run(*job)
                outbox.put(None)
        workers = [threading.Thread(target=work, args=(inbox,)) for inbox in inboxes]
        [worker.start() for worker in workers]
        for number in range(400):
            interpreter = create()
            run(interpreter, f"from headway import _native; _native.gil_name_gil(b'app#{number}')")
            for inbox in inboxes:
                inbox.put((interpreter, "import time; time.sleep(0)"))
                outbox.get(timeout=30)
            interpreters.destroy(interpreter)
            _native.gil_match_interpreters()
        [inbox.put(None) for inbox in inboxes]
        [worker.join() for worker in workers]
        show(gil.snapshot().to_dict())
    """
    (report,) = run_with_interpreters(code)
    assert_balanced(report)  # type: ignore[arg-type]
    assert report["unmeasured_events"] == 0  # type: ignore[index]
    gils, threads = report["gils"], report["threads"]  # type: ignore[index]
    assert len(gils) <= 64
    assert len(threads) < 1024
    (total,) = [row for row in gils if row["name"].endswith(" ended)")]
    named = [row for row in gils if row["name"].startswith("app#")]
    assert {row["name"] for row in named} == {f"app#{n}" for n in range(400 - len(named), 400)}
    assert len(named) + int(total["name"][1:].split()[0]) == 400
    assert not any(row["alive"] for row in named)


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
