"""Application groups by flags and TOML: who is in which, what its interpreters are, bad input."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from configured import (
    Configured,
    before_own_gil,
    refusal_of,
    resolution_of,
    with_own_gil,
    without_gil,
)
from launch import run_main
from served import APPS

from headway.server.settings import ApplicationGroup, Mount, ProcessGroup

OWN = "--per-interpreter-gil"
SHOP = '[process-group.shop]\napp = "shop:app"\n'


@pytest.fixture
def toml(tmp_path: Path) -> Configured:
    return Configured(tmp_path / "serve.toml")


def group_of(*flags: str) -> ProcessGroup:
    (group,) = resolution_of(*flags).settings.groups
    return group


# Members of groups


def test_applications_are_in_the_main_interpreter_unless_they_say_otherwise() -> None:
    group = group_of("shop:app", "--mount", "/admin=admin:app")
    assert group.mounts == (Mount("", "shop:app", ""), Mount("/admin", "admin:app", ""))
    assert group.application_groups == (ApplicationGroup(),)


def test_a_flag_puts_all_applications_in_one_group() -> None:
    flags = ("--application-group", "back office", "--interpreters-on-demand")
    group = group_of("shop:app", "--mount", "/a=a:app", *flags, "--interpreter-maximum-requests=9")
    assert [mount.application_group for mount in group.mounts] == ["back office"] * 2
    assert group.application_groups == (
        ApplicationGroup("back office", on_demand=True, maximum_requests=9),
    )


@with_own_gil
def test_a_gil_for_one_interpreter_is_of_a_group_named_after_the_application() -> None:
    (group,) = resolution_of("shop.wsgi:application", "--mount", "/a=a:app", OWN).groups
    name = "shop.wsgi:application"
    assert [mount.application_group for mount in group.settings.mounts] == [name, name]
    assert group.settings.application_groups == (ApplicationGroup(name, own_gil=True),)
    assert group.values["application-group"].origin == f"APP, for {OWN}"


@with_own_gil
@pytest.mark.parametrize("own", [[], [OWN]])
def test_the_main_interpreter_is_one_of_several(own: list[str]) -> None:
    flags = ["--interpreters", "2", "--interpreter-maximum-requests", "9"]
    group = group_of("shop:app", *flags, *own)
    assert [mount.application_group for mount in group.mounts] == [""]
    assert group.application_groups == (
        ApplicationGroup(interpreters=2, own_gil=bool(own), maximum_requests=9),
    )


def test_a_file_says_it_for_the_process_group_or_the_mount(toml: Configured) -> None:
    text = (
        SHOP + "application-group = 'shop'\n[process-group.shop.mount]\n'/a' = 'a:app'\n"
        "'/b' = {app = 'b.wsgi', application-group = 'b'}\n"
        "'/c' = {app = 'c:app', application-group = '%{GLOBAL}'}\n"
        "'/d' = {app = 'd:app'}\n'/e' = {app = 'e:app', application-group = 'b'}\n"
    )
    (resolved,) = toml.resolve(text).groups
    assert resolved.settings.mounts == (
        Mount("", "shop:app", "shop"),
        Mount("/a", "a:app", "shop"),
        Mount("/b", str(toml.path.parent / "b.wsgi"), "b"),
        Mount("/c", "c:app", ""),
        Mount("/d", "d:app", "shop"),
        Mount("/e", "e:app", "b"),
    )
    named = [group.name for group in resolved.settings.application_groups]
    assert named == ["shop", "b", ""]
    origins = [mount.application_group.origin for mount in resolved.mounts]
    assert origins == [f"{toml.path}:{line}" for line in (3, 3, 6, 7, 3, 9)]


# Interpreters of a group


def test_a_table_says_what_the_interpreters_of_a_group_are(toml: Configured) -> None:
    text = (
        SHOP + "application-group = 'shop'\npython-path = '/all'\nthreads = 2\n"
        "[process-group.shop.application-groups.shop]\n"
        "interpreters = 2\nswitch-interval = '1ms'\npython-path = ['lib', '/b']\n"
        "maximum-requests = 100\non-demand = true\n"
        "restrict-stdin = true\nrestrict-stdout = true\nrestrict-signal = true\n"
    )
    group = toml.process_group(text)
    folder = str(toml.path.parent)
    assert (group.app_dir, group.python_path) == (folder, ("/all",))
    assert group.application_groups == (
        ApplicationGroup(
            "shop",
            interpreters=2,
            switch_interval_s=0.001,
            python_path=(f"{folder}/lib", "/b"),
            maximum_requests=100,
            on_demand=True,
            restrict_stdin=True,
            restrict_stdout=True,
            restrict_signal=True,
        ),
    )


TABLE = "[process-group.shop.application-groups.shop]\n"


@pytest.mark.parametrize(
    ("server", "group", "table", "flags", "count", "origin"),
    [
        ("", "", "", [], 0, "default"),
        ("1", "", "", [], 1, "FILE:2, inherited from [server]"),
        ("1", "2", "", [], 2, "FILE:6"),
        ("1", "2", "3", [], 3, "FILE:8"),
        ("1", "", "3", [], 3, "FILE:7"),
        ("1", "2", "3", ["4"], 4, "--interpreter-maximum-requests"),
        ("", "", "3", ["4"], 4, "--interpreter-maximum-requests"),
    ],
)
def test_the_nearest_goes_first_and_flags_over_all(
    toml: Configured,
    server: str,
    group: str,
    table: str,
    flags: list[str],
    count: int,
    origin: str,
) -> None:
    option = "interpreter-maximum-requests"
    text = f"[server]\n{option} = {server}\n" if server else "[server]\n"
    text += SHOP + "application-group = 'shop'\n" + (f"{option} = {group}\n" if group else "")
    text += f"{TABLE}maximum-requests = {table}\n" if table else ""
    (resolved,) = toml.resolve(text, *(f"--{option}={flag}" for flag in flags)).groups
    (found,) = resolved.application_groups
    assert found.settings.maximum_requests == count
    assert found.values["maximum-requests"].origin.replace(str(toml.path), "FILE") == origin


def test_the_main_interpreter_inherits_nothing_that_is_said_of_sub_interpreters(
    toml: Configured,
) -> None:
    text = (
        "[server]\ninterpreter-maximum-requests = 7\n" + SHOP + "interpreters-on-demand = true\n"
        "[process-group.shop.mount]\n'/a' = {app = 'a:app', application-group = 'a'}\n"
    )
    main, other = toml.process_group(text).application_groups
    assert main == ApplicationGroup()
    assert other == ApplicationGroup("a", maximum_requests=7, on_demand=True)
    alone = "[server]\ninterpreter-maximum-requests = 7\n" + SHOP
    assert toml.process_group(alone).application_groups == (ApplicationGroup(),)


@with_own_gil
def test_a_gil_for_each_inherited_from_the_server_names_groups_after_applications(
    toml: Configured,
) -> None:
    text = "[server]\nper-interpreter-gil = true\n" + SHOP
    text += "[process-group.b]\napp = 'b:app'\nbind = '127.0.0.1:1'\n"
    text += "application-group = '%{GLOBAL}'\n"
    shop, other = toml.resolve(text).settings.groups
    assert shop.application_groups == (ApplicationGroup("shop:app", own_gil=True),)
    assert other.application_groups == (ApplicationGroup(),)


# Refusals


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            [OWN, "--application-group", "%{GLOBAL}"],
            "--per-interpreter-gil: found true for %{GLOBAL} (--application-group), the main "
            "interpreter, whose GIL is that of the process; allowed: in an",
        ),
        (
            ["--interpreter-maximum-requests", "5"],
            "--interpreter-maximum-requests: found 5 for %{GLOBAL} (default), the main interpreter,"
            " which lives as long as its process; allowed: in an",
        ),
        (
            ["--interpreters-on-demand"],
            "--interpreters-on-demand: found true for %{GLOBAL} (default), the main interpreter, "
            "which is there from the start; allowed: in an",
        ),
        (
            ["--interpreters", "5"],
            "--interpreters: found 5 for application group %{GLOBAL} in processes of 4 threads "
            "(default); allowed: up to one for each thread",
        ),
        (
            ["--interpreters", "3", "--threads", "2"],
            "found 3 for application group %{GLOBAL} in processes of 2 threads (--threads)",
        ),
        (
            ["--application-group", "shop", "--preload"],
            "--preload: found application group shop (--application-group), which is a "
            "sub-interpreter; allowed: %{GLOBAL} alone, since fork() ends all others",
        ),
    ],
)
def test_flags_that_make_no_sense_together_are_one_line(flags: list[str], said: str) -> None:
    assert said in refusal_of(lambda: resolution_of("shop:app", *flags))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            "application-group = 3",
            ":3: process-group.shop.application-group: found 3; allowed: a n",
        ),
        ("application-group = 'a#1'", "found 'a#1'; allowed: a name without % and #, or %{GLOBAL}"),
        ("application-group = '%{RESOURCE}'", "found '%{RESOURCE}'; allowed: a name without"),
        ("application-group = ''", "found ''; allowed: a name"),
        ("application-group = ' a'", "found ' a'; allowed: a name"),
        ("interpreters = 61", "interpreters: found 61; allowed: a whole number from 1 to 60"),
        ("interpreters = 0", "interpreters: found 0; allowed: a whole number from 1 to 60"),
        ("per-interpreter-gil = 'on'", "found 'on'; allowed: true or false"),
        ("application-groups = 3", ":3: process-group.shop.application-groups: found 3; allowed"),
        ("application-groups.a = 3", "application-groups.a: found 3; allowed: a table"),
        ("application-groups.'a#' = {}", "application-groups: found 'a#'; allowed: a name without"),
        (
            f"application-group = 'shop'\n{TABLE}threads = 2",
            ":5: process-group.shop.application-groups.shop.threads: found an unknown key; allow",
        ),
        (
            f"{TABLE}interpreter = 2",
            "shop.interpreter: found an unknown key; allowed: interpreters",
        ),
        (f"{TABLE}restrict-stdin = 1", "shop.restrict-stdin: found 1; allowed: true or false"),
        (
            f"{TABLE}switch-interval = 0",
            "shop.switch-interval: found 0; allowed: a number of secon",
        ),
        (
            TABLE,
            ":3: application-groups: found shop, and no application of process group shop in it; "
            "allowed: %{GLOBAL}",
        ),
        (
            "mount = {'/a' = {app = 'a:b', application-group = 'a'}}\n"
            "application-groups.aa.on-demand = true",
            ":4: application-groups: found aa, and no application of process group shop in it; "
            "allowed: %{GLOBAL}, a",
        ),
        ("mount = {'/a' = {application-group = 'a'}}", "mount./a: found"),
        ("mount = {'/a' = {app = 3}}", "mount./a: found 3; allowed: module:callable"),
        ("mount = {'/a' = {app = 'a:b', group = 'a'}}", "mount./a.group: found an unknown key"),
        ("mount = {'/a' = {app = 'a:b', application-group = 1}}", "application-group: found 1"),
        *(
            (
                f"application-groups.'%{{GLOBAL}}'.{line}",
                f":3: {line.split(' ')[0]}: found {line.split(' ')[2]} for %{{GLOBAL}} (default), "
                "the main interpreter, ",
            )
            for line in (
                *("per-interpreter-gil = true", "maximum-requests = 1", "on-demand = true"),
            )
        ),
        (
            "threads = 40\n[process-group.shop.mount]\n"
            "'/a' = {app = 'a:b', application-group = 'a'}\n"
            "'/b' = {app = 'a:b', application-group = 'b'}\n"
            "[process-group.shop.application-groups]\na.interpreters = 40\nb.interpreters = 21",
            ":1: interpreters: found 61 sub-interpreters in process group shop; allowed: up to 60",
        ),
        (
            f"preload = true\napplication-group = 'shop'\n{TABLE}",
            ":3: preload: found application group shop (FILE:5), which is a sub-interpreter",
        ),
    ],
)
def test_a_file_that_makes_no_sense_is_one_line(toml: Configured, lines: str, said: str) -> None:
    line = toml.refusal(f"{SHOP}{lines}\n")
    assert line.startswith("FILE:")
    assert said in line


def test_application_groups_are_of_one_process_group(toml: Configured) -> None:
    assert toml.refusal(f"[server]\napplication-groups.a.on-demand = true\n{SHOP}") == (
        "FILE:2: server.application-groups: found an option of one process group; allowed: in "
        "[process-group.NAME]"
    )


@pytest.mark.parametrize("policy", ["interval", "priority", "deadline", None])
def test_a_switch_interval_on_a_shared_gil_takes_a_policy_that_schedules(
    toml: Configured, policy: str | None
) -> None:
    text = f"{SHOP}application-group = 'shop'\n{TABLE}switch-interval = '2ms'\n"
    flags = ("--policy", policy) if policy else ()
    if policy == "interval":
        assert toml.refusal(text, *flags) == (
            "FILE:5: switch-interval: found 0.002 for application group shop, which shares the "
            "process's GIL, under policy interval (--policy); allowed: with per-interpreter-gil, "
            "or under another policy"
        )
    else:
        group = toml.application_groups(text, *flags)["shop"]
        assert (group.own_gil, group.switch_interval_s) == (False, 0.002)


@with_own_gil
@pytest.mark.parametrize("policy", ["interval", "priority"])
def test_a_gil_of_its_own_has_a_switch_interval_under_every_policy(
    toml: Configured, policy: str
) -> None:
    text = (
        f"{SHOP}switch-interval = 1\n"
        "[process-group.shop.application-groups.'shop:app']\nswitch-interval = '2ms'\n"
    )
    group = toml.process_group(text, "--policy", policy, OWN)
    assert group.switch_interval_s == 1
    assert group.application_groups[0].switch_interval_s == 0.002


def test_interpreters_that_share_a_gil_are_warned_of() -> None:
    warnings = resolution_of("shop:app", "--interpreters", "2").warnings
    assert warnings == [
        "--interpreters: the 2 interpreters of application group %{GLOBAL} share one GIL, and so "
        "one core; per-interpreter-gil gives each its own"
    ]


@with_own_gil
def test_interpreters_with_gils_of_their_own_are_not() -> None:
    assert resolution_of("shop:app", "--interpreters", "2", OWN).warnings == []


@before_own_gil
def test_an_own_gil_on_an_old_python_is_refused(toml: Configured) -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    allowed = f"found true on Python {version}; allowed: from Python 3.12 on"
    refused = refusal_of(lambda: resolution_of("shop:app", OWN))
    assert refused == f"--per-interpreter-gil: {allowed}"
    assert toml.refusal(f"{SHOP}per-interpreter-gil = true\n") == (
        f"FILE:3: per-interpreter-gil: {allowed}"
    )


@without_gil
def test_an_own_gil_without_gils_has_no_effect() -> None:
    resolution = resolution_of("shop:app", OWN, "--interpreters", "2", "--free-threading")
    assert resolution.warnings == [
        "--per-interpreter-gil: per-interpreter-gil of application group %{GLOBAL} has no effect: "
        "free-threading is active, and there is no GIL to have"
    ]
    (group,) = resolution.settings.groups[0].application_groups
    assert (group.interpreters, group.own_gil) == (2, False)


@without_gil
def test_a_switch_interval_without_gils_has_no_effect(toml: Configured) -> None:
    text = f"{SHOP}application-group = 'shop'\n{TABLE}switch-interval = '2ms'\n"
    assert toml.warnings(text, "--free-threading") == [
        "FILE:5: switch-interval of application group shop has no effect: free-threading is "
        "active, and there is no GIL to yield"
    ]
    groups = toml.application_groups(text, "--free-threading")
    assert groups["shop"].switch_interval_s is None


# Shown


def test_check_shows_every_application_group(toml: Configured) -> None:
    toml.path.write_text(
        "[process-group.shop]\napp = 'pages:hello'\n[process-group.shop.mount]\n"
        "'/b' = {app = 'pages:hello', application-group = 'b'}\n"
        "'/c' = {app = 'pages:hello', application-group = 'c d'}\n"
        "[process-group.shop.application-groups.b]\npython-path = 'nowhere'\non-demand = true\n"
    )
    done = run_main("serve", "--check", "--config", toml.path, cwd=APPS)
    file = str(toml.path)
    assert (done.returncode, done.stderr) == (
        2,
        f"headway serve: {file}:7: python-path: found {toml.path.parent}/nowhere; it must be a "
        "directory that exists\n",
    )
    shown = re.sub(" {2,}", "  ", done.stdout)
    for line in (
        f"  app  pages:hello  {file}:2\n  application-group  %{{GLOBAL}}  default\n",
        f"  mount /b  pages:hello  {file}:4\n  application-group  b  {file}:4\n",
        '\n[process-group.shop.application-groups."%{GLOBAL}"]  default\n  interpreters  1  def',
        f"\n[process-group.shop.application-groups.b]  {file}:6\n",
        f"  maximum-requests  0  default\n  on-demand  true  {file}:8\n",
        f'\n[process-group.shop.application-groups."c d"]  {file}:5\n',
    ):
        assert line in shown
