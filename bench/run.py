"""Runs benchmarks in order. `make bench` runs those of the meter and the policies, as no name does;
`make bench-server` runs `server`, which is all of the second list.

  meter         what the meter costs, in one process
  echo          an echo server beside CPU-bound threads: the convoy
  asyncio_echo  the same on asyncio's streams
  gthread       gunicorn's gthread worker beside heavy pages
  pathological  what is hard on any scheduler of the GIL, one case at a time

headway serve beside other WSGI servers, once bench/install_peers.py has installed them:

  server_hello         hello world: requests/s, latency, CPU time for each, memory
  server_frameworks    the same in Flask and in Django
  server_mixed         light requests beside pages that compute
  server_shapes        processes x threads at several switch intervals, as published for mod_wsgi
  server_processes     light requests beside pages that compute in one process, and in others
  server_idle          10,000 idle connections
  server_interpreters  interpreters with own GILs, and threads without one

telemetry:

  telemetry_reporter   what reporting costs a server at hello world
  telemetry_story      the published story of the switch interval, recorded and compared

contention profile:

  profile_cost         what a profile costs while it is off, at 200 and at 20,000 drops a second
  py_spy               its charges beside py-spy's samples of the threads that hold the GIL

tuning:

  tune                 whether headway tune finds the setting that is known to be best; two hours

growth:

  scaling              how cost grows with threads, with connections and with bytes

simulator:

  what_if              what is predicted from a recording, beside what then happens

`make bench` then runs three experiments of `headway bench`: latency, throughput and countdown.
These are run by themselves: bench/simulated_echo.py, which lays simulated rows of `echo` beside
measured ones, and bench/site_servers.py, a Django site under all servers, of an hour and more.
Options go to every benchmark that has them; each has more of its own: bench/NAME.py --help.
"""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import sitting

from headway.errors import CommandError
from headway.output.metadata import Circumstances
from headway.programs.processes import ProgramError
from headway_lab import results_file
from headway_lab.setting import check_policies

# In the order in which they run. The meter's rounds are pairs of its own, without cells.
BENCHMARKS = (
    "meter",
    "echo",
    "asyncio_echo",
    "gthread",
    "pathological",
)
SERVER = "server"
SERVER_BENCHMARKS = (
    "server_hello",
    "server_frameworks",
    "server_mixed",
    "server_shapes",
    "server_processes",
    "server_idle",
    "server_interpreters",
)
TELEMETRY_BENCHMARKS = ("telemetry_reporter", "telemetry_story")
PROFILE_BENCHMARKS = ("profile_cost", "py_spy")
TUNE_BENCHMARKS = ("tune",)
SCALING_BENCHMARKS = ("scaling",)
SIMULATOR_BENCHMARKS = ("what_if",)
SINGLE = (
    *BENCHMARKS,
    *SERVER_BENCHMARKS,
    *TELEMETRY_BENCHMARKS,
    *PROFILE_BENCHMARKS,
    *TUNE_BENCHMARKS,
    *SCALING_BENCHMARKS,
    *SIMULATOR_BENCHMARKS,
)
WITHOUT_CELLS = ("meter",)


def arguments_for(name: str, options: Namespace, json_path: Path) -> list[str]:
    arguments = ["--quick"] if options.quick else []
    if options.rounds:
        arguments += ["--rounds", str(options.rounds)]
    if name not in WITHOUT_CELLS:
        if options.seconds:
            arguments += ["--seconds", str(options.seconds)]
        for policy in options.policy or ():
            arguments += ["--policy", policy]
    return [*arguments, "--json", str(json_path)]


def expand(names: Sequence[str]) -> list[str]:
    """Raises ProgramError for a name that there is not."""
    found: list[str] = []
    for name in names:
        if name == SERVER:
            found += SERVER_BENCHMARKS
        elif name in SINGLE:
            found.append(name)
        else:
            known = ", ".join((SERVER, *SINGLE))
            raise ProgramError(f"no benchmark is called {name!r}; there are {known}", 2)
    return found


def run(names: Sequence[str], options: Namespace) -> int:
    """The first exit status that is not 0 ends the run."""
    circumstances = Circumstances()
    experiments: sitting.Experiments = []
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        for name in names:
            results = Path(folder) / f"{name}.json"
            status: int = import_module(name).main(arguments_for(name, options, results))
            if status != 0:
                return status
            experiments += results_file.read(str(results)).experiments
            print()
    if options.json:
        sitting.write_json(options.json, circumstances, experiments)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser("run", __doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which benchmarks, in this order")
    parser.add_argument("--rounds", type=sitting.at_least_two, metavar="N", help="how many rounds")
    parser.add_argument(
        "--seconds",
        type=sitting.positive_seconds,
        metavar="S",
        help="how long each cell is measured",
    )
    parser.add_argument(
        "--quick", action="store_true", help="few short rounds: shows that all run, not how fast"
    )
    parser.add_argument(
        "--policy", action="append", metavar="P", help="a policy to measure; may be given again"
    )
    parser.add_argument("--json", metavar="FILE", help="also write all values to FILE")
    try:
        options = parser.parse_args(arguments)
        names = expand(options.names) or BENCHMARKS
        sitting.check_json(options.json)
        check_policies(options.policy or ())
        return run(names, options)
    except CommandError as error:
        print(f"bench: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
