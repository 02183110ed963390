"""Application groups by an Apache file: what they are called, and what <WSGIInterpreterOptions>
says of their interpreters, with the precedence and the warnings of mod_wsgi.
"""

from __future__ import annotations

import json
import re
import socket
import sys
from pathlib import Path

import pytest
from configured import Configured, before_own_gil, with_own_gil, without_gil
from served import Served

from headway.server.settings import ApplicationGroup, Mount

# Says what its interpreter lets it do, and how often its module was asked.
TELLS = """\
import json, signal, sys
def attempt(call, *arguments):
    try:
        return repr(call(*arguments))
    except Exception as error:
        return type(error).__name__
def read(): return sys.stdin.read(0)
told = {
    "path": any(path.endswith("/put_first") for path in sys.path),
    "stdin": attempt(read),
    "signal": attempt(signal.signal, signal.SIGUSR2, signal.SIG_IGN),
    "requests": 0,
}
def application(environ, start_response):
    told["requests"] += 1
    start_response("200 OK", [])
    return [json.dumps(told).encode()]
"""
LISTEN = "Listen 127.0.0.1:8000\n"
SHOP = f"{LISTEN}WSGIDaemonProcess shop\nWSGIProcessGroup shop\n"
IN_APP1 = f"{SHOP}WSGIScriptAlias / /srv/a.wsgi application-group=app1\n"
IN_MAIN = IN_APP1.replace("app1", "%{GLOBAL}")
INTERVAL = ("--policy", "interval")


@pytest.fixture
def conf(tmp_path: Path) -> Configured:
    return Configured(tmp_path / "httpd.conf")


def container(selectors: str, *directives: str) -> str:
    return (
        f"<WSGIInterpreterOptions {selectors}>\n"
        + "".join(f"{each}\n" for each in directives)
        + "</WSGIInterpreterOptions>\n"
    )


def names(conf: Configured, text: str) -> dict[str, str]:
    return {mount.path: mount.application_group for mount in conf.process_group(text).mounts}


# Names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("WSGIScriptAlias /A/b /srv/a", "shop.org:8000|/A/b"),
        ("WSGIScriptAlias / /srv/a", "shop.org:8000|"),
        ("WSGIScriptAlias / /srv/a application-group=%{RESOURCE}", "shop.org:8000|"),
        ("WSGIScriptAlias /a /srv/a application-group=%{SERVER}", "shop.org:8000"),
        ("WSGIScriptAlias /a /srv/a application-group=%{HOST}", "shop.org:8000"),
        ("WSGIScriptAlias /a /srv/a application-group=%{GLOBAL}", ""),
        ('WSGIScriptAlias /a /srv/a "application-group=a b"', None),
        ("WSGIScriptAlias /a /srv/a application-group='a b'", "a b"),
        ("WSGIScriptAlias /a /srv/a application-group=%{ENV:HEADWAY_NAME}", "of the environment"),
        ("WSGIScriptAlias /a /srv/a application-group=%{ENV:HEADWAY_GLOBAL}", ""),
        ("WSGIApplicationGroup a\nWSGIScriptAlias / /srv/a", "a"),
        ("WSGIApplicationGroup a\nWSGIScriptAlias / /srv/a application-group=b", "b"),
        ("WSGIApplicationGroup a\nWSGIApplicationGroup %{GLOBAL}\nWSGIScriptAlias / /srv/a", ""),
        ("<Location />\nWSGIApplicationGroup a\n</Location>\nWSGIScriptAlias / /srv/a", "a"),
        (
            "<Location /b>\nWSGIApplicationGroup a\n</Location>\nWSGIScriptAlias / /srv/a",
            "shop.org:8000|",
        ),
        (
            "WSGIApplicationGroup a\n<Directory /srv>\nWSGIApplicationGroup %{SERVER}\n"
            "</Directory>\nWSGIScriptAlias / /srv/a",
            "shop.org:8000",
        ),
        (
            "<Location />\nWSGIApplicationGroup a\n</Location>\n"
            "<Directory /srv>\nWSGIApplicationGroup b\n</Directory>\nWSGIScriptAlias / /srv/a",
            "a",
        ),
        (
            "WSGIApplicationGroup a\n<VirtualHost *>\nServerName other.org\n"
            "WSGIScriptAlias / /srv/a\n</VirtualHost>",
            "a",
        ),
        (
            "WSGIApplicationGroup a\n<VirtualHost *>\nWSGIApplicationGroup b\n"
            "WSGIScriptAlias / /srv/a\n</VirtualHost>",
            "b",
        ),
        # An alias that a host inherits is served for that host.
        (
            "WSGIScriptAlias / /srv/a\n<VirtualHost *>\nServerName https://other.org:444\n"
            "</VirtualHost>",
            "other.org:8000|",
        ),
        ("<VirtualHost *>\nWSGIScriptAlias / /srv/a\n</VirtualHost>", "shop.org:8000|"),
    ],
)
def test_the_application_group_of_an_alias(
    conf: Configured, text: str, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_NAME", "of the environment")
    monkeypatch.setenv("HEADWAY_GLOBAL", "%{GLOBAL}")
    text = f"ServerName shop.org\n{LISTEN}{text}\n"
    if name is None:
        assert "allowed: option=value" in conf.refusal(text)
    else:
        assert list(names(conf, text).values()) == [name]


@pytest.mark.parametrize(
    ("listen", "server"),
    [("80", "a"), ("443", "a"), ("81", "a:81"), ("[::1]:80", "a"), ("80\nListen 81", "a")],
)
def test_the_ports_of_http_and_https_are_left_out(
    conf: Configured, listen: str, server: str
) -> None:
    text = f"ServerName a:99\nListen {listen}\nWSGIScriptAlias / /a\n"
    assert names(conf, text) == {"": f"{server}|"}
    assert names(conf, f"{text}WSGIApplicationGroup %{{SERVER}}\n") == {"": server}


def test_without_a_server_name_it_is_that_of_the_machine(conf: Configured) -> None:
    text = f"{LISTEN}WSGIScriptAlias / /a\n"
    assert names(conf, text) == {"": f"{socket.gethostname()}:8000|"}


def test_each_alias_has_an_interpreter_of_its_own_by_default(conf: Configured) -> None:
    text = f"ServerName a\n{SHOP}WSGIScriptAlias /b /b\nWSGIScriptAlias / /a\n"
    assert names(conf, text) == {"/b": "a:8000|/b", "": "a:8000|"}
    (resolved,) = conf.resolve(text).groups
    for mount in resolved.mounts:
        assert mount.application_group.origin == "mod_wsgi's default"
    for group in resolved.application_groups:
        assert group.settings == ApplicationGroup(group.settings.name, restrict_signal=True)
        assert group.values["restrict-signal"].origin == "mod_wsgi's default"


def test_the_host_that_a_client_asks_for_is_not_known(conf: Configured) -> None:
    text = f"ServerName a\n{LISTEN}WSGIScriptAlias / /a application-group=%{{HOST}}\n"
    assert conf.warnings(text) == [
        "FILE:3: %{HOST} is taken for a, whatever Host a client asks for"
    ]


ALLOWED = "; allowed: a name, %{GLOBAL}, %{RESOURCE}, %{SERVER}, %{HOST}, or %{ENV:NAME} of a"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "WSGIScriptAlias / /a application-group=%{ENV:NOT_SET_ANYWHERE}",
            "FILE:2: WSGIScriptAlias: found %{ENV:NOT_SET_ANYWHERE}" + ALLOWED,
        ),
        (
            "WSGIScriptAlias / /a\nWSGIApplicationGroup %{ENV:NOT_SET_ANYWHERE}",
            "FILE:3: WSGIApplicationGroup: found %{ENV:NOT_SET_ANYWHERE}" + ALLOWED,
        ),
        ("WSGIScriptAlias / /a application-group=%{HOSTS}", "found %{HOSTS}" + ALLOWED),
        (
            "WSGIScriptAlias / /a\nWSGIApplicationGroup",
            "FILE:3: WSGIApplicationGroup: found nothing",
        ),
        ("WSGIScriptAlias / /a application-group=", "found application-group=; allowed: a name"),
        (
            "<VirtualHost *>\nServerName a\n"
            "WSGIScriptAlias / /a application-group=a\n</VirtualHost>\n"
            "<VirtualHost *>\nServerName b\n"
            "WSGIScriptAlias / /a application-group=b\n</VirtualHost>",
            "FILE:8: WSGIScriptAlias: found / for two applications on one address, or in two "
            "groups (first: FILE:4)",
        ),
        (
            "Listen 8001\n<VirtualHost *:8000>\nWSGIScriptAlias / /a application-group=a\n"
            "</VirtualHost>\n<VirtualHost *:8001>\nWSGIScriptAlias / /a\n</VirtualHost>",
            "FILE:2: Listen: found process group default with other applications, or other TLS",
        ),
    ],
)
def test_names_that_cannot_be_known_are_refused(conf: Configured, text: str, said: str) -> None:
    assert said in conf.refusal(f"{LISTEN}{text}\n")


# Precedence

APP = "application-group=app1"
PROCESS = "process-group=shop"
BOTH = f"{PROCESS} {APP}"
OTHERS = ("application-group=app2", "process-group=%{GLOBAL}", f"process-group=other {APP}")


@pytest.mark.parametrize("directive", ["WSGIRestrictStdin", "WSGIRestrictSignal"])
@pytest.mark.parametrize(
    ("said", "wins"),
    [
        ([], None),
        ([("top", "On")], "On"),
        ([("top", "Off")], "Off"),
        ([("top", "On"), ("", "Off")], "Off"),
        ([("", "Off"), ("top", "On")], "Off"),
        ([(APP, "Off"), ("", "On")], "Off"),
        ([(PROCESS, "Off"), ("", "On")], "Off"),
        # The two selectors weigh the same: the later.
        ([(APP, "Off"), (PROCESS, "On")], "On"),
        ([(PROCESS, "On"), (APP, "Off")], "Off"),
        ([(APP, "On"), (APP, "Off")], "Off"),
        ([(BOTH, "On"), (APP, "Off"), (PROCESS, "Off"), ("", "Off")], "On"),
        ([("top", "Off"), *((other, "On") for other in OTHERS)], "Off"),
    ],
)
def test_more_selectors_go_first_then_the_later(
    conf: Configured, directive: str, said: list[tuple[str, str]], wins: str | None
) -> None:
    text = IN_APP1
    for selectors, value in said:
        line = f"{directive} {value}"
        text += f"{line}\n" if selectors == "top" else container(selectors, line)
    group = conf.application_groups(text)["app1"]
    if directive == "WSGIRestrictStdin":
        assert group.restrict_stdin is (wins == "On")
    else:
        assert group.restrict_signal is (wins != "Off"), "mod_wsgi restricts it by default"


def test_each_directive_is_looked_for_by_itself(conf: Configured) -> None:
    text = IN_APP1 + "WSGIRestrictStdin On\nWSGIRestrictStdout On\n"
    text += container(BOTH, "WSGIRestrictSignal Off") + container(APP, "WSGIRestrictStdout Off")
    group = conf.application_groups(text)["app1"]
    restricted = (group.restrict_stdin, group.restrict_stdout, group.restrict_signal)
    assert restricted == (True, False, False)


@pytest.mark.parametrize("selector", ["", "%{GLOBAL}"])
def test_containers_select_the_main_interpreter_by_global_and_the_rest_by_name(
    conf: Configured, selector: str
) -> None:
    text = f"{IN_APP1}WSGIScriptAlias /m /m application-group=%{{GLOBAL}}\n"
    text += container(f"application-group={selector or 'app1'}", "WSGIRestrictStdout On")
    groups = conf.application_groups(text)
    assert groups[""].restrict_stdout is (selector == "%{GLOBAL}")
    assert groups["app1"].restrict_stdout is (selector == "")


def test_a_container_selects_by_the_name_that_resource_stands_for(conf: Configured) -> None:
    text = f"ServerName a\n{SHOP}WSGIScriptAlias /b /b\n"
    text += container('application-group="a:8000|/b"', "WSGIRestrictStdin On")
    assert conf.application_groups(text)["a:8000|/b"].restrict_stdin


def test_python_paths_add_up_the_most_specific_first(conf: Configured) -> None:
    containers = (
        container("", "WSGIPythonPath /all")
        + container(BOTH, "WSGIPythonPath /both:/both2")
        + container(PROCESS, "WSGIPythonPath /shop")
        + "WSGIPythonPath /top\n"
    )
    embedded = conf.process_group(f"{LISTEN}WSGIScriptAlias / /a\n{containers}")
    assert embedded.python_path == ("/all", "/top")
    daemon = containers + IN_APP1.replace("shop\n", "shop home=/ python-path=/daemon\n", 1)
    group = conf.process_group(daemon)
    assert (group.app_dir, group.python_path) == ("/", ("/shop", "/all", "/daemon"))
    assert group.application_groups[0].python_path == ("/both", "/both2")
    assert conf.application_groups(daemon.replace("app1\n", "b\n"))["b"].python_path == ()
    # Equally specific, the later goes first, whichever of the two selectors it has.
    group = conf.process_group(daemon.replace(BOTH, APP))
    assert (group.app_dir, group.python_path) == ("/", ("/shop", "/all", "/daemon"))
    assert group.application_groups[0].python_path == ("/shop", "/both", "/both2")


# GILs


@with_own_gil
@pytest.mark.parametrize(
    ("said", "own"),
    [
        ([("top", "On")], True),
        ([("top", "On"), (APP, "Off")], False),
        ([(PROCESS, "On")], True),
        ([(APP, "On"), (PROCESS, "Off")], False),
        ([("application-group=%{GLOBAL}", "On")], False),
    ],
)
def test_who_has_a_gil_of_its_own(conf: Configured, said: list[tuple[str, str]], own: bool) -> None:
    text = IN_APP1
    for selectors, value in said:
        line = f"WSGIPerInterpreterGIL {value}"
        text += f"{line}\n" if selectors == "top" else container(selectors, line)
    assert conf.application_groups(text)["app1"].own_gil is own


@with_own_gil
def test_the_main_interpreter_has_the_gil_of_the_process_and_it_is_said(conf: Configured) -> None:
    text = f"{IN_APP1}WSGIScriptAlias /m /m application-group=%{{GLOBAL}}\n"
    text += "WSGIPerInterpreterGIL On\n"
    groups = conf.application_groups(text)
    assert (groups[""].own_gil, groups["app1"].own_gil) == (False, True)
    assert conf.warnings(text)[-1] == (
        "FILE:6: WSGIPerInterpreterGIL has no effect on the application group %{GLOBAL}: it is the "
        "main interpreter, whose GIL is that of the process"
    )
    off = container("application-group=%{GLOBAL}", "WSGIPerInterpreterGIL Off")
    assert not any("WSGIPerInterpreterGIL" in each for each in conf.warnings(text + off))


@before_own_gil
def test_an_own_gil_on_an_old_python_is_left_out(conf: Configured) -> None:
    text = IN_APP1 + "WSGIPerInterpreterGIL On\n"
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert conf.warnings(text) == [
        f"FILE:5: WSGIPerInterpreterGIL is left out: this is Python {version}, and a GIL of its "
        "own takes 3.12"
    ]
    assert not conf.application_groups(text)["app1"].own_gil
    assert conf.warnings(IN_APP1 + "WSGIPerInterpreterGIL Off\n") == []


@without_gil
def test_an_own_gil_without_gils_is_left_out(conf: Configured) -> None:
    text = IN_APP1 + "WSGIPerInterpreterGIL On\nWSGIFreeThreading On\n"
    assert conf.warnings(text) == [
        "FILE:5: WSGIPerInterpreterGIL of application group app1 has no effect: free-threading is "
        "active, and there is no GIL to have"
    ]
    assert not conf.application_groups(text)["app1"].own_gil


@pytest.mark.parametrize("application", ["app1", "%{GLOBAL}"])
@pytest.mark.parametrize("process", ["", f"{PROCESS} "])
def test_a_switch_interval_for_an_interpreter_that_shares_its_gil(
    conf: Configured, application: str, process: str
) -> None:
    """CPython's own rule has one for the GIL; our policies have one for each thread."""
    text = container(f"{process}application-group={application}", "WSGISwitchInterval 0.3")
    text += IN_APP1.replace("app1", application).replace(
        "shop\n", "shop switch-interval=0.001\n", 1
    )
    name = "" if application == "%{GLOBAL}" else application
    for flags in (("--policy", "priority"), ("--policy", "deadline"), ()):
        assert conf.warnings(text, *flags) == []
        assert conf.process_group(text, *flags).switch_interval_s == 0.001
        assert conf.application_groups(text, *flags)[name].switch_interval_s == 0.3
    assert conf.process_group(text, *INTERVAL).switch_interval_s == 0.001
    assert conf.application_groups(text, *INTERVAL)[name].switch_interval_s is None
    (said,) = conf.warnings(text, *INTERVAL)
    assert said.startswith(
        f"FILE:2: WSGISwitchInterval of application group {application} is left out: its "
        "interpreter shares the GIL of the process, and so would the value under policy interval "
    )


@with_own_gil
def test_a_switch_interval_of_a_gil_of_its_own_is_its_own(conf: Configured) -> None:
    text = container(APP, "WSGISwitchInterval 0.3", "WSGIPerInterpreterGIL On") + IN_APP1
    for flags in ((), INTERVAL):
        assert conf.warnings(text, *flags) == []
        assert conf.process_group(text, *flags).switch_interval_s is None
        group = conf.application_groups(text, *flags)["app1"]
        assert (group.own_gil, group.switch_interval_s) == (True, 0.3)


@before_own_gil
def test_an_own_gil_that_cannot_be_had_does_not_let_the_switch_interval_through(
    conf: Configured,
) -> None:
    text = container(APP, "WSGISwitchInterval 0.3", "WSGIPerInterpreterGIL On") + IN_APP1
    assert conf.application_groups(text, *INTERVAL)["app1"].switch_interval_s is None
    assert [re.sub(" is left out.*", "", each) for each in conf.warnings(text, *INTERVAL)] == [
        "FILE:3: WSGIPerInterpreterGIL",
        "FILE:2: WSGISwitchInterval of application group app1",
    ]


@pytest.mark.parametrize(
    ("text", "of_process", "of_group"),
    [
        # A setting of the process applies to its interpreters; `None` means that.
        (container("", "WSGISwitchInterval 0.3"), 0.3, None),
        (container(PROCESS, "WSGISwitchInterval 0.3"), 0.3, None),
        # mod_wsgi has server scope go over the daemon's at a sub-interpreter's first request.
        ("WSGISwitchInterval 0.3\n", None, None),
        (container(APP, "WSGISwitchInterval 0.3"), None, 0.3),
        (
            container("", "WSGISwitchInterval 0.4") + container(APP, "WSGISwitchInterval 0.3"),
            0.4,
            0.3,
        ),
        (
            container(APP, "WSGISwitchInterval 0.3") + container(PROCESS, "WSGISwitchInterval 0.4"),
            *(0.4, None),
        ),
        (
            container(PROCESS, "WSGISwitchInterval 0.4") + container(APP, "WSGISwitchInterval 0.3"),
            *(0.4, 0.3),
        ),
        (
            container(BOTH, "WSGISwitchInterval 0.3")
            + container(PROCESS, "WSGISwitchInterval 0.4"),
            *(0.4, 0.3),
        ),
    ],
)
def test_which_switch_interval_an_interpreter_has(
    conf: Configured, text: str, of_process: float | None, of_group: float | None
) -> None:
    assert conf.process_group(text + IN_APP1).switch_interval_s == of_process
    assert conf.application_groups(text + IN_APP1)["app1"].switch_interval_s == of_group


@with_own_gil
def test_a_daemons_switch_interval_is_for_own_gils_too(conf: Configured) -> None:
    """mod_wsgi sets it for the main interpreter's GIL alone."""
    daemon = IN_APP1.replace("shop\n", "shop switch-interval=0.001\n", 1)
    text = daemon + "WSGIPerInterpreterGIL On\n" + container("", "WSGISwitchInterval 0.3")
    assert conf.process_group(text).switch_interval_s == 0.001
    assert conf.application_groups(text)["app1"] == ApplicationGroup(
        "app1", own_gil=True, restrict_signal=True
    )


@without_gil
def test_a_switch_interval_without_gils_is_left_out(conf: Configured) -> None:
    text = "WSGIFreeThreading On\n" + container(APP, "WSGISwitchInterval 0.3") + IN_APP1
    assert conf.application_groups(text)["app1"].switch_interval_s is None
    (said,) = conf.warnings(text)
    assert said.endswith("free-threading is active, and there is no GIL to yield")


# Conflicts


def test_an_application_group_that_nobody_is_in_is_warned_of(conf: Configured) -> None:
    text = IN_APP1 + container("application-group=app2", "WSGIRestrictStdin On")
    assert conf.warnings(text) == [
        "FILE:5: no application is in application group app2, but in app1"
    ]


def test_an_application_group_for_a_part_of_an_alias_is_warned_of(conf: Configured) -> None:
    location = "<Location {}>\nWSGIApplicationGroup b\n</Location>\n"
    text = IN_APP1 + "WSGIScriptAlias /b /b\n"
    assert conf.warnings(text + location.format("/a/c"))[-1] == (
        "FILE:7: WSGIApplicationGroup is left out: /a/c is a part of what WSGIScriptAlias / "
        "serves; give it an alias of its own"
    )
    assert "WSGIScriptAlias /b serves" in conf.warnings(text + location.format("/b/c/"))[-1]
    same = location.format("/a/c").replace("Group b", "Group app1")
    for each in (*map(location.format, ("/b", "/b/", "/")), same):
        said = conf.warnings(text + each)
        assert not any("is left out" in each for each in said)


def test_flags_go_over_the_file(conf: Configured) -> None:
    text = IN_APP1 + container(APP, "WSGIRestrictStdin On")
    group = conf.application_groups(text, "--interpreters", "3", "--interpreters-on-demand")["app1"]
    assert (group.interpreters, group.on_demand, group.restrict_stdin) == (3, True, True)


def test_an_application_takes_the_place_of_an_alias_in_its_application_group(
    conf: Configured,
) -> None:
    group = conf.process_group(IN_APP1, "other:app", "--mount", "/new=new:app")
    assert group.mounts == (Mount("", "other:app", "app1"), Mount("/new", "new:app", ""))


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        (
            IN_APP1,
            ["--application-group", "b"],
            "--application-group with --config: FILE has an application group for each alias; "
            "set WSGIApplicationGroup there",
        ),
        (
            IN_APP1,
            ["--preload"],
            "--preload: found application group app1 (FILE:4), which is a sub-",
        ),
        (
            IN_APP1,
            ["--interpreters", "16"],
            "--interpreters: found 16 for application group app1 in ",
        ),
        (
            SHOP + "".join(f"WSGIScriptAlias /{number} /a\n" for number in range(61)),
            [],
            "FILE:2: interpreters: found 61 sub-interpreters in process group shop; allowed: up to",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    conf: Configured, text: str, flags: list[str], said: str
) -> None:
    assert said in conf.refusal(text, *flags)


@before_own_gil
def test_a_flag_for_an_own_gil_is_refused_beside_an_apache_file(conf: Configured) -> None:
    assert conf.refusal(IN_APP1, "--per-interpreter-gil").startswith(
        "--per-interpreter-gil: found true on Python 3."
    )


# Served


class ServedFile(Served):
    def __init__(self, file: Path) -> None:
        self._start(["-m", "headway", "serve", "--config", str(file)])


def test_aliases_are_served_in_their_interpreters(conf: Configured) -> None:
    folder = conf.path.parent
    (folder / "put_first").mkdir()
    (folder / "tells.wsgi").write_text(TELLS)
    conf.path.write_text(
        "ServerName shop.org\nListen 127.0.0.1:0\nWSGIDaemonProcess shop threads=2\n"
        "WSGIProcessGroup shop\nWSGIScriptAlias /own tells.wsgi\n"
        "WSGIScriptAlias /named tells.wsgi application-group=named\n"
        "WSGIScriptAlias /too tells.wsgi application-group=named\n"
        "WSGIScriptAlias / tells.wsgi application-group=%{GLOBAL}\n"
        + container(
            "application-group=named",
            *(
                "WSGIRestrictStdin On",
                "WSGIRestrictSignal Off",
                f"WSGIPythonPath {folder}/put_first",
            ),
        )
    )
    told = {}
    with ServedFile(conf.path) as server:
        for path in ("/", "/own", "/own", "/named"):
            told[path] = json.loads(server.get(path).body)
        server.stop()
    free = {"path": False, "stdin": "''", "signal": "None"}
    assert told == {
        "/": {**free, "requests": 1},
        "/own": {**free, "requests": 2},
        "/named": {"path": True, "stdin": "OSError", "signal": "ValueError", "requests": 1},
    }
    for name, path in (("%{GLOBAL}", "/"), ("shop.org:0|/own", "/own"), ("named", "/named")):
        assert re.search(rf"^{re.escape(name)} +{path} ", server.stderr, re.MULTILINE), (
            server.stderr
        )
