"""APP names a WSGI application or a factory of one. The start refuses what the server could not
call, and serves whatever may be an application."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from configured import with_own_gil
from launch import headway as run_headway
from launch import run_main
from served import Served
from supervised import Supervised

import headway
from headway.errors import CommandError
from headway.server.application_name import parse_object_name
from headway.server.config.option_types import parse_application
from headway.server.worker.application import ImportFailed, load_application
from headway.server.worker.calling_convention import find_mismatch

pytestmark = pytest.mark.free_threading

SITE = """
def create_app(name="shop", *, debug=False):
    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"{name} {debug}".encode()]
    return app

class Factories:
    create = staticmethod(create_app)

async def asgi(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})

def create_asgi():
    return asgi

def create_nothing():
    pass

def create_by_mistake(name):
    raise TypeError(f"no such shop: {name}")

class Application:
    def __call__(self, environ, start_response):
        return create_app()(environ, start_response)
"""
Start = Callable[..., Any]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "site_of_factories.py").write_text(SITE)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def answer_of(application: Any) -> bytes:
    return b"".join(application({}, lambda *_: None))


@pytest.mark.parametrize(
    ("attribute", "answer"),
    [
        ("create_app()", b"shop False"),
        ("create_app('books')", b"books False"),
        ('create_app("a/b", debug=True)', b"a/b True"),
        ("create_app(name='x:y(z)=')", b"x:y(z)= False"),
        ("create_app( ['a', -1, None], debug={'b': (2.5,)} )", b"['a', -1, None] {'b': (2.5,)}"),
        ("Factories.create('books')", b"books False"),
        ("Application()", b"shop False"),
    ],
)
def test_a_factory_is_called_with_its_literals(site: Path, attribute: str, answer: bytes) -> None:
    name = f"site_of_factories:{attribute}"
    assert parse_application(name) == name
    assert answer_of(load_application(name)) == answer


@pytest.mark.parametrize(
    "attribute",
    [
        "create_app(",
        "create_app()x",
        "create_app().app",
        "create_app()()",
        "create_app() or 1",
        "create_app(name)",
        "create_app(open('/etc/passwd'))",
        "create_app(*['a'])",
        "create_app(**{'name': 'a'})",
        "create_app({[]: 1})",
        "create_app(" + "[" * 5000,
        "create_app('\0')",
        "(create_app)()",
        "()",
        "Factories.()",
    ],
)
def test_anything_but_a_call_with_literals_is_refused(attribute: str) -> None:
    assert parse_object_name(f"site:{attribute}") is None


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        (
            "create_app",
            "site_of_factories.create_app takes one argument, and a WSGI application is called "
            "with two (environ, start_response); if it returns the application, name it as "
            "'site_of_factories:create_app()'",
        ),
        (
            "create_nothing",
            "site_of_factories.create_nothing takes no arguments, and a WSGI application is called "
            "with two (environ, start_response); if it returns the application, name it as "
            "'site_of_factories:create_nothing()'",
        ),
        ("create_nothing()", "the result of site_of_factories.create_nothing() is a NoneType, "),
        ("create_app(1, 2)", "create_app() takes from 0 to 1 positional arguments but 2 were "),
        ("create_app()()", "it must be module:callable"),
        ("create_app.missing()", "site_of_factories.create_app has no attribute 'missing'"),
        ("SITE()", "site_of_factories has no attribute 'SITE'"),
        ("asgi", "site_of_factories.asgi is asynchronous, as ASGI applications are: "),
        ("create_asgi()", "the result of site_of_factories.create_asgi() is asynchronous, "),
        ("Application", "site_of_factories.Application takes no arguments, "),
    ],
)
def test_what_cannot_be_called_is_one_line(site: Path, attribute: str, said: str) -> None:
    with pytest.raises(CommandError) as caught:
        load_application(f"site_of_factories:{attribute}")
    assert (caught.value.exit_code, type(caught.value)) == (2, CommandError)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_factory_that_raises_shows_its_own_frames(site: Path) -> None:
    with pytest.raises(ImportFailed) as caught:
        load_application("site_of_factories:create_by_mistake('books')")
    assert str(caught.value).endswith(
        ": calling site_of_factories.create_by_mistake failed (see above)"
    )
    assert caught.value.details.endswith("TypeError: no such shop: books")
    assert caught.value.details.count("  File ") == 1


def test_a_script_whose_application_is_a_factory(tmp_path: Path) -> None:
    script = tmp_path / "shop.wsgi"
    script.write_text("def application():\n    pass\n")
    with pytest.raises(CommandError) as caught:
        load_application(str(script))
    assert str(caught.value) == (
        f"APP is {str(script)!r}: application takes no arguments, and a WSGI application is called "
        "with two (environ, start_response); if it returns the application, the script must call "
        "it and assign application"
    )


class Instance:
    def __call__(self, environ: Any, start_response: Start) -> list[bytes]:
        return []

    def method(self, environ: Any, start_response: Start) -> list[bytes]:
        return []

    @classmethod
    def of_class(cls, environ: Any, start_response: Start) -> list[bytes]:
        return []


class Response:
    """PEP 3333's example of a class that is an application."""

    def __init__(self, environ: Any, start_response: Start) -> None: ...


class MadeInNew:
    def __new__(cls, *arguments: Any) -> Any:
        return []


class Metaclass(type):
    def __call__(cls, *arguments: Any) -> Any:
        return []


class WithMetaclass(metaclass=Metaclass): ...


class Proxy:
    """As Werkzeug's LocalProxy: nothing but a call shows what it takes."""

    class Looked:
        def __get__(self, *_: Any) -> Any:
            return lambda *arguments: []

    __call__ = Looked()


class StaticCall:
    @staticmethod
    def __call__(environ: Any, start_response: Start) -> list[bytes]:
        return []


def plain(environ: Any, start_response: Start) -> list[bytes]:
    return []


def generator(environ: Any, start_response: Start) -> Any:
    yield b""


def three(first: Any, environ: Any, start_response: Start) -> list[bytes]:
    return []


@functools.wraps(three)
def wrapper(*arguments: Any, **keywords: Any) -> Any:
    return three(0, *arguments)


@pytest.mark.parametrize(
    "application",
    [
        plain,
        generator,
        wrapper,
        lambda environ, start_response, more=None: [],
        lambda scope=None, receive=None, send=None: [],
        lambda *arguments: [],
        Instance(),
        Instance().method,
        Instance.of_class,
        Response,
        MadeInNew,
        WithMetaclass,
        Proxy(),
        StaticCall(),
        functools.partial(three, 0),
        functools.partial(three, first=0),
        max,
        dict,
    ],
)
def test_whatever_may_be_an_application_is_served(application: Any) -> None:
    assert find_mismatch(application, "app") is None


async def coroutine(environ: Any, start_response: Start) -> list[bytes]:
    return []


async def asynchronous_generator(environ: Any, start_response: Start) -> Any:
    yield b""


class Asgi:
    async def __call__(self, scope: Any, receive: Start, send: Start) -> None: ...

    async def method(self, scope: Any, receive: Start, send: Start) -> None: ...


class AsgiEndpoint:
    def __init__(self, scope: Any, receive: Start, send: Start) -> None: ...


class OldAsgi:
    def __init__(self, scope: Any) -> None: ...


def sends(scope: Any, receive: Start, send: Start) -> Awaitable[None]:
    return asyncio.sleep(0)


@pytest.mark.parametrize(
    ("application", "said"),
    [
        (coroutine, "app is asynchronous, as ASGI applications are"),
        (asynchronous_generator, "app is asynchronous"),
        (Asgi(), "app is asynchronous"),
        (Asgi().method, "app is asynchronous"),
        (functools.partial(coroutine, None), "app is asynchronous"),
        (sends, "app takes three arguments, as ASGI applications do"),
        (AsgiEndpoint, "app takes three arguments, as ASGI applications do"),
        (OldAsgi, "app takes one argument, and a WSGI application is called with two"),
        (lambda: None, "app takes no arguments, and"),
        (lambda a, b, c, d: None, "app requires 4 arguments, and"),
        (lambda environ, start_response, *, log: None, "app requires a keyword argument, and"),
        (lambda environ, *, start_response=None, **more: None, "app takes one argument, and"),
        (functools.partial(plain, None), "app takes one argument, and"),
        (Instance, "app takes no arguments, and"),
    ],
)
def test_what_cannot_be_an_application(application: Any, said: str) -> None:
    assert (find_mismatch(application, "app") or "").startswith(said)


@pytest.mark.parametrize("application", [coroutine, lambda: None, "app", Instance])
def test_the_embedded_server_refuses_what_it_could_not_call(application: Any) -> None:
    with pytest.raises(TypeError, match="application "):
        headway.serve(application, bind="127.0.0.1:0")


@pytest.mark.parametrize("attribute", ["asgi", "create_app"])
def test_the_command_refuses_what_it_could_not_call(site: Path, attribute: str) -> None:
    app = f"site_of_factories:{attribute}"
    done = run_headway("serve", app, "--app-dir", site, "--bind", "127.0.0.1:0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"headway serve: APP is {app!r}: site_of_factories.{attribute} ")
    assert done.stderr.count("\n") == 1
    done = run_main("audit", "--app-dir", site, app)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"headway audit: APP is {app!r}: site_of_factories.{attribute} ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("attribute", ["create_asgi()", "create_app"])
def test_a_sub_interpreter_refuses_what_it_could_not_call(site: Path, attribute: str) -> None:
    app = f"site_of_factories:{attribute}"
    options = ("--application-group", "shop", "--bind", "127.0.0.1:0")
    done = run_headway("serve", app, "--app-dir", site, *options)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"APP is {app!r}: " in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--preload",),
        ("--application-group", "shop"),
        pytest.param(("--per-interpreter-gil",), marks=with_own_gil),
    ],
)
def test_a_factory_of_the_command_line(site: Path, options: tuple[str, ...]) -> None:
    app = "site_of_factories:create_app('a/b', debug=True)"
    mounted = "/books=site_of_factories:create_app(name='books')"
    # The later --app-dir counts.
    with Served(app, "--app-dir", str(site), "--mount", mounted, *options) as server:
        assert server.get("/").body == b"a/b True"
        assert server.get("/books").body == b"books False"


def test_a_factory_of_a_file_and_an_edit_that_makes_it_asgi(tmp_path: Path) -> None:
    pytest.importorskip("watchfiles")
    (tmp_path / "site_app.py").write_text(SITE)
    group = {
        "mounts": [{"path": "", "application": "site_app:create_app('books')"}],
        "python_path": [str(tmp_path)],
    }
    no_cache = {"PYTHONDONTWRITEBYTECODE": "1"}
    with Supervised(tmp_path, group, reload=True, environment=no_cache) as server:
        assert server.get("/").body == b"books False"
        edited = tmp_path / "site_app.new"
        edited.write_text(SITE.replace("    def app(environ", "    async def app(environ"))
        edited.replace(tmp_path / "site_app.py")
        server.wait_for("site_app.create_app.. is asynchronous.*; generation 1 goes on")
        assert server.get("/").body == b"books False"


def test_a_factory_in_toml(tmp_path: Path, site: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(
        "[process-group.shop]\napp = \"site_of_factories:create_app('books')\"\n"
        f'app-dir = "{site}"\nbind = "127.0.0.1:0"\n'
        '[process-group.shop.mount]\n"/a" = {app = "site_of_factories:create_app(name=\'a\')"}\n'
    )
    done = run_main("serve", "--config", file, "--check")
    assert (done.returncode, done.stderr) == (0, "")
    assert "site_of_factories:create_app('books')" in done.stdout
    assert "site_of_factories:create_app(name='a')" in done.stdout
