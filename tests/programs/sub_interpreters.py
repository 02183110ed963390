"""Sub-interpreters that share the GIL and, from 3.12 on, that have their own, used from threads."""

import sys
import threading

try:
    import _interpreters
except ImportError:
    try:
        import _xxsubinterpreters as _interpreters
    except ImportError:
        _interpreters = None

CODE = """
import threading, time
for _ in range(20):
    sum(range(2000))
    time.sleep(0.001)
thread = threading.Thread(target=sum, args=(range(20_000),))
thread.start()
thread.join()
"""


def create(own_gil):
    for arguments in (("isolated" if own_gil else "legacy",), (), ({"isolated": own_gil},)):
        try:
            if arguments and isinstance(arguments[0], dict):
                return _interpreters.create(**arguments[0])
            return _interpreters.create(*arguments)
        except TypeError:
            continue
    raise RuntimeError("no way to create a sub-interpreter")


def use(own_gil, done):
    interpreter = create(own_gil)
    try:
        _interpreters.run_string(interpreter, CODE)
        done.append(own_gil)
    finally:
        _interpreters.destroy(interpreter)


done = []
if _interpreters is not None:
    # One after another and then at once; the shared-GIL ones only alone, as CPython likes it.
    use(False, done)
    own_gil_exists = sys.version_info >= (3, 12)
    for _ in range(2 if own_gil_exists else 0):
        use(True, done)
    threads = [threading.Thread(target=use, args=(True, done)) for _ in range(3)]
    threads = threads if own_gil_exists else []
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(len(done), "sub-interpreters ended")
