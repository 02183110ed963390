"""systemd reads the units of examples/deploy without a remark, and Headway their commands."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_lines import recorder_settings
from launch import run_main
from layouts import DEPLOY, ROOT

from headway.server.settings import ProcessGroup

UNITS = sorted([*DEPLOY.glob("*.service"), *DEPLOY.glob("*.socket")])
HEADWAY = Path(sys.executable).with_name("headway")
INSTALLED = "/srv/shop/.venv/bin/headway"


def command_in(unit: str) -> list[str]:
    (line,) = re.findall(r"^ExecStart=(.*)$", (DEPLOY / unit).read_text(), re.MULTILINE)
    executable, *arguments = shlex.split(line)
    assert executable == INSTALLED
    return arguments


def setting(unit: str, name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", (DEPLOY / unit).read_text(), re.MULTILINE)
    found: str = value
    return found


def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    shown = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True)
    version = int(shown.stdout.split()[1])
    for unit in UNITS:
        text = unit.read_text().replace(INSTALLED, str(HEADWAY))
        if version < 253:
            # As the comment in the unit says.
            text = text.replace("Type=notify-reload", "Type=notify")
        (tmp_path / unit.name).write_text(text)
    for unit in UNITS:
        assert remarks_on(tmp_path / unit.name) == ""
    wrong = tmp_path / "shop.service"
    wrong.write_text(wrong.read_text().replace("WatchdogSec=", "WatchdogSecs="))
    assert "WatchdogSecs" in remarks_on(wrong)


def remarks_on(unit: Path) -> str:
    result = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60
    )
    # Units of the machine itself may have mistakes of their own.
    return "".join(
        line
        for line in result.stderr.splitlines(keepends=True)
        if line.startswith((f"{unit}:", f"{unit.name}:", f"{unit.parent}/"))
    )


def test_the_recorder_takes_its_options(tmp_path: Path) -> None:
    unit = "headway-telemetry.service"
    verb, *arguments = command_in(unit)
    assert verb == "telemetry"
    settings = recorder_settings(arguments, tmp_path)
    # Folders that systemd makes for its user, and the group that its user is in.
    assert settings.listen == f"/run/{setting(unit, 'RuntimeDirectory')}/headway-telemetry.sock"
    assert settings.store == f"/var/lib/{setting(unit, 'StateDirectory')}/telemetry.sqlite"
    assert settings.socket_group == setting(unit, "SupplementaryGroups")
    assert settings.socket_group == setting("shop.service", "User")


def test_the_recorder_starts_before_the_server() -> None:
    assert setting("headway-telemetry.service", "Before") == "shop.service"


def test_the_server_takes_its_options() -> None:
    verb, option, file = command_in("shop.service")
    assert (verb, option) == ("serve", "--config")
    result = run_main(verb, option, ROOT / "examples" / Path(file).name, "--check")
    assert result.returncode == 0, result.stderr


def test_the_server_has_the_time_that_it_needs_to_end() -> None:
    defaults = ProcessGroup()
    needed_s = defaults.graceful_timeout_s + defaults.shutdown_timeout_s
    assert int(setting("shop.service", "TimeoutStopSec")) >= needed_s + 5
