"""Resolves configurations for tests, and names those that a Python can run."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.arguments import Parser
from headway.commands.serve import prepare_parser, read_configuration
from headway.errors import CommandError
from headway.server.config.resolution import Resolution
from headway.server.settings import ApplicationGroup, ProcessGroup

without_gil = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this build always has a GIL"
)
OWN_GIL_EXISTS = sys.version_info >= (3, 12)
with_own_gil = pytest.mark.skipif(
    not OWN_GIL_EXISTS, reason="an interpreter cannot have its own GIL"
)
before_own_gil = pytest.mark.skipif(OWN_GIL_EXISTS, reason="an interpreter can have its own GIL")


def resolution_of(*arguments: str) -> Resolution:
    parser = Parser(prog="headway serve")
    prepare_parser(parser)
    return read_configuration(parser.parse_args(arguments), os.getcwd())


def refusal_of(resolve: Callable[[], object]) -> str:
    """The one line with which a configuration is refused."""
    with pytest.raises(CommandError) as caught:
        resolve()
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


class Configured:
    """A configuration file of a test; `FILE` stands for its name in what is said of it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resolve(self, text: str, *flags: str) -> Resolution:
        self.path.write_text(text)
        return resolution_of("--config", str(self.path), *flags)

    def process_group(self, text: str, *flags: str) -> ProcessGroup:
        (group,) = self.resolve(text, *flags).settings.groups
        return group

    def application_groups(self, text: str, *flags: str) -> dict[str, ApplicationGroup]:
        """Those of the one process group, by name."""
        groups = self.process_group(text, *flags).application_groups
        return {group.name: group for group in groups}

    def warnings(self, text: str, *flags: str) -> list[str]:
        said = self.resolve(text, *flags).warnings
        return [each.replace(str(self.path), "FILE") for each in said]

    def refusal(self, text: str, *flags: str) -> str:
        return refusal_of(lambda: self.resolve(text, *flags)).replace(str(self.path), "FILE")
