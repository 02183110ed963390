"""Defects that were found in the meter, each with the program that showed it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launch import GIL_ENABLED, environment, python
from metered import PREAMBLE, assert_balanced, run_metered

pytestmark = pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")


def test_a_second_process_with_the_same_ledger_file_does_not_kill_the_first(tmp_path: Path) -> None:
    path = str(tmp_path / "shared.ledger")
    code = f"""
        import subprocess
        gil.install(ledger={path!r})
        other = "from headway import gil; gil.install(ledger={path!r}); print(gil.snapshot())"
        for _ in range(3):
            subprocess.run([sys.executable, "-c", other], check=True, stdout=subprocess.DEVNULL)
            for _ in range(1000): time.sleep(0)
        show(gil.snapshot().to_dict())
    """
    (report,) = run_metered(code)
    assert_balanced(report)
    assert report["gils"][0]["takes"] >= 3000


def test_a_full_disk_is_a_refusal(tmp_path: Path) -> None:
    code = PREAMBLE + (
        "from headway.errors import Unsupported\n"
        f"try: gil.install(ledger={str(tmp_path)!r} + '/x.ledger')\n"
        "except Unsupported as error: show(str(error))\n"
    )
    mount = f"mount -t tmpfs -o size=4k none {tmp_path} && head -c 4096 /dev/zero > {tmp_path}/fill"
    namespace = ["unshare", "--mount", "--map-root-user"]
    if subprocess.run([*namespace, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("no mount namespace can be made here")
    script = f'{mount}; exec "$@"'
    command = [*namespace, "sh", "-c", script, "sh", sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, (result.returncode, result.stderr)
    assert "No space left" in result.stdout


def test_a_thread_whose_name_is_no_text_starts() -> None:
    code = """
        class Odd(threading.Thread):
            name = property(lambda self: 7, lambda self, value: None)
        gil.install()
        thread = Odd(target=int)
        thread.start()
        thread.join(30)
        show([thread.is_alive(), gil.snapshot().to_dict()["gils"][0]["takes"] > 0])
    """
    assert run_metered(code) == [[False, True]]


def test_a_child_of_a_process_that_removed_the_meter_has_books_of_its_own() -> None:
    code = """
        import warnings
        warnings.simplefilter("ignore")
        gil.install()
        for _ in range(10): time.sleep(0)
        gil.uninstall()
        before = gil.snapshot().to_dict()["gils"][0]["takes"]
        pid = os.fork()
        if not pid:
            gil.install()
            for _ in range(1000): time.sleep(0)
            show(gil.snapshot().to_dict())
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        show([pid, before, gil.snapshot().to_dict()["gils"][0]["takes"]])
    """
    child, (pid, before, after) = run_metered(code)
    assert_balanced(child)
    assert child["pid"] == pid
    assert after == before


def test_a_program_that_deletes_what_the_meter_asks_is_left_alone() -> None:
    code = """
        gil.install()
        del sys.getswitchinterval
        show(gil.snapshot().to_dict()["gils"][0]["takes"])
    """
    assert len(run_metered(code)) == 1


@pytest.mark.slow("starts thousands of threads")
def test_a_snapshot_leaves_out_threads_that_come_while_it_is_taken() -> None:
    code = """
        gil.install()
        stop = False
        def start_threads():
            while not stop:
                threads = [threading.Thread(target=time.sleep, args=(0,)) for _ in range(50)]
                [thread.start() for thread in threads]
                [thread.join() for thread in threads]
        starters = [threading.Thread(target=start_threads) for _ in range(3)]
        [thread.start() for thread in starters]
        for _ in range(100): show(gil.snapshot().to_dict())
        stop = True
        [thread.join() for thread in starters]
    """
    for report in run_metered(code):
        assert_balanced(report)


def test_a_difference_balances_though_rows_were_folded_between() -> None:
    code = """
        def run_threads(count, prefix):
            names = [f"{prefix}-{index}" for index in range(count)]
            threads = [threading.Thread(target=time.sleep, args=(0,), name=name) for name in names]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
        gil.install()
        run_threads(200, "one")
        before = gil.snapshot()
        run_threads(400, "two")
        run_threads(400, "one")
        show((gil.snapshot() - before).to_dict())
    """
    (report,) = run_metered(code)
    assert_balanced(report)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="`_interpreters` is from 3.13 on")
def test_a_thread_that_uses_many_gils_has_one_row_for_each() -> None:
    code = """
        import _interpreters as interpreters
        gil.install()
        many = [interpreters.create("isolated") for _ in range(12)]
        for _ in range(5):
            for each in many: interpreters.exec(each, "x = 1")
        report = gil.snapshot()
        for each in many: interpreters.exec(each, "x = 1")
        show(report.to_dict())
        show((gil.snapshot() - report).to_dict())
    """
    for report in run_metered(code):
        assert_balanced(report)
        keys = [(row["gil"], row["native_id"]) for row in report["threads"] if row["native_id"]]
        assert len(keys) == len(set(keys))


@pytest.mark.skipif(sys.version_info < (3, 13), reason="`_interpreters` is from 3.13 on")
def test_books_of_another_gil_balance_when_the_meter_is_removed() -> None:
    code = """
        import _interpreters as interpreters
        stop = False
        def work():
            code = "import os\\nfor _ in range(2000): os.stat('/')"
            while not stop: interpreters.exec(each, code)
        gil.install()
        each = interpreters.create("isolated")
        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(300):
            gil.install()
            gil.uninstall()
            show(gil.snapshot().to_dict())
        stop = True
        thread.join()
    """
    for report in run_metered(code):
        assert_balanced(report)


def test_threads_that_c_code_starts_are_measured() -> None:
    code = """
        libc = ctypes.CDLL(None)
        gate = threading.Event()
        function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
        callback = function(lambda _: gate.wait(60) and None)
        gil.install()
        threads = [ctypes.c_ulong() for _ in range(100)]
        for thread in threads: libc.pthread_create(ctypes.byref(thread), None, callback, None)
        gate.set()
        for thread in threads: libc.pthread_join(thread, None)
        show(gil.snapshot().to_dict())
    """
    (report,) = run_metered(code)
    assert_balanced(report)
    assert report["unmeasured_events"] == 0
    assert len(report["threads"]) == 101


def test_more_threads_than_there_are_books_are_counted_together() -> None:
    code = """
        threading.stack_size(64 * 1024)
        gate = threading.Event()
        gil.install()
        threads = [threading.Thread(target=gate.wait) for _ in range(2300)]
        [thread.start() for thread in threads]
        gate.set()
        [thread.join() for thread in threads]
        show(gil.snapshot().to_dict())
    """
    (report,) = run_metered(code)
    assert_balanced(report)
    assert report["unmeasured_events"] > 0
    assert any(row["name"] == "(unmeasured)" for row in report["threads"])


def test_names_are_known_though_threading_was_looked_for_before_its_import() -> None:
    code = (
        "import importlib.util; from headway import gil; gil.install()\n"
        "importlib.util.find_spec('threading')\n"
        "import threading\n"
        "thread = threading.Thread(target=int, name='named'); thread.start(); thread.join()\n"
        "print(sorted(row['name'] for row in gil.snapshot().to_dict()['threads']))\n"
    )
    result = python("-c", code)
    assert result.stdout == "['MainThread', 'named']\n", result.stderr


def test_a_child_forked_during_an_install_can_install() -> None:
    """Imports that an installation makes come first: a child that is forked while another thread
    imports waits for that module's lock for ever."""
    code = """
        import warnings
        from headway import _native
        warnings.simplefilter("ignore")
        children, stop = [], False
        def fork_children():
            while not stop:
                pid = os.fork()
                if not pid:
                    try: gil.install()
                    except BaseException as error: os._exit(9)
                    os._exit(0)
                children.append(os.waitpid(pid, 0)[1])
        thread = threading.Thread(target=fork_children)
        thread.start()
        gil.install()
        stop = True
        thread.join()
        show(children)
    """
    for _ in range(10):
        (statuses,) = run_metered(code)
        assert set(statuses) <= {0}


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_probe_that_no_hook_sees_does_not_keep_the_gil_from_other_threads(
    tmp_path: Path,
) -> None:
    """The probe of the installation sleeps in the GIL's mutex until another thread has the GIL."""
    source, library = tmp_path / "late.c", tmp_path / "late.so"
    source.write_text(
        """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <poll.h>
        #include <pthread.h>
        #include <unistd.h>

        static int begun[2], ended[2];
        static volatile int is_armed;
        static __thread int is_exempt;

        void exempt_this_thread(void) { is_exempt = 1; }
        void prepare(void) { if (pipe(begun) || pipe(ended)) _exit(8); }
        void arm(void) { is_armed = 1; }
        void wait_for_probe(void) { char byte; if (read(begun[0], &byte, 1) != 1) _exit(8); }
        void end_probe(void) { if (write(ended[1], "x", 1) != 1) _exit(8); }

        int pthread_mutex_lock(pthread_mutex_t *mutex)
        {
            static int (*next)(pthread_mutex_t *);
            if (!next) next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
            if (is_armed && !is_exempt) {
                struct pollfd end = {ended[0], POLLIN, 0};
                is_armed = 0;
                if (write(begun[1], "x", 1) != 1 || poll(&end, 1, 5000) != 1) _exit(9);
            }
            return next(mutex);
        }
        """
    )
    command = ["cc", "-O1", "-shared", "-fPIC", source, "-o", library, "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    code = """
        from headway.errors import Unsupported
        library = ctypes.CDLL(None)
        library.prepare()
        library.exempt_this_thread()
        def end_probe():
            library.exempt_this_thread()
            library.wait_for_probe()
            library.end_probe()
        thread = threading.Thread(target=end_probe)
        thread.start()
        time.sleep(0.1)
        library.arm()
        try: gil.install()
        except Unsupported: pass
        thread.join()
        show("the program goes on")
    """
    assert run_metered(code, env=environment(LD_PRELOAD=str(library))) == ["the program goes on"]
