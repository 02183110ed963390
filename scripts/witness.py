"""Compares Headway's meter with an independent witness: a CPython that counts what it does.

    .venvs/3.13w/bin/python scripts/witness.py [--policy P]... [--program WORD]... [--json FILE]

`make witness` builds that CPython (scripts/get-pythons 3.13w) and runs this. Six programs and
`headway serve` run under each policy, with the meter and the witness in the same process. Counts
must be equal, but for takes of which it is doubtful whether they waited. Times agree to 0.5 % or
50 ns for each event, whichever is larger, and percentiles lie in the bucket of the exact one, with
a mean signed error of at most 1 % over all runs. Single requests agree to 0.5 % or a microsecond
for each wait, all but 1 % of them: a thread may lose its core between the two clock reads, as on a
machine that is busy otherwise.
Exit status: 0 if all agree, 1 if any figure differs, 2 if this Python is not the witness.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
from pathlib import Path
from typing import Any

POLICIES = ("interval", "priority", "deadline")
PERCENTILES = ("p50", "p90", "p99")
SHARE = 0.005
EVENT_NS = 50
# A hold's two ends are in different calls, of which one often finds the hook's code in no cache.
HOLD_NS = 100
# A thread that was idle finds the hook's code in no cache, which the mean hardly shows.
REQUEST_EVENT_NS = 1_000
MEAN_ERROR = 0.01
# A thread that loses its core between the two clock reads makes one request differ.
DISTURBED = 0.01
TIMEOUT_S = 300
CLIENTS, REQUESTS = 4, 500
SCRIPTS = Path(__file__).resolve().parent

Report = dict[str, Any]


def close(meter_ns: float, witness_ns: float, events: int, event_ns: int = EVENT_NS) -> bool:
    return abs(meter_ns - witness_ns) <= max(SHARE * witness_ns, event_ns * events)


def bucket_of(ns: int) -> tuple[int, int]:
    """The bounds of the bucket for durations of `ns`: 16 of equal width for each power of two."""
    if ns < 512:
        return 0, 512
    width = 1 << (ns.bit_length() - 5)
    return ns // width * width, (ns // width + 1) * width


def compare(meter: Report, witness: Report) -> list[str]:
    """The differences between one GIL of a GIL report and the witness's figures for it."""
    drops = meter["voluntary_drops"] + meter["forced_drops"]
    problems = [
        f"{name}: meter {found}, witness {witness[name]}"
        for name, found in (
            ("takes", meter["takes"]),
            ("drops", drops),
            ("forced_drops", meter["forced_drops"]),
        )
        if found != witness[name]
    ]
    # One of the two may find locked what the other, a moment before or after, finds free.
    if abs(meter["contended_takes"] - witness["contended_takes"]) > witness["doubtful_takes"]:
        problems.append(
            f"contended_takes: meter {meter['contended_takes']}, witness "
            f"{witness['contended_takes']}, {witness['doubtful_takes']} of them doubtful"
        )
    times = [
        ("waited", meter["wait"]["sum_s"], witness["contended_takes"], EVENT_NS),
        ("held", meter["held_s"], drops, HOLD_NS),
    ]
    for name, seconds, events, event_ns in times:
        if not close(seconds * 1e9, witness[f"{name}_ns"], events, event_ns):
            problems.append(f"{name}: meter {seconds:.9f} s, witness {witness[f'{name}_ns']} ns")
    for key in PERCENTILES if witness["contended_takes"] else ():
        low, _ = bucket_of(witness[f"{key}_least"])
        _, high = bucket_of(witness[f"{key}_most"])
        found_ns = meter["wait"][f"{key}_s"] * 1e9
        # The meter's waits are up to EVENT_NS shorter or longer, and so are the percentiles.
        if not low - EVENT_NS <= found_ns <= high + EVENT_NS:
            problems.append(
                f"{key}: meter {found_ns:.0f} ns, witness {witness[key]} ns, of {low} to {high}"
            )
    return problems


def percentile_errors(meter: Report, witness: Report) -> dict[str, float]:
    """Signed and relative; of no waits there are none."""
    if not witness["contended_takes"]:
        return {}
    return {key: meter["wait"][f"{key}_s"] * 1e9 / witness[key] - 1 for key in PERCENTILES}


def mean_problems(errors: list[dict[str, float]]) -> list[str]:
    """The percentiles whose mean signed error over all runs is too large."""
    means = {
        key: sum(each[key] for each in errors) / len(errors)
        for key in (PERCENTILES if errors else ())
    }
    return [
        f"{key}: the mean signed error is {100 * mean:+.2f} % over {len(errors)} runs"
        for key, mean in means.items()
        if abs(mean) > MEAN_ERROR
    ]


def compare_requests(
    log: dict[int, float], marks: list[list[int]]
) -> tuple[dict[str, int], list[str]]:
    """Each request's gil_wait_time, in seconds, with the growth of its thread's waits since the
    mark before. The first request of a thread has no mark before."""
    before: dict[int, tuple[int, int]] = {}
    total = {"requests": 0, "waits": 0, "meter_ns": 0, "witness_ns": 0, "differ": 0}
    for name, thread, waited_ns, waits in marks:
        if thread in before:
            last_ns, last_waits = before[thread]
            meter_ns, grown_ns = round(log[name] * 1e9), waited_ns - last_ns
            total["requests"] += 1
            total["waits"] += waits - last_waits
            total["meter_ns"] += meter_ns
            total["witness_ns"] += grown_ns
            events = waits - last_waits
            total["differ"] += not close(meter_ns, grown_ns, events, REQUEST_EVENT_NS)
        before[thread] = waited_ns, waits
    problems = []
    if not total["waits"]:
        problems.append("no request waited")
    if not close(total["meter_ns"], total["witness_ns"], total["waits"]):
        problems.append(f"sum: meter {total['meter_ns']} ns, witness {total['witness_ns']} ns")
    if total["differ"] > DISTURBED * total["requests"]:
        problems.append(f"{total['differ']} of {total['requests']} requests differ")
    return total, problems


def run_program(program: str, policy: str) -> Report:
    command = [sys.executable, str(SCRIPTS / "witness_programs.py"), program, policy]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        raise SystemExit(f"witness: {program} under {policy} failed:\n{done.stderr}")
    result: Report = json.loads(done.stdout)
    return result


def serve(policy: str) -> tuple[dict[int, float], list[list[int]]]:
    """The access log's gil_wait_time by request, and the witness's marks."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        command = [sys.executable, "-m", "headway", "serve", "witness_programs:application"]
        command += ["--app-dir", str(SCRIPTS), "--bind", "127.0.0.1:0", "--policy", policy]
        command += ["--threads", str(CLIENTS), "--access-log", f"json:{log}"]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            address = wait_for_address(server)
            clients = [
                threading.Thread(target=request, args=(address, range(first, last)))
                for first in range(1, CLIENTS * REQUESTS, REQUESTS)
                for last in [first + REQUESTS]
            ]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            marks = json.loads(request(address, range(1)))
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=TIMEOUT_S)
        entries = map(json.loads, log.read_text().splitlines())
        return {int(each["target"][1:]): each["gil_wait_time"] for each in entries}, marks


def wait_for_address(server: subprocess.Popen[str]) -> tuple[str, int]:
    assert server.stderr is not None
    said = ""
    for line in server.stderr:
        if found := re.search(r"listening on http://([\d.]+):(\d+)", line):
            return found[1], int(found[2])
        said += line
    raise SystemExit(f"witness: headway serve did not start:\n{said}")


def request(address: tuple[str, int], names: range) -> bytes:
    """The response to the last of the requests, sent one after another."""
    connection = http.client.HTTPConnection(*address, timeout=TIMEOUT_S)
    for name in names:
        connection.request("GET", f"/{name}")
        body = connection.getresponse().read()
    connection.close()
    return body


def show_run(program: str, policy: str, run: Report, problems: list[str]) -> None:
    meter, witness = run["meter"], run["witness"]
    errors = percentile_errors(meter, witness)
    difference_ns = meter["wait"]["sum_s"] * 1e9 - witness["waited_ns"]
    print(
        f"{program:21} {policy:9} {witness['takes']:8,} {witness['contended_takes']:9,} "
        f"{witness['forced_drops']:8,} {witness['waited_ns'] / 1e9:9.4f} "
        f"{100 * difference_ns / max(witness['waited_ns'], 1):+7.3f} "
        f"{difference_ns / max(witness['contended_takes'], 1):+7.0f} "
        f"{witness['doubtful_takes']:8,} {witness['mutex_waited_ns'] / 1e9:9.4f} "
        + " ".join(f"{100 * errors[key]:+6.2f}" if errors else f"{'-':>6}" for key in PERCENTILES)
        + ("  differs" if problems else "  agrees"),
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", action="append", choices=POLICIES, help="default: all three")
    parser.add_argument(
        "--program", metavar="WORD", default="", help="only the programs whose names contain WORD"
    )
    parser.add_argument("--json", metavar="FILE", help="write all figures to FILE")
    arguments = parser.parse_args()
    if "-DGIL_WITNESS" not in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        print(f"witness: {sys.executable} is not the witness: `make witness`", file=sys.stderr)
        return 2
    # Only the witness has what this looks for when it is imported.
    from witness_programs import PROGRAMS

    programs = [each for each in PROGRAMS if arguments.program in each]
    serves = arguments.program in "headway serve"
    if not programs and not serves:
        names = ", ".join(map(repr, [*PROGRAMS, "headway serve"]))
        parser.error(f"--program is {arguments.program!r}, which is in none of {names}")
    print(
        f"{'program':21} {'policy':9} {'takes':>8} {'contended':>9} {'forced':>8} {'waited s':>9} "
        f"{'% off':>7} {'ns each':>7} {'doubtful':>8} {'mutex s':>9} "
        f"{'p50 %':>6} {'p90 %':>6} {'p99 %':>6}"
    )
    problems, errors, runs = [], [], []
    for policy in arguments.policy or POLICIES:
        for program in programs:
            run = run_program(program, policy)
            found = compare(run["meter"], run["witness"])
            show_run(program, policy, run, found)
            problems += [f"{program}, {policy}: {each}" for each in found]
            if of_run := percentile_errors(run["meter"], run["witness"]):
                errors.append(of_run)
            runs.append({"program": program, "policy": policy, **run})
        if serves:
            total, found = compare_requests(*serve(policy))
            print(f"{'headway serve':21} {policy:9} {json.dumps(total)}", flush=True)
            problems += [f"headway serve, {policy}: {each}" for each in found]
            runs.append({"program": "serve", "policy": policy, **total})
    problems += mean_problems(errors)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(runs, indent=1))
    print(*(problems or ["All figures agree."]), sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
