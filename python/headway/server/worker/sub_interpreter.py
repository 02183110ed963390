"""The start of a sub-interpreter before its first request: takes on the settings of its application
group and loads the applications.

The native part calls this module in the manager's thread. The module does not use the server: its
input and its answers are text, except for the callables that it returns.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from headway import _native
from headway.errors import CommandError, RequestTimeout
from headway.meter import garbage_collection, thread_names
from headway.server.stderr import report_exception
from headway.server.worker import environ, restrictions, search_path
from headway.server.worker.application import REFUSAL, ImportFailed, load_application
from headway.server.worker.mounts import mount

Entry = tuple[Any, Callable[..., None], Callable[[], list[dict[str, object]]], type[BaseException]]


def enter(task: str) -> Entry | str:
    """Returns the arguments of `_native.interpreter_of_caller` or, after a failure, JSON with the
    contents of a `CommandError`. `task` is the JSON that `InterpreterManager` makes."""
    told = json.loads(task)
    try:
        sys.argv[:] = ["headway"]
        _native.gil_name_gil(told["name"].encode().replace(b"\0", b""))
        if told["reported"]:
            _native.gc_watch(told["name"].replace("\0", ""))
        # Threads that the application starts at import inherit the interval.
        _native.gil_set_switch_interval(told["thread_interval_ns"])
        if _native.gil_installed():
            thread_names.follow_starts(threading, _native.gil_name_thread)
            garbage_collection.follow(_native.gil_note_collection)
        if told["switch_interval_s"] is not None:
            sys.setswitchinterval(told["switch_interval_s"])
        if told["stack_size_bytes"]:
            # Each interpreter has its own.
            threading.stack_size(told["stack_size_bytes"])
        if told["control_fd"] >= 0:
            # Imported here, because interpreters with a GIL do not need the module's imports.
            from headway.server.worker import gil_events

            gil_events.tell_of_gil_by(told["control_fd"])
        if told["files_fd"] >= 0:
            from headway.server.worker import imported_files

            imported_files.tell_of_files_by(told["files_fd"])
        if told["own_gil"] and sys.version_info < (3, 13):
            _have_zoneinfo_in_python()
        search_path.extend_by(*told["search_path"])
        restrictions.impose(*told["restricted"])
        application = mount([(path, load_application(name)) for path, name in told["mounts"]])
    except ImportFailed as error:
        return _refusal(_with_the_way_out(str(error), error.details), 1, error.details)
    except CommandError as error:
        return _refusal(str(error), error.exit_code)
    except BaseException as error:
        return _refusal(f"{type(error).__name__}: {error}", 1, traceback.format_exc().rstrip())
    finally:
        _native.gil_set_switch_interval(None)
    about = told["environs"]
    return application, report_exception, lambda: environ.templates(about), RequestTimeout


def _have_zoneinfo_in_python() -> None:
    """Makes `zoneinfo` use its Python implementation. Up to 3.12, `_datetime` refuses an own GIL,
    and `datetime` falls back to Python. `zoneinfo` falls back only if `_zoneinfo` is not found;
    `_zoneinfo` is found, but fails because it needs `_datetime` (gh-112100)."""
    sys.modules["_zoneinfo"] = None  # type: ignore[assignment]


def _refusal(message: str, exit_code: int, details: str = "") -> str:
    return json.dumps({"message": message, "exit_code": exit_code, "details": details})


def _with_the_way_out(message: str, details: str) -> str:
    refused = REFUSAL.search(details)
    if refused is None:
        return message
    specification = message.partition(": ")[0]
    return (
        f"{specification}: the extension module {refused[1]} refuses an interpreter with a GIL of "
        "its own; run the application without --per-interpreter-gil, or in the main interpreter "
        "(--application-group %{GLOBAL}). `headway audit` lists all modules that refuse"
    )
