"""Verdicts on the GIL: gil-bound, convoy, long-hold, garbage-collection; and what mod_wsgi's lower
bound allows.

`headway.report.diagnosis` decides; these functions put its findings into words, with evidence and
advice. Without a GIL none of them applies.
"""

from __future__ import annotations

from headway.profile import sides
from headway.profile.model import Frame
from headway.recorder.diagnosis import advice
from headway.recorder.diagnosis.inputs import DiagnosisInputs, Hold, waited_for
from headway.recorder.diagnosis.verdict import Evidence, Verdict, evidence, verdict
from headway.recorder.records.stacks import calls, is_library
from headway.report import columns, diagnosis, thresholds, units

# The end of the name of a process group that `headway serve --background` makes.
BACKGROUND_SUFFIX = "-background"


def long_hold(inputs: DiagnosisInputs) -> Verdict | None:
    """A thread kept the GIL although other threads requested it."""
    holds, contention = inputs.counted_holds, inputs.contention
    if not holds or contention is None or diagnosis.LONG_HOLD not in inputs.findings:
        return None
    worst = max(holds, key=waited_for)
    longest, least = waited_for(worst), min(map(inputs.counts_from, holds))
    alone = longest >= thresholds.LONG_HOLD_ALONE_S.value
    share = contention.waited_for_kept_share
    thread = columns.name(worst.get("hold_thread") or "(unnamed)")
    endpoint, frame = columns.name(worst.get("hold_endpoint") or "", 80), top_frame(worst)
    during = f" while it served {endpoint}" if endpoint else ""
    inside = f", in {frame}" if frame else ""
    number = units.number(len(holds), "hold")
    title, cause = _cause_of(worst)
    held = f"the GIL for {units.seconds(worst.get('hold_duration'))}{during}{inside}"
    kept = f"{thread} kept {held}; another thread waited for"
    if worst.get("hold_present"):
        kept = f"{thread} has kept {held}, and still does; another thread has waited for"
    return verdict(
        "long-hold",
        "critical" if alone else "warning",
        title,
        f"{kept} {units.seconds(longest)} of that. {cause} "
        f"There were {number} of "
        f"{units.seconds(least)} or more, with at least {100 * share:.0f} % of all waiting.",
        inputs,
        [
            evidence("longest wait for one hold", longest, "s", least),
            evidence("holds that others waited for so long", len(holds), "holds", 1),
            evidence(
                "share of all waiting for the GIL", share, "share", thresholds.LONG_HOLD_SHARE
            ),
            evidence(f"held by {thread}{during}{inside}", worst.get("hold_duration"), "s"),
        ],
        [
            {
                "try": _elsewhere(inputs, endpoint, str(worst.get("group", ""))),
                "expect": "the others' waits of up to "
                f"{units.seconds(longest)} for it end; its own stay.",
            },
            {
                "try": f"have {frame or 'the call'} work in smaller pieces, or with a library that "
                "releases the GIL",
                "expect": f"between two pieces others get the GIL: waits of up to one piece, "
                f"instead of {units.seconds(longest)}.",
            },
        ],
    )


def _besides(inputs: DiagnosisInputs, said: str) -> str:
    """A sentence on the finding that explains most of the waiting beside the one that is `said`."""
    contention = inputs.contention
    second = next(
        (each for each in inputs.findings if each not in (said, diagnosis.GIL_BOUND)), None
    )
    if contention is None:
        return ""
    if second == diagnosis.LONG_HOLD and inputs.counted_holds:
        worst = max(inputs.counted_holds, key=waited_for)
        return (
            f" Besides, {columns.name(worst.get('hold_thread') or '(unnamed)')} kept it for "
            f"{units.seconds(worst.get('hold_duration'))} at a time, which is at least "
            f"{100 * contention.waited_for_kept_share:.0f} % of the waiting."
        )
    if second == diagnosis.COLLECTION:
        return f" Besides, {_collected(inputs)}."
    if second == diagnosis.CONVOY and inputs.victim is not None:
        name, waited = inputs.victim
        return (
            f" Besides, short work waits behind CPU-bound threads, {columns.name(name)} most, for "
            f"{units.seconds(waited)}: {100 * contention.preventable_share:.0f} % of the waiting."
        )
    return ""


def _collected(inputs: DiagnosisInputs) -> str:
    passes, contention = inputs.collections, inputs.contention
    number = units.number(passes["count"] if passes else 0, "collection")
    longest = units.seconds(passes["max"] if passes else None)
    share = contention.collection_share if contention else 0.0
    return (
        f"the garbage collector kept it in {number}, for up to {longest}: {100 * share:.0f} % of "
        "the waiting"
    )


def collection(inputs: DiagnosisInputs) -> Verdict | None:
    """Threads wait for passes of the garbage collector."""
    contention = inputs.contention
    if contention is None or diagnosis.COLLECTION not in inputs.findings:
        return None
    alone = contention.longest_collection_s >= thresholds.LONG_HOLD_ALONE_S.value
    return verdict(
        "garbage-collection",
        "critical" if alone else "warning",
        "The garbage collector keeps the GIL",
        f"Threads wait for the GIL, and {_collected(inputs)}. A pass cannot be preempted, and "
        f"visits all objects that can contain others.{_besides(inputs, diagnosis.COLLECTION)}",
        inputs,
        [
            evidence(
                "share of the waiting behind the garbage collector",
                contention.collection_share,
                "share",
                thresholds.LONG_HOLD_SHARE,
            ),
            evidence("longest pass", contention.longest_collection_s, "s"),
        ],
        [
            {
                "try": "gc.freeze() when the application has been imported",
                "expect": "passes no longer visit what exists by then, and take less time.",
            },
            {
                "try": "a higher gc.set_threshold(), or gc.disable() with gc.collect() where "
                "nobody waits",
                "expect": "fewer passes; each takes as long as now.",
            },
        ],
    )


def _cause_of(hold: Hold) -> tuple[str, str]:
    """A title, and the reason why the thread kept the GIL as far as its CPU time shows it."""
    if hold.get("hold_present"):
        return (
            "A thread keeps the GIL and has not let go",
            "Python code lets go at once when it is asked to; a call into C code that does not "
            "release the GIL never hears it. No other thread runs Python until then.",
        )
    waited, cpu = waited_for(hold), hold.get("hold_cpu")
    if cpu is not None and cpu >= thresholds.LONG_HOLD_CPU.value * waited:
        return (
            "A call keeps the GIL and cannot be preempted",
            f"It used {units.seconds(cpu)} of CPU time after it was asked to let go. Python code "
            "lets go at once; a call into C code that does not release the GIL never hears it, "
            "and no switch interval and no policy can change that.",
        )
    known = "How much of that it was on a processor is not known."
    if cpu is not None:
        known = f"It used only {units.seconds(cpu)} of CPU time after it was asked to let go."
    return (
        "A thread keeps the GIL although others ask for it",
        f"{known} Either the kernel ran others in its place, or a call into C code keeps the GIL, "
        "which never hears that others ask.",
    )


def _elsewhere(inputs: DiagnosisInputs, endpoint: str, group: str) -> str:
    what = endpoint or "what makes this call"
    if advice.is_mod_wsgi(inputs):
        return f"a WSGIDaemonProcess of its own for {what}"
    if not inputs.serves:
        return f"a process of its own for {what}"
    if group.endswith(BACKGROUND_SUFFIX):
        return f"a job queue for {what}, which has a process apart from other pages already"
    return f"a process of its own for {what} (headway serve --background)"


def top_frame(hold: Hold) -> str:
    """The innermost frame of a hold's stack, as "render (shop.py:12)"; "" without a stack. Behind a
    frame of a library comes the application's that called it."""
    frames = calls(str(hold.get("hold_stack") or ""))
    if not frames:
        return ""
    text = _label(frames[0])
    own = next((each for each in frames if not is_library(each)), frames[0])
    if own is not frames[0]:
        text += f", called from {_label(own)}"
    return columns.name(text, 140)


def _label(frame: Frame) -> str:
    folder, _, file = frame.file.rpartition("/")
    if file == "__init__.py":
        file = f"{folder.rpartition('/')[2]}/{file}"
    return sides.label(frame, file)


def convoy(inputs: DiagnosisInputs) -> Verdict | None:
    """Short work waits for whole switch intervals behind work that uses them up."""
    contention, interval = inputs.contention, inputs.interval
    if contention is None or not interval or diagnosis.CONVOY not in inputs.findings:
        return None
    needs = waiting = None
    if inputs.serves:
        needs, waiting = inputs.summary["gil_held"], inputs.summary["gil_wait"]
    who, need = ("requests", needs) if needs else ("turns of threads", inputs.summary["hold"])
    waits = waiting or inputs.summary["take_wait"]
    if need is None or waits is None:
        return None
    length = waits["p90"]
    if inputs.victim is not None:
        name, waited = inputs.victim
        share = contention.preventable_share
        text = (
            f"{100 * share:.0f} % of all waiting is that of short work, of less than a "
            "millisecond, behind CPU-bound threads, which drop the GIL only when a switch interval "
            f"({units.seconds(interval)}) is over. {columns.name(name)} waited most of it: "
            f"{units.seconds(waited)} in {units.seconds(inputs.seconds)}."
        )
        shares = [
            evidence(
                "share of the waiting of short work behind CPU-bound threads",
                share,
                "share",
                thresholds.PREVENTABLE_SHARE,
            )
        ]
    else:
        text = (
            f"Half of the {who} need the GIL for less than {units.seconds(need['p50'])}, but one "
            f"in ten waits {units.seconds(length)} or longer for it. "
            f"{100 * contention.interval_waits_share:.0f} % of all waiting is in waits of a whole "
            f"switch interval ({units.seconds(interval)}) and more: CPU-bound threads drop the "
            "GIL only when an interval is over."
        )
        shares = [
            evidence(
                "share of the waiting in waits of whole switch intervals",
                contention.interval_waits_share,
                "share",
                thresholds.CONVOY_TIME,
            ),
            evidence(
                "share of the GIL's time in holds of whole switch intervals",
                contention.interval_holds_share,
                "share",
                thresholds.CONVOY_HELD,
            ),
        ]
    work, whole = thresholds.CONVOY_WORK.value * interval, diagnosis.whole_interval_s(interval)
    return verdict(
        "convoy",
        "warning",
        "A convoy: short work waits whole switch intervals for the GIL",
        f"{text}{_besides(inputs, diagnosis.CONVOY)}",
        inputs,
        [
            *shares,
            evidence(f"GIL time that half of the {who} need at most", need["p50"], "s", work),
            evidence(f"wait of the {who}, 90th percentile", length, "s", whole),
            *_most_held(inputs),
        ],
        advice.given(
            advice.policy(inputs),
            advice.switch_interval(inputs),
            advice.more_processes(inputs),
        ),
    )


def gil_bound(inputs: DiagnosisInputs) -> Verdict | None:
    """The GIL is used up, and threads wait for it."""
    if not inputs.exact and not inputs.free_threading:
        return _gil_bound_at_least(inputs)
    gil, contention = inputs.gil, inputs.contention
    if gil is None or contention is None or diagnosis.GIL_BOUND not in inputs.findings:
        return None
    # A policy and a shorter interval help short work alone.
    helps_short_work = inputs.victim is None or diagnosis.CONVOY in inputs.findings
    queued = is_queued(inputs)
    full = advice.full_gil(inputs)
    carries = (
        f" One GIL is full at {advice.rate(full)}{advice.give_or_take(inputs)}." if full else ""
    )
    response = inputs.mean("response")
    waits = inputs.mean("gil_wait")
    of_response = (
        f" Of a response of {units.seconds(response)} on average {units.seconds(waits)} is waiting "
        "for the GIL."
        if response and waits
        else ""
    )
    name = columns.name(gil.get("gil_name") or "main")
    on_a_core = inputs.on_a_core
    starved = (
        f" Its holders had a core for only {100 * on_a_core:.0f} % of that: other programs have "
        "the cores, or what is called waits without dropping the GIL; more processes bring less "
        "than computed then."
        if on_a_core is not None and on_a_core < thresholds.CPU_OF_A_GIL.value
        else ""
    )
    return verdict(
        "gil-bound",
        "critical" if queued else "warning",
        "The GIL limits what gets done",
        f"The GIL ({name}) is in use {100 * inputs.gil_use:.0f} % of the time, and "
        f"{inputs.waiting:.1f} threads wait for it on average: however many threads there are, "
        f"one computes.{starved}{of_response}{carries}{_besides(inputs, diagnosis.GIL_BOUND)}"
        + (" Requests also queue for a thread." if queued else ""),
        inputs,
        [
            evidence(
                "share of its life in which the GIL was held or handed over",
                inputs.gil_use,
                "share",
                thresholds.GIL_FULL,
            ),
            evidence(
                "threads that wait for it, on average, in each process",
                inputs.waiting,
                "threads",
                thresholds.THREADS_WAIT,
            ),
            *([evidence("waiting for the GIL in a request, mean", waits, "s")] if waits else []),
            *(
                [evidence("GIL time per request", inputs.held_per_request, "s")]
                if inputs.held_per_request
                else []
            ),
            evidence("CPU of each process", inputs.summary["cpu_per_process"], "cores"),
            *_most_held(inputs),
        ],
        advice.given(
            advice.more_processes(inputs),
            advice.own_gils(inputs),
            advice.free_threading(inputs),
            advice.policy(inputs) if helps_short_work else None,
            advice.switch_interval(inputs) if helps_short_work else None,
        ),
    )


def _most_held(inputs: DiagnosisInputs) -> list[Evidence]:
    """The endpoint that held the GIL most, or the thread where there are no endpoints."""
    for rows, prefix, what in (
        (inputs.record.get("endpoints", ()), "endpoint", "requests for"),
        (inputs.record.get("threads", ()), "thread", "the thread"),
    ):
        held = sum(row.get(f"{prefix}_held", row.get(f"{prefix}_gil_held", 0.0)) for row in rows)
        if held > 0:
            worst = max(
                rows, key=lambda row: row.get("thread_held", row.get("endpoint_gil_held", 0.0))
            )
            time = worst.get("thread_held", worst.get("endpoint_gil_held", 0.0))
            name = columns.name(worst.get(f"{prefix}_name", ""), 80)
            return [
                evidence(f"share of the GIL time that {what} {name} held", time / held, "share")
            ]
    return []


def is_queued(inputs: DiagnosisInputs) -> bool:
    """Whether requests wait for a thread."""
    queue, application = inputs.summary["queue"], inputs.mean("application")
    if not queue or not application:
        return False
    least = max(thresholds.QUEUE_S.value, thresholds.QUEUE_SHARE.value * application)
    return bool(queue["p95"] >= least)


def _gil_bound_at_least(inputs: DiagnosisInputs) -> Verdict | None:
    """The verdict from mod_wsgi's own fields, which have the waits at mod_wsgi's own calls only: a
    lower bound. They do not show whether the process has a GIL. So CPU time has to fit one GIL, and
    waits have to last a switch interval: on a free-threaded build the same calls wait only while
    the world is stopped."""
    cpu = inputs.summary["cpu_per_process"]
    application, waits = inputs.mean("application"), inputs.summary["gil_wait"]
    if not application or waits is None or inputs.threads < 2:
        return None
    share = waits["mean"] / application
    whole = thresholds.WHOLE_INTERVALS.value * (inputs.interval or 0.005)
    if (
        waits["p90"] < whole
        or not thresholds.CPU_OF_A_GIL.value <= cpu <= thresholds.CPU_ABOVE_A_GIL.value
        or share < thresholds.WAIT_OF_APPLICATION.value
    ):
        return None
    return verdict(
        "gil-bound",
        "critical" if is_queued(inputs) else "warning",
        "The GIL limits what gets done, by what mod_wsgi sees",
        f"At least {100 * share:.0f} % of the time in the application is waiting for the GIL, and "
        f"each process uses {cpu:.2f} cores: what one GIL lets compute. This is a lower bound: "
        "mod_wsgi sees the waits at its own calls, none inside the application, and does not tell "
        "whether the process has a GIL. Headway measures every wait.",
        inputs,
        [
            evidence(
                "share of application time seen as waiting for the GIL (a lower bound)",
                share,
                "share",
                thresholds.WAIT_OF_APPLICATION,
            ),
            evidence("CPU of each process", cpu, "cores", thresholds.CPU_OF_A_GIL),
        ],
        advice.given(
            advice.more_processes(inputs),
            advice.free_threading(inputs),
            advice.policy(inputs),
            advice.switch_interval(inputs),
        ),
    )
