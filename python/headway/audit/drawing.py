"""An audit drawn as text for a terminal: a table with the problems first, the unknown answers with
their reasons, a summary, and advice. Pure: converts findings to a string."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from headway.audit.findings import SUPPORTS, Answer, Audit, Module, Subject
from headway.report import columns
from headway.report.terminal import Style
from headway.report.units import number

TITLES = {"own_gil": "own GIL", "shared_gil": "shared GIL", "free_threading": "free-threaded"}
# The names of features as in `--require own-gil`.
DOES_WITHOUT = {
    "own_gil": "refuse an own-GIL interpreter",
    "shared_gil": "refuse a shared-GIL sub-interpreter",
    "free_threading": "need the GIL",
}
MAX_NAMES = 5
MAX_DISTRIBUTION = 28


def draw(audit: Audit, style: Style) -> str:
    """The whole audit, with a newline at its end."""
    kind = "free-threaded" if audit.free_threaded_build else "with a GIL"
    lines = [f"{style.bold('audit')}  {audit.application.name}, CPython {audit.python} {kind}", ""]
    lines += _table(audit, style)
    for part in (_unknown(audit), _summary(audit), _advice(audit)):
        if part:
            lines.append("")
            for text in part:
                lines += _wrap(text, style.width)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)


def _table(audit: Audit, style: Style) -> list[str]:
    subjects: list[tuple[Subject, str, str]] = [
        (module, module.name, _origin(module)) for module in sorted(audit.modules, key=_urgency)
    ]
    subjects.insert(0, (audit.application, "(the application)", ""))
    head = ["module", "distribution", *TITLES.values()]
    cells = [
        [
            columns.name(name),
            columns.name(origin, MAX_DISTRIBUTION),
            *(answer.answer for answer in subject.answers().values()),
        ]
        for subject, name, origin in subjects
    ]
    head_line, *rows = columns.aligned([head, *cells], texts=len(head))
    lines = [style.bold(head_line)]
    for (subject, _, _), row in zip(subjects, rows, strict=True):
        answers = subject.answers()
        lines.append(style.marked(row) if _has(answers, "no") else row)
        lines += _reasons(subject, answers, style)
    return lines


def _origin(module: Module) -> str:
    if module.distribution is not None:
        return f"{module.distribution} {module.version}"
    return "standard library" if module.stdlib else "-"


def _urgency(module: Module) -> tuple[int, int, int, str]:
    """The sort key of a module: refusals first, those of an own GIL before others, then unknown
    answers; a cause before the modules that it affects."""
    answers = [module.answers()[each] for each in SUPPORTS]
    refusals = [place for place, answer in enumerate(answers) if answer.answer == "no"]
    unknown = any(answer.answer == "unknown" for answer in answers)
    is_caused = any(answer.culprit is not None for answer in answers)
    return (refusals[0] if refusals else 3 if unknown else 4, is_caused, module.stdlib, module.name)


def _has(answers: dict[str, Answer], word: str) -> bool:
    return any(answer.answer == word for answer in answers.values())


def _reasons(subject: Subject, answers: dict[str, Answer], style: Style) -> Iterator[str]:
    """The reasons for a negative answer, below its row, and the importer of the module, where a
    change would have to be made."""
    by_reason: dict[str, list[str]] = {}
    for support, answer in answers.items():
        if answer.answer == "no":
            by_reason.setdefault(answer.reason, []).append(TITLES[support])
    for reason, titles in by_reason.items():
        text = f"{' and '.join(titles)}: {columns.name(reason, 400)}"
        for line in _wrap(text, style.width - 4):
            yield style.dim(f"    {line}")
    importer = getattr(subject, "imported_by", None)
    if by_reason and importer is not None:
        yield style.dim(f"    imported by {columns.name(importer, 60)}")


def _unknown(audit: Audit) -> list[str]:
    """Each reason once, because most reasons concern many modules."""
    reasons = Counter(
        (TITLES[support], answer.reason)
        for module in audit.modules
        for support, answer in module.answers().items()
        if answer.answer == "unknown"
    )
    return [
        f"unknown ({title}, {number(count, 'module')}): {columns.name(reason, 400)}"
        for (title, reason), count in reasons.most_common()
    ]


def _summary(audit: Audit) -> list[str]:
    count = number(len(audit.modules), "extension module")
    sentences = []
    for support, words in DOES_WITHOUT.items():
        answer = audit.application.answers()[support]
        refusing = _refusing(audit, support)
        if not refusing and answer.answer != "no":
            continue
        if refusing:
            if len(refusing) == 1:
                words = words.replace("refuse", "refuses").replace("need", "needs")
            told = f"{len(refusing)} of {count} {words}: {_listed(refusing)}"
        else:
            told = f"None of {count} {words}"
        sentences.append(f"{told}{_of_application(audit, support, bool(refusing))}.")
    return sentences or [_all_well(audit, count)]


def _all_well(audit: Audit, count: str) -> str:
    open_questions = [
        TITLES[support]
        for support in SUPPORTS
        if any(
            each.answers()[support].answer != "yes" for each in (audit.application, *audit.modules)
        )
    ]
    if not open_questions:
        return f"The application and its {count} support all three."
    return (
        f"No refusal in the application and its {count}; "
        f"not known of all: {', '.join(open_questions)}."
    )


def _of_application(audit: Audit, support: str, others: bool) -> str:
    answer = audit.application.answers()[support].answer
    if answer == "no":
        return ", and so does the application" if others else ", but the application does"
    if answer == "yes" and audit.application.missing.get(support):
        return "; the application loads all the same, without " + _listed(
            audit.application.missing[support]
        )
    return "; the application loads all the same" if answer == "yes" else ""


def _refusing(audit: Audit, support: str) -> list[str]:
    """The modules that refuse, causes before the modules that they affect."""
    refusing = [module for module in audit.modules if module.answers()[support].answer == "no"]
    refusing.sort(key=lambda module: module.answers()[support].culprit is not None)
    return [module.name for module in refusing]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(columns.name(name) for name in names[:MAX_NAMES])
    return f"{shown} and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else shown


def _advice(audit: Audit) -> list[str]:
    application = audit.application
    advice = []
    if _refusing(audit, "own_gil") or application.own_gil.answer == "no":
        advice.append(
            "- An application that needs these modules stays in the main interpreter: headway "
            "serve --application-group '%{GLOBAL}'; more --processes use more cores."
        )
        if application.shared_gil.answer == "yes" and not _refusing(audit, "shared_gil"):
            advice.append(
                "- Sub-interpreters that share one GIL work: leave out --per-interpreter-gil."
            )
    if _refusing(audit, "free_threading"):
        advice.append("- Leave out --free-threading: the workers then keep the GIL on.")
    elif not audit.free_threaded_build and application.free_threading.answer != "yes":
        advice.append(
            "- For free threading, run headway audit once more with a free-threaded CPython (3.13t "
            "or later), and the application's packages installed for it."
        )
    old = sorted(
        {
            _origin(module)
            for module in audit.modules
            if module.distribution is not None
            and any(
                answer.answer == "no" and answer.culprit is None
                for answer in module.answers().values()
            )
        }
    )
    if old:
        advice.append(f"- A newer version may support it: {', '.join(old)} is what was found.")
    return advice
