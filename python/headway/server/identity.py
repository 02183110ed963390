"""The identity of a group's process: its user, directory, limits and name.

A process takes on its identity once, before it imports the application, in an order in which each
step is still permitted. Errors name the group and the value.
"""

from __future__ import annotations

import contextlib
import grp
import math
import os
import pwd
import resource
import signal
from collections.abc import Iterable, Iterator

from headway import _native
from headway.errors import CommandError, reason_of
from headway.server import descriptors
from headway.server.settings import ProcessGroup
from headway.server.socket_file import Access

GROUP_NAME = "%{GROUP}"
# With this, the kernel gives a process a tenth of the time of one that competes with it for a core.
BACKGROUND_NICER_BY = 10
# Of linux/capability.h.
CAP_SETGID, CAP_SETUID, CAP_SYS_NICE, CAP_SYS_RESOURCE = 6, 7, 23, 24


def environment(group: ProcessGroup, inherited: dict[str, str]) -> dict[str, str]:
    """The environment that a process of the group starts with. `group.environment` wins."""
    found = dict(inherited)
    with contextlib.suppress(KeyError):
        if group.user is not None:
            user = find_user(group.user)
            found |= {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    if group.home is not None:
        found["HOME"] = group.home
    if group.lang is not None:
        found["LANG"] = group.lang
    return found | group.environment


def take_on(group: ProcessGroup) -> None:
    """Makes this process one of the group. Raises `CommandError` with exit code 2."""
    if group.cpu_priority:
        with _explained(group, "cpu-priority", str(group.cpu_priority)):
            os.setpriority(os.PRIO_PROCESS, 0, group.cpu_priority)
    if group.is_background:
        give_way()
    _limit_resources(group)
    if group.umask is not None:
        os.umask(group.umask)
    _change_user(group)
    if group.home is not None:
        with _explained(group, "home", group.home):
            os.chdir(group.home)
    take_name(group)
    # This replaces the control socket while the application is imported. The signal has its default
    # effect until this process can end by itself.
    _native.process_end_with_parent(signal.SIGTERM)


def give_way() -> None:
    """Gives this thread, and those that it starts from now on, a nice value that is higher than
    that of the other processes of the group. No right is needed for that."""
    os.nice(BACKGROUND_NICER_BY)


def take_name(group: ProcessGroup) -> None:
    if group.display_name is not None:
        name = group.display_name.replace(GROUP_NAME, f"(wsgi:{group.name})")
        _native.process_set_name(os.fsencode(name))


def find_root(groups: Iterable[ProcessGroup]) -> Iterator[str]:
    """Warns about groups that will run as root although no option says so."""
    names = [each.name for each in groups if each.user is None]
    if os.geteuid() != 0 or not names:
        return
    are = f"process group {names[0]} runs"
    if len(names) > 1:
        are = f"process groups {', '.join(names)} run"
    yield f"{are} as root, for want of a user (--user NAME)"


def may_become(kind: str) -> bool:
    """Whether this process may take on any user (`kind` "user") or any group ("group")."""
    return _has_capability(CAP_SETUID if kind == "user" else CAP_SETGID)


def find_forbidden_limits(group: ProcessGroup) -> Iterator[tuple[str, object, str]]:
    """The options whose values `take_on` cannot set for want of rights, each with its value and
    what is allowed."""
    steps = resource.getrlimit(resource.RLIMIT_NICE)[0]
    least = -20 if steps == resource.RLIM_INFINITY else 20 - steps
    least = min(least, os.getpriority(os.PRIO_PROCESS, 0))
    if group.cpu_priority and group.cpu_priority < least and not _has_capability(CAP_SYS_NICE):
        yield "cpu-priority", group.cpu_priority, f"{least} or more"
    for kind, name, limit, with_hard in _resource_limits(group):
        most = resource.getrlimit(kind)[1]
        may_raise = with_hard and _has_capability(CAP_SYS_RESOURCE)
        if limit and most != resource.RLIM_INFINITY and limit > most and not may_raise:
            yield name, limit, f"{most} or less"


def _has_capability(number: int) -> bool:
    try:
        with open("/proc/thread-self/status") as status:
            (word,) = (line.split()[1] for line in status if line.startswith("CapEff:"))
    except (OSError, ValueError):
        # Without /proc, or in a sandbox that hides the line.
        return os.geteuid() == 0
    return bool(int(word, 16) >> number & 1)


def socket_access(group: ProcessGroup) -> Access:
    """The owner and mode of the group's UNIX sockets. Sockets that root opens belong to the group,
    as if its processes had opened them. Raises `CommandError` with exit code 2."""
    uid = gid = None
    if os.geteuid() == 0:
        user, gid = _account_of(group)
        uid = user.pw_uid if user is not None else None
    if group.socket_user is not None:
        with _explained(group, "socket-user", group.socket_user):
            uid = find_user(group.socket_user).pw_uid
    if group.socket_group is not None:
        with _explained(group, "socket-group", group.socket_group):
            gid = find_group(group.socket_group)
    return Access(group.socket_mode, uid, gid)


def _resource_limits(group: ProcessGroup) -> tuple[tuple[int, str, int, bool], ...]:
    """Each limit with its option, its value, and whether it is a hard limit, too. The hard limit of
    CPU time stays unchanged: at the soft limit the process asks to be replaced."""
    return (
        (resource.RLIMIT_DATA, "memory-limit", group.memory_limit_bytes, True),
        (resource.RLIMIT_AS, "virtual-memory-limit", group.virtual_memory_limit_bytes, True),
        (resource.RLIMIT_CPU, "cpu-time-limit", math.ceil(group.cpu_time_limit_s), False),
    )


def _limit_resources(group: ProcessGroup) -> None:
    descriptors.raise_limit(group.http.max_connections)
    for kind, name, limit, with_hard in _resource_limits(group):
        if limit:
            with _explained(group, name, str(limit)):
                hard = limit if with_hard else resource.getrlimit(kind)[1]
                resource.setrlimit(kind, (limit, hard))


def _account_of(group: ProcessGroup) -> tuple[pwd.struct_passwd | None, int | None]:
    """The user and the main group that the processes of the group take on."""
    user = None
    if group.user is not None:
        with _explained(group, "user", group.user):
            user = find_user(group.user)
    gid = user.pw_gid if user is not None else None
    if group.group is not None:
        with _explained(group, "group", group.group):
            gid = find_group(group.group)
    return user, gid


def _change_user(group: ProcessGroup) -> None:
    user, gid = _account_of(group)
    if group.supplementary_groups:
        for name in group.supplementary_groups:
            with _explained(group, "supplementary-groups", name):
                find_group(name)
        with _explained(group, "supplementary-groups", ",".join(group.supplementary_groups)):
            os.setgroups([find_group(name) for name in group.supplementary_groups])
    elif user is not None and user.pw_uid != os.geteuid():
        with _explained(group, "user", user.pw_name):
            os.initgroups(user.pw_name, gid if gid is not None else user.pw_gid)
    elif user is None and gid is not None and os.geteuid() == 0:
        # A process that is no longer root's must not keep root's supplementary groups.
        os.setgroups([gid])
    if gid is not None and gid != os.getegid():
        with _explained(group, "group", group.group or str(gid)):
            os.setgid(gid)
    if user is not None and user.pw_uid != os.geteuid():
        with _explained(group, "user", user.pw_name):
            os.setuid(user.pw_uid)


def find_user(name: str) -> pwd.struct_passwd:
    """A user by name, or by `#number` as in Apache. Raises `KeyError`."""
    return pwd.getpwuid(int(name[1:])) if name[:1] == "#" else pwd.getpwnam(name)


def find_group(name: str) -> int:
    """The gid of a group by name or `#number`; a number need not be known to the system."""
    return int(name[1:]) if name[:1] == "#" else grp.getgrnam(name).gr_gid


@contextlib.contextmanager
def _explained(group: ProcessGroup, option: str, value: str) -> Iterator[None]:
    try:
        yield
    except KeyError:
        reason = "there is none of that name"
    except (ValueError, OverflowError) as error:
        reason = str(error)
    except OSError as error:
        reason = reason_of(error)
    else:
        return
    raise CommandError(f"process group {group.name!r}: {option} {value!r}: {reason}", exit_code=2)
