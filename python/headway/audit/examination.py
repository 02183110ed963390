"""The audit itself: runs children in an order, and draws conclusions from their events.

Many modules are tried together in one child first. Only those that fail there are tried alone, so
that none is blamed for another's failure. Those that also fail alone are tried in a main
interpreter, so that none is blamed for a problem that has nothing to do with sub-interpreters.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Sequence

from headway.audit import verdict
from headway.audit.findings import Answer, Application, Audit, Module
from headway.audit.interpreters import HAS_OWN_GIL
from headway.audit.trial import Event, Trial, run_trial
from headway.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.audit.task import FreeThreading, Interpreters, Inventory

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
# The name of a stage, how many of its modules are done, their number, and the current module.
Progress = Callable[[str, int, int, str], None]


class Refused(CommandError):
    """The application cannot be loaded at all. `details` is its own traceback, or empty."""

    def __init__(self, message: str, exit_code: int, details: str) -> None:
        super().__init__(message, exit_code)
        self.details = details


class Examination:
    """One application's audit."""

    def __init__(
        self, application: str, python_path: Sequence[str], timeout_s: float, progress: Progress
    ) -> None:
        self._application = application
        self._python_path = list(python_path)
        self._timeout_s = timeout_s
        self._progress = progress
        self._path: list[str] = []
        self._loads_alone: dict[str, bool] = {}

    def run(self) -> Audit:
        modules, gil_enabled = self._take_inventory()
        application = Application(name=self._application)
        if HAS_OWN_GIL:
            self._try_interpreters("own", "own_gil", application, modules)
        else:
            for each in (application, *modules):
                each.own_gil = verdict.NO_OWN_GIL_HERE
        self._try_interpreters("shared", "shared_gil", application, modules)
        self._try_free_threading(application, modules, gil_enabled)
        version = ".".join(map(str, sys.version_info[:3]))
        return Audit(version, FREE_THREADED, application, modules)

    def _take_inventory(self) -> tuple[list[Module], bool]:
        """The modules, and whether the GIL was on after all of them were loaded."""
        self._progress("importing", 0, 1, self._application)
        task: Inventory = {
            "kind": "inventory",
            "application": self._application,
            "python_path": self._python_path,
        }
        trial = run_trial(task, self._timeout_s, shows_output=True)
        for event in trial.of("refused"):
            raise Refused(event["message"], event["exit_code"], event["details"])
        if not trial.ending.complete:
            raise CommandError(
                f"APP is {self._application!r}: importing it in a child process failed: "
                f"{trial.ending.reason}"
            )
        (loaded,) = trial.of("loaded")
        self._path = loaded["path"]
        modules = [
            Module(**{key: value for key, value in event.items() if key != "event"})
            for event in trial.of("module")
        ]
        return modules, loaded["gil_enabled"]

    def _try_interpreters(
        self, gil: str, support: str, application: Application, modules: Sequence[Module]
    ) -> None:
        """Fills in the answer for one kind of sub-interpreter."""
        names = [module.name for module in modules]
        answers = self._answers_together(gil, names)
        for done, name in enumerate(names):
            if name not in answers:
                self._progress(f"{gil} GIL, alone", done, len(names), name)
                answers[name] = self._answer_alone(gil, name)
        for module in modules:
            setattr(module, support, verdict.explained(answers[module.name], module, gil))
        self._progress(f"{gil} GIL", 0, 1, self._application)
        trial = self._try(gil, [], application=self._application)
        answer = verdict.of_application(trial, gil)
        present = verdict.present(trial)
        if answer.answer == "yes" and present is not None:
            application.missing[support] = [name for name in names if name not in present]
        setattr(application, support, answer)

    def _answers_together(self, gil: str, names: Sequence[str]) -> dict[str, Answer]:
        """The answers for the modules that loaded in both interpreters of one child, if the child
        ended well. There are none if it crashed, because the cause is then unknown."""
        if not names:
            return {}
        imported = 0

        def heard(event: Event) -> None:
            nonlocal imported
            if event["event"] == "importing":
                self._progress(f"{gil} GIL", imported // 2, len(names), event["module"])
                imported += 1

        trial = self._try(gil, names, heard)
        if not trial.ending.complete or trial.of("not-ended"):
            return {}
        twice = [
            {event["module"] for event in trial.of("imported") if event["phase"] == phase}
            for phase in ("first", "second")
        ]
        return {name: verdict.loads(gil) for name in names if all(name in each for each in twice)}

    def _answer_alone(self, gil: str, name: str) -> Answer:
        answer = verdict.of_module(self._try(gil, [name]), gil, name)
        if answer.answer == "no" and not self._loads_in_main(name):
            reason = "it cannot be imported alone in a main interpreter either"
            return Answer("unknown", f"{reason}, only by the application")
        return answer

    def _loads_in_main(self, name: str) -> bool:
        if name not in self._loads_alone:
            trial = self._try("main", [name])
            self._loads_alone[name] = trial.ending.complete and bool(trial.of("imported"))
        return self._loads_alone[name]

    def _try(
        self,
        gil: str,
        names: Sequence[str],
        heard: Callable[[Event], None] = lambda event: None,
        application: str | None = None,
    ) -> Trial:
        task: Interpreters = {
            "kind": "interpreters",
            "gil": gil,
            "names": list(names),
            "application": application,
        }
        # An application finds its modules by itself. A module also needs the directories that the
        # application has put onto sys.path.
        if application is None:
            task["path"] = self._path
        else:
            task["python_path"] = self._python_path
        return run_trial(task, self._timeout_s, heard)

    def _try_free_threading(
        self, application: Application, modules: Sequence[Module], gil_enabled: bool
    ) -> None:
        if not FREE_THREADED:
            for module in modules:
                module.free_threading = verdict.declared_free_threading(module)
            application.free_threading = verdict.of_all(modules)
            return
        answers = self._watch_gil([module.name for module in modules])
        for module in modules:
            module.free_threading = verdict.explained(answers[module.name], module, "none")
        application.free_threading = verdict.of_loaded(modules, gil_enabled)

    def _watch_gil(self, names: Sequence[str]) -> dict[str, Answer]:
        """Runs one child after another, because each child ends with the first module that switches
        the GIL on."""
        answers: dict[str, Answer] = {}
        while len(answers) < len(names):
            rest = [name for name in names if name not in answers]
            self._progress("free threading", len(answers), len(names), rest[0])
            task: FreeThreading = {"kind": "free-threading", "names": rest, "path": self._path}
            trial = run_trial(task, self._timeout_s)
            found = verdict.of_watched(trial)
            if not found:
                reason = f"it could not be watched: {trial.ending.reason or 'no answer'}"
                found = {rest[0]: Answer("unknown", reason)}
            if None in found:
                return {name: answers.get(name, found[None]) for name in names}
            answers.update((name, answer) for name, answer in found.items() if name is not None)
        return answers
