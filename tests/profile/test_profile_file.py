"""`--profile FILE`: the format by the name, and the names that are refused."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
from made_profiles import empty, hostile, ordinary

from headway.errors import CommandError
from headway.profile import profile_file

ENDINGS = (".pb.gz", ".json", ".svg", ".txt")


def test_the_name_chooses_the_format(tmp_path: Path) -> None:
    written = {}
    for ending in ENDINGS:
        path = tmp_path / f"wait.profile{ending}"
        profile_file.prepare(profile_file.check_name(str(path)))
        assert not path.exists()
        said = profile_file.write_profile(ordinary(), str(path))
        assert said.startswith("headway: profile of 1.950 s waited (4 stacks of holders) in ")
        assert str(path) in said
        assert "\n" not in said
        written[ending] = path.read_bytes()
    assert b"delay_holders" in gzip.decompress(written[".pb.gz"])
    assert json.loads(written[".json"])["name"] == "app.py (pid 4242)"
    assert ElementTree.fromstring(written[".svg"]).tag.endswith("svg")
    assert written[".txt"].startswith(b"run (/usr/lib/python3.13/threading.py:992);work")


@pytest.mark.parametrize("ending", ENDINGS)
def test_any_names_and_no_waits_are_written(tmp_path: Path, ending: str) -> None:
    for made in (hostile(), empty()):
        path = tmp_path / f"made{ending}"
        profile_file.write_profile(made, str(path))
        assert path.exists()


@pytest.mark.parametrize("name", ["profile", "profile.pb", "a.svg/b", "-", "a.json.gz", "", ".SVG"])
def test_another_name_is_refused_with_the_allowed_endings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError) as refused:
        profile_file.check_name(name)
    assert refused.value.exit_code == 2
    assert str(refused.value) == (
        f"--profile {name!r}: the format goes by the ending of the name, which may be "
        ".pb.gz (for pprof), .json (for speedscope.app), .svg (to open in a browser), "
        ".txt (one stack a line)"
    )
    assert os.listdir(tmp_path) == []


def test_a_link_is_followed_and_its_target_has_the_format(tmp_path: Path) -> None:
    link = tmp_path / "a.svg"
    link.symlink_to(tmp_path / "b.txt")
    assert profile_file.check_name(str(link)) == str(tmp_path / "b.txt")
    link.unlink()
    link.symlink_to(tmp_path / "b")
    with pytest.raises(CommandError, match=r"b': the format goes by the ending"):
        profile_file.check_name(str(link))


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be written: No such file or directory"):
        profile_file.check_name(str(tmp_path / "missing" / "a.svg"))
