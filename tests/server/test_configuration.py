"""Configuration by flags and TOML: what is made of it, where each value comes from, bad input."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from launch import Result, run_main
from served import APPS, Served

from headway.address import parse_address
from headway.arguments import Parser
from headway.commands.serve import prepare_parser, read_configuration
from headway.server.config.check import draw
from headway.server.config.resolution import Resolution
from headway.server.settings import HttpLimits, Mount, ProcessGroup, ServerSettings, Tls

MINIMAL = '[process-group.shop]\napp = "pages:hello"\n'


def serve(*arguments: str | Path, cwd: Path = APPS) -> Result:
    return run_main("serve", *arguments, cwd=cwd)


def resolution_of(*arguments: str) -> Resolution:
    parser = Parser(prog="headway serve")
    prepare_parser(parser)
    return read_configuration(parser.parse_args(arguments), os.getcwd())


def settings_of(*arguments: str) -> ServerSettings:
    return resolution_of(*arguments).settings


def test_an_application_alone_gives_the_defaults() -> None:
    expected = ProcessGroup(mounts=(Mount("", "shop:app"),), app_dir=str(Path.cwd()), name="main")
    assert settings_of("shop:app") == ServerSettings((expected,))


def test_flags_become_settings(tmp_path: Path) -> None:
    settings = settings_of(
        *("shop.wsgi:application", "--mount", "/admin=admin:site.app", "--app-dir", str(tmp_path)),
        *("--bind", "127.0.0.1:0", "--bind", "unix:/run/s.sock", "--processes", "2"),
        *("--threads", "8", "--switch-interval", "0.5ms"),
        *("--env", "A=b=c", "--env", "D=", "--umask", "027", "--user", "#7"),
        *("--supplementary-groups", "www,log", "--memory-limit", "2g", "--max-head-size", "64k"),
        *("--request-timeout", "2m", "--keep-alive-timeout", "1.5", "--no-kernel-hints"),
        *("--access-log", "json:log", "--trusted-proxies", "10.0.0.0/8,unix", "--preload"),
        *("--tls-certificate", "/c.pem", "--tls-key", "/k.pem", "--python-path", "/a:/b"),
        *("--reload", "--pid-file", "pid"),
    )
    group = ProcessGroup(
        mounts=(Mount("", "shop.wsgi:application"), Mount("/admin", "admin:site.app")),
        binds=(parse_address("127.0.0.1:0"), parse_address("unix:/run/s.sock")),
        app_dir=str(tmp_path),
        python_path=("/a", "/b"),
        processes=2,
        threads=8,
        switch_interval_s=0.0005,
        environment={"A": "b=c", "D": ""},
        umask=0o27,
        user="#7",
        supplementary_groups=("www", "log"),
        memory_limit_bytes=2 * 2**30,
        request_timeout_s=120.0,
        http=HttpLimits(max_head_bytes=65536, keep_alive_timeout_s=1.5),
        kernel_hints=False,
        access_log="json",
        access_log_path=str(Path.cwd() / "log"),
        trusted_proxies=("10.0.0.0/8", "unix"),
        preload=True,
        tls=Tls("/c.pem", "/k.pem"),
    )
    assert settings.groups[0] == group
    assert settings.reload
    assert settings.pid_file == str(Path.cwd() / "pid")


def test_toml_becomes_settings(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(
        "[server]\n"
        "switch-interval = 0.002\n"
        "threads = 2\n"
        'status-socket = "status"\n'
        "[process-group.shop]\n"
        'app = "shop:app"\n'
        'bind = ["127.0.0.1:8001", "unix:shop.sock"]\n'
        "threads = 8\n"
        "kernel-hints = false\n"
        'memory-limit = "1g"\n'
        "[process-group.shop.mount]\n"
        '"/admin/" = "admin/site.wsgi"\n'
        "[process-group.shop.environment]\n"
        'A = "b"\n'
        '[process-group."api.v1"]\n'
        'app = "api:app"\n'
        'bind = "127.0.0.1:8002"\n'
        "switch-interval = 1\n"
        'home = "/"\n'
    )
    settings = settings_of("--config", str(file))
    shop = ProcessGroup(
        name="shop",
        mounts=(Mount("", "shop:app"), Mount("/admin", str(tmp_path / "admin/site.wsgi"))),
        binds=(parse_address("127.0.0.1:8001"), parse_address(f"unix:{tmp_path}/shop.sock")),
        threads=8,
        switch_interval_s=0.002,
        kernel_hints=False,
        memory_limit_bytes=2**30,
        environment={"A": "b"},
        app_dir=str(tmp_path),
    )
    api = ProcessGroup(
        name="api.v1",
        mounts=(Mount("", "api:app"),),
        binds=(parse_address("127.0.0.1:8002"),),
        threads=2,
        switch_interval_s=1.0,
        home="/",
        app_dir="/",
    )
    assert settings == ServerSettings((shop, api), status_socket=str(tmp_path / "status"))


@pytest.mark.parametrize("kind", ["a device", "a pipe", "4194305 bytes"])
@pytest.mark.parametrize("is_included", [False, True], ids=["", "included"])
def test_what_is_no_file_or_far_too_large_is_not_read(
    tmp_path: Path, kind: str, is_included: bool
) -> None:
    path = tmp_path / "serve"
    if kind == "a device":
        path = Path("/dev/zero")
    elif kind == "a pipe":
        os.mkfifo(path)
    else:
        with path.open("w") as file:
            file.truncate(4 * 2**20 + 1)
    given = path
    if is_included:
        given = tmp_path / "httpd.conf"
        given.write_text(f"Include {path}\n")
    done = serve("--check", "--config", given)
    assert (done.returncode, done.stdout) == (2, "")
    allowed = "up to 4194304" if kind.endswith("bytes") else "a file"
    assert done.stderr == f"headway serve: {path}: found {kind}; allowed: {allowed}\n"


def test_variables_are_merged_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(
        "[server]\n"
        "environment = { A = 'server', B = 'server', C = 'server' }\n"
        "[process-group.shop]\n"
        "app = 'shop:app'\n"
        "[process-group.shop.environment]\n"
        "B = 'group'\n"
        "C = 'group'\n"
    )
    resolution = resolution_of("--config", str(file), "--env", "C=flag", "--env", "D=flag")
    (group,) = resolution.settings.groups
    assert group.environment == {"A": "server", "B": "group", "C": "flag", "D": "flag"}
    found = re.findall(r"  environment (\w) +(\w+) +(.*)", draw(resolution))
    assert found == [
        ("A", "server", f"{file}:2, inherited from [server]"),
        ("B", "group", f"{file}:6"),
        ("C", "flag", "--env"),
        ("D", "flag", "--env"),
    ]
    assert "  environment                -  " in draw(resolution_of("shop:app"))


def test_flags_go_over_the_one_process_group_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(MINIMAL + 'threads = 8\nbind = "127.0.0.1:8001"\nprocesses = 3\n')
    (group,) = settings_of("other:app", "--config", str(file), "--threads", "2").groups
    assert (group.name, group.threads, group.processes) == ("shop", 2, 3)
    assert group.mounts == (Mount("", "other:app"),)


def test_a_flag_beside_several_process_groups_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(MINIMAL + '[process-group.b]\napp = "b:c"\nbind = "127.0.0.1:8001"\n')
    done = serve("--config", file, "--threads", "2", "--check")
    assert done.returncode == 2
    assert done.stderr.startswith("headway serve: --threads with --config: ")
    assert "2 (shop, b)" in done.stderr
    assert settings_of("--config", str(file), "--reload").reload, "a flag for the server is none"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("threds = 8", "process-group.shop.threds: found an unknown key; allowed: threads is the"),
        ("threads = 'four'", "process-group.shop.threads: found 'four'; allowed: a whole number"),
        ("threads = 1001", "found 1001; allowed: a whole number from 1 to 1000"),
        ("threads = true", "found true; allowed: a whole number"),
        ("threads = 2.5", "found 2.5; allowed: a whole number"),
        ("threads = 99999999999999999999", "found 99999999999999999999; allowed"),
        ("bind = ['127.0.0.1:1', 7]", "bind: found 7; allowed: HOST:PORT with a port"),
        ("bind = '127.0.0.1'", "bind: found '127.0.0.1'; allowed: HOST:PORT"),
        ("bind = []", "bind: found []; allowed: HOST:PORT"),
        ('bind = "a\\u0000b:80"', 'bind: found "a\\u0000b:80"; allowed: HOST:PORT'),
        ('bind = "unix:a\\u0000b"', 'bind: found "unix:a\\u0000b"; allowed: HOST:PORT'),
        (f"bind = {[f'a:{port}' for port in range(1, 66)]}", "bind: found 65 addresses; allowed"),
        ("switch-interval = nan", "found nan; allowed: a number of seconds from 0.000001 to 1000"),
        ("switch-interval = 0", "switch-interval: found 0; allowed"),
        ("switch-interval = '0x1p-3'", "found '0x1p-3'; allowed"),
        ("graceful-timeout = inf", "found inf; allowed"),
        ("request-timeout = '5x'", "found '5x'; allowed"),
        ("max-head-size = '1q'", "found '1q'; allowed: a number of bytes from 1024"),
        ("umask = 22", "found 22; allowed: permission bits in octal digits"),
        ("user = 1979-05-27", "found 1979-05-27; allowed: a name, or #ID"),
        ("environment = 3", "environment: found 3; allowed: a table"),
        ("environment = {'A=B' = 'c'}", "environment: found 'A=B'; allowed: a name without ="),
        ("environment = {'' = 'c'}", "environment: found ''; allowed: a name without ="),
        ('environment = {"a\\u0000" = "c"}', "environment: found 'a\\x00'; allowed: a name"),
        ("environ = {SCRIPT_NAME = '/a'}", "environ: found 'SCRIPT_NAME'; allowed: a variable tha"),
        ("environ = {'wsgi.url_scheme' = 'a'}", "environ: found 'wsgi.url_scheme'; allowed: a var"),
        ("environment = {A = 3}", "environment.A: found 3; allowed: a string"),
        ("mount = {'admin' = 'a:b'}", 'mount: found "admin"; allowed: a URL path'),
        ("mount = {'/admin' = 'a'}", "mount./admin: found 'a'; allowed: module:callable"),
        ("mount = {'/' = 'a:b'}", "mount: found / a second time"),
        ("policy = 'fair'", "policy: found 'fair'; allowed: one of interval"),
        ("access-log = 'xml'", "access-log: found 'xml'; allowed: common"),
        ('access-log = "json:a\\u0000b"', 'found "json:a\\u0000b"; allowed: common'),
        ("tls-key = 'key.pem'", "tls-certificate is missing"),
        ("trusted-proxies = '10.0.0.1/8'", "found '10.0.0.1/8'; allowed: a network"),
        ("reload = true", "process-group.shop.reload: found an unknown key"),
        ("threads 3", "key with no value"),
        ("app = 'again:app'", "duplicate key (at app)"),
    ],
)
def test_what_a_file_says_wrong_is_one_line_with_its_place(
    tmp_path: Path, lines: str, said: str
) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(MINIMAL + lines + "\n")
    done = serve("--config", file, "--check")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"headway serve: {re.escape(str(file))}:3: .+\n", done.stderr)
    assert said in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no process group; allowed: [process-group.NAME] for each"),
        ("[process-group.a]\n", ":1: process group a has no application; allowed: app, or mount"),
        ("[process-group]\n'a b' = {app = 'a:b'}", ":2: process-group: found 'a b'; allowed: a n"),
        ("process-group = 3", ":1: process-group: found 3; allowed: a table"),
        ("[sever]\n", ":1: sever: found an unknown key; allowed: server is the closest"),
        ("[server]\nbind = 'a:1'", ":2: server.bind: found an option of one process group"),
        (MINIMAL + "[process-group.shop]\n", ":3: duplicate key"),
        (
            MINIMAL + "[process-group.b]\napp = 'b:c'\nbind = ['0.0.0.0:1', '127.0.0.1:8000']\n",
            ":5: bind: process group b is to listen on 127.0.0.1:8000, and shop on "
            "127.0.0.1:8000 (default)",
        ),
        (
            MINIMAL + "bind = 'a:8000'\n[process-group.b]\napp = 'b:c'\nbind = '0.0.0.0:8000'\n",
            ":6: bind: process group b is to listen on 0.0.0.0:8000, and shop on a:8000 (",
        ),
    ],
)
def test_a_file_that_makes_no_sense_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(text)
    done = serve("--config", file, "--check")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"headway serve: {re.escape(str(file))}.*: .+\n", done.stderr)
    assert said in done.stderr


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    assert serve("--config", tmp_path / "none.toml").stderr == (
        f"headway serve: --config {tmp_path}/none.toml: no such file or directory\n"
    )
    (tmp_path / "binary.toml").write_bytes(b"a = 1\n\xff")
    assert serve("--config", tmp_path / "binary.toml").stderr == (
        f"headway serve: --config {tmp_path}/binary.toml: byte 6 is not UTF-8\n"
    )


def test_check_prints_every_value_with_its_origin(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text("[server]\nswitch-interval = '2ms'\n" + MINIMAL + "request-timeout = 60\n")
    done = serve("--config", file, "--check", "--threads", "3", "--app-dir", APPS)
    assert done.returncode == 0, done.stderr
    for name, value, origin in (
        ("app", "pages:hello", f"{file}:4"),
        ("bind", "127.0.0.1:8000", "default"),
        ("threads", "3", "--threads"),
        ("request-timeout", "60", f"{file}:5"),
        ("switch-interval", "0.002", f"{file}:2, inherited from [server]"),
        ("keep-alive-timeout", "75", "default"),
        ("reload", "false", "default"),
        ("user", "-", "default"),
    ):
        line = rf"^  {name} +{re.escape(value)} +{re.escape(origin)}$"
        assert re.search(line, done.stdout, re.MULTILINE), f"{line}\n{done.stdout}"


def test_check_names_everything_that_does_not_exist(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(
        "[server]\npid-file = 'none/pid'\n"
        "[process-group.shop]\napp = 'shop.wsgi'\nhome = 'nowhere'\nuser = 'no-such-user'\n"
        "python-home = 'venv'\naccess-log = 'json:none/log'\ngroup = 'no-such-group'\n"
        "tls-certificate = 'chain.pem'\ntls-key = 'key.pem'\n"
    )
    (tmp_path / "chain.pem").write_text("no certificate")
    (tmp_path / "key.pem").write_text("no key")
    done = serve("--config", file, "--check")
    assert done.returncode == 2
    assert "[process-group.shop]" in done.stdout
    said = done.stderr.replace(f"{file}:", "").replace("headway serve: ", "").splitlines()
    assert {line.split(":")[0]: line.split(":")[1].strip() for line in said} == {
        "2": "pid-file",
        "4": "app",
        "5": "home",
        "6": "user",
        "7": "python-home",
        "8": "access-log",
        "9": "group",
        "10": "tls-certificate",
    }
    started = serve("--config", file)
    assert (started.returncode, started.stderr.count("\n")) == (2, 1)


def test_a_file_is_served(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(f"[process-group.shop]\napp-dir = '{APPS}'\nbind = '127.0.0.1:0'\n")
    with Served("pages:application", "--config", str(file)) as server:
        assert server.get("/hello").body == b"hello\n"


def test_port_0_belongs_to_each_group(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    bind = "app = 'pages:hello'\nbind = '127.0.0.1:0'\n"
    file.write_text(f"[process-group.shop]\n{bind}[process-group.docs]\n{bind}")
    groups = settings_of("--config", str(file)).groups
    assert [str(bind) for group in groups for bind in group.binds] == ["127.0.0.1:0"] * 2
