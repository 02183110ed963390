"""Writes a profile as a file in the format that the file's name asks for, and describes it."""

from __future__ import annotations

from headway import json_file
from headway.errors import CommandError
from headway.profile import sides
from headway.report import units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headway.profile.model import Profile

NS = 1e9
PPROF, SPEEDSCOPE, DRAWING, COLLAPSED = ".pb.gz", ".json", ".svg", ".txt"
READERS = {
    PPROF: "for pprof",
    SPEEDSCOPE: "for speedscope.app",
    DRAWING: "to open in a browser",
    COLLAPSED: "one stack a line",
}


def check_name(file: str, option: str = "--profile") -> str:
    """Returns the absolute path that `option` FILE names. Raises CommandError (exit code 2) if
    READERS does not have its ending, or if it cannot be written. Does not change an existing file.
    """
    format_of(file, option)
    path = json_file.check_path(file, option)
    # A symbolic link is followed, and the format goes by the name that is then written.
    format_of(path, option)
    return path


def format_of(file: str, option: str = "--profile") -> str:
    """The ending of the name. Raises CommandError if READERS does not have it."""
    name = file.rpartition("/")[2]
    for ending in READERS:
        if name.endswith(ending):
            return ending
    allowed = ", ".join(f"{ending} ({reader})" for ending, reader in READERS.items())
    raise CommandError(
        f"{option} {file!r}: the format goes by the ending of the name, which may be {allowed}",
        exit_code=2,
    )


def prepare(path: str) -> None:
    """Imports now the modules that `write_profile` needs, because at the program's end the file
    system may have changed."""
    from headway.profile import reading, table  # noqa: F401 - for the program's end

    _encoder(format_of(path))


def write_profile(profile: Profile, path: str) -> str:
    """Writes `profile` to a path that `check_name` allows. Returns a line for the user that
    describes the file. Raises OSError."""
    ending = format_of(path)
    json_file.write_blocks(_encoder(ending)(profile), path)
    waited = f"{profile.waited_ns / NS:.3f} s"
    side, charges = next(iter(sides.present(profile).items()))
    stacks = units.number(len({each.stack for each in charges if each.thread}), "stack")
    return f"headway: profile of {waited} waited ({stacks} of {side}) in {path}, {READERS[ending]}"


def _encoder(ending: str) -> Callable[[Profile], Iterable[bytes]]:
    if ending == PPROF:
        from headway.profile import pprof

        return lambda profile: (pprof.encode(profile),)
    if ending == SPEEDSCOPE:
        from headway.profile import speedscope

        return lambda profile: json_file.to_blocks(speedscope.encode(profile))
    if ending == DRAWING:
        from headway.profile import flame_graph

        return lambda profile: (flame_graph.draw(profile).encode("utf-8"),)
    from headway.profile import collapsed

    return lambda profile: (collapsed.write(profile).encode("utf-8", "backslashreplace"),)
