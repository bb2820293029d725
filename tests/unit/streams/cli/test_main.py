"""Every command explains itself; errors become exit codes."""

import json
from typing import Any

import pytest
import typer

from turnstate.streams.cli.main import (
    COMMANDS,
    GROUPS,
    application,
    run,
)

PATHS = [
    *([entry.name] for entry in COMMANDS),
    *([group.name, entry.name] for group in GROUPS for entry in group.entries),
]


def help_of(path: list[str], *, rich: bool = False) -> str:
    command: Any = typer.main.get_command(application(rich=rich))
    context = command.make_context("turnstate", ["x"], resilient_parsing=True)
    for name in path:
        command = command.get_command(context, name)
        context = type(context)(command, info_name=name, parent=context)
    return str(command.get_help(context))


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_help_of_a_command_shows_an_example(path: list[str]) -> None:
    text = help_of(path)

    assert "Example" in text
    assert f"turnstate {' '.join(path)}" in text


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_a_command_takes_the_store_the_profile_and_json(path: list[str]) -> None:
    text = help_of(path)

    assert "--data" in text
    assert "--profile" in text
    assert "--json" in text


EXAMPLES = [
    example
    for entries in (COMMANDS, *(group.entries for group in GROUPS))
    for entry in entries
    for example in entry.examples
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_can_be_parsed(example: str) -> None:
    words = example.rpartition("| ")[2].partition(" >")[0].split()
    assert words[0] == "turnstate"
    command: Any = typer.main.get_command(application(rich=False))
    context = command.make_context("turnstate", words[1:])
    rest = [*context._protected_args, *context.args]
    while rest and hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
        rest = [*getattr(context, "_protected_args", []), *context.args]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["state"],
        ["state", "t"],
        ["state", "t", "s", "--version", "x"],
        ["state", "", "s"],
        ["state", "t", "s", "--data", ""],
        ["publish"],
        ["publish", ""],
        ["publish", "x.jsonl", "--format", "csv"],
        ["publish", "x.jsonl", "--rate", "0"],
        ["sessions", "--tier", "lukewarm"],
        ["sessions", "--tenant", ""],
        ["erase", "t"],
        ["erase", "t", "--user", ""],
        ["erase", "t", "--session", "s", "--user", "u"],
        ["erase", "", "--user", "u"],
        ["fork", "t", "s", ""],
        ["fork", "t", "s", "b", "--version", "1", "--turn", "x"],
        ["export", ""],
        ["export", "-", "--json"],
        ["import", ""],
        ["replay", ""],
        ["replay", "x", "--against", ""],
        ["dead-letters", "redrive"],
        ["dead-letters", "discard"],
        ["dead-letters", "redrive", "1", "--all"],
        ["dead-letters", "show", "1", "--raw", "--json"],
        ["verify", "--tenant", ""],
        ["bench", "nope"],
        ["settings", "--profile", "other"],
    ],
    ids=" ".join,
)
def test_a_wrong_call_exits_2_with_the_field_named(
    arguments: list[str],
    capfd: pytest.CaptureFixture[str],
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TURNSTATE_DATA", str(tmp_path / "data"))

    assert run([*arguments, *([] if "--json" in arguments else ["--json"])]) == 2
    error = json.loads(capfd.readouterr().out)["error"]
    assert error.keys() == {"code", "message", "field", "hint"}
    assert error["message"]
    assert error["hint"]


def test_what_nobody_foresaw_is_one_line_and_exit_1(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr("turnstate.streams.cli.doors.settings_of", fail)

    assert run(["settings"]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: ZeroDivisionError: by nought")
    assert err.count("\n") == 1
