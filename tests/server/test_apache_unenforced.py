"""Directives of an Apache file that Headway does not enforce are refused, or accepted by name.

`test_apache_access` has the judgement of a real httpd."""

from __future__ import annotations

from pathlib import Path

import pytest
from configured import Configured, refusal_of, resolution_of

from headway.server.config.apache.harmless import HARMLESS
from headway.server.config.apache.sections import Coverage, coverage
from headway.server.config.apache.syntax import parse_lines

SITE = "Listen 127.0.0.1:0\nWSGIScriptAlias / /srv/site/app.wsgi\n"
ACCEPT = "--accept-unenforced"
ADMIN = f"{SITE}<Location /admin>\nRequire ip 10.0.0.0/8\n</Location>\n"


@pytest.fixture
def conf(tmp_path: Path) -> Configured:
    return Configured(tmp_path / "httpd.conf")


def test_the_error_names_the_line_all_others_and_what_accepts_them(conf: Configured) -> None:
    text = f"{ADMIN}Header set A b\nHeader set C d\n<Limit PUT>\nDeny from all\n</Limit>\n"
    assert conf.refusal(text) == (
        "FILE:6: Header: found set A b, which headway serve does not enforce (nor Header (FILE:7), "
        "<Limit> (FILE:8), Require in <Location /admin> (FILE:4)); allowed: a file without it; or, "
        "where a proxy enforces it, --accept-unenforced Header --accept-unenforced 'Limit PUT' "
        "--accept-unenforced 'Location /admin'"
    )


@pytest.mark.parametrize("name", ["Require", "require", "Location /admin", "<location /admin>"])
def test_an_accepted_directive_is_named_in_a_warning(conf: Configured, name: str) -> None:
    assert conf.warnings(ADMIN, ACCEPT, name) == [
        "FILE: not enforced, as --accept-unenforced allows: Require in <Location /admin> (FILE:4)"
    ]


def test_what_is_accepted_is_one_section_or_one_name(conf: Configured) -> None:
    text = f"{ADMIN}<Location /secret>\nRequire all denied\n</Location>\n"
    assert conf.refusal(text, ACCEPT, "Location /admin").startswith(
        "FILE:7: Require: found all denied, which"
    )
    assert conf.refusal(f"{ADMIN}Redirect /a /b\n", ACCEPT, "Require").startswith(
        "FILE:6: Redirect"
    )
    assert len(conf.warnings(text, ACCEPT, "Location /admin", ACCEPT, "Location /secret")) == 1


@pytest.mark.parametrize(
    ("text", "known"),
    [(ADMIN, "'Location /admin'"), (SITE, "nothing"), (f"{SITE}Alias /a /b\n", "Alias")],
)
def test_a_name_that_accepts_nothing_is_refused(conf: Configured, text: str, known: str) -> None:
    accepted = [ACCEPT, known.strip("'")] if known != "nothing" else []
    assert conf.refusal(text, *accepted, ACCEPT, "Requires") == (
        "--accept-unenforced: found 'Requires'; allowed: what FILE has and headway serve does not "
        f"enforce: {known}"
    )


def test_only_an_apache_file_has_something_to_accept(tmp_path: Path) -> None:
    said = "--accept-unenforced: found 'Require'; allowed: with an Apache file as --config"
    assert refusal_of(lambda: resolution_of("a:b", ACCEPT, "Require")) == said
    file = tmp_path / "serve.toml"
    file.write_text('[process-group.a]\napp = "a:b"\n')
    assert refusal_of(lambda: resolution_of("--config", str(file), ACCEPT, "Require")) == said


@pytest.mark.parametrize(
    "text",
    [
        # Of another virtual host, whose address serves nothing.
        "<VirtualHost *:80>\nRedirect / https://a/\n</VirtualHost>",
        # For URLs and files that no alias leads to.
        "<Directory /srv/static>\nSetHandler none\nOptions Indexes\n</Directory>",
    ],
)
def test_what_no_request_for_an_alias_meets_is_no_error(conf: Configured, text: str) -> None:
    assert not [each for each in conf.warnings(f"{SITE}{text}\n") if "enforced" in each]


def test_urls_beside_an_alias_belong_to_httpd(conf: Configured) -> None:
    text = "Listen 127.0.0.1:0\nWSGIScriptAlias /app /srv/app.wsgi\n"
    beside = (
        "Alias /static /srv/static\nRedirect /old /app\nRedirectMatch ^/favicon /x\n"
        "<Location /server-status>\nSetHandler server-status\nRequire local\n</Location>\n"
    )
    assert conf.warnings(text + beside) == []
    assert conf.refusal(f"{text}Alias /app/static /srv/static\n").startswith("FILE:3: Alias: found")


def test_a_file_without_loadmodule_has_all_modules(conf: Configured) -> None:
    text = f"{SITE}<IfModule mod_ssl.c>\nLimitRequestBody 10\n</IfModule>\n"
    (group,) = conf.resolve(text).settings.groups
    assert group.http.max_body_bytes == 10
    assert conf.warnings(text) == [
        "FILE: a part of a configuration; taken as loaded: <IfModule mod_ssl.c> (FILE:3)"
    ]
    absent = f"{SITE}<IfModule !mod_ssl.c>\nRequire all denied\n</IfModule>\n"
    assert conf.refusal(absent).startswith("FILE:4: Require: found all denied, which headway")
    harmless = f"{SITE}<IfModule !mod_ssl.c>\nOrder allow,deny\nAllow from all\n</IfModule>\n"
    assert conf.warnings(harmless) == []
    opens = (
        f"{SITE}<Location />\nRequire all denied\n<IfModule mod_ssl.c>\nRequire all granted\n"
        "</IfModule>\n</Location>\n"
    )
    assert conf.refusal(opens).startswith("FILE:4: Require: found all denied, which headway")


def test_a_section_for_a_module_that_is_not_loaded_is_skipped_and_named(conf: Configured) -> None:
    text = (
        f"LoadModule authz_core_module m/mod_authz_core.so\n{SITE}"
        "<IfModule mod_ssl.c>\nRequire all denied\n</IfModule>\n"
        "<IfModule mod_autoindex.c>\nIndexOptions FancyIndexing\n</IfModule>\n"
    )
    assert conf.warnings(text) == [
        "FILE: skipped, since no LoadModule names the module: <IfModule mod_ssl.c> (FILE:4)"
    ]


@pytest.mark.parametrize(
    "condition",
    ["IfDefine SECURE", "IfDefine !SECURE", "IfModule !event.c", "IfVersion >= 2.4.70"],
)
def test_a_section_whose_condition_cannot_be_known_is_refused(
    conf: Configured, condition: str
) -> None:
    module = f"LoadModule authz_core_module m/mod_authz_core.so\n{SITE}"
    kind = condition.split()[0]
    text = f"{module}<{condition}>\nRequire all denied\n</{kind}>\n"
    said = condition.removeprefix(f"{kind} ")
    assert conf.refusal(text).startswith(f"FILE:4: <{kind}>: found {said}, which headway serve")
    assert len(conf.warnings(text, ACCEPT, condition)) == 1
    harmless = f"{module}<{condition}>\nErrorLog a\nRequire all granted\n</{kind}>\n"
    assert conf.warnings(harmless) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<VirtualHost localhost:8000>\n</VirtualHost>", "an IP address or *, since names depend"),
        ("<VirtualHost 127.0.0.1:8000>\n</VirtualHost>", "* or no Listen on all addresses, since"),
        ("<Location /${NOT_SET_ANYWHERE}>\n</Location>", "a variable that Define or the envir"),
        ("IncludeOptional /etc/[a-z]*.conf", "a path with the wildcards * and ? alone"),
        ("IncludeOptional none/*.conf", "an absolute path, since there is no ServerRoot"),
        ("<IfFile none>\n</IfFile>", "an absolute path, since there is no ServerRoot"),
        ('<IfDefine "!A">\n</IfDefine>', "NAME or !NAME, without spaces or quotes"),
        ("SSLEngine optional", "allowed: On or Off"),
    ],
)
def test_what_depends_on_the_machine_is_refused(conf: Configured, text: str, said: str) -> None:
    site = "Listen 8000\nWSGIScriptAlias / /srv/site/app.wsgi\n"
    assert said in conf.refusal(f"{site}{text}\n")


def test_names_of_variables_ignore_case(conf: Configured) -> None:
    text = f"Define Path /admin\n{SITE}<Location ${{PATH}}>\nRequire all denied\n</Location>\n"
    assert conf.refusal(text).startswith("FILE:5: Require: found all denied")


def test_limits_of_bodies_that_differ_are_refused(conf: Configured) -> None:
    text = (
        "Listen 127.0.0.1:0\nWSGIScriptAlias /a /srv/a/a.wsgi\nWSGIScriptAlias /b /srv/b/b.wsgi\n"
        "WSGIApplicationGroup %{GLOBAL}\n<Directory /srv/a>\nLimitRequestBody 10\n</Directory>\n"
    )
    assert conf.refusal(text).startswith("FILE:6: LimitRequestBody: found 10, which headway serve")
    both = text.replace("<Directory /srv/a>", "<Directory /srv>")
    (group,) = conf.resolve(both).settings.groups
    assert group.http.max_body_bytes == 10


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '<DirectoryMatch "^/srv/(site|x)">\nRequire all denied\n</DirectoryMatch>\n'
            '<DirectoryMatch "^/srv.*">\nRequire all granted\n</DirectoryMatch>',
            "FILE:4: Require: found all denied",
        ),
        (
            "<Directory /srv>\nRequire all denied\n</Directory>\n"
            "<Files app.wsgi>\n<Files app.wsgi>\nRequire all granted\n</Files>\n</Files>",
            "FILE:4: Require: found all denied",
        ),
        (
            "<Directory /srv>\nAuthType Basic\n</Directory>\n"
            "<Location /x>\nAuthType None\n</Location>",
            "FILE:4: AuthType: found Basic",
        ),
        (
            "<Location /admin>\nWSGICallableObject denied\n</Location>",
            "FILE:4: WSGICallableObject: found denied",
        ),
        (
            "<VirtualHost [::ffff:127.0.0.1]:0>\nRedirect / /x\n</VirtualHost>",
            "FILE:4: Redirect: found / /x",
        ),
        ("<VirtualHost 127.0.0.1>\n</VirtualHost>", "ADDRESS:PORT, since without one"),
        (
            "Define W /admin\nDefine W\n<Location ${W}/x>\nRequire all denied\n</Location>",
            "FILE:6: Require: found all denied",
        ),
        (
            "<RequireAll>\nRequire all granted\nSSLRequireSSL\n</RequireAll>",
            "FILE:5: SSLRequireSSL: found it",
        ),
        ("ErrorLog a\0", "found a NUL character"),
    ],
)
def test_what_hides_a_denial_is_found(conf: Configured, text: str, said: str) -> None:
    assert said in conf.refusal(f"{SITE}{text}\n")


@pytest.mark.parametrize(
    ("path", "options", "follows"),
    [
        ("/srv", "FollowSymLinks", True),
        ("/srv", "+Indexes", True),
        ("/srv", "None", False),
        ("/srv", "Indexes", False),
        ("/srv", "+FollowSymLinks -FollowSymLinks", False),
        ("/srv", "FollowSymLinks SymLinksIfOwnerMatch", True),
        ("/srv/[a-z]*", "None", False),
    ],
)
def test_a_script_behind_a_link_needs_options(
    conf: Configured, tmp_path: Path, path: str, options: str, follows: bool
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "link").symlink_to("site")
    folder = path.replace("/srv", str(tmp_path))
    text = (
        f"Listen 127.0.0.1:0\nWSGIScriptAlias / {tmp_path}/link/app.wsgi\n"
        f"<Directory {folder}>\nOptions {options}\n</Directory>\n"
    )
    if follows:
        assert conf.warnings(text) == []
    else:
        assert conf.refusal(text).startswith(f"FILE:4: Options: found {options}, and")


def test_a_log_that_is_nowhere_is_left_out(conf: Configured) -> None:
    text = f"{SITE}CustomLog ${{NOT_SET_ANYWHERE}}/access.log combined\n"
    assert conf.warnings(text) == [
        "FILE: CustomLog is left out where it is no known file in the common or combined format: "
        "FILE:3"
    ]


@pytest.mark.parametrize(
    ("section", "path", "covered"),
    [
        ("Location /", "", Coverage.ALL),
        ("Location /a", "/a", Coverage.ALL),
        ("Location /a", "/a/b", Coverage.ALL),
        ("Location /a/", "/a", Coverage.PART),
        ("Location /a/", "/a/b", Coverage.ALL),
        ("Location /a/b", "/a", Coverage.PART),
        ("Location /ab", "/a", Coverage.NONE),
        ("Location /a*", "/b", Coverage.NONE),
        ("Location /a*", "/ab", Coverage.PART),
        ("Location /*", "/b", Coverage.PART),
        ('LocationMatch "^/a"', "/b", Coverage.NONE),
        ('LocationMatch "^/ab?"', "/ac", Coverage.PART),
        ('LocationMatch "^/a|/b"', "/b", Coverage.PART),
        ('LocationMatch "a$"', "/b", Coverage.PART),
        ('LocationMatch "^/a\\.b"', "/a.b", Coverage.PART),
        ('LocationMatch "^/(a|b)"', "/c", Coverage.PART),
        ("Directory /srv", "", Coverage.ALL),
        ("Directory /srv/site/", "", Coverage.ALL),
        ("Directory /srv/sit", "", Coverage.NONE),
        ("Directory /srv/*", "", Coverage.ALL),
        ("Directory /*/*/*", "", Coverage.NONE),
        ("Directory /srv/[a-s]ite", "", Coverage.PART),
        ("Directory //srv/./x/../site", "", Coverage.ALL),
        ("Directory .", "", Coverage.PART),
        ("DirectoryMatch ^/srv/site", "", Coverage.ALL),
        ("DirectoryMatch ^/srv/site/$", "", Coverage.PART),
        ('DirectoryMatch "/site/?$"', "", Coverage.PART),
        ("DirectoryMatch /[[:alpha:]]ite", "", Coverage.PART),
        ("FilesMatch (?i)^APP", "", Coverage.PART),
        ("FilesMatch ^ap{1,2}", "", Coverage.PART),
        ('Files "[^x]*"', "", Coverage.PART),
        ("Files ./app.wsgi", "", Coverage.PART),
        ("Location //", "", Coverage.PART),
        ('LocationMatch "^/z(?#c)?b"', "/b", Coverage.PART),
        ('LocationMatch "^/z\\E?b"', "/b", Coverage.PART),
        ("DirectoryMatch ^/data", "", Coverage.NONE),
        ("Files app.*", "", Coverage.ALL),
        ("FilesMatch \\.py$", "", Coverage.NONE),
    ],
)
def test_which_requests_a_section_covers(section: str, path: str, covered: Coverage) -> None:
    (parsed,) = parse_lines("FILE", f"<{section}>\n</{section.split()[0]}>\n")
    assert coverage((parsed,), path, "/srv/site/app.wsgi") is covered


def test_a_name_is_harmless_or_followed_and_not_both() -> None:
    assert not HARMLESS & {"require", "deny", "allow", "order", "limitrequestbody", "options"}
