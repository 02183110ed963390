"""The options of one application group: the keys of its table in TOML and the settings of
mod_wsgi's <WSGIInterpreterOptions>.

Some are also options of a process group, where they apply to all its sub-interpreters.
"""

from __future__ import annotations

from headway.options import SWITCH_INTERVAL
from headway.server.config.option_types import Several, Switch, Text
from headway.server.config.options import OPTIONS, Option

# Maps an option's name in an application group to its name in a process group.
OF_SUB_INTERPRETERS = {
    "interpreters": "interpreters",
    "per-interpreter-gil": "per-interpreter-gil",
    "maximum-requests": "interpreter-maximum-requests",
    "on-demand": "interpreters-on-demand",
}


def _restriction(what: str, help: str) -> Option:
    name = f"restrict-{what}"
    return Option(name, f"application_group.{name.replace('-', '_')}", Switch(True), help)


INTERPRETER_OPTIONS: dict[str, Option] = {
    **{name: OPTIONS[other]._replace(name=name) for name, other in OF_SUB_INTERPRETERS.items()},
    "switch-interval": Option(
        "switch-interval",
        "application_group.switch_interval_s",
        SWITCH_INTERVAL,
        "of its GIL; of its threads where it shares the GIL of the process",
    ),
    "python-path": Option(
        "python-path",
        "application_group.python_path",
        Several(Text("DIR", "a directory"), ":"),
        "directories to put before those of the process group",
        path="directory",
    ),
    "restrict-stdin": _restriction("stdin", "reading sys.stdin fails"),
    "restrict-stdout": _restriction("stdout", "writing to sys.stdout fails"),
    "restrict-signal": _restriction("signal", "signal.signal() changes nothing"),
}
