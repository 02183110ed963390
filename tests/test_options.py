"""Every verb takes and refuses the same literals of durations, sizes, counts, policies and sockets,
with the same words."""

from __future__ import annotations

import argparse
import re
from importlib import import_module
from typing import Any

import pytest

from headway import arguments, options
from headway.arguments import Parser
from headway.commands import run
from headway.errors import CommandError
from headway.quick_arguments import QuickParser
from headway.verbs import VERBS, added_verbs

MIB = 2**20
SWITCH_INTERVALS = {
    "0.005": 0.005,
    ".5": 0.5,
    "5ms": 0.005,
    "50us": 50e-6,
    "1e-3": 0.001,
    "2m": 120.0,
    "1s": 1.0,
    "0": None,
    "1h": None,
    "5 ms": None,
    "5min": None,
    "nan": None,
    "inf": None,
    "-1": None,
    "0x1": None,
    "": None,
}
SIZES = {
    "64M": 64 * MIB,
    "64m": 64 * MIB,
    "64MiB": 64 * MIB,
    "64MB": 64_000_000,
    "67108864": 64 * MIB,
    "1G": 1024 * MIB,
    "65536K": 64 * MIB,
    "64 M": None,
    "64Mb/s": None,
    "1.5G": None,
    "-64M": None,
    "lots": None,
}
POLICIES = {"priority": "priority", "deadline": "deadline", "fifo": None, "Priority": None}
SOCKETS = {
    "unix:/run/x.sock": "/run/x.sock",
    "unix:": None,
    "/run/x.sock": None,
    "udp:localhost:1": None,
    "unix:/" + "x" * 107: None,
}
WINDOWS = {"10": 10.0, "500ms": 0.5, "2m": 120.0, "soon": None, "": None}

CASES = [
    (SWITCH_INTERVALS, options.SWITCH_INTERVAL, verb, "--switch-interval")
    for verb in ("run", "serve")
]
CASES += [
    (SIZES, None, verb, flag)
    for verb, flag in (
        ("serve", "--memory-limit"),
        ("telemetry", "--store-limit"),
    )
]
CASES += [(POLICIES, options.Policy(), verb, "--policy") for verb in ("run", "serve")]
CASES += [
    (SOCKETS, options.SocketPath(), verb, flag)
    for verb, flag in (
        ("run", "--telemetry"),
        ("serve", "--telemetry"),
        ("telemetry", "--listen"),
    )
]
CASES += [
    (WINDOWS, None, verb, flag)
    for verb, flag in (
        ("telemetry", "--otlp-interval"),
        ("top", "--window"),
        ("top", "--interval"),
        ("run", "--telemetry-interval"),
        ("serve", "--telemetry-interval"),
    )
]


def parse(verb: str, flag: str, literal: str) -> Any:
    """The value of `flag` as the verb parses it; raises CommandError."""
    parser = Parser(allow_abbrev=False)
    module = next(each.module for each in (*VERBS, *added_verbs()) if each.name == verb)
    import_module(module).prepare_parser(parser)
    arguments, _ = parser.parse_known_args([f"{flag}={literal}"])
    names = [flag[2:], flag[2:].replace("-", "_")]
    (value,) = [getattr(arguments, name) for name in names if hasattr(arguments, name)][:1]
    return value[0] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("literals", "kind", "verb", "flag"),
    CASES,
    ids=[f"{verb} {flag}" for _, _, verb, flag in CASES],
)
def test_a_literal_means_the_same_to_every_verb(
    literals: dict[str, Any], kind: options.Kind | None, verb: str, flag: str
) -> None:
    for literal, expected in literals.items():
        if literals is WINDOWS and literal == "500ms":
            # Below what some of them allow.
            continue
        if expected is not None:
            assert parse(verb, flag, literal) == expected, literal
            continue
        with pytest.raises(CommandError) as refused:
            parse(verb, flag, literal)
        message = str(refused.value)
        assert f"argument {flag}: found {literal!r}; allowed: " in message, message
        if kind is not None:
            assert kind.allowed in message, message


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (options.Seconds(), "0.25"),
        (options.Bytes(), "65536"),
        (options.Octal(), "660"),
        (options.Shape(64), "2x5"),
        (options.SocketPath(), "unix:/run/x.sock"),
        (options.ListenAddress(), "[::1]:80"),
    ],
)
def test_what_is_shown_can_be_parsed(kind: options.Kind, text: str) -> None:
    assert kind.show(kind.parse(text)) == text


def test_an_argument_that_is_refused_names_what_was_found_and_what_is_allowed() -> None:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        options.argument(options.Whole(1, 5))("six")
    assert str(refused.value) == "found 'six'; allowed: a whole number from 1 to 5"


def quickly(words: list[str]) -> dict[str, Any] | None:
    parser = QuickParser()
    run.prepare_parser(parser)
    values = parser.parse(words)
    return None if values is None else vars(values)


def by_argparse(words: list[str]) -> dict[str, Any]:
    return vars(arguments.parse(["run", *words], VERBS, run))


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--policy", "priority"],
        ["--policy=deadline", "--switch-interval=.5", "--policy", "interval"],
        ["--switch-interval", "50us", "--json", "-"],
        ["--json=", "--follow"],
        ["--json", "a b=c.json", "--no-kernel-hints"],
        ["--telemetry=unix:/run/x.sock", "--telemetry-interval", "2"],
        ["--trace", "t.json", "--trace-events=4096", "--profile", "p.svg"],
    ],
    ids=" ".join,
)
def test_options_that_are_parsed_quickly_have_the_values_of_argparse(words: list[str]) -> None:
    assert quickly(words) == by_argparse(words)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--polcy", "priority"], "unrecognized arguments: --polcy priority"),
        (["--poli", "priority"], "unrecognized arguments: --poli priority"),
        (["--policy"], "argument --policy: expected one argument"),
        (["--policy", "--json"], "argument --policy: expected one argument"),
        (["--policy", "fifo"], "argument --policy: found 'fifo'; allowed: one of "),
        (["--switch-interval", "-1"], "argument --switch-interval: found '-1'; allowed: "),
        (["--follow=yes"], "argument --follow: ignored explicit argument 'yes'"),
        (["--", "x"], "unrecognized arguments: -- x"),
    ],
)
def test_what_cannot_be_parsed_quickly_is_refused_by_argparse(
    words: list[str], complaint: str
) -> None:
    assert quickly(words) is None
    with pytest.raises(CommandError, match=re.escape(complaint)):
        by_argparse(words)
