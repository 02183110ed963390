"""Measures and cures a process that already runs: `headway attach`.

`target` finds out what a process is, and refuses what cannot be attached to. `remote_debugging`
(CPython 3.14 and later) and `gdb` (before) have it run a script of a few lines, which starts a
thread in it. That thread runs `guest`, the only module here that runs in the target, and `session`
is the conversation with it.
"""
