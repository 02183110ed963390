"""An Apache file that denies never serves: real httpd with mod_wsgi is the judge, request by
request. `headway serve` gives the same answers, or refuses the file with exit status 2."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from httpd import MISSING, Httpd, Request, free_port, main_part, statuses
from launch import environment, run_main
from secured import make_certificate
from started_program import StartedProgram

pytestmark = [
    pytest.mark.slow("starts httpd with mod_wsgi"),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]

APPLICATION = """\
def application(environ, start_response):
    environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "2")])
    return [b"OK"]
"""
# `{folder}` has the script and its directory; 127.0.0.1 is the client.
SITE = """\
Listen 127.0.0.1:{port}
WSGIApplicationGroup %{{GLOBAL}}
{text}
WSGIScriptAlias / {folder}/site/app.wsgi
"""
ROOT, ADMIN = Request("/"), Request("/admin/users")
OTHER = "10.0.0.0/8"
SERVES, REFUSES = "serves", "refuses"
GRANTED = "Require all granted"
# The sites whose rules are made up.
SITES = 200


class Construct(NamedTuple):
    """Directives, what Headway does with them, and the requests that httpd answers."""

    text: str
    outcome: str
    requests: tuple[Request, ...] = (ROOT, ADMIN)
    # Files that deny everything.
    files: tuple[str, ...] = ()
    tls: bool = False
    # The outcome for the site's file alone, which has no LoadModule.
    of_part: str = ""


def section(kind: str, *lines: str) -> str:
    return "\n".join([f"<{kind}>", *lines, f"</{kind.split()[0]}>"])


def directory(*lines: str) -> str:
    return section("Directory {folder}/site", *lines)


def location(*lines: str) -> str:
    return section("Location /admin", *lines)


CONSTRUCTS = {
    # mod_authz_core
    "nothing": Construct("", SERVES),
    "granted": Construct(directory(GRANTED), SERVES),
    "denied by default, granted": Construct(
        section("Directory /", "AllowOverride None", "Require all denied")
        + "\n"
        + directory(GRANTED),
        SERVES,
    ),
    "denied by default": Construct(section("Directory /", "Require all denied"), REFUSES),
    "granted by default, denied": Construct(
        section("Directory /", GRANTED) + "\n" + directory("Require all denied"), REFUSES
    ),
    "Require ip below the alias": Construct(location(f"Require ip {OTHER}"), REFUSES),
    "Require ip of the client": Construct(location("Require ip 127.0.0.1"), REFUSES),
    "Require valid-user": Construct(
        location(
            "AuthType Basic", "AuthName x", "AuthUserFile {folder}/users", "Require valid-user"
        ),
        REFUSES,
    ),
    "Require not ip": Construct(
        location(section("RequireAll", GRANTED, "Require not ip 127.0.0.1")), REFUSES
    ),
    "RequireAny with granted": Construct(
        location(section("RequireAny", GRANTED, f"Require ip {OTHER}")), SERVES
    ),
    "RequireAll with a rule": Construct(
        location(section("RequireAll", GRANTED, f"Require ip {OTHER}")), REFUSES
    ),
    "RequireNone": Construct(
        location(section("RequireAll", GRANTED, section("RequireNone", "Require ip 127.0.0.1"))),
        REFUSES,
    ),
    "several Require": Construct(location("Require all denied", GRANTED), SERVES),
    "Require method": Construct(
        directory("Require method GET"), REFUSES, (ROOT, Request("/", "POST", b"x"))
    ),
    "LocationMatch": Construct(
        section("LocationMatch ^/(admin|secret)", "Require all denied"), REFUSES
    ),
    "Location with ~": Construct(section('Location ~ "/adm.n"', "Require all denied"), REFUSES),
    "Location with *": Construct(section("Location /adm*/users", "Require all denied"), REFUSES),
    "Location with a slash at its end": Construct(
        section("Location /admin/", "Require all denied"), REFUSES
    ),
    "Location twice": Construct(location("Require all denied") + "\n" + location(GRANTED), REFUSES),
    "LocationMatch before Location": Construct(
        section("LocationMatch ^/", "Require all denied") + "\n" + section("Location /", GRANTED),
        SERVES,
    ),
    "Location before LocationMatch": Construct(
        section("Location /", GRANTED) + "\n" + section("LocationMatch ^/", "Require all denied"),
        REFUSES,
    ),
    "Location over Directory": Construct(
        directory("Require all denied") + "\n" + section("Location /", GRANTED), SERVES
    ),
    "Files of the script": Construct(section("Files app.wsgi", "Require all denied"), REFUSES),
    "Files of others": Construct(section('FilesMatch "^\\.ht"', "Require all denied"), SERVES),
    "Files in Directory": Construct(
        directory(section("FilesMatch wsgi$", "Require all denied"), GRANTED), REFUSES
    ),
    "Directory with *": Construct(section("Directory {folder}/*", "Require all denied"), REFUSES),
    "Directory with * elsewhere": Construct(
        section("Directory {folder}/*/*", "Require all denied"), SERVES
    ),
    "DirectoryMatch after Directory": Construct(
        section("DirectoryMatch site", "Require all denied") + "\n" + directory(GRANTED), REFUSES
    ),
    "Directory ~ after Directory": Construct(
        section("Directory ~ site", "Require all denied") + "\n" + directory(GRANTED), REFUSES
    ),
    "another Directory": Construct(section("Directory /srv/other", "Require all denied"), SERVES),
    "AuthMerging": Construct(
        directory("Require all denied") + "\n" + location("AuthMerging And", GRANTED), REFUSES
    ),
    "authentication that nothing requires": Construct(
        directory("AuthType Basic", "AuthName x", "AuthUserFile {folder}/users", GRANTED), SERVES
    ),
    # mod_access_compat
    "Order allow,deny": Construct(directory("Order allow,deny"), REFUSES),
    "Order allow,deny with Allow": Construct(
        directory("Order allow,deny", f"Allow from {OTHER}"), REFUSES
    ),
    "Order allow,deny with Allow from all": Construct(
        directory("Order allow,deny", "Allow from all"), SERVES
    ),
    "Order deny,allow": Construct(directory("Order deny,allow"), SERVES),
    "Deny": Construct(location("Deny from 127.0.0.1"), REFUSES),
    "Deny, then Allow from all": Construct(
        directory("Order deny,allow", "Deny from all", "Allow from all"), SERVES
    ),
    "Allow, then Deny": Construct(
        directory("Order allow,deny", "Allow from all", "Deny from 127.0.0.1"), REFUSES
    ),
    "Deny in /, Allow in the directory": Construct(
        section("Directory /", "Order deny,allow", "Deny from all")
        + "\n"
        + directory("Order allow,deny", "Allow from all"),
        SERVES,
    ),
    "mutual-failure": Construct(directory("Order mutual-failure", f"Allow from {OTHER}"), REFUSES),
    "both generations, the old one denies": Construct(
        directory("Order deny,allow", "Deny from all", GRANTED), REFUSES
    ),
    "both generations, the new one denies": Construct(
        directory("Order allow,deny", "Allow from all", "Require all denied"), REFUSES
    ),
    "Satisfy Any": Construct(
        directory("Satisfy Any", "Order allow,deny", "Allow from all", "Require all denied"),
        REFUSES,
    ),
    # Conditions
    "IfModule of a module that is loaded": Construct(
        section("IfModule mod_authz_core.c", location("Require all denied")), REFUSES
    ),
    "IfModule, old and new": Construct(
        directory(
            section("IfModule mod_authz_core.c", GRANTED),
            section("IfModule !mod_authz_core.c", "Order allow,deny", "Deny from all"),
        ),
        SERVES,
    ),
    "IfVersion": Construct(section("IfVersion >= 2.4", location("Require all denied")), REFUSES),
    "If": Construct(section('If "%{{REQUEST_URI}} =~ /admin/"', "Require all denied"), REFUSES),
    "IfModule of a module that is not loaded": Construct(
        section("IfModule mod_lua.c", location("Require all denied")), SERVES, of_part=REFUSES
    ),
    "IfModule of the absence of a module": Construct(
        section("IfModule !mod_lua.c", location("Require all denied")), REFUSES
    ),
    "IfModule of modules that differ": Construct(
        section("IfModule mod_alias.c", section("Location /", "Require all denied"))
        + "\n"
        + section("IfModule mod_lua.c", section("Location /", GRANTED)),
        REFUSES,
    ),
    "IfModule in IfModule": Construct(
        section(
            "IfModule mod_alias.c",
            section("IfModule !mod_lua.c", location("Require all denied")),
        ),
        REFUSES,
    ),
    "rules of both branches": Construct(
        directory(
            "Order deny,allow",
            "Deny from 127.0.0.1",
            "Allow from all",
            section("IfModule !mod_lua.c", "Order allow,deny", "Allow from all"),
        ),
        REFUSES,
    ),
    "one branch each": Construct(
        section("Directory /", "Require all denied")
        + "\n"
        + directory(
            section("IfModule mod_lua.c", "Require all granted"),
            section("IfModule !mod_lua.c", GRANTED),
        ),
        SERVES,
    ),
    "IfModule of a source file": Construct(
        section("IfModule event.c", location("Require all denied")), REFUSES
    ),
    "IfDefine": Construct(section("IfDefine SECURE", location("Require all denied")), REFUSES),
    "IfDefine of httpd's command line": Construct(
        section("IfDefine FOREGROUND", location("Require all denied")), REFUSES
    ),
    "IfDefine of what is defined": Construct(
        "Define SECURE\n" + section("IfDefine SECURE", location("Require all denied")), REFUSES
    ),
    "IfVersion of a patch level": Construct(
        section("IfVersion >= 2.4.70", location("Require all denied")), REFUSES
    ),
    "IfVersion after a release": Construct(
        section("IfVersion > 2.4", location("Require all denied")), REFUSES
    ),
    "variables in another case": Construct(
        "Define Where /admin\n" + section("Location ${{WHERE}}", "Require all denied"), REFUSES
    ),
    # Names of sections
    "Directory with //": Construct(
        section("Directory {folder}//x/../site", "Require all denied"), REFUSES
    ),
    "FilesMatch of PCRE": Construct(
        section('FilesMatch "^[[:alnum:]]+\\.wsgi$"', "Require all denied"), REFUSES
    ),
    "Files with a negated set": Construct(section('Files "[^x]*"', "Require all denied"), REFUSES),
    "Location with //": Construct(
        directory("Require all denied") + "\n" + section("Location //", GRANTED), REFUSES
    ),
    "DirectoryMatch of the directory": Construct(
        section("Directory {folder}", "Require all denied")
        + "\n"
        + section('DirectoryMatch "/site/?$"', GRANTED),
        REFUSES,
    ),
    "a comment with a carriage return": Construct(
        directory("# x\rRequire all granted", "Require all denied"), REFUSES
    ),
    "LimitRequestBody in RequireAll": Construct(
        directory(section("RequireAll", GRANTED, "LimitRequestBody 10")),
        SERVES,
        (ROOT, Request("/", "POST", b"x" * 100)),
    ),
    "SSLRequireSSL in RequireAny": Construct(
        directory(section("RequireAny", GRANTED, "SSLRequireSSL")), REFUSES
    ),
    "AuthType without Require": Construct(
        directory("AuthType Basic", "AuthName x", "AuthUserFile {folder}/users"), REFUSES
    ),
    "RegexDefaultOptions": Construct(
        "RegexDefaultOptions +ICASE\n" + section("FilesMatch ^APP", "Require all denied"), REFUSES
    ),
    "ModMimeUsePathInfo": Construct(
        directory("ModMimeUsePathInfo On", GRANTED) + "\nAddHandler default-handler .txt",
        REFUSES,
        (ROOT, Request("/a.txt")),
    ),
    "AuthzProviderAlias": Construct(
        section(f"AuthzProviderAlias ip all {OTHER}") + "\n" + directory(GRANTED), REFUSES
    ),
    "httpd's own limit of bodies": Construct(
        directory(GRANTED), SERVES, (Request("/", "POST", None, {"Content-Length": "1500000000"}),)
    ),
    # mod_ssl
    "TLS": Construct("SSLOptions +StdEnvVars\nSSLProtocol all -SSLv3", SERVES, tls=True),
    "SSLVerifyClient": Construct("SSLVerifyClient require", REFUSES, tls=True),
    "SSLVerifyClient in a section": Construct(
        location("SSLVerifyClient require"), REFUSES, tls=True
    ),
    "SSLProtocol": Construct("SSLProtocol -all +TLSv1.3", REFUSES, tls=True),
    "SSLRequireSSL": Construct(directory("SSLRequireSSL", GRANTED), REFUSES),
    "SSLRequire": Construct(location('SSLRequire "a" eq "b"'), REFUSES, tls=True),
    # mod_wsgi's own
    "WSGIAccessScript": Construct(location("WSGIAccessScript {folder}/site/access.wsgi"), REFUSES),
    # Methods
    "Limit": Construct(
        directory(section("Limit POST", "Require all denied")),
        REFUSES,
        (ROOT, Request("/", "POST", b"x")),
    ),
    "LimitExcept": Construct(
        location(section("LimitExcept GET", "Require all denied")),
        REFUSES,
        (ROOT, Request("/admin", "POST", b"x")),
    ),
    "AllowMethods": Construct(
        directory("AllowMethods GET"), REFUSES, (ROOT, Request("/", "POST", b"x"))
    ),
    "TraceEnable": Construct("TraceEnable off", REFUSES, (ROOT, Request("/", "TRACE"))),
    # URLs
    "RewriteRule [F]": Construct("RewriteEngine on\nRewriteRule ^/admin - [F]", REFUSES),
    "RewriteRule [R]": Construct("RewriteEngine on\nRewriteRule ^/admin /x [R]", REFUSES),
    "RewriteRule in a section": Construct(
        section("Location /", "RewriteEngine on", "RewriteRule admin - [F]"), REFUSES
    ),
    "Redirect 403": Construct("Redirect 403 /admin", REFUSES),
    "Redirect": Construct("Redirect permanent /admin http://localhost/", REFUSES),
    "RedirectMatch": Construct("RedirectMatch 404 ^/admin", REFUSES),
    "Alias": Construct("Alias /admin {folder}/nothing\n" + directory(GRANTED), REFUSES),
    "SetHandler": Construct(location("SetHandler server-status", GRANTED), REFUSES),
    "AddHandler for the script": Construct("AddHandler default-handler .wsgi", REFUSES),
    "AddHandler for others": Construct("AddHandler type-map .var", SERVES),
    "UserDir": Construct("UserDir public_html", REFUSES, (ROOT, Request("/~nobody/"))),
    "AcceptPathInfo": Construct(directory("AcceptPathInfo Off", GRANTED), REFUSES),
    # Bodies and fields
    "LimitRequestBody in Directory": Construct(
        directory("LimitRequestBody 1000", GRANTED),
        SERVES,
        (ROOT, Request("/", "POST", b"x" * 1000), Request("/", "POST", b"x" * 5000)),
    ),
    "LimitRequestBody in Location": Construct(
        location("LimitRequestBody 1000"), REFUSES, (ROOT, Request("/admin", "POST", b"x" * 5000))
    ),
    "LimitRequestBody, the last counts": Construct(
        "LimitRequestBody 10\n"
        + section("Directory /", "LimitRequestBody 100", GRANTED)
        + "\n"
        + directory("LimitRequestBody 1000"),
        SERVES,
        (Request("/", "POST", b"x" * 500), Request("/", "POST", b"x" * 5000)),
    ),
    "RequestHeader": Construct(
        "RequestHeader unset X-Remote-User",
        REFUSES,
        (Request("/", headers={"X-Remote-User": "a"}),),
    ),
    "RequestHeader unset Proxy": Construct("RequestHeader unset Proxy early", SERVES),
    "Header": Construct("Header always set X-Frame-Options DENY", REFUSES),
    "RemoteIPHeader": Construct(
        "RemoteIPHeader X-Real-IP\n" + section("Location /", "Require ip 127.0.0.1"),
        REFUSES,
        (ROOT, Request("/", headers={"X-Real-IP": "10.1.2.3"})),
    ),
    "SetEnvIf": Construct("SetEnvIf Host ^ HTTPS=on", REFUSES),
    "SetEnvIf for httpd": Construct('BrowserMatch "MSIE" nokeepalive', SERVES),
    # Files
    ".htaccess": Construct(
        directory("AllowOverride All", GRANTED), REFUSES, files=("site/.htaccess",)
    ),
    ".htaccess above": Construct(
        section("Directory {folder}", "AllowOverride All") + "\n" + directory("AllowOverride None"),
        REFUSES,
        files=(".htaccess",),
    ),
    ".htaccess that is not read": Construct(
        directory("AllowOverride None", GRANTED), SERVES, files=("site/.htaccess",)
    ),
    "AllowOverride without a file": Construct(directory("AllowOverride All", GRANTED), SERVES),
    ".htaccess and AllowOverride elsewhere": Construct(
        directory("AllowOverride All", GRANTED) + "\n" + section("Location /", GRANTED),
        REFUSES,
        files=("site/.htaccess",),
    ),
    ".htaccess and AllowOverrideList": Construct(
        directory("AllowOverrideList Require", "AllowOverride None", GRANTED),
        REFUSES,
        files=("site/.htaccess",),
    ),
    "AccessFileName": Construct(
        "AccessFileName .acl\n" + directory("AllowOverride All"), REFUSES, files=("site/.acl",)
    ),
    "Options without links": Construct(section("Directory {folder}", "Options None"), SERVES),
    "Options without links, and a link": Construct(
        section("Directory {folder}", "Options None")
        + "\nWSGIScriptAlias /link {folder}/link/app.wsgi",
        REFUSES,
        (ROOT, Request("/link")),
    ),
    "Options with links, and a link": Construct(
        section("Directory {folder}", "Options Indexes FollowSymLinks")
        + "\nWSGIScriptAlias /link {folder}/link/app.wsgi",
        SERVES,
        (ROOT, Request("/link")),
    ),
    # Directives that every site has
    "harmless": Construct(
        "DocumentRoot {folder}\nDirectoryIndex index.html\nServerAdmin a@localhost\n"
        "AddDefaultCharset UTF-8\nErrorDocument 404 /lost\nKeepAlive On\nTypesConfig /dev/null\n"
        "AddOutputFilterByType DEFLATE text/html\nFileETag None\nServerSignature Off\n"
        "ExpiresActive on\nLogLevel warn\nRequestReadTimeout header=20\n",
        SERVES,
    ),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that httpd's own user reaches, which pytest's are not."""
    made = Path(tempfile.mkdtemp(prefix="headway-httpd-"))
    made.chmod(0o755)
    (made / "site").mkdir()
    (made / "site" / "app.wsgi").write_text(APPLICATION)
    (made / "site" / "access.wsgi").write_text("def allow_access(environ, host): return False\n")
    (made / "link").symlink_to("site")
    (made / "users").write_text("")
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_file_is_served_as_httpd_serves_it_or_refused(
    folder: Path, name: str, record_property: Callable[[str, object], None]
) -> None:
    construct = CONSTRUCTS[name]
    for file in construct.files:
        (folder / file).write_text("Require all denied\n")
    site = SITE.replace("{text}", construct.text)
    if construct.tls:
        made = make_certificate(folder)
        site += f"SSLEngine on\nSSLCertificateFile {made.certificate}\n"
        site += f"SSLCertificateKeyFile {made.key}\n"
    whole = folder / "httpd.conf"
    part = folder / "site.conf"

    def write(port: int) -> None:
        text = site.format(folder=folder, port=port)
        part.write_text(text)
        whole.write_text(main_part(folder) + text)

    # A virtual host's file is read without LoadModule, and has to give the same.
    write(0)
    outcomes = {whole: construct.outcome, part: construct.of_part or construct.outcome}
    for file, outcome in outcomes.items():
        check = run_main("serve", "--check", "--config", file)
        assert check.returncode == (0 if outcome == SERVES else 2), check.stderr
        if outcome == REFUSES:
            said = rf"headway serve: {folder}/(httpd|site)\.conf:\d+: \S+: found .+\n"
            assert re.fullmatch(said, check.stderr), check.stderr
    port = free_port()
    write(port)
    with Httpd(folder, whole, port):
        by_httpd = statuses(port, construct.requests, tls=construct.tls)
    record_property("httpd", by_httpd)
    record_property("headway", construct.outcome)
    if construct.outcome == SERVES:
        write(0)
        assert by_headway(whole, construct) == by_httpd


def by_headway(conf: Path, construct: Construct) -> list[int]:
    command = [sys.executable, "-m", "headway", "serve", "--config", str(conf)]
    server = StartedProgram(
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment())
    )
    try:
        port = int(server.wait_for(r"listening on https?://127\.0\.0\.1:(\d+)")[1])
        return statuses(port, construct.requests, tls=construct.tls)
    finally:
        assert server.end(signal.SIGTERM) == 0, server.stderr


KINDS = (
    *("Directory /", "Directory {folder}", "Directory {folder}/site", "Directory {folder}/*"),
    *("Directory ~ site$", "DirectoryMatch /s.te", "Directory /srv/other", "Files *.wsgi"),
    *("Files other", 'FilesMatch "^app"', "Location /", "Location /app", "Location /app/"),
    *("Location /app/admin", "Location /admin", "Location /ap", "Location /app/*"),
    *("LocationMatch ^/app", "LocationMatch ^/app/a", 'Location ~ "admin$"', "LocationMatch ^/x"),
)
RULES = (
    *(GRANTED, GRANTED, GRANTED, "Require all denied", f"Require ip {OTHER}", "Require local"),
    *("Order allow,deny", "Order deny,allow", "Allow from all", "Allow from all", "Deny from all"),
    *(f"Allow from {OTHER}", f"Deny from {OTHER}", "Options None", "LimitRequestBody 10"),
    section("RequireAny", GRANTED, f"Require ip {OTHER}"),
    section("RequireAll", GRANTED, GRANTED),
)
PATHS = ("", "/", "/admin", "/x", "/admin/x", "//admin", "/%61dmin", "/x/../admin")


# The first is loaded, and the second is not.
MODULES = ("mod_alias.c", "!mod_alias.c", "mod_lua.c", "!mod_lua.c")


def perhaps_for_a_module(random: Random, text: str) -> str:
    return section(f"IfModule {random.choice(MODULES)}", text) if random.random() < 0.1 else text


def made_up_site(random: Random) -> tuple[str, str]:
    """Sections with rules, and the URL path of the alias."""
    parts = []
    for _ in range(random.randint(1, 4)):
        rules = [
            perhaps_for_a_module(random, rule)
            for rule in random.sample(RULES, random.randint(1, 3))
        ]
        kind = random.choice(KINDS)
        # <Files> is not allowed elsewhere.
        if kind.startswith("Directory") and random.random() < 0.2:
            rules.append(section("Files app.wsgi", random.choice(RULES)))
        parts.append(perhaps_for_a_module(random, section(kind, *rules)))
    return "\n".join(parts), random.choice(("/", "/app"))


def test_made_up_rules_that_deny_are_refused(folder: Path) -> None:
    """Each site is a virtual host of one httpd, and a file of its own for Headway."""
    random = Random(20261128)
    sites = [made_up_site(random) for _ in range(SITES)]
    hosts = [
        f"<VirtualHost *:{{port}}>\nServerName s{number}\nWSGIApplicationGroup %{{{{GLOBAL}}}}\n"
        f"WSGIScriptAlias {alias} {{folder}}/site/app.wsgi\n{text}\n</VirtualHost>\n"
        for number, (text, alias) in enumerate(sites)
    ]
    served = []
    file = folder / "site.conf"
    for number, host in enumerate(hosts):
        file.write_text("Listen 127.0.0.1:8000\n" + host.format(folder=folder, port=8000))
        if run_main("serve", "--check", "--config", file).returncode == 0:
            served.append(number)
    port = free_port()
    whole = folder / "httpd.conf"
    whole.write_text(
        f"{main_part(folder)}Listen 127.0.0.1:{port}\n"
        + "".join(host.format(folder=folder, port=port) for host in hosts)
    )
    with Httpd(folder, whole, port):
        for number in served:
            text, alias = sites[number]
            paths = [f"{alias.rstrip('/')}{path}" or "/" for path in PATHS]
            found = statuses(
                port, [Request(path, headers={"Host": f"s{number}"}) for path in paths]
            )
            assert found == [200] * len(paths), f"{alias}\n{text}"
    assert SITES / 10 < len(served) < SITES * 9 / 10
