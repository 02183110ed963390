"""Configuration by an Apache file: what mod_wsgi's directives become, who wins, what is refused."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import re
import shlex
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from configured import refusal_of, resolution_of
from launch import run_main
from served import APPS, TIMEOUT_S, read_response

from headway.address import Address
from headway.errors import CommandError
from headway.server.config.apache.file import read_apache
from headway.server.config.apache.reading import ApacheReader
from headway.server.config.apache.syntax import parse_lines, split_words
from headway.server.config.configuration import Draft
from headway.server.config.files import ConfigurationFiles
from headway.server.config.options import GROUP_OPTIONS
from headway.server.config.resolution import Resolution, resolve
from headway.server.settings import ApplicationGroup, HttpLimits, Mount, ProcessGroup, Tls

FREE_THREADED_BUILD = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

# mod_wsgi's %{RESOURCE}, where there is no ServerName; it restricts signals by default.
RESOURCE = f"{socket.gethostname()}:0|"
OF_RESOURCE = ApplicationGroup(RESOURCE, restrict_signal=True)

SHOP = "Listen 127.0.0.1:0\nWSGIScriptAlias / /srv/shop.wsgi process-group=shop\n"
EMBEDDED = "Listen 127.0.0.1:0\nWSGIScriptAlias / /srv/shop.wsgi\n"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "httpd.conf"


def read(conf: Path, text: str) -> Resolution:
    conf.write_text(text)
    return resolve(read_apache(str(conf)))


def group_of(conf: Path, text: str) -> ProcessGroup:
    (group,) = read(conf, text).settings.groups
    return group


def refusal(conf: Path, text: str) -> str:
    conf.write_text(text)
    with pytest.raises(CommandError) as caught:
        resolve(read_apache(str(conf)))
    assert caught.value.exit_code == 2
    said = str(caught.value)
    assert "\n" not in said
    return said.replace(str(conf), "FILE")


def warnings_of(conf: Path, text: str) -> list[str]:
    return [each.replace(str(conf), "FILE") for each in read(conf, text).warnings]


# Syntax


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a  b\tc", ["a", "b", "c"]),
        ('"a b" \'c "d"\'', ["a b", 'c "d"']),
        (r'"a \"b\" \\ \n"', [r'a "b" \ \n']),
        ('a"b c"', ['a"b', 'c"']),
        ("", []),
    ],
)
def test_words_are_split_as_httpd_does(text: str, words: list[str]) -> None:
    assert list(split_words(text)) == words


def test_lines_continue_sections_nest_and_places_are_those_of_the_first_line() -> None:
    directives = parse_lines(
        "f",
        "# a comment \\\n that goes on\nListen 80\n\n<IfModule x>\n  <Directory '/a b'>\n"
        "    Require all \\\n      granted\n  </directory>\n</IfModule>\nUser \\\n www",
    )
    assert [(each.name, each.words, each.place) for each in directives] == [
        ("Listen", ["80"], "f:3"),
        ("IfModule", ["x"], "f:5"),
        ("User", ["www"], "f:11"),
    ]
    (directory,) = directives[1].children or []
    (require,) = directory.children or []
    assert (directory.words, require.words, require.line) == (["/a b"], ["all", "granted"], 7)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<Directory />\nUser a", "FILE:1: <Directory> is not closed"),
        ("<A>\n</B>", "FILE:2: found </B>; allowed: </A>, for line 1"),
        ("\n</B>", "FILE:2: found </B>; allowed: no section is open"),
        ("<A>\n" * 2000 + "</A>\n" * 2000, "FILE:21: <A>: found 21 sections, one in another"),
        ("<Directory /", "FILE:1: found <Directory /; allowed: <NAME ...>"),
        ("Include none.conf", "FILE:1: Include: found"),
        ("<IfModule>\n</IfModule>", "FILE:1: <IfModule>: found nothing"),
        ("<IfVersion ~ 2>\n</IfVersion>", "FILE:1: <IfVersion>: found ~ 2; allowed: one of"),
    ],
)
def test_broken_syntax_is_one_line(conf: Path, text: str, said: str) -> None:
    assert said in refusal(conf, text)


def test_what_depends_on_the_server_holds_or_not(conf: Path) -> None:
    (conf.parent / "sites").mkdir()
    (conf.parent / "sites/b.conf").write_text("Seen b ${NAME}\n")
    (conf.parent / "sites/a.conf").write_text("Define NAME defined\nSeen a\n")
    conf.write_text(
        f"ServerRoot {conf.parent}\nLoadModule authz_core_module modules/mod_authz_core.so\n"
        "LoadModule ssl_module modules/mod_ssl.so\n"
        "<IfModule mod_ssl.c>\nSeen ssl.c\n</IfModule>\n"
        "<IfModule ssl_module>\nSeen ssl_module\n</IfModule>\n"
        "<IfModule !wsgi_module>\nSeen never\n</IfModule>\n"
        "<IfModule mod_php.c>\n<IfModule mod_wsgi.c>\nSeen never\n</IfModule>\n</IfModule>\n"
        "Include sites\n"
        "<IfDefine NAME>\nSeen now\n</IfDefine>\n"
        "IncludeOptional none/*.conf\n"
        "UnDefine NAME\n"
        "<IfDefine NAME>\nSeen never\n</IfDefine>\n"
        "<IfVersion >= 2.4>\nSeen 2.4\n</IfVersion>\n"
        "<IfVersion < 2.4.1>\nSeen never\n</IfVersion>\n"
        "<IfFile sites/a.conf>\nSeen file ${NAME} ${NOWHERE}\n</IfFile>\n"
    )
    seen = [each.text for each in ApacheReader(str(conf), ConfigurationFiles()).read(str(conf))]
    assert seen == [
        *("ssl.c", "ssl_module", "a", "b defined", "now", "2.4"),
        "file ${NAME} ${NOWHERE}",
    ]


def test_a_circle_of_files_is_refused(conf: Path) -> None:
    assert "allowed: no circle of files" in refusal(conf, "Include httpd.conf")


SITE = """\
ServerRoot /srv
Define APPS /srv/apps
Listen 127.0.0.1:0
LogFormat "%h %l %u %t \\"%r\\" %>s %b" common
CustomLog "log" common
<IfModule !mod_ssl.c>
WSGIDaemonProcess shop threads=5 display-name='%{GROUP}' \\
    python-path=${APPS} locale="C.UTF-8"
</IfModule>
<VirtualHost *:0>
  ServerName shop.example.com
  WSGIScriptAlias / ${APPS}/shop.wsgi process-group=shop
  <Directory ~ "^/srv">
    WSGIApplicationGroup %{GLOBAL}
    Require all granted
  </Directory>
</VirtualHost>
WSGIApplicationGroup %{RESOURCE}
<WSGIInterpreterOptions process-group=shop application-group=%{GLOBAL}>
  WSGISwitchInterval 0.01
  WSGIPerInterpreterGIL On
  WSGIPythonPath ${APPS}:/lib
</WSGIInterpreterOptions>
"""


@pytest.mark.parametrize("seed", range(20))
def test_no_text_breaks_the_reader(conf: Path, seed: int) -> None:
    """A site that is changed at random is understood or refused; no exception escapes."""
    chance = random.Random(seed)
    for _ in range(30):
        lines = SITE.split("\n")
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(lines))
            line, cut = lines[at], chance.randint(0, len(lines[at]))
            lines[at] = chance.choice(
                [
                    "",
                    lines[chance.randrange(len(lines))],
                    line[:cut] + chance.choice("<>/\"'\\=%{}$[(* \t\0#:0a\u00e9") + line[cut:],
                    line[:cut] + line[cut + 1 :],
                ]
            )
        conf.write_text("\n".join(lines))
        with contextlib.suppress(CommandError):
            resolve(read_apache(str(conf)))


# Process groups


def test_a_daemon_has_the_defaults_of_mod_wsgi(conf: Path) -> None:
    resolution = read(conf, f"{SHOP}WSGIDaemonProcess shop\n")
    assert resolution.settings.groups == (
        ProcessGroup(
            name="shop",
            mounts=(Mount("", "/srv/shop.wsgi", RESOURCE),),
            application_groups=(OF_RESOURCE,),
            binds=(Address("127.0.0.1", 0),),
            processes=1,
            threads=15,
            listen_backlog=100,
            deadlock_timeout_s=300,
            graceful_timeout_s=15,
            shutdown_timeout_s=5,
            http=HttpLimits(max_body_bytes=2**30, normalize_path=True),
        ),
    )
    assert resolution.groups[0].values["threads"].origin == "mod_wsgi's default"


def test_embedded_mode_is_the_default_process_group(conf: Path) -> None:
    group = group_of(conf, EMBEDDED)
    assert (group.name, group.threads, group.listen_backlog) == ("default", 4, 1024)


def test_every_option_of_a_daemon_is_taken(conf: Path) -> None:
    group = group_of(
        conf,
        SHOP + "WSGIDaemonProcess shop processes=2 threads=5 display-name='%{GROUP}' home=/tmp \\\n"
        "  user=#7 group=#8 supplementary-groups=#9,#10 umask=0027 lang=en_US.UTF-8 \\\n"
        '  locale="C.UTF-8" python-home=/venv python-path=/a:/b stack-size=262144 \\\n'
        "  restart-interval=1 maximum-requests=2 inactivity-timeout=3 request-timeout=4 \\\n"
        "  interrupt-timeout=5 deadlock-timeout=6 startup-timeout=7 graceful-timeout=8 \\\n"
        "  shutdown-timeout=9 queue-timeout=10 listen-backlog=11 cpu-time-limit=12 \\\n"
        "  cpu-priority=-3 memory-limit=13 virtual-memory-limit=14 socket-timeout=15\n",
    )
    root = os.geteuid() == 0
    assert group == ProcessGroup(
        name="shop",
        mounts=(Mount("", "/srv/shop.wsgi", RESOURCE),),
        application_groups=(OF_RESOURCE,),
        binds=(Address("127.0.0.1", 0),),
        processes=2,
        multiprocess=True,
        threads=5,
        display_name="%{GROUP}",
        home="/tmp",
        user="#7" if root else None,
        group="#8" if root else None,
        supplementary_groups=("#9", "#10") if root else (),
        umask=0o27,
        lang="en_US.UTF-8",
        environment={"LC_ALL": "C.UTF-8"},
        python_home="/venv",
        app_dir="/tmp",
        python_path=("/a", "/b"),
        stack_size_bytes=262_144,
        restart_interval_s=1,
        maximum_requests=2,
        inactivity_timeout_s=3,
        request_timeout_s=4,
        interrupt_timeout_s=5,
        deadlock_timeout_s=6,
        startup_timeout_s=7,
        graceful_timeout_s=8,
        shutdown_timeout_s=9,
        queue_timeout_s=10,
        listen_backlog=11,
        cpu_time_limit_s=12,
        cpu_priority=-3,
        memory_limit_bytes=13,
        virtual_memory_limit_bytes=14,
        http=HttpLimits(write_timeout_s=15, max_body_bytes=2**30, normalize_path=True),
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("threads=5x", "found threads=5x; allowed: a whole number from 0 to 1000"),
        ("threads=-1", "found threads=-1"),
        ("threads=0", "found threads=0; allowed: 1 or more, to serve requests with"),
        ("processes=0", "found processes=0; allowed: a whole number from 1"),
        ("request-timeout=1.5", "found request-timeout=1.5; allowed: a whole number from 0"),
        ("request-timeout=", "found request-timeout=; allowed"),
        ("memory-limit=64k", "found memory-limit=64k; allowed: a whole number"),
        ("switch-interval=nan", "found switch-interval=nan; allowed: a number of seconds from"),
        ("switch-interval=inf", "found switch-interval=inf"),
        ("switch-interval=0x1p-9", "found switch-interval=0x1p-9"),
        ("switch-interval=1e-9", "found switch-interval=1e-9"),
        ("switch-interval=0", "found switch-interval=0"),
        ("switch-interval=5ms", "found switch-interval=5ms"),
        ("umask=8", "found umask=8; allowed: permission bits"),
        ("home=relative", "found home=relative; allowed: an absolute path"),
        ("user=root", "found user=root; allowed: a user other than root"),
        ("user=#0", "found user=#0; allowed: a user other than root"),
        ("receive-buffer-size=511", "found receive-buffer-size=511"),
        ("header-buffer-size=8191", "found header-buffer-size=8191"),
        ("response-buffer-size=1", "found response-buffer-size=1"),
        ("server-metrics=maybe", "found server-metrics=maybe"),
        ("chroot=/jail", "found chroot=/jail; allowed: not here; instead: a container"),
        ("script-user=me", "found script-user=me; allowed: not here"),
        ("thread=5", "found the unknown option thread; allowed: chroot, connect-timeout"),
        ("threads", "found 'threads'; allowed: option=value"),
        ("threads = 5", "found 'threads'; allowed: option=value"),
    ],
)
def test_what_a_daemon_cannot_have_is_refused(conf: Path, options: str, said: str) -> None:
    line = refusal(conf, f"{SHOP}WSGIDaemonProcess shop {options}\n")
    assert line.startswith("FILE:3: WSGIDaemonProcess: found ")
    assert said in line


def test_options_without_effect_are_named(conf: Path) -> None:
    said = warnings_of(
        conf,
        SHOP + "WSGIDaemonProcess shop python-eggs=/e eviction-timeout=1 connect-timeout=2 \\\n"
        "  socket-user=me receive-buffer-size=0 send-buffer-size=512 header-buffer-size=8192 \\\n"
        "  response-buffer-size=65536 response-flush-delay=5 server-metrics=on\n",
    )
    assert [re.sub(": .*", "", each.removeprefix("FILE:3: ")) for each in said] == [
        f"{name} has no effect"
        for name in (
            *("python-eggs", "eviction-timeout", "connect-timeout", "socket-user"),
            *("receive-buffer-size", "send-buffer-size", "header-buffer-size"),
            *("response-buffer-size", "response-flush-delay", "server-metrics"),
        )
    ]


def test_a_daemon_starts_in_the_home_of_its_user(conf: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run processes as another user")
    group = group_of(conf, f"{SHOP}WSGIDaemonProcess shop user=bin\n")
    assert (group.home, group.app_dir) == (pwd.getpwnam("bin").pw_dir, None)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("WSGIProcessGroup shop\nWSGIScriptAlias / /srv/a.wsgi", "shop"),
        ("WSGIProcessGroup shop\nWSGIProcessGroup %{GLOBAL}\nWSGIScriptAlias / /a", "default"),
        ("WSGIProcessGroup shop\nWSGIScriptAlias / /a process-group=%{GLOBAL}", "default"),
        ("<Directory /srv>\nWSGIProcessGroup shop\n</Directory>\nWSGIScriptAlias / /srv/a", "shop"),
        (
            "<Directory /srx>\nWSGIProcessGroup shop\n</Directory>\nWSGIScriptAlias / /srv/a",
            "default",
        ),
        ("<Directory /s*>\nWSGIProcessGroup shop\n</Directory>\nWSGIScriptAlias / /srv/a", "shop"),
        (
            "<Directory />\nWSGIProcessGroup shop\n</Directory>\n"
            "<Directory /srv>\nWSGIProcessGroup %{GLOBAL}\n</Directory>\nWSGIScriptAlias / /srv/a",
            "default",
        ),
        (
            "<Location />\nWSGIProcessGroup shop\n</Location>\n"
            "<Directory /srv>\nWSGIProcessGroup %{GLOBAL}\n</Directory>\nWSGIScriptAlias / /srv/a",
            "shop",
        ),
        ("<Location /b>\nWSGIProcessGroup shop\n</Location>\nWSGIScriptAlias / /srv/a", "default"),
        (
            "<LocationMatch ^/x>\nWSGIProcessGroup shop\n</LocationMatch>\nWSGIScriptAlias /xy /a",
            "shop",
        ),
        (
            "<Directory /srv>\n<Files a.wsgi>\nWSGIProcessGroup shop\n</Files>\n</Directory>\n"
            "WSGIScriptAlias / /srv/a.wsgi",
            "shop",
        ),
        (
            "WSGIProcessGroup shop\n<VirtualHost *>\nWSGIProcessGroup %{GLOBAL}\n"
            "WSGIScriptAlias / /srv/a.wsgi\n</VirtualHost>",
            "default",
        ),
        ("<VirtualHost *>\nWSGIProcessGroup shop\n</VirtualHost>\nWSGIScriptAlias / /a", "shop"),
    ],
)
def test_the_process_group_of_an_alias(conf: Path, text: str, name: str) -> None:
    assert group_of(conf, f"WSGIDaemonProcess shop\nListen 127.0.0.1:0\n{text}\n").name == name


def test_hosts_and_addresses_become_groups(conf: Path) -> None:
    resolution = read(
        conf,
        "Listen 80\nListen 127.0.0.1:8001\nListen [::1]:8002 https\nListen 8003\nListen 8004\n"
        "WSGIDaemonProcess shop\nWSGIPythonHome /venv\n"
        "<VirtualHost *:80 *:8001>\nServerName a\nWSGIScriptAlias / /srv/shop.wsgi\n"
        "WSGIScriptAlias /admin admin.wsgi\nWSGIProcessGroup shop\n</VirtualHost>\n"
        "<VirtualHost [::1]:8002>\nSSLEngine on\nSSLCertificateFile c.pem\n"
        "SSLCertificateKeyFile /k.pem\nLimitRequestBody 10\n"
        "WSGIScriptAlias / /srv/other.wsgi\n</VirtualHost>\n"
        "<VirtualHost *:8003 *:8004>\n</VirtualHost>\n",
    )
    folder = str(conf.parent)
    shop, other = resolution.settings.groups
    assert [str(bind) for bind in shop.binds] == ["0.0.0.0:80", "127.0.0.1:8001"]
    assert shop.mounts == (
        Mount("", "/srv/shop.wsgi", "a|"),
        Mount("/admin", f"{folder}/admin.wsgi", "a|/admin"),
    )
    assert (shop.tls, shop.python_home) == (None, "/venv")
    assert other.tls == Tls(f"{folder}/c.pem", "/k.pem")
    assert (other.name, [str(bind) for bind in other.binds]) == ("default", ["[::1]:8002"])
    assert other.http.max_body_bytes == 10
    assert (
        resolution.groups[0]
        .values["python-home"]
        .origin.endswith(":7, inherited from server scope")
    )
    nothing = [each for each in resolution.warnings if "nothing is served on" in each]
    assert len(nothing) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "WSGIScriptAlias / /a",
            "FILE: nothing to serve: found no Listen, which Debian has in ports.conf; allowed: --",
        ),
        (
            "Listen 80\nTimeout 5",
            "FILE: nothing to serve: found no WSGIScriptAlias; allowed: a WSGIScriptAlias that is",
        ),
        (
            "Listen 80\n<Macro Site $name>\nWSGIScriptAlias / /srv/$name.wsgi\n</Macro>\n"
            "Use Site shop",
            "FILE: nothing to serve: found no WSGIScriptAlias, but <Macro> (FILE:2), Use (FILE:5), "
            "which headway serve does not follow; allowed: a WSGIScriptAlias",
        ),
        (
            "Listen 80\n<VirtualHost *:81>\nWSGIScriptAlias / /a\n</VirtualHost>",
            "FILE: nothing to serve: found no Listen for WSGIScriptAlias (FILE:3); allowed: a Lis",
        ),
        (
            "Listen 80\nWSGIScriptAlias /w/ /a",
            "found /w/ /a; allowed: both without a slash at the ",
        ),
        (
            "Listen 80\nWSGIScriptAlias /w /a/",
            "found /w /a/; allowed: both without a slash at the ",
        ),
        ("Listen 80\nWSGIScriptAlias /w/ /a/", "found /w/ /a/; allowed: both without a slash at t"),
        ("Listen 80\nWSGIScriptAlias // /a", "found // /a; allowed: both without a slash at the e"),
        (
            "Listen 80\nWSGIScriptAlias / /usr/",
            "found /usr/; allowed: a script file, since httpd f",
        ),
        (
            "Listen 80\nWSGIScriptAlias /w /usr",
            "found /usr; allowed: a script file, since httpd fi",
        ),
        ("Listen x", "FILE:1: Listen: found x; allowed: [ADDRESS:]PORT"),
        (
            "Listen 80\nWSGIScriptAlias / /a process-group=b",
            "found the process group b; allowed: n",
        ),
        ("Listen 80\nWSGIScriptAlias a /a", "FILE:2: WSGIScriptAlias: found a; allowed: a URL pat"),
        ("Listen 80\nWSGIScriptAlias /", "found /; allowed: URL-PATH SCRIPT"),
        (
            "Listen 80\nWSGIScriptAlias / /a proces-group=b",
            "found proces-group=b; allowed: process",
        ),
        ("Listen 80\nWSGIScriptAlias / /a callable-object=app", "found the callable app; allowed"),
        (
            "Listen 80\nWSGIScriptAlias / /a process-group=%{ENV:X}",
            "does not depend on the request",
        ),
        (
            "WSGIDaemonProcess a\nWSGIDaemonProcess a",
            "FILE:2: WSGIDaemonProcess: found a a second t",
        ),
        ("WSGIDaemonProcess default", "found default a second time (first: embedded mode)"),
        (
            "Listen 80\nWSGIDaemonProcess a\nWSGIDaemonProcess b\n"
            "WSGIScriptAlias / /a process-group=a\nWSGIScriptAlias /b /b process-group=b",
            "FILE:1: Listen: found the process groups a, b on 0.0.0.0:80; allowed: one process gr",
        ),
        (
            "Listen 80\n<VirtualHost *:80>\nServerName a\nWSGIScriptAlias / /a\n</VirtualHost>\n"
            "<VirtualHost *:80>\nServerName b\nWSGIScriptAlias / /b\n</VirtualHost>",
            "FILE:8: WSGIScriptAlias: found / for two applications on one address, or in two "
            "groups (first: FILE:4)",
        ),
        (
            "Listen 80\nListen 81\n<VirtualHost *:80>\nWSGIScriptAlias / /a\n</VirtualHost>\n"
            "<VirtualHost *:81>\nWSGIScriptAlias / /b\n</VirtualHost>",
            "FILE:2: Listen: found process group default with other applications, or other TLS",
        ),
        (
            "Listen 80\n<VirtualHost *>\nServerName a\nWSGIDaemonProcess x\n</VirtualHost>\n"
            "<VirtualHost *>\nServerName b\nWSGIScriptAlias / /b process-group=x\n</VirtualHost>",
            "FILE:8: WSGIScriptAlias: found the process group x of another virtual host (FILE:4)",
        ),
        (
            "Listen 80\nWSGIRestrictEmbedded On\nWSGIScriptAlias / /a",
            "FILE:3: WSGIScriptAlias: found no process group for it; allowed: process-group=",
        ),
        ("WSGIScriptAliasMatch ^/(.*) /a/$1", "FILE:1: WSGIScriptAliasMatch: found it; allowed: W"),
        ("WSGIAccessScript /a", "allowed: access control in the application"),
        (
            "WSGIDamonProcess a",
            "found no directive of that name; allowed: those of mod_wsgi; wsgid",
        ),
        (
            "<VirtualHost *>\nWSGISwitchInterval 1\n</VirtualHost>",
            "FILE:2: WSGISwitchInterval: found it in <VirtualHost>; allowed: at server scope alone",
        ),
        (
            "<Location />\nWSGISwitchInterval 1\n</Location>",
            "FILE:2: WSGISwitchInterval: found it in <Location>; allowed: outside of such sections",
        ),
        ("WSGISwitchInterval nan", "FILE:1: WSGISwitchInterval: found nan; allowed: a number of s"),
        ("WSGISwitchInterval 0.002 1", "found 0.002 1; allowed: one word"),
        ("WSGISwitchInterval 5ms", "found 5ms; allowed"),
        ("WSGIPerInterpreterGIL Yes", "found Yes; allowed: On or Off"),
        ("WSGITelemetryService udp:1", "found udp:1; allowed: unix:/PATH [interval=SECONDS]"),
        ("WSGITelemetryService unix:/a interval=0.4", "found 0.4; allowed: a number of seconds fr"),
        ("WSGISlowRequests -1", "found -1; allowed: a number of seconds from 0"),
        ("WSGITelemetryService unix:/a every=1", "found every=1; allowed: interval=SECONDS, once"),
        ("WSGITelemetryOptions +All", "found +All; allowed: None, All, CaptureUserAgent, or +Ca"),
        ("WSGITelemetryOptions All -CaptureUserAgent", "found All -CaptureUserAgent; allowed"),
        (
            "Listen 80\n<DirectoryMatch (>\nWSGIProcessGroup a\n</DirectoryMatch>\n"
            "WSGIScriptAlias / /a",
            "FILE:2: <DirectoryMatch>: found (; allowed: a regular expression (missing )",
        ),
        ("Timeout 0", "FILE:1: Timeout: found 0; allowed: a time above 0"),
        ("User ${NOT_SET_ANYWHERE}", "allowed: a variable that Define or the environment sets"),
        (
            "<WSGIInterpreterOptions group=a>\n</WSGIInterpreterOptions>",
            "the unknown selector group",
        ),
        (
            "<WSGIInterpreterOptions process-group=a process-group=b>\n</WSGIInterpreterOptions>",
            "FILE:1: <WSGIInterpreterOptions>: found process-group a second time",
        ),
        ("<WSGIInterpreterOptions shop>\n</WSGIInterpreterOptions>", "found 'shop'; allowed: opti"),
        (
            "<WSGIInterpreterOptions>\nWSGIPythonHome /venv\n</WSGIInterpreterOptions>",
            "FILE:2: WSGIPythonHome: found it in <WSGIInterpreterOptions>; allowed: WSGI",
        ),
    ],
)
def test_what_cannot_be_is_refused(conf: Path, text: str, said: str) -> None:
    needs_root = text.startswith("User")
    if needs_root and os.geteuid() != 0:
        pytest.skip("httpd heeds User only where root started it")
    if text.startswith(("Timeout", "User", "WSGIAccessScript")):
        text = f"{text}\n{EMBEDDED}"
    assert said in refusal(conf, text)


# The switch interval


def container(selectors: str, value: str) -> str:
    return (
        f"<WSGIInterpreterOptions {selectors}>\nWSGISwitchInterval {value}\n"
        "</WSGIInterpreterOptions>\n"
    )


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        (f"WSGISwitchInterval 0.002\n{EMBEDDED}", 0.002),
        (f"{SHOP}WSGIDaemonProcess shop switch-interval=0.001\n", 0.001),
        # Server scope never goes over, nor stands in for, the daemon's own.
        (f"WSGISwitchInterval 0.002\n{SHOP}WSGIDaemonProcess shop switch-interval=0.001\n", 0.001),
        (f"WSGISwitchInterval 0.002\n{SHOP}WSGIDaemonProcess shop\n", None),
        (container("process-group=shop", "0.3") + SHOP + "WSGIDaemonProcess shop\n", 0.3),
        (container("", "0.3") + SHOP + "WSGIDaemonProcess shop\n", 0.3),
        (container("process-group=other", "0.3") + SHOP + "WSGIDaemonProcess shop\n", None),
        (container("process-group=%{GLOBAL}", "0.3") + SHOP + "WSGIDaemonProcess shop\n", None),
        (container("process-group=%{GLOBAL}", "0.3") + EMBEDDED, 0.3),
        (container("", "0.3") + f"WSGISwitchInterval 0.002\n{EMBEDDED}", 0.3),
        # More selectors first, then the later.
        (container("process-group=%{GLOBAL}", "0.3") + container("", "0.4") + EMBEDDED, 0.3),
        (container("", "0.3") + container("", "0.4") + EMBEDDED, 0.4),
        (
            container("process-group=shop", "0.3")
            + SHOP
            + "WSGIDaemonProcess shop switch-interval=0.001\n",
            0.001,
        ),
    ],
)
def test_which_switch_interval_wins(conf: Path, text: str, interval: float | None) -> None:
    assert group_of(conf, text).switch_interval_s == interval


def test_server_scope_says_that_it_is_not_for_daemons(conf: Path) -> None:
    text = f"WSGISwitchInterval 0.002\n{SHOP}WSGIDaemonProcess shop\n"
    assert warnings_of(conf, text) == [
        "FILE:1: WSGISwitchInterval is for the default process group alone, and not for shop: that "
        "takes switch-interval= of WSGIDaemonProcess"
    ]
    assert warnings_of(conf, text.strip() + " switch-interval=0.001") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("WSGIPerInterpreterGIL Off", None),
        (
            "<WSGIInterpreterOptions application-group=a>\nWSGIFreeThreading On\n"
            "</WSGIInterpreterOptions>",
            "WSGIFreeThreading is left out: free-threading is for whole processes",
        ),
        (
            "WSGIFreeThreading On",
            None if FREE_THREADED_BUILD else "cannot run without a GIL",
        ),
        ("WSGIFreeThreading Off", None),
        ("WSGIRestrictStdout On", None),
        ("WSGIRestrictStdout Off", None),
        ("WSGITelemetryService unix:/t interval=0.5", None),
        ("WSGISlowRequests 0", None),
        ("WSGISlowRequests 2", "slow-requests has no effect without telemetry"),
        ("WSGITelemetryOptions +CaptureUserAgent", "no effect without slow-requests"),
        ("WSGIChunkedRequest On", None),
        ("WSGIChunkedRequest Off", "WSGIChunkedRequest has no effect: requests in chunks are alw"),
        ("WSGIPassAuthorization On", None),
        ("WSGIPassAuthorization Off", "has no effect: Authorization always reaches APP"),
        ("WSGIImportScript /srv/shop.wsgi process-group=shop", None),
        ("WSGIImportScript /srv/x.wsgi", "WSGIImportScript is left out: what aliases lead to is"),
        ("WSGITrustedProxyHeaders X-Forwarded-Host", None),
        ("WSGITrustedProxyHeaders X-Forwarded-Host X-Real-IP", "left out: X-Real-IP; there are"),
        ("WSGIScriptReloading On", "scripts are read again at SIGHUP, or with --reload"),
        ("WSGIPythonOptimize 2", "set PYTHONOPTIMIZE in the environment of headway serve"),
        ("WSGIDaemonProcess x", "process group x is left out: no WSGIScriptAlias that is served"),
        ("WSGIApplicationGroup a", None),
        ("Require all granted", None),
        (
            "<Directory />\nRequire all denied\n</Directory>\n"
            "<Directory /srv>\nRequire all granted\n</Directory>\n"
            '<FilesMatch "^\\.ht">\nRequire all denied\n</FilesMatch>',
            None,
        ),
        ("ErrorLog log\nKeepAlive On\nDocumentRoot /srv", None),
        (
            "CustomLog '|rotate' common",
            "CustomLog is left out where it is no known file in the comm",
        ),
        ("CustomLog log common", None),
    ],
)
def test_what_is_not_as_it_was_is_warned_of(conf: Path, text: str, said: str | None) -> None:
    found = warnings_of(conf, f"{EMBEDDED}{text}\n")
    assert len(found) == (said is not None), found
    if said is not None:
        assert said in found[0]
        assert found[0].startswith("FILE:")


def test_an_alias_hidden_from_mod_wsgi_is_warned_of(conf: Path) -> None:
    assert warnings_of(conf, f"{EMBEDDED}WSGIScriptAlias /b /b\n") == [
        "FILE:3: WSGIScriptAlias /b comes after one that hides it from mod_wsgi; here the longer "
        "path goes first",
    ]


# Directives of httpd's own


def test_directives_of_httpd_become_limits(conf: Path) -> None:
    text = (
        "Timeout 50\nKeepAliveTimeout 500ms\nLimitRequestLine 8190\nLimitRequestFields 0\n"
        "LimitRequestFieldSize 100000\nLimitRequestBody 1000\nListenBacklog 200\n"
        'LogFormat "%h %l %u %t \\"%r\\" %>s %O" short\nCustomLog logs/a short\n'
        "WSGITrustedProxies 10.0.0.0/8 192.0.2.1\n"
    )
    resolution = read(conf, text + SHOP + "WSGIDaemonProcess shop\n")
    group, folder = resolution.settings.groups[0], str(conf.parent)
    assert group.http == HttpLimits(
        body_timeout_s=50,
        write_timeout_s=50,
        keep_alive_timeout_s=0.5,
        max_target_bytes=8190,
        max_fields=10_000,
        max_head_bytes=100_000,
        max_body_bytes=1000,
        normalize_path=True,
    )
    assert (group.access_log, group.access_log_path) == ("common", f"{folder}/logs/a")
    assert group.listen_backlog == 200
    assert group.trusted_proxies == ("10.0.0.0/8", "192.0.2.1/32")
    assert group.trusted_proxy_headers == ("X-Forwarded-For", "X-Forwarded-Proto")
    own = group_of(conf, text + SHOP + "WSGIDaemonProcess shop listen-backlog=7\n")
    assert own.listen_backlog == 7


def test_the_pid_file_of_httpd_is_left_to_it(conf: Path) -> None:
    resolution = read(conf, f"PidFile ${{APACHE_PID_FILE}}\n{EMBEDDED}")
    assert resolution.settings.pid_file is None
    (warning,) = resolution.warnings
    assert warning.endswith(
        ":1: PidFile has no effect: it is httpd's, which may run; "
        "--pid-file is for a file of its own"
    )


def test_variables_of_hosts_become_those_of_requests(
    conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSED", "by the shell")
    resolution = read(
        conf,
        'Listen 8000\nSetEnv A top\nSetEnv B "of all"\nSetEnv GONE x\nPassEnv PASSED MISSING\n'
        "<VirtualHost *:8000>\nSetEnv A host\nUnsetEnv GONE\nSetEnv EMPTY\n"
        "WSGIScriptAlias / /a\n</VirtualHost>\n",
    )
    (group,) = resolution.settings.groups
    assert group.environ == {"A": "host", "B": "of all", "PASSED": "by the shell", "EMPTY": ""}
    assert "PASSED" not in group.environment
    origins = {
        name: value.origin.replace(str(conf), "FILE")
        for name, value in resolution.groups[0].values["environ"].value.items()
    }
    assert (origins["A"], origins["B"]) == ("FILE:7", "FILE:3, inherited from server scope")
    assert [each.replace(str(conf), "FILE") for each in resolution.warnings] == [
        "FILE:5: PassEnv: MISSING is not in the environment of headway serve",
    ]


def test_variables_of_the_server_keep_their_values(
    conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMOTE_ADDR", "192.0.2.1")
    text = "SetEnv SCRIPT_NAME /pre\nPassEnv REMOTE_ADDR\nSetEnv HTTPS on\n"
    resolution = read(conf, EMBEDDED + text)
    assert resolution.settings.groups[0].environ == {"HTTPS": "on"}
    assert [each.replace(str(conf), "FILE") for each in resolution.warnings] == [
        "FILE:3: SetEnv SCRIPT_NAME has no effect: the server sets it itself",
        "FILE:4: PassEnv REMOTE_ADDR has no effect: the server sets it itself",
    ]


@pytest.mark.parametrize(
    ("text", "normalizes"),
    [
        ("", True),
        ("AllowEncodedSlashes Off\nMergeSlashes ON\n", True),
        ("AllowEncodedSlashes On\n", False),
        ("AllowEncodedSlashes NoDecode\n", False),
        ("MergeSlashes Off\n", False),
    ],
)
def test_paths_are_normalized_unless_slashes_are_to_stay(
    conf: Path, text: str, normalizes: bool
) -> None:
    resolution = read(conf, EMBEDDED + text)
    assert resolution.settings.groups[0].http.normalize_path is normalizes
    kept = [each for each in resolution.warnings if "as clients send them" in each]
    assert len(kept) == (not normalizes)


def test_a_slash_at_the_end_of_the_script_of_the_root(conf: Path) -> None:
    group = group_of(conf, "Listen 127.0.0.1:0\nWSGIScriptAlias / /srv/shop.wsgi/\n")
    assert group.mounts == (Mount("", "/srv/shop.wsgi", RESOURCE),)


HOST = "<VirtualHost *:{port}>\n{text}\n</VirtualHost>\n"


@pytest.mark.parametrize(
    "text",
    [
        HOST.format(port=80, text="WSGIScriptAlias / /srv/shop.wsgi"),
        "WSGIScriptAlias / /srv/shop.wsgi",
        "<VirtualHost *>\nWSGIScriptAlias / /srv/shop.wsgi\n</VirtualHost>\n",
        "<VirtualHost 127.0.0.1:80>\nWSGIScriptAlias / /srv/shop.wsgi\n</VirtualHost>\n",
        "<VirtualHost [::1]:80>\nWSGIScriptAlias / /srv/shop.wsgi\n</VirtualHost>\n",
        HOST.format(port=80, text="ServerName a")
        + HOST.format(port=443, text="WSGIScriptAlias / /srv/shop.wsgi"),
    ],
)
def test_bind_stands_in_for_listen(conf: Path, text: str) -> None:
    conf.write_text(text)
    done = run_main("serve", "--check", "--config", conf)
    assert "found no Listen, which Debian has in ports.conf; allowed: --bind" in done.stderr
    (group,) = resolution_of("--config", str(conf), "--bind", "127.0.0.1:8123").settings.groups
    assert [str(bind) for bind in group.binds] == ["127.0.0.1:8123"]
    assert [(each.path, each.application) for each in group.mounts] == [("", "/srv/shop.wsgi")]


# The files of Debian's apache2, without comments, types and languages.
DEBIAN = {
    "apache2.conf": """\
DefaultRuntimeDir ${APACHE_RUN_DIR}
PidFile ${APACHE_PID_FILE}
Timeout 300
KeepAlive On
MaxKeepAliveRequests 100
KeepAliveTimeout 5
User ${APACHE_RUN_USER}
Group ${APACHE_RUN_GROUP}
HostnameLookups Off
ErrorLog ${APACHE_LOG_DIR}/error.log
LogLevel warn
IncludeOptional mods-enabled/*.load
IncludeOptional mods-enabled/*.conf
Include ports.conf
<Directory />
\tOptions FollowSymLinks
\tAllowOverride None
\tRequire all denied
</Directory>
<Directory /usr/share>
\tAllowOverride None
\tRequire all granted
</Directory>
<Directory /var/www/>
\tOptions Indexes FollowSymLinks
\tAllowOverride None
\tRequire all granted
</Directory>
AccessFileName .htaccess
<FilesMatch "^\\.ht">
\tRequire all denied
</FilesMatch>
LogFormat "%h %l %u %t \\"%r\\" %>s %O \\"%{Referer}i\\" \\"%{User-Agent}i\\"" combined
IncludeOptional conf-enabled/*.conf
IncludeOptional sites-enabled/*.conf
""",
    "ports.conf": "Listen 80\n<IfModule ssl_module>\n\tListen 443\n</IfModule>\n",
    "mods-enabled/alias.conf": 'Alias /icons/ "/usr/share/apache2/icons/"\n',
    "mods-enabled/status.conf": (
        "<Location /server-status>\n\tSetHandler server-status\n\tRequire local\n</Location>\n"
        "ExtendedStatus On\n<IfModule mod_proxy.c>\n\tProxyStatus On\n</IfModule>\n"
    ),
    "mods-enabled/modules.load": "".join(
        f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"
        for name in (
            *("access_compat", "alias", "auth_basic", "authn_core", "authn_file", "authz_core"),
            *("authz_host", "authz_user", "autoindex", "deflate", "dir", "env", "filter", "mime"),
            *("mpm_event", "negotiation", "reqtimeout", "setenvif", "status", "wsgi"),
        )
    ),
    "conf-enabled/security.conf": "ServerTokens OS\nServerSignature On\nTraceEnable Off\n",
    "conf-enabled/serve-cgi-bin.conf": (
        "<IfModule mod_alias.c>\n\t<IfModule mod_cgid.c>\n\t\tDefine ENABLE_USR_LIB_CGI_BIN\n"
        "\t</IfModule>\n\t<IfDefine ENABLE_USR_LIB_CGI_BIN>\n"
        "\t\tScriptAlias /cgi-bin/ /usr/lib/cgi-bin/\n\t</IfDefine>\n</IfModule>\n"
    ),
    "sites-enabled/shop.conf": """\
<VirtualHost *:80>
\tServerName shop.example.com
\tWSGIDaemonProcess shop threads=5
\tWSGIProcessGroup shop
\tWSGIScriptAlias / /srv/shop.wsgi
\t<Directory /srv>
\t\tRequire all granted
\t</Directory>
\tErrorLog ${APACHE_LOG_DIR}/error.log
\tCustomLog ${APACHE_LOG_DIR}/access.log combined
</VirtualHost>
""",
}
# Of its `envvars`.
ENVVARS = {
    "APACHE_RUN_USER": "nobody",
    "APACHE_RUN_GROUP": "nogroup",
    "APACHE_PID_FILE": "/var/run/apache2/apache2.pid",
    "APACHE_RUN_DIR": "/var/run/apache2",
    "APACHE_LOG_DIR": "/var/log/apache2",
}


def test_the_whole_configuration_of_debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in DEBIAN.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    conf = ("--config", str(tmp_path / "apache2.conf"))
    for name in ENVVARS:
        monkeypatch.delenv(name, raising=False)
    said = refusal_of(lambda: resolution_of(*conf))
    assert "User: found ${APACHE_RUN_USER}; allowed: a variable that Define or the " in said
    assert said.endswith("Debian's are in /etc/apache2/envvars")
    for name, value in ENVVARS.items():
        monkeypatch.setenv(name, value)
    said = refusal_of(lambda: resolution_of(*conf))
    flags = said.partition("; or, where a proxy enforces it, ")[2]
    assert flags == (
        "--accept-unenforced Alias --accept-unenforced 'Location /server-status' "
        "--accept-unenforced TraceEnable --accept-unenforced 'IfDefine ENABLE_USR_LIB_CGI_BIN'"
    )
    resolution = resolution_of(*conf, *shlex.split(flags))
    (group,) = resolution.settings.groups
    assert (group.name, [str(bind) for bind in group.binds]) == ("shop", ["0.0.0.0:80"])
    assert [(each.path, each.application) for each in group.mounts] == [("", "/srv/shop.wsgi")]
    assert (group.access_log, group.access_log_path) == ("combined", "/var/log/apache2/access.log")
    assert max(map(len, resolution.warnings)) < 1000, resolution.warnings


def test_bind_chooses_no_virtual_host(conf: Path) -> None:
    conf.write_text(
        HOST.format(port=80, text="WSGIScriptAlias / /srv/a.wsgi")
        + HOST.format(port=81, text="WSGIScriptAlias / /srv/b.wsgi")
    )
    said = refusal_of(lambda: resolution_of("--config", str(conf), "--bind", "127.0.0.1:8123"))
    assert f"{conf}:4: VirtualHost: found process group default with other applications" in said


@pytest.mark.parametrize(
    ("directive", "said"),
    [
        ("SetEnv", "SetEnv: found nothing; allowed: the name of a variable"),
        ("SetEnv A b c", "SetEnv: found A b c; allowed: NAME, and a value in quotes"),
    ],
)
def test_variables_that_cannot_be_are_refused(conf: Path, directive: str, said: str) -> None:
    assert refusal(conf, f"{EMBEDDED}{directive}\n").startswith(f"FILE:3: {said}")


def test_hosts_of_a_process_group_have_the_same_variables(conf: Path) -> None:
    host = "<VirtualHost *:{port}>\nSetEnv A {port}\nWSGIScriptAlias / /a\n</VirtualHost>\n"
    text = "Listen 8000\nListen 8001\n" + host.format(port=8000) + host.format(port=8001)
    assert refusal(conf, text) == (
        "FILE:4: found A for one of the virtual hosts of a process group; allowed: the same for "
        "all of them"
    )


def test_the_user_of_server_scope_is_for_all(conf: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("httpd heeds User only where root started it")
    daemon = f"User nobody\n{SHOP}WSGIDaemonProcess shop"
    assert group_of(conf, daemon).user == "nobody"
    assert group_of(conf, f"{daemon} user=#7").user == "#7"


def test_check_shows_an_apache_file_whatever_its_name(tmp_path: Path) -> None:
    for name in ("httpd.conf", "site"):
        file = tmp_path / name
        file.write_text(
            f"# a site\nListen 127.0.0.1:0\nWSGIDaemonProcess shop threads=3\n"
            f"WSGIScriptAlias / {APPS}/pages.py process-group=shop\nWSGIScriptReloading On\n"
        )
        done = run_main("serve", "--check", "--config", file)
        assert done.returncode == 0, done.stderr
        assert re.search(rf"^  threads +3 +{file}:3$", done.stdout, re.MULTILINE)
        assert re.search(r"^  listen-backlog +100 +mod_wsgi's default$", done.stdout, re.MULTILINE)
        assert done.stderr == (
            f"headway serve: warning: {file}:5: WSGIScriptReloading has no effect: scripts are "
            "read again at SIGHUP, or with --reload\n"
        )


def test_an_apache_file_is_served(conf: Path) -> None:
    """Its script, below its path, with the daemon's switch interval and environment."""
    (conf.parent / "tells.wsgi").write_text(
        "import os, sys\n"
        "def application(environ, start_response):\n"
        "    start_response('200 OK', [])\n"
        "    told = (sys.getswitchinterval(), environ['SCRIPT_NAME'], environ['PATH_INFO'],\n"
        "            environ['wsgi.multiprocess'], os.environ['LC_ALL'])\n"
        "    return [repr(told).encode()]\n"
    )
    conf.write_text(
        "Listen 127.0.0.1:0\n"
        "WSGIDaemonProcess shop processes=1 threads=2 locale=C.UTF-8 "
        "switch-interval=0.002\n"
        "WSGIScriptAlias /shop tells.wsgi process-group=shop application-group=%{GLOBAL}\n"
    )
    command = [sys.executable, "-m", "headway", "serve", "--config", str(conf)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", said)
            assert found, said
            with socket.create_connection(("127.0.0.1", int(found[1]))) as connection:
                connection.sendall(b"GET /shop/cart HTTP/1.1\r\nHost: a\r\n\r\n")
                body = read_response(connection).body.decode()
        finally:
            process.terminate()
            process.communicate(timeout=TIMEOUT_S)
    assert body == repr((0.002, "/shop", "/cart", True, "C.UTF-8"))
    assert process.returncode == 0


def test_a_draft_has_no_option_that_the_table_lacks(conf: Path) -> None:
    conf.write_text(SHOP + "WSGIDaemonProcess shop locale=C socket-timeout=3\n")
    draft: Draft = read_apache(str(conf))
    assert draft.groups[0].given.keys() <= GROUP_OPTIONS.keys()
