"""Derives an answer, with its reason, from the events of a trial. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from headway.audit.findings import Answer, Module
from headway.audit.trial import Event, Trial
from headway.server.worker.application import REFUSAL

# The text of CPython's warning, in Python/import.c.
GIL_WARNING = re.compile(r"load module '([^']+)', which has not declared")
NO_OWN_GIL_HERE = Answer(
    "unknown",
    f"CPython {sys.version_info[0]}.{sys.version_info[1]} has no own-GIL interpreters "
    "(3.12 and later have)",
)
MAX_MESSAGE = 300
KINDS = {"own": "own-GIL", "shared": "shared-GIL"}


def loads(gil: str) -> Answer:
    return Answer("yes", f"loads in two {KINDS[gil]} interpreters of a process")


def of_module(trial: Trial, gil: str, name: str) -> Answer:
    """The answer for a module that was tried alone."""
    return _answer(trial, gil, name)


def of_application(trial: Trial, gil: str) -> Answer:
    return _answer(trial, gil, None)


def _answer(trial: Trial, gil: str, name: str | None) -> Answer:
    for event in trial.of("no-interpreter"):
        return Answer("unknown", f"no {KINDS[gil]} interpreter: {_short(event['error'])}")
    for event in trial.of("failed"):
        return _refused(event, name)
    if not trial.ending.complete:
        return Answer("no", f"{trial.ending.reason}, {_when(trial)}")
    for event in trial.of("not-ended"):
        return Answer("no", f"its interpreter cannot be ended: {_short(event['error'])}")
    if len(trial.of("imported")) < 2:
        return Answer("unknown", "the child process reported nothing")
    return loads(gil)


def _refused(event: Event, name: str | None) -> Answer:
    words = f"{event['error']}\n{event['causes']}"
    refusal = REFUSAL.search(words)
    if refusal is None:
        reason = _short(event["error"])
    elif refusal[1] == name:
        reason = refusal[0]
    else:
        return Answer("no", f"needs {refusal[1]}, which refuses", refusal[1])
    if event["phase"] == "second":
        reason = f"only one interpreter of a process can have it: {reason}"
    return Answer("no", reason)


def _when(trial: Trial) -> str:
    last = trial.events[-1] if trial.events else {"event": "nothing"}
    if last["event"] == "ending":
        return "when its interpreter is ended"
    if last.get("phase") == "second":
        return "in the second interpreter of a process"
    return "when it is imported" if last["event"] == "importing" else "in a sub-interpreter"


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= MAX_MESSAGE else f"{line[:MAX_MESSAGE]}..."


def explained(answer: Answer, module: Module, gil: str) -> Answer:
    """Adds the module's declaration to the reason, if CPython's refusal is based on it."""
    if answer.answer != "no" or answer.culprit is not None or gil == "shared":
        return answer
    initialization = module.declares.get("initialization")
    if gil == "none":
        declared = module.declares.get("gil")
        slot, told = "Py_mod_gil", "declares that it needs the GIL"
    else:
        if not REFUSAL.search(answer.reason):
            return answer
        declared = module.declares.get("multiple_interpreters")
        slot = "Py_mod_multiple_interpreters"
        told = "declares that it supports " + (
            "no sub-interpreters" if declared == "not-supported" else "only a shared GIL"
        )
    if initialization == "single-phase":
        return Answer("no", "single-phase initialization, which declares nothing")
    if initialization == "multi-phase":
        return Answer("no", f"{slot} {told}" if declared else f"has no {slot} slot")
    return answer


def present(trial: Trial) -> set[str] | None:
    """The extension modules that an application had in both interpreters."""
    found = [set(event["present"]) for event in trial.of("imported") if "present" in event]
    return set.intersection(*found) if found else None


def declared_free_threading(module: Module) -> Answer:
    """The answer on a build with a GIL, which ignores the slot."""
    gil, initialization = module.declares["gil"], module.declares["initialization"]
    if gil == "not-used":
        return Answer(
            "yes", "declares Py_MOD_GIL_NOT_USED (declared, not tried: this build has a GIL)"
        )
    if gil == "used":
        return Answer("no", "declares Py_MOD_GIL_USED")
    if sys.version_info < (3, 13):
        built = f"built for CPython {sys.version_info[0]}.{sys.version_info[1]}"
        return Answer("unknown", f"{built}, where no module can declare it")
    if ".abi3." in module.file:
        return Answer(
            "unknown", "built for the stable ABI, and free threading needs a build of its own"
        )
    if initialization == "single-phase":
        return Answer("unknown", "single-phase initialization: only a free-threaded build can tell")
    if initialization == "unknown":
        return Answer("unknown", "has no definition that could be read")
    return Answer("unknown", "declares nothing in this build: only a free-threaded build can tell")


def of_all(modules: Sequence[Module]) -> Answer:
    """The answer for an application, from the declarations of its modules."""
    for wanted, words in (
        ("no", "need the GIL"),
        ("unknown", "are not known to do without the GIL"),
    ):
        found = [each.name for each in modules if each.free_threading.answer == wanted]
        if found:
            count = f"{len(found)} of {len(modules)} extension modules"
            return Answer("no" if wanted == "no" else "unknown", f"{count} {words}", found[0])
    return Answer("yes", "all of its extension modules declare it")


def of_loaded(modules: Sequence[Module], gil_enabled: bool) -> Answer:
    """The answer for an application that was imported in a free-threaded build."""
    if not gil_enabled:
        return Answer("yes", "the GIL stays off when it is imported")
    guilty = [each.name for each in modules if each.free_threading.answer == "no"]
    return Answer("no", "the GIL comes on when it is imported", guilty[0] if guilty else None)


def of_watched(trial: Trial) -> dict[str | None, Answer]:
    """The answers of a child of a free-threaded build by module. The key `None` means that the GIL
    was on before any import."""
    answers: dict[str | None, Answer] = {}
    for event in trial.events:
        name = event["module"]
        if event["event"] == "imported":
            answers[name] = Answer("yes", "the GIL stays off when it is imported")
        elif event["event"] == "failed":
            answers[name] = Answer("unknown", f"not imported: {_short(event['error'])}")
        elif event["event"] == "gil-on" and name is None:
            answers[None] = Answer("unknown", "the GIL is on before anything is imported")
        elif event["event"] == "gil-on":
            named = GIL_WARNING.search(event["warning"])
            culprit = named[1] if named and named[1] != name else None
            reason = "the GIL comes on when it is imported"
            if culprit is not None:
                reason = f"needs {culprit}, which switches the GIL on"
            answers[name] = Answer("no", reason, culprit)
    last = trial.events[-1] if trial.events else None
    if not trial.ending.complete and last is not None and last["event"] == "importing":
        answers[last["module"]] = Answer("no", f"{trial.ending.reason}, when it is imported")
    return answers
