"""The files for cron say what the command line understands."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main

import turnstate.infra
from turnstate.streams.cli.main import application

CRON = Path(turnstate.infra.__file__).parent / "cron"


def understood(words: list[str]) -> None:
    """Parse the words of a command; raises what the command line would say."""
    command: Any = typer.main.get_command(application(rich=False))
    context = click.Context(command, info_name="turnstate")
    while hasattr(command, "get_command"):
        name, words = words[0], words[1:]
        command = command.get_command(context, name)
        assert command is not None, f"there is no command {name}"
        context = click.Context(command, info_name=name)
    command.make_parser(context).parse_args(args=words)
    options = {name for each in command.params for name in each.opts}
    for word in words:
        assert not word.startswith("--") or word in options, word


def test_a_command_that_is_none_is_noticed() -> None:
    """The check above is no check that lets everything pass."""
    with pytest.raises(AssertionError):
        understood(["tiers", "melt"])
    with pytest.raises((AssertionError, Exception), match="--fast"):
        understood(["tiers", "run", "--fast"])


def test_crontab_lines_are_whole() -> None:
    """Five fields and a command that exists, in every line."""
    lines = [
        line
        for line in (CRON / "crontab").read_text().splitlines()
        if line and line[0] != "#" and "=" not in line.split()[0]
    ]
    assert len(lines) == 5
    for line in lines:
        *fields, command = line.split(maxsplit=5)
        for field in fields:
            assert re.fullmatch(r"(\*(/\d+)?|\d+)", field), line
        program, *words = shlex.split(command.split(">>")[0])
        assert program.endswith("/bin/turnstate")
        understood(words)


def test_units_name_jobs_that_exist() -> None:
    """Each timer starts the service with a job that the command line knows."""
    service = (CRON / "turnstate-tiers@.service").read_text()
    (start,) = re.findall(r"^ExecStart=\S+/turnstate (.*)$", service, re.MULTILINE)
    timers = sorted(CRON.glob("*.timer"))
    assert len(timers) == 4
    for timer in timers:
        unit = re.compile(r"^Unit=turnstate-tiers@(\w+)\.service$", re.MULTILINE)
        (job,) = unit.findall(timer.read_text())
        understood(shlex.split(start.replace("%i", job)))


def test_systemd_understands_the_times() -> None:
    """Each time of a timer is one that systemd can read."""
    for timer in CRON.glob("*.timer"):
        (when,) = re.findall(r"^OnCalendar=(.*)$", timer.read_text(), re.MULTILINE)
        assert re.fullmatch(r"(\*|\d\d):(0/)?\d\d", when)
        if shutil.which("systemd-analyze"):
            subprocess.run(
                ["systemd-analyze", "calendar", when], check=True, capture_output=True
            )


def test_kubernetes_jobs_name_commands_that_exist() -> None:
    """Each container's arguments are a command for the cluster."""
    found = re.findall(r"args: \[(.*)\]", (CRON / "cronjob.yaml").read_text())
    assert len(found) == 4
    for arguments in found:
        words = [word.strip().strip('"') for word in arguments.split(",")]
        assert words[words.index("--profile") + 1] == "cluster"
        understood(words)
