"""The settings of a measured run, and the text in which they reach another process.

The variable HEADWAY has them as `run:TEXT` for the process that `headway run` becomes, and for the
image that replaces it by exec, and as `follow:RUN:TEXT` for Python children.
"""

from __future__ import annotations

import os

# The variable that `headway.environment` reads, and the words before the values of Headway's own.
VARIABLE = "HEADWAY"
RUN = "run"
FOLLOW = "follow"


class Settings:
    """The settings of an owner: of the process that reports. Paths are absolute."""

    # The process that the settings are for.
    pid = 0
    policy = "interval"
    # Whether the policy may give the kernel hints.
    kernel_hints = True
    # None leaves the interval as it is.
    switch_interval_s: float | None = None
    # From which duration on an iteration of an event loop is late; None for the engine's default.
    loop_limit_s: float | None = None
    # Whether Python children have these settings, and their counters in the ledger.
    follow = False
    # The file that the counters are mapped to; "" if no other process reads them.
    ledger = ""
    # The file of the report; "" for none, "-" for stdout.
    json_path = ""
    # The file of the last `trace_events` events, in the same way.
    trace_path = ""
    trace_events = 0
    # The file of the profile.
    profile_path = ""
    # The socket of a recorder, which receives a report at this interval from this group; "" for
    # none.
    telemetry = ""
    telemetry_interval_s = 1.0
    telemetry_group = ""
    # The name of the program there and in the trace.
    name = ""
    # The user's value of HEADWAY that the settings come from; "" for `headway run`.
    variable = ""
    # How often the process has replaced itself by exec.
    replaced = 0

    # Where the counters before an exec are, which crates/native appends to the text: a descriptor
    # (-1 for `ledger`) and the run.
    before_exec: tuple[int, int] | None = None

    @property
    def command(self) -> str:
        """The first word of a line on stderr."""
        return "headway" if self.variable else "headway run"

    @property
    def json_option(self) -> str:
        return "report" if self.variable else "--json"

    @property
    def quiet(self) -> bool:
        """Whether the report goes to its file only."""
        return bool(self.variable and self.json_path)

    def to_text(self, **changes: int) -> str:
        """The settings that differ from the defaults, as NAME=VALUE with commas between them."""
        return ",".join(
            f"{name}={_to_word(value)}" for name, value in {**vars(self), **changes}.items()
        )

    def for_next_image(self) -> str:
        """The text for the image that replaces this one by exec. crates/native appends `:` and
        `before_exec`, and `from_text` parses it."""
        return self.to_text(replaced=self.replaced + 1)

    @classmethod
    def from_text(cls, text: str) -> Settings:
        """Parses the result of `to_text` or `for_next_image`. Raises ValueError for other text."""
        text, *before_exec = text.split(":")
        settings = cls()
        for word in text.split(","):
            name, _, value = word.partition("=")
            if not hasattr(cls, name):
                raise ValueError(f"{name!r} is no setting")
            setattr(settings, name, _from_word(value))
        if before_exec:
            descriptor, run = map(int, before_exec)
            settings.before_exec = descriptor, run
        return settings


def _to_word(value: object) -> str:
    """Text may contain any byte but 0, and is in hex."""
    return f"'{os.fsencode(value).hex()}" if isinstance(value, str) else repr(value)


def _from_word(word: str) -> str | float | bool | None:
    if word.startswith("'"):
        return os.fsdecode(bytes.fromhex(word[1:]))
    constants = {"None": None, "True": True, "False": False}
    if word in constants:
        return constants[word]
    return int(word) if word.lstrip("-").isdigit() else float(word)


def mark(value: str) -> str:
    """A user's value of the variable as children and the image after an exec find it: PID:VALUE, by
    which they know the process that has acted on it."""
    return f"{os.getpid()}:{value}"


def following(settings: Settings, run: int | None) -> str:
    """The variable for followers."""
    return f"{FOLLOW}:{run or 0}:{settings.to_text()}"
