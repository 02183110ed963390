"""`hash`: SHA-256 of large messages, divided among threads."""

from __future__ import annotations

import math
from statistics import median

from headway.errors import CommandError
from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.output.claim import Statement
from headway.output.metadata import STOCK
from headway.output.results import Parameters, Results
from headway.output.table import Chart, Table
from headway.programs.processes import Window
from headway_lab.arrangement import pivot, series_of
from headway_lab.experiment import Choice, Experiment, Measured, Row
from headway_lab.measured.sharing import cores, scaling, threads_text
from headway_lab.setting import Setting, program

THREADS = (1, 2, 4, 8)
QUICK_THREADS = (1, 2, 4)
SECONDS = 0.4
QUICK_SECONDS = 0.25
MESSAGES = 8
MIN_MESSAGE_BYTES = 64 * 1024
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
TRIAL_MESSAGE_BYTES = 4 * 1024 * 1024
TRIALS = 3
# Seconds for eight messages of 128 MB on 2 cores, CPython 3.9 (seeds 002 and 004).
UNIT_BYTES = 8 * 128 * 1024 * 1024
PUBLISHED_S = {1: 3.30, 2: 1.68, 4: 1.50, 8: 1.60}


class Hash(Experiment):
    name = "hash"
    unit = "s for eight messages of 128 MB"
    summary = "SHA-256 of large messages shared out between threads"
    shows = (
        "Eight large messages are hashed, shared out between threads. hashlib drops the GIL while "
        "it hashes, so this scales up to the number of cores, as pure Python cannot."
    )
    higher_is_better = False

    def rows(self, choice: Choice) -> list[Row]:
        wrong = [each for each in _threads(choice) if not 1 <= each <= MESSAGES]
        if wrong:
            raise CommandError(
                f"--threads {wrong[0]}: hash shares out {MESSAGES} messages, so it is from 1 to "
                f"{MESSAGES}",
                exit_code=2,
            )
        rows = [
            Row(
                _parameters(policy, interval_s, threads, "threads"),
                choice.setting(policy, interval_s),
            )
            for policy in choice.policies
            for interval_s in choice.switch_intervals_s or (DEFAULT_SWITCH_INTERVAL_S,)
            for threads in _threads(choice)
        ]
        no_free_threading = choice.no_free_threading
        setting = choice.setting() if no_free_threading else choice.free_threaded_setting()
        return rows + [
            Row(
                _parameters(STOCK, DEFAULT_SWITCH_INTERVAL_S, threads, "free-threaded"),
                setting,
                no_free_threading,
            )
            for threads in _threads(choice)
        ]

    def calibrate(self, choice: Choice) -> Parameters:
        """The size of a message for which one thread takes the time of a value for all of them."""
        seconds = choice.seconds or (QUICK_SECONDS if choice.quick else SECONDS)
        least_s = min(
            hash_messages(choice.setting(), 1, TRIAL_MESSAGE_BYTES) for _ in range(TRIALS)
        )
        message_bytes = round(UNIT_BYTES / MESSAGES * seconds / least_s)
        return {
            "message_bytes": min(max(message_bytes, MIN_MESSAGE_BYTES), MAX_MESSAGE_BYTES),
            **cores(),
        }

    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        threads = row.parameters["threads"]
        return Measured(hash_messages(row.setting, threads, calibration["message_bytes"]))

    def published(self, parameters: Parameters) -> float | None:
        by_default = _parameters(STOCK, DEFAULT_SWITCH_INTERVAL_S, parameters["threads"], "threads")
        return PUBLISHED_S.get(parameters["threads"]) if parameters == by_default else None

    def tables(self, results: Results) -> list[Table]:
        tables = []
        for mode in results.distinct("mode"):
            for interval_s in results.where(mode=mode).distinct("switch_interval"):
                found = results.where(mode=mode, switch_interval=interval_s)
                if not any(row.values for row in found):
                    continue
                free = mode == "free-threaded"
                title = "free-threaded" if free else f"with a GIL, at {interval_s * 1e3:g} ms"
                tables.append(
                    pivot(
                        found,
                        f"{title}: seconds for eight messages of 128 MB, by threads",
                        "policy",
                        "threads",
                        across_text=threads_text,
                    )
                )
        return tables

    def charts(self, results: Results) -> list[Chart]:
        lines = []
        for mode in results.distinct("mode"):
            for policy in results.where(mode=mode).distinct("policy"):
                found = results.where(mode=mode, policy=policy)
                for interval_s in found.distinct("switch_interval"):
                    free = mode == "free-threaded"
                    name = mode if free else f"{policy}, {interval_s * 1e3:g} ms"
                    lines.append(
                        series_of(found.where(switch_interval=interval_s), name, "threads")
                    )
        lines = [each for each in lines if each.points]
        return [Chart("Eight messages of 128 MB by more threads", "threads", self.unit, lines)]

    def statements(self, results: Results) -> list[Statement]:
        with_a_gil = results.where(mode="threads", switch_interval=DEFAULT_SWITCH_INTERVAL_S)
        found = [
            *scaling("stock", with_a_gil.where(policy=STOCK)),
            *scaling("free-threaded", results.where(mode="free-threaded")),
        ]
        for policy in with_a_gil.distinct("policy"):
            if policy != STOCK:
                text = f"{policy} costs nothing: its times over those of stock"
                found.append(Statement(text, _cost_of(policy, with_a_gil), high=1.1))
        return [each for each in found if not math.isnan(each.value)]


def _parameters(policy: str, interval_s: float, threads: int, mode: str) -> Parameters:
    return {"policy": policy, "switch_interval": interval_s, "threads": threads, "mode": mode}


def _threads(choice: Choice) -> tuple[int, ...]:
    return choice.threads or (QUICK_THREADS if choice.quick else THREADS)


def hash_messages(setting: Setting, threads: int, message_bytes: int) -> float:
    """Seconds for eight messages of 128 MB, extrapolated from eight of `message_bytes`."""
    words = (threads, MESSAGES, message_bytes, setting.switch_interval_s)
    with program(setting, "hash_threads", *map(str, words)) as hashing:
        hashing.answer()
        hashing.measure(Window.after(0.0, 0))
        hashed = hashing.answer()
    return float(hashed["seconds"] / hashed["hashed_bytes"] * UNIT_BYTES)


def _cost_of(policy: str, results: Results) -> float:
    """The median, over the numbers of threads, of the policy's times divided by those of stock."""
    ratios = [
        results.ratio({"policy": policy, "threads": threads}, {"policy": STOCK, "threads": threads})
        for threads in results.where(policy=policy).distinct("threads")
    ]
    known = [ratio for ratio in ratios if not math.isnan(ratio)]
    return median(known) if known else math.nan
