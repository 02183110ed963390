"""--reload: a change of the application's files brings a new generation."""

from __future__ import annotations

import select
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from served import APPS, MODE, TIMEOUT_S, Served
from supervised import Supervised

from headway.server.file_state import state_of
from headway.server.supervisor.watching import Watcher

watchfiles = pytest.importorskip("watchfiles")

# Sources that change within a second of each other must not be taken from a cache.
NO_CACHE = {"PYTHONDONTWRITEBYTECODE": "1"}
SOURCE = (
    "import {module}\n"
    "def app(environ, start_response):\n"
    "    start_response('200 OK', [])\n"
    "    return [{module}.WORD]\n"
)


def rewrite(file: Path, text: str) -> None:
    """Replaces a file in one step. A watcher can see two changes of a file that is truncated and
    written."""
    beside = file.with_name(f"{file.name}.new")
    beside.write_text(text)
    beside.replace(file)


def test_a_change_is_served_and_a_mistake_is_not(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "words.py").write_text("WORD = b'one'\n")
    (sources / "site_app.py").write_text(SOURCE.format(module="words"))
    group = {
        "mounts": [{"path": "", "application": "site_app:app"}],
        "python_path": [str(sources)],
    }
    with Supervised(tmp_path, group, reload=True, environment=NO_CACHE) as server:
        assert server.get("/").body == b"one"
        rewrite(sources / "words.py", "WORD = b'two'\n")
        server.wait_for("words.py has changed: starting generation 2")
        server.wait_until(lambda: server.get("/").body == b"two")
        rewrite(sources / "words.py", "WORD = (\n")
        server.wait_for("SyntaxError.*\n.*importing site_app failed .*; generation 2 goes on")
        assert server.get("/").body == b"two"
        replacement = sources / "written_beside"
        replacement.write_text("WORD = b'three'\n")
        replacement.rename(sources / "words.py")
        server.wait_until(lambda: server.get("/").body == b"three")


def test_the_package_is_named_if_it_is_missing(tmp_path: Path) -> None:
    (tmp_path / "watchfiles.py").write_text("raise ImportError('not here')\n")
    server = Served.__new__(Served)
    with pytest.raises(AssertionError, match="is not in stderr"):
        server.__init__("pages:application", "--reload", PYTHONPATH=str(tmp_path))
    assert server.stop(None) == 2
    assert server.stderr == (
        "headway serve: --reload needs the package watchfiles: "
        "in Headway's source tree run `make build EXTRAS=reload`, "
        "or `pip install '.[reload]'` in an environment of your own\n\0"
    )


in_each_interpreter = pytest.mark.parametrize(
    "application_group",
    [
        pytest.param("", id="main interpreter"),
        pytest.param("shop", id="sub-interpreter"),
    ],
)


def group_of(sources: Path, application_group: str, **fields: Any) -> dict[str, Any]:
    return {
        "mounts": [
            {"path": "", "application": "site_app:app", "application_group": application_group}
        ],
        "application_groups": [{"name": application_group, "python_path": []}],
        "python_path": [str(sources)],
    } | fields


@in_each_interpreter
def test_the_file_that_broke_an_import_is_watched(tmp_path: Path, application_group: str) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "words.py").write_text("WORD = b'one'\n")
    (sources / "site_app.py").write_text(SOURCE.format(module="words"))
    group = group_of(sources, application_group)
    with Supervised(tmp_path, group, reload=True, environment=NO_CACHE) as server:
        assert server.get("/").body == b"one"
        rewrite(sources / "others.py", "WORD = (\n")
        rewrite(sources / "site_app.py", SOURCE.format(module="others"))
        server.wait_for("SyntaxError.*\n.*importing site_app failed .*; generation 1 goes on")
        rewrite(sources / "others.py", "WORD = wrod\n")
        server.wait_for("NameError.*\n.*importing site_app failed .*; generation 1 goes on")
        rewrite(sources / "others.py", "WORD = b'two'\n")
        server.wait_until(lambda: server.get("/").body == b"two")
    # Nothing of ours is between the application's frames.
    assert "imported_files" not in server.stderr


@in_each_interpreter
def test_what_a_request_imports_is_watched(tmp_path: Path, application_group: str) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "words.py").write_text("WORD = b'one'\n")
    (sources / "site_app.py").write_text(
        "def app(environ, start_response):\n"
        "    from words import WORD\n"
        "    start_response('200 OK', [])\n"
        "    return [WORD]\n"
    )
    group = group_of(sources, application_group)
    with Supervised(tmp_path, group, reload=True, environment=NO_CACHE) as server:
        assert server.get("/").body == b"one"
        rewrite(sources / "words.py", "WORD = b'two'\n")
        server.wait_for("words.py has changed: starting generation 2")
        server.wait_until(lambda: server.get("/").body == b"two")


def test_what_a_template_and_its_workers_import_is_watched(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "words.py").write_text("WORD = b'one'\n")
    (sources / "lazy.py").write_text("")
    (sources / "site_app.py").write_text(
        "import words\n"
        "def app(environ, start_response):\n"
        "    import lazy\n"
        "    start_response('200 OK', [])\n"
        "    return [words.WORD]\n"
    )
    group = group_of(sources, "", preload=True)
    with Supervised(tmp_path, group, reload=True, environment=NO_CACHE) as server:
        assert server.get("/").body == b"one"
        rewrite(sources / "lazy.py", "pass\n")
        server.wait_for("lazy.py has changed: starting generation 2")
        server.wait_for("generation 2 serves")
        rewrite(sources / "words.py", "WORD = b'two'\n")
        server.wait_for("words.py has changed: starting generation 3")
        server.wait_until(lambda: server.get("/").body == b"two")


def test_what_changed_before_anybody_knew_of_it_has_changed(tmp_path: Path) -> None:
    """In a folder that is watched already, where the change was no news."""
    (first, second) = files = [tmp_path / "first.py", tmp_path / "second.py"]
    for file in files:
        file.write_text("")
    with closing(Watcher([str(first)])) as watcher:
        imported = state_of(str(second))
        second.write_text("pass\n")
        watcher.add_imported({str(second): imported})
        select.select([watcher], [], [], TIMEOUT_S)
        assert watcher.changed() == str(second)
        # And once only.
        first.write_text("pass\n")
        select.select([watcher], [], [], TIMEOUT_S)
        assert watcher.changed() == str(first)


def test_of_two_that_imported_a_file_one_may_have_an_older_one(tmp_path: Path) -> None:
    file = tmp_path / "both.py"
    file.write_text("")
    old = state_of(str(file))
    file.write_text("pass\n")
    with closing(Watcher([str(file)])) as watcher:
        watcher.add_imported({str(file): state_of(str(file))})
        assert watcher.changed() is None
        watcher.add_imported({str(file): old})
        assert watcher.changed() == str(file)


def test_a_file_that_only_its_process_can_see_has_not_changed(tmp_path: Path) -> None:
    """Such as one of /proc/self, or one that root may not look at."""
    with closing(Watcher([])) as watcher:
        watcher.add_imported({str(tmp_path / "unseen.py"): (1, 2, 3)})
        assert watcher.changed() is None


def test_what_is_no_path_does_not_end_the_watching(tmp_path: Path) -> None:
    """An application can say anything by its process's socket."""
    file = tmp_path / "file.py"
    file.write_text("")
    with closing(Watcher([str(file)])) as watcher:
        watcher.add_imported({f"{tmp_path}/\0.py": (), "": ()})
        file.write_text("pass\n")
        select.select([watcher], [], [], TIMEOUT_S)
        assert watcher.changed() == str(file)


def test_a_watch_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Such as one beyond the kernel's limit. What changes meanwhile is found."""
    file = tmp_path / "file.py"
    file.write_text("")
    watch = watchfiles.watch

    def fail_once(*_: object, **options: object) -> Any:
        monkeypatch.setattr(watcher, "_watch", watch)
        file.write_text("pass\n")
        raise OSError(24, "OS file watch limit reached")

    def wait(*_: object, stop_event: Any, **options: object) -> tuple[()]:
        stop_event.wait()
        return ()

    monkeypatch.setattr(watchfiles, "watch", wait)
    with closing(Watcher([])) as watcher:
        monkeypatch.setattr(watcher, "_watch", fail_once)
        watcher.add([str(file)])
        select.select([watcher], [], [], TIMEOUT_S)
        assert watcher.changed() == str(file)
    _, said = capfd.readouterr()
    assert "--reload: files cannot be watched: [Errno 24] OS file watch limit" in said


def test_files_that_an_apache_file_includes_are_watched(tmp_path: Path) -> None:
    script, included = tmp_path / "shop.wsgi", tmp_path / "shop.conf"
    script.write_text((APPS / "pages.py").read_text())
    alias = f"WSGIScriptAlias / {script}\n"
    included.write_text(alias)
    conf = tmp_path / "httpd.conf"
    conf.write_text(f"Listen 127.0.0.1:0\nInclude {included}\n")
    server = Served.__new__(Served)
    server._start(["-m", "headway", "serve", "--config", str(conf), "--reload", *MODE])
    with server:
        # A mistake in it must not be the last that is heard of it.
        rewrite(included, f"{alias}WSGIScriptAlas /b /b\n")
        server.wait_for("shop.conf has changed: .*; generation 1 goes on serving")
        rewrite(included, f"# As it was.\n{alias}")
        server.wait_for("shop.conf has changed: starting generation 2")
        server.wait_for("generation 2 serves")
