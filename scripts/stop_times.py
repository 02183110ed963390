"""Prints how long every command takes to stop, by each way to end it, as a table in Markdown.

The rows are those of tests/seams/table.py, with the real parts. A time is that from the signal, or
from what else ends the command, to the end of the last process that it started. A cell with a cross
is an end that left something or was a kill; stderr says what.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(TESTS / "seams"), str(TESTS / "server"), str(TESTS)]


def main() -> int:
    # Modules of tests/, which mypy does not read.
    import leftovers  # type: ignore[import-not-found]
    from parts import End, Row, run  # type: ignore[import-not-found]
    from table import ROWS  # type: ignore[import-not-found]

    from headway import _native

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="WORDS", default="", help="rows with these words alone")
    words = parser.parse_args().only
    _native.process_adopt_orphans()

    def timed(row: Row, end: End) -> str:
        with (
            tempfile.TemporaryDirectory(prefix="headway-stop-") as folder,
            leftovers.folders_of_the_run(Path(folder)) as folders,
        ):
            (work := Path(folder) / "work").mkdir()
            before = leftovers.snapshot(folders)
            try:
                cell = f"{run(row, end, work):.2f}"
                problem = ""
            except AssertionError as error:
                cell, problem = "✗", str(error)
            problem = "; ".join([problem, *leftovers.left_by_fixtures(before, folders)]).strip("; ")
        if problem:
            print(f"{row.name}, {end.name}: {problem}", file=sys.stderr, flush=True)
            return f"{cell} ✗".removeprefix("✗ ")
        return cell

    print("| | by itself | SIGTERM | Ctrl-C | otherwise |\n|---|---|---|---|---|")
    for row in ROWS:
        if words not in row.name or (row.package and find_spec(row.package) is None):
            continue
        cells = {end.name: timed(row, end) for end in row.ends}
        main_cells = [cells.pop(name, "") for name in ("by itself", "SIGTERM", "Ctrl-C")]
        others = ", ".join(f"{name} {cell}" for name, cell in cells.items())
        print(f"| `{row.name}` | {' | '.join(main_cells)} | {others} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
