"""Reads the commands of containers and units as Headway does: a wrong option fails here."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from launch import run_main
from layouts import Container

from headway.commands import telemetry
from headway.recorder.settings import Settings

TOKEN = "a-token-of-some-length"


def check_recorder(container: Container, folder: Path) -> Settings:
    """The settings that the recorder's command makes, with a token's file here."""
    arguments = container.arguments("telemetry")
    assert arguments is not None, container.command
    return recorder_settings(arguments, folder)


def recorder_settings(arguments: Sequence[str], folder: Path) -> Settings:
    token = folder / "token"
    token.write_text(f"{TOKEN}\n")
    parser = argparse.ArgumentParser()
    telemetry.prepare_parser(parser)
    here = [
        f"--token-file={token}" if each.startswith("--token-file=") else each for each in arguments
    ]
    return telemetry.read_settings(parser.parse_args(here))


def check_server(container: Container, folder: Path) -> dict[str, str]:
    """The answer of `headway serve --check` to the server's command: each option with its value.

    The recorder's socket is in `folder`: its own directory is mounted in the container, and may not
    exist here.
    """
    arguments = container.arguments("serve")
    assert arguments is not None, container.command
    (folder / "shop.py").write_text("def app(environ, start_response): ...\n")
    here = [each.replace("unix:/run/headway/", f"unix:{folder}/") for each in arguments]
    result = run_main("serve", *here, "--check", cwd=folder)
    assert result.returncode == 0, result.stderr
    return dict(re.findall(r"^ +(\S+) +(\S.*?) {2,}\S", result.stdout, re.MULTILINE))
