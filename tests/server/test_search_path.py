"""Where an application's modules are found: the application's directory, `python-path`, and what
its .pth files say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from served import MODE, Served
from supervised import Supervised

APPLICATION = """
import json, sys
import by_finder, by_path

def application(environ, start_response):
    start_response("200 OK", [])
    return [json.dumps({"names": [by_path.NAME, by_finder.NAME], "path": sys.path}).encode()]
"""
# As setuptools has it for packages whose modules are not all below one directory.
FINDER = """
import importlib.util, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "by_finder":
            return importlib.util.spec_from_file_location(name, {file!r})

sys.meta_path.append(Finder)
"""


@pytest.fixture
def site_directory(tmp_path: Path) -> Path:
    """With two editable installs: one by a path, one by an import."""
    site, source = tmp_path / "site", tmp_path / "source"
    for folder in (site, source, tmp_path / "app"):
        folder.mkdir()
    (source / "by_path.py").write_text("NAME = 'by path'\n")
    (tmp_path / "elsewhere.py").write_text("NAME = 'by finder'\n")
    (site / "by_path.pth").write_text(f"{source}\n")
    (site / "by_finder.pth").write_text("import finder_of_a_test\n")
    text = FINDER.format(file=str(tmp_path / "elsewhere.py"))
    (site / "finder_of_a_test.py").write_text(text)
    (tmp_path / "app/site_app.py").write_text(APPLICATION)
    return site


@pytest.mark.parametrize("application_group", ["", "shop"], ids=["main", "sub-interpreter"])
@pytest.mark.parametrize("of_group", [False, True], ids=["process group's", "own"])
def test_pth_files_are_heeded(
    tmp_path: Path, site_directory: Path, application_group: str, of_group: bool
) -> None:
    app_dir, site = str(tmp_path / "app"), str(site_directory)
    # Of a model, which is no list of directories.
    (tmp_path / "app/model.pth").write_text("import no_module_of_that_name\n")
    mount = {
        "path": "",
        "application": "site_app:application",
        "application_group": application_group,
    }
    own = {"name": application_group, "python_path": [site] if of_group else []}
    group = {
        "mounts": [mount],
        "application_groups": [own],
        "app_dir": app_dir,
        "python_path": [] if of_group else [site],
    }
    with Supervised(tmp_path, group) as server:
        answer = json.loads(server.get("/").body)
    assert answer["names"] == ["by path", "by finder"]
    added = [site, str(tmp_path / "source")]
    assert answer["path"][:3] == ([*added, app_dir] if of_group else [app_dir, *added])
    assert "no_module_of_that_name" not in server.stderr


def test_a_pth_file_that_is_no_text_is_told_of(tmp_path: Path, site_directory: Path) -> None:
    """And the others are heeded, those behind it too."""
    (site_directory / "a_weight.pth").write_bytes(b"\xff\xfe\x80 no text")
    script = tmp_path / "app/shop.wsgi"
    script.write_text(APPLICATION)
    conf = tmp_path / "httpd.conf"
    conf.write_text(
        f"Listen 127.0.0.1:0\nWSGIPythonPath {tmp_path / 'app'}:{site_directory}\n"
        f"WSGIScriptAlias / {script}\n"
    )
    server = Served.__new__(Served)
    server._start(["-m", "headway", "serve", "--config", str(conf), *MODE])
    with server:
        assert json.loads(server.get("/").body)["names"] == ["by path", "by finder"]
        server.wait_for(r"python-path .*: a_weight\.pth: UnicodeDecodeError: ")
