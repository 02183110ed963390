"""docs/serve.md and docs/apache.md name what the code has; examples are what they claim to be."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from configured import resolution_of
from launch import run_main
from served import Served

from headway.server.config.apache import contents, daemon, hosts, other_directives
from headway.server.config.options import OPTIONS, SECTIONS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/serve.md").read_text()
APACHE = (ROOT / "docs/apache.md").read_text()


def rows_under(title: str, page: str = PAGE) -> list[list[str]]:
    """The cells of the tables below a heading, without their heads."""
    _, _, rest = page.partition(f"\n{title}\n")
    assert rest, f"the page has no {title!r}"
    section = re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    heads = {at - 1 for at, line in enumerate(lines) if line.startswith("|---")}
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for at, line in enumerate(lines)
        if at not in heads and not line.startswith("|---")
    ]


def test_the_table_of_an_application_group_is_right(tmp_path: Path) -> None:
    """The example in the page, which `--check` reads."""
    (text,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    if sys.version_info < (3, 12):
        text = text.replace("per-interpreter-gil = true\n", "")
    file = tmp_path / "serve.toml"
    file.write_text(text)
    (group,) = resolution_of("--config", str(file)).settings.groups
    assert [(each.name, each.interpreters) for each in group.application_groups] == [
        *(("shop", 4), ("admin", 1), ("", 1)),
    ]


def test_every_key_of_the_access_log_has_its_row(tmp_path: Path) -> None:
    with Served("pages:hello", "--access-log", f"json:{tmp_path}/log") as server:
        server.get("/")
    keys = json.loads((tmp_path / "log").read_text()).keys()
    named = " ".join(row[0] for row in rows_under("## The access log"))
    assert sorted(re.findall(r"`(\w+)`", named)) == sorted(keys)


def test_what_mod_wsgi_has_and_headway_has_not_is_all_there() -> None:
    named = [
        row[0].strip("`") for row in rows_under("## What mod_wsgi has and Headway has not", APACHE)
    ]
    tables = (
        daemon.REFUSED,
        daemon.NOT_HAD,
        other_directives.REFUSED,
        other_directives.WITHOUT_EFFECT,
    )
    without_value = {"wsgiimportscript"}
    expected = {name for table in tables for name in table} | without_value
    assert sorted(name.lower() for name in named) == sorted(expected)


def test_every_directive_of_mod_wsgi_is_known() -> None:
    """Those of mod_wsgi 6; the list is from its table of commands."""
    directives = """
        WSGIAcceptMutex WSGIAccessScript WSGIApplicationGroup WSGIAuthGroupScript
        WSGIAuthUserScript WSGICallableObject WSGICaseSensitivity WSGIChunkedRequest
        WSGIDaemonProcess WSGIDestroyInterpreter WSGIDispatchScript WSGIDontWriteBytecode
        WSGIEnableSendfile WSGIErrorOverride WSGIFreeThreading WSGIGroupAuthoritative
        WSGIHandlerScript WSGIIgnoreActivity WSGIImportScript WSGIInterpreterOptions
        WSGIMapHEADToGET WSGIPassApacheRequest WSGIPassAuthorization WSGIPerInterpreterGIL
        WSGIProcessGroup WSGIPythonEggs WSGIPythonHashSeed WSGIPythonHome WSGIPythonOptimize
        WSGIPythonPath WSGIPythonWarnings WSGIRestrictEmbedded WSGIRestrictProcess
        WSGIRestrictSignal WSGIRestrictStdin WSGIRestrictStdout WSGIScriptAlias
        WSGIScriptAliasMatch WSGIScriptReloading WSGIServerMetrics WSGISlowRequests
        WSGISocketPrefix WSGISocketRotation WSGISwitchInterval WSGITelemetryOptions
        WSGITelemetryService WSGITrustedProxies WSGITrustedProxyHeaders WSGIVerboseDebugging
    """.lower().split()
    known = {*contents.SERVER_ONLY, *contents.OF_HOST, *hosts.SCOPED}
    known |= {
        *other_directives.REFUSED,
        *other_directives.WITHOUT_EFFECT,
        *other_directives.INSTEAD,
    }
    assert [name for name in directives if name not in known] == []


def test_every_option_of_a_daemon_is_known() -> None:
    """Those of mod_wsgi 6.1."""
    options = """
        processes threads display-name home user group supplementary-groups umask lang locale
        chroot script-user script-group python-home python-path python-eggs switch-interval
        restart-interval maximum-requests inactivity-timeout request-timeout interrupt-timeout
        deadlock-timeout startup-timeout graceful-timeout eviction-timeout shutdown-timeout
        connect-timeout socket-timeout queue-timeout listen-backlog socket-user cpu-time-limit
        cpu-priority memory-limit virtual-memory-limit stack-size receive-buffer-size
        send-buffer-size header-buffer-size response-buffer-size response-socket-timeout
        response-flush-delay server-metrics
    """
    assert sorted(options.split()) == daemon.known_options()


@pytest.mark.parametrize("name", ["serve.toml", "httpd.conf"])
def test_the_examples_are_right(name: str) -> None:
    done = run_main("serve", "--check", "--config", f"examples/{name}", cwd=ROOT, PWD=str(ROOT))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^  threads +8 +examples/", done.stdout, re.MULTILINE)


def test_the_configuration_beside_nginx_is_right(tmp_path: Path) -> None:
    example = (ROOT / "examples/deploy/nginx.conf").read_text()
    file = tmp_path / "serve.toml"
    file.write_text("\n".join(re.findall(r"^#     (.*)$", example, re.MULTILINE)))
    (group,) = resolution_of("--config", str(file)).settings.groups
    assert (group.socket_group, group.trusted_proxies) == ("www-data", ("unix",))
    assert f"server {group.binds[0]};" in example


def test_no_two_options_share_a_name() -> None:
    assert len(OPTIONS) == 1 + sum(map(len, SECTIONS.values()))
