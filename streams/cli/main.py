"""The command `turnstate`: its commands, its errors and its exit codes."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import typer

from turnstate.schemas.errors import InvalidInputError, TurnstateError
from turnstate.streams.cli import cluster, keys, tiers, topics
from turnstate.streams.cli.backups import backup, restore
from turnstate.streams.cli.bench import bench
from turnstate.streams.cli.demo import demo
from turnstate.streams.cli.letters import discard, list_, redrive, show
from turnstate.streams.cli.operate import end, erase, fork, rollback
from turnstate.streams.cli.publish import publish
from turnstate.streams.cli.read import context, history, sessions, state, tail, turns
from turnstate.streams.cli.recordings import export, import_, replay
from turnstate.streams.cli.render import (
    ClosedPipe,
    error_lines,
    note,
    print_json,
)
from turnstate.streams.cli.upkeep import doctor, seal, settings, stats, verify
from turnstate.streams.cli.worker import worker

INTERRUPTED: Final = 130
"""What a shell expects of a command that Ctrl-C ended."""


class _Entry(NamedTuple):
    """A command: its name, what it runs, its panel, and examples of its use."""

    name: str
    call: Callable[..., Any]
    panel: str
    examples: Sequence[str]


_WRITE: Final = "Write"
_READ: Final = "Read"
_KEEP: Final = "Keep the store"
_TRY: Final = "Try it"
_CLUSTER: Final = "Run as a cluster"

COMMANDS: Final = (
    _Entry("demo", demo, _TRY, ["turnstate demo"]),
    _Entry("bench", bench, _TRY, ["turnstate bench fold --json"]),
    _Entry(
        "publish",
        publish,
        _WRITE,
        [
            "turnstate publish turns.jsonl.gz",
            "app-log | turnstate publish - --rate 500 --json",
        ],
    ),
    _Entry("rollback", rollback, _WRITE, ["turnstate rollback acme chat-17 12"]),
    _Entry(
        "fork",
        fork,
        _WRITE,
        ["turnstate fork acme chat-17 try-again --version 12"],
    ),
    _Entry("end", end, _WRITE, ["turnstate end acme chat-17 --to chat-18"]),
    _Entry(
        "state",
        state,
        _READ,
        [
            "turnstate state acme chat-17",
            "turnstate state acme chat-17 --version 12 --json",
        ],
    ),
    _Entry("turns", turns, _READ, ["turnstate turns acme chat-17 --branch main"]),
    _Entry("history", history, _READ, ["turnstate history acme chat-17"]),
    _Entry(
        "context",
        context,
        _READ,
        ["turnstate context acme chat-17 --budget-tokens 4000 --json"],
    ),
    _Entry("tail", tail, _READ, ["turnstate tail acme chat-17 --from 0 --json"]),
    _Entry(
        "sessions",
        sessions,
        _READ,
        ["turnstate sessions --tenant acme --prefix chat-"],
    ),
    _Entry("stats", stats, _KEEP, ["turnstate stats --json"]),
    _Entry(
        "verify",
        verify,
        _KEEP,
        ["turnstate verify --tenant acme", "turnstate verify --repair"],
    ),
    _Entry("seal", seal, _KEEP, ["turnstate seal"]),
    _Entry(
        "erase",
        erase,
        _KEEP,
        [
            "turnstate erase acme --session chat-17 --dry-run",
            "turnstate erase acme --user u-9",
        ],
    ),
    _Entry("export", export, _KEEP, ["turnstate export monday.tsrec"]),
    _Entry(
        "import",
        import_,
        _KEEP,
        ["turnstate import monday.tsrec --data copy"],
    ),
    _Entry(
        "replay",
        replay,
        _KEEP,
        [
            "turnstate replay monday.tsrec --against .turnstate",
            "turnstate replay monday.tsrec --shuffle 7",
            "turnstate replay kafka: --against cluster",
            "turnstate replay kafka: --from 2024-05-01T00:00:00Z --record may.tsrec",
            "turnstate replay kafka: --group next --against cluster",
        ],
    ),
    _Entry(
        "backup",
        backup,
        _KEEP,
        [
            "turnstate backup /mnt/backups --keep 7",
            "turnstate backup s3://backups/chat --savepoint before-upgrade",
            "turnstate backup /mnt/backups --list",
            "turnstate backup --profile cluster --keep 2",
        ],
    ),
    _Entry(
        "restore",
        restore,
        _KEEP,
        [
            "turnstate restore /mnt/backups --data fresh",
            "turnstate restore s3://backups/chat --number 12 --data fresh",
            "turnstate restore --profile cluster --verify",
            "turnstate restore --profile cluster --instance one --partition 3",
        ],
    ),
    _Entry("settings", settings, _KEEP, ["turnstate settings"]),
    _Entry("doctor", doctor, _KEEP, ["turnstate doctor"]),
    _Entry("worker", worker, _CLUSTER, ["turnstate worker --instance worker-1"]),
)

LETTER_COMMANDS: Final = (
    _Entry("list", list_, "", ["turnstate dead-letters list"]),
    _Entry(
        "show",
        show,
        "",
        [
            "turnstate dead-letters show 3",
            "turnstate dead-letters show 3 --raw > turn.json",
        ],
    ),
    _Entry("redrive", redrive, "", ["turnstate dead-letters redrive --all"]),
    _Entry("discard", discard, "", ["turnstate dead-letters discard 3 4"]),
)

CLUSTER_COMMANDS: Final = (
    _Entry(
        "up",
        cluster.up,
        "",
        ["turnstate cluster up", "turnstate cluster up --without redis,s3 --json"],
    ),
    _Entry("down", cluster.down, "", ["turnstate cluster down"]),
    _Entry("status", cluster.status, "", ["turnstate cluster status --json"]),
)

TIER_COMMANDS: Final = (
    _Entry("status", tiers.status, "", ["turnstate tiers status"]),
    _Entry(
        "run",
        tiers.run,
        "",
        [
            "turnstate tiers run --once --dry-run",
            "turnstate tiers run --once --budget-seconds 600 --json",
        ],
    ),
    _Entry("move", tiers.move, "", ["turnstate tiers move acme chat-17 cold"]),
    _Entry("sweep", tiers.sweep, "", ["turnstate tiers sweep"]),
    _Entry("compact", tiers.compact, "", ["turnstate tiers compact --dry-run"]),
    _Entry("gc", tiers.gc, "", ["turnstate tiers gc --dry-run"]),
    _Entry(
        "cost",
        tiers.cost,
        "",
        ["turnstate tiers cost --sessions-a-day 10000 --turns-a-session 20"],
    ),
)

KEY_COMMANDS: Final = (
    _Entry("init", keys.init, "", ["turnstate keys init ~/turnstate.key"]),
    _Entry("status", keys.status, "", ["turnstate keys status --json"]),
    _Entry("rotate", keys.rotate, "", ["turnstate keys rotate keyfile:/etc/new.key"]),
)

TOPIC_COMMANDS: Final = (
    _Entry("create", topics.create, "", ["turnstate topics create"]),
    _Entry("check", topics.check, "", ["turnstate topics check --json"]),
)


class _Group(NamedTuple):
    """Commands under a name of their own."""

    name: str
    about: str
    panel: str
    entries: Sequence[_Entry]


GROUPS: Final = (
    _Group(
        "dead-letters",
        "Look at what was refused; send it again or let it go.",
        _KEEP,
        LETTER_COMMANDS,
    ),
    _Group(
        "tiers",
        "Move sessions between hot, warm and cold; what cron calls.",
        _KEEP,
        TIER_COMMANDS,
    ),
    _Group(
        "keys",
        "Make a master key, look at the keys of an encrypted store, change them.",
        _KEEP,
        KEY_COMMANDS,
    ),
    _Group(
        "cluster",
        "Start Kafka, Redis and S3 on this machine, end them, look at them.",
        _CLUSTER,
        CLUSTER_COMMANDS,
    ),
    _Group(
        "topics",
        "Create the topics of Kafka; check that they are as they should be.",
        _CLUSTER,
        TOPIC_COMMANDS,
    ),
)

_LONG: Final = frozenset(
    {"demo", "publish", "import", "export", "replay", "restore", "verify"}
)
"""Commands that run long enough for the cycle collector to matter."""

_SETTINGS: Final = {"help_option_names": ["-h", "--help"]}


def application(*, rich: bool) -> typer.Typer:
    """Return the command line; with Rich's help for a terminal, else plain."""
    mode: Any = "rich" if rich else None
    app = typer.Typer(
        name="turnstate",
        help="Keep the state of multi-turn conversations: turns in, state out.",
        epilog="Example: turnstate demo",
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=mode,
        context_settings=_SETTINGS,
    )
    # A callback keeps `turnstate --help` a list, however few the commands.
    app.callback()(_root)
    _add(app, COMMANDS)
    for group in GROUPS:
        inner = typer.Typer(
            help=group.about,
            epilog=f"Example: {group.entries[0].examples[-1]}",
            no_args_is_help=True,
            rich_markup_mode=mode,
            context_settings=_SETTINGS,
        )
        _add(inner, group.entries)
        app.add_typer(inner, name=group.name, rich_help_panel=group.panel)
    return app


def _root() -> None:
    """Keep the state of multi-turn conversations: turns in, state out."""


def _add(app: typer.Typer, entries: Sequence[_Entry]) -> None:
    for entry in entries:
        word = "Example" if len(entry.examples) == 1 else "Examples"
        app.command(
            entry.name,
            # A blank line between, since help text is filled like prose.
            epilog="\n\n".join([f"{word}: {entry.examples[0]}", *entry.examples[1:]]),
            rich_help_panel=entry.panel or None,
            context_settings=_SETTINGS,
        )(entry.call)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] and given[0] in _LONG:
        from turnstate.streams.process import tune_process

        tune_process()
    code = run(given)
    # What is left to do at exit (RocksDB's own threads) has nothing to say.
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command; return its exit code."""
    given = list(arguments)
    command = typer.main.get_command(application(rich=sys.stdout.isatty()))
    try:
        with command.make_context("turnstate", given) as context:
            command.invoke(context)
        return 0
    except TurnstateError as error:
        return _failed(error, arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ClosedPipe:
        return 0
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error, click's or typer's own
            return _misused(error, arguments)
        code = getattr(error, "exit_code", None)
        if isinstance(code, int):  # an early, wanted end
            return code
        if os.environ.get("TURNSTATE_TRACEBACK"):
            raise
        return _failed(_unexpected(error), arguments)


def _failed(error: TurnstateError, arguments: Sequence[str]) -> int:
    try:
        if "--json" in arguments:
            from turnstate.streams.documents import error_document

            print_json(error_document(error))
        else:
            note(error_lines(error))
    except ClosedPipe:
        pass
    return error.exit_code


def _misused(error: Any, arguments: Sequence[str]) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "turnstate"
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help
        message = "no command is given"
    parameter = getattr(error, "param", None)
    usage = InvalidInputError(
        message.rstrip("."),
        field=parameter.name if parameter is not None else None,
        hint=f"{path} --help",
        code="usage",
    )
    return _failed(usage, arguments)


class _UnexpectedError(TurnstateError):
    """Something that nobody foresaw: a fault of the program."""


def _unexpected(error: Exception) -> TurnstateError:
    said = str(error) or "no words"
    return _UnexpectedError(
        f"{type(error).__name__}: {said}",
        hint="a fault of the program; TURNSTATE_TRACEBACK=1 shows where",
    )
