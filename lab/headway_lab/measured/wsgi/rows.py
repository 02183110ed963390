"""The rows of `wsgi`: workload by shape by switch interval by policy, and rows without a GIL.

This module does not know how a row is measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from headway.errors import CommandError
from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.output.metadata import STOCK
from headway.output.results import Parameters
from headway.programs.interpreters import Interpreter
from headway_lab.experiment import Choice, Row
from headway_lab.measured.wsgi import mod_wsgi
from headway_lab.measured.wsgi.server import MOD_WSGI, Shape

# The pages of `programs/wsgi_page.py`.
DEADLINE, FIXED = "deadline", "fixed"
WORKLOADS = {DEADLINE: "/deadline", FIXED: "/fixed"}
SHAPES = ((10, 1), (2, 5), (1, 10))
QUICK_SHAPES = ((10, 1), (2, 5))
INTERVALS_S = (0.005, 0.002, 0.0001)
QUICK_INTERVALS_S = (0.005, 0.0001)
# The policy of Headway's server for STOCK: CPython's own rule, measured.
UNSCHEDULED = "interval"
GIL, FREE_THREADED = "gil", "free-threaded"


def rows(choice: Choice) -> list[Row]:
    """Raises CommandError (exit code 2) for an impossible choice."""
    without = missing(choice.server, choice.interpreter, False)
    if without and choice.server == MOD_WSGI:
        raise CommandError(f"--server {MOD_WSGI}: {without}", exit_code=2)
    policies = policies_of(choice)
    found = []
    for workload in choice.workloads or WORKLOADS:
        for processes, threads in choice.shapes or (QUICK_SHAPES if choice.quick else SHAPES):
            page: Parameters = {
                "server": choice.server,
                "workload": workload,
                "processes": processes,
                "threads": threads,
            }
            for policy, interval_s in scheduled(choice, policies, threads):
                parameters = {
                    **page,
                    "mode": GIL,
                    "policy": policy,
                    "switch_interval": interval_s,
                }
                found.append(Row(parameters, choice.setting(policy, interval_s), without))
            if threads > 1:
                found.append(free_threaded_row(choice, page))
    return found


def policies_of(choice: Choice) -> tuple[str, ...]:
    """The policies, the unscheduled one first. Raises CommandError for those that mod_wsgi does not
    have."""
    if choice.server == MOD_WSGI:
        if STOCK not in choice.policies:
            raise CommandError(
                f"--policy {choice.policies[0]}: {MOD_WSGI} has none of Headway's; "
                f"with --server {MOD_WSGI} there is --policy {STOCK}",
                exit_code=2,
            )
        return (STOCK,)
    policies = [UNSCHEDULED if policy == STOCK else policy for policy in choice.policies]
    found = tuple(dict.fromkeys(policies))
    # With --quick the last one stands for all policies.
    return tuple(dict.fromkeys((found[0], found[-1]))) if choice.quick else found


def scheduled(
    choice: Choice, policies: tuple[str, ...], threads: int
) -> Iterator[tuple[str, float]]:
    """The policies with their switch intervals: the unscheduled one with all of them, the others
    with CPython's default unless the user named some. Both have no effect on a thread with a GIL of
    its own."""
    intervals_s = choice.switch_intervals_s or (QUICK_INTERVALS_S if choice.quick else INTERVALS_S)
    if threads == 1:
        yield policies[0], intervals_s[0]
        return
    for policy in policies:
        if policy in (STOCK, UNSCHEDULED) or choice.switch_intervals_s:
            yield from ((policy, interval_s) for interval_s in intervals_s)
        else:
            yield policy, DEFAULT_SWITCH_INTERVAL_S


def free_threaded_row(choice: Choice, page: Parameters) -> Row:
    """A row without a GIL has no policy and no switch interval."""
    parameters = {
        **page,
        "mode": FREE_THREADED,
        "policy": STOCK,
        "switch_interval": DEFAULT_SWITCH_INTERVAL_S,
    }
    if choice.free_threaded is None:
        return Row(parameters, choice.setting(), choice.no_free_threading)
    without = missing(choice.server, choice.free_threaded, True)
    return Row(parameters, choice.free_threaded_setting(), without)


def missing(server: str, interpreter: Interpreter, free_threading: bool) -> str:
    """The reason why a server cannot run with an interpreter; empty if it can."""
    if server == MOD_WSGI:
        return mod_wsgi.missing(interpreter.path, free_threading)
    return "" if interpreter.headway else f"{interpreter.path} has no Headway of its own"


def compares_builds(parameters: Parameters) -> bool:
    """Whether the speed of one thread on the row's build must be measured, to remove it from ratios
    between builds."""
    if parameters["workload"] != FIXED:
        return False
    return bool(parameters["mode"] == FREE_THREADED or parameters["threads"] == 1)


def shape_of(row: Row) -> Shape:
    return Shape(
        row.parameters["server"],
        row.parameters["processes"],
        row.parameters["threads"],
        row.parameters["mode"] == FREE_THREADED,
        row.setting,
    )
