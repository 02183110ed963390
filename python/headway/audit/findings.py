"""The findings of an audit: the features that each extension module and the application support,
and the evidence. Pure; `to_dict` is the JSON of `--json`, schema 1."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SCHEMA = 1
SUPPORTS = ("own_gil", "shared_gil", "free_threading")


@dataclass(frozen=True)
class Answer:
    """Whether something is supported: "unknown" if it was neither seen nor declared.

    `culprit` is the module that is the cause, if it is another one.
    """

    answer: Literal["yes", "no", "unknown"]
    reason: str
    culprit: str | None = None


NOT_TRIED = Answer("unknown", "not tried")


@dataclass
class Subject:
    """An examined subject: the application, or a module that it imports."""

    own_gil: Answer = NOT_TRIED
    shared_gil: Answer = NOT_TRIED
    free_threading: Answer = NOT_TRIED

    def answers(self) -> dict[str, Answer]:
        return {each: getattr(self, each) for each in SUPPORTS}


@dataclass
class Application(Subject):
    """The application as a whole. `missing` has, for each kind of interpreter, the extension
    modules that the application lacks there, because it caught the errors of their import."""

    name: str = ""
    missing: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Module(Subject):
    """An extension module. `declares` has what its definition declares (see `declaration`)."""

    name: str = ""
    file: str = ""
    distribution: str | None = None
    version: str | None = None
    stdlib: bool = False
    imported_by: str | None = None
    declares: dict[str, str | None] = field(default_factory=dict)


@dataclass
class Audit:
    python: str
    free_threaded_build: bool
    application: Application
    modules: list[Module]

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "python": self.python,
            "free_threaded_build": self.free_threaded_build,
            "application": _in_order(self.application),
            "modules": [_in_order(module) for module in self.modules],
        }


def _in_order(subject: Subject) -> dict[str, Any]:
    """The description of the subject first, then the answers."""
    values = asdict(subject)
    return {key: values[key] for key in sorted(values, key=lambda key: key in SUPPORTS)}
