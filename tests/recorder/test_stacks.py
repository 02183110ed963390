"""Python stacks of threads, taken without the GIL, in programs of their own."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from launch import python

from headway.profile.model import CUT

pytestmark = pytest.mark.free_threading

# Asks for the stack of another thread, from a thread that needs the GIL only before and after.
PRELUDE = """
import ctypes, os, signal, sys, threading, time
from headway import _native
from headway.meter import stacks

def ask(thread, patience_s=20.0):
    try:
        return _native.stacks_read(thread.native_id, int(patience_s * 1e9))
    except RuntimeError as missing:
        return f"missing: {missing}"

def deep(calls, act):
    return deep(calls - 1, act) if calls else act()

inside = threading.Event()
over = threading.Event()

def linger():
    inside.set()
    over.wait()

def started(target, *arguments):
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    assert inside.wait(20)
    return thread

assert stacks.prepare()
"""


def run(program: str, *options: str) -> str:
    result = python(*options, "-c", PRELUDE + textwrap.dedent(program))
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def test_the_most_recent_call_comes_first() -> None:
    told = run("print(ask(started(deep, 3, linger)))")
    lines = told.splitlines()
    assert all(re.fullmatch(r".+ \((/.*\.py|<string>):\d+\)", line) for line in lines)
    calls = [line.partition(" ")[0] for line in lines]
    assert calls[calls.index("linger") :][:5] == ["linger", "deep", "deep", "deep", "deep"]
    assert "Stack (most recent" not in told


def test_a_deep_stack_is_cut_at_a_line() -> None:
    told = run("print(ask(started(deep, 500, linger)))")
    assert told.splitlines()[-1] == CUT
    assert len(told) <= 16_384


def test_a_thread_in_c_that_keeps_the_gil_is_no_obstacle() -> None:
    """The asking thread has dropped the GIL, and cannot take it again when it has the answer. So
    the answer is about a thread that still holds the GIL."""
    told = run(
        """
        import re

        def search():
            inside.set()
            re.match(r"(1+)+$", "1" * 21 + "x")

        while True:
            inside.clear()
            told = ask(started(search))
            if "search (" in told:
                break
        print(told)
        """
    )
    assert "re/__init__.py" in told or "re.py" in told


def test_threads_that_cannot_answer_are_told_apart() -> None:
    told = run(
        """
        every = signal.valid_signals()

        def blocked():
            signal.pthread_sigmask(signal.SIG_BLOCK, every)
            linger()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, every)
            # Where the signal that it got meanwhile is handled.
            deep(3, lambda: None)

        thread = started(blocked)
        print(ask(thread, 0.05))
        # Others can be asked meanwhile, and hear nothing of the first.
        inside.clear()
        other = started(deep, 2, linger)
        for _ in range(20):
            assert "deep (" in ask(other)
        over.set()
        thread.join()
        other.join()
        # What Python has joined may not be gone for the kernel.
        late = ("missing: no Python code", "missing: the thread did not answer in time")
        while (told := ask(thread)) in late:
            pass
        print(told)
        """
    )
    assert told.splitlines() == [
        "missing: the thread did not answer in time",
        "missing: the thread has ended",
    ]


def test_many_ask_at_once_and_each_gets_its_own() -> None:
    run(
        """
        def named(number):
            scope = {"linger": linger}
            exec(f"def call_{number}(): linger()", scope)
            scope[f"call_{number}"]()

        threads = {}
        for number in range(6):
            inside.clear()
            threads[number] = started(named, number)
        wrong = []

        def ask_often(number):
            answers = 0
            while answers < 20:
                told = ask(threads[number])
                if told == "missing: another stack was being taken":
                    time.sleep(0.0001)
                    continue
                answers += 1
                if f"call_{number} (<string>:1)\\n" not in told:
                    wrong.append(told)

        askers = [threading.Thread(target=ask_often, args=(number,)) for number in threads]
        [asker.start() for asker in askers]
        [asker.join() for asker in askers]
        assert not wrong, wrong
        over.set()
        """
    )


def test_a_forked_child_has_a_pipe_of_its_own() -> None:
    told = run(
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        here = started(deep, 1, linger)
        child = os.fork()
        if child == 0:
            inside.clear()
            thread = started(deep, 2, linger)
            for _ in range(50):
                assert ask(thread).count("deep (") == 3
            os._exit(7)
        for _ in range(50):
            assert ask(here).count("deep (") == 2
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
        """
    )
    assert told == "7\n"


def test_files_that_took_the_numbers_of_the_pipe_are_left_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    told = run(
        f"""
        thread = started(linger)
        _, writing = _native.stacks_open()
        os.close(writing)
        with open({str(victim)!r}, "w") as file:
            assert file.fileno() == writing
            print(ask(thread))
        """
    )
    assert told == "missing: no stacks in this process\n"
    assert victim.read_text() == ""


def test_a_signal_that_the_program_handles_is_left_to_it() -> None:
    told = run(
        """
        taken, _ = _native.stacks_open()
        print(taken)
        """
    )
    handled = int(told)
    program = f"""
        import signal
        signal.signal({handled}, lambda number, frame: print("mine", flush=True))
    """
    result = python(
        "-c",
        textwrap.dedent(program)
        + PRELUDE
        + textwrap.dedent(
            f"""
        chosen, _ = _native.stacks_open()
        assert chosen != {handled}
        print(ask(started(linger)).count("linger ("))
        signal.raise_signal({handled})
        """
        ),
    )
    assert (result.stdout, result.stderr) == ("1\nmine\n", "")


def test_what_takes_the_signal_later_gets_no_more_of_them() -> None:
    told = run(
        """
        thread = started(linger)
        chosen, _ = _native.stacks_open()
        signal.signal(chosen, lambda number, frame: print("not ours"))
        print(ask(thread))
        """
    )
    assert told == "missing: no stacks in this process\n"


def test_calls_that_wait_go_on() -> None:
    """Python's own retry after a signal (PEP 475), and blocking calls are begun afresh."""
    told = run(
        """
        reading, writing = os.pipe()
        answers = []

        def read():
            inside.set()
            answers.append(os.read(reading, 1))

        def sleep():
            inside.set()
            began = time.monotonic()
            time.sleep(0.3)
            answers.append(time.monotonic() - began >= 0.3)

        for target in (read, sleep):
            inside.clear()
            thread = started(target)
            for _ in range(10):
                ask(thread)
            if target is read:
                os.write(writing, b"x")
            thread.join()
        print(answers)
        """
    )
    assert told == "[b'x', True]\n"


def test_the_end_of_the_interpreter_takes_the_handler_and_not_the_process() -> None:
    """faulthandler puts back what it found, and a signal may be on its way just then."""
    run(
        """
        thread = started(linger)
        chosen, _ = _native.stacks_open()
        faulthandler = sys.modules["faulthandler"]
        faulthandler.unregister(chosen)
        assert ask(thread) == "missing: no stacks in this process"
        os.kill(os.getpid(), chosen)
        """
    )


def test_a_thread_that_comes_back_to_c_is_no_trap() -> None:
    """While the frame that it leaves is cleared, CPython 3.12 and 3.13 have an entry without code
    as its present frame, and in 3.13.0 faulthandler crashes on it."""
    run(
        """
        def fill_and_leave(_):
            inside.set()
            lists = [[] for _ in range(20_000)]

        def call_from_c():
            while not over.is_set():
                list(map(fill_and_leave, range(10)))

        # Who asks needs the GIL before and after, and gets it once an interval.
        sys.setswitchinterval(0.0005)
        thread = started(call_from_c)
        for _ in range(1_000):
            told = ask(thread)
            assert "call_from_c (" in told, told
        over.set()
        thread.join()
        """
    )
