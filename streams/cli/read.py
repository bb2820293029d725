"""The commands that read: state, turns, history, context, tail, sessions."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from turnstate.schemas.errors import InvalidInputError
from turnstate.streams.cli.options import (
    Branch,
    Data,
    Json,
    OneTenant,
    Profile,
    Session,
    Tenant,
    Version,
)
from turnstate.streams.cli.render import (
    Block,
    Pairs,
    Table,
    answer,
    clean,
    note,
    print_json,
    shown,
    write,
)

TIERS = ("hot", "warm", "cold")

Since = Annotated[
    int | None,
    typer.Option(
        "--since",
        metavar="N",
        min=0,
        help="Only what changed since this version.",
        show_default=False,
    ),
]


def state(
    tenant: Tenant,
    session: Session,
    version: Version = None,
    since: Since = None,
    branch: Branch = "main",
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show the state of a session, now or at any version that it had.

    With --since only what changed since then, as a JSON Patch (RFC 6902).
    """
    from turnstate.streams.cli.doors import opened_reader

    at: dict[str, Any] = {"version": version, "branch": branch}
    with opened_reader(data, profile) as store:
        if since is not None:
            document = store.patch(tenant, session, since=since, **at)
            answer(document, as_json, _patch_blocks(document))
            return
        document = store.state(tenant, session, **at)
    answer(document, as_json, _state_blocks(document))


def _patch_blocks(document: Any) -> Iterator[Block]:
    from turnstate.streams.documents import from_json, to_json

    yield Pairs("patch", [(name, document[name]) for name in ("from", "to")])
    columns = ("op", "path", "from", "value")
    operations: Any = from_json(to_json(document["patch"]))
    rows = [[each.get(name) for name in columns] for each in operations]
    yield Table("operations", columns, rows)


def _state_blocks(state: Any) -> Iterator[Block]:
    plain = ("tenant", "session", "version", "turn_count", "branch", "phase")
    pairs = [(name, state[name]) for name in plain]
    rest = ("phase_error", "tags", "usage", "open_tool_calls", "gaps", "conflicts")
    pairs += [(name, state[name]) for name in (*rest, "ended") if state[name]]
    pairs += [(name, state[name]) for name in ("branches", "tier", "digest")]
    yield Pairs("state", pairs)
    if state["slots"]:
        rows = [
            (name, _value(slot["value"]), " | ".join(map(_value, slot["siblings"])))
            for name, slot in state["slots"].items()
        ]
        yield Table("slots", ("slot", "value", "siblings"), rows)
    if state["turns"]:
        yield _turn_table("last turns", state["turns"])


def _turn_table(title: str, rows: list[Any]) -> Table:
    return Table(
        title,
        ("version", "turn", "role", "content"),
        [(row["version"], row["turn_id"], row["role"], _said(row)) for row in rows],
    )


def _said(turn: Any) -> str:
    """Return what a turn says, its tool calls where it has no text."""
    if turn.get("redacted"):
        return "(redacted)"
    content = turn.get("content")
    parts = [] if content is None else [_value(content)]
    parts += [_value(turn["tool_calls"])] if turn.get("tool_calls") else []
    parts += [_said(part) for part in turn.get("parts", ())]
    return " ".join(parts)


def _value(value: Any) -> str:
    """Return a stored JSON value bare where it is text."""
    import msgspec

    return shown(msgspec.json.decode(value) if type(value) is msgspec.Raw else value)


At = Annotated[
    int, typer.Option("--at", metavar="N", min=0, help="Begin at this place, from 0.")
]
Limit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, help="At most so many turns.")
]


def turns(
    tenant: Tenant,
    session: Session,
    version: Version = None,
    branch: Branch = "main",
    at: At = 0,
    limit: Limit = 1000,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """List the turns of a branch in order; `next` says where to go on."""
    from turnstate.streams.cli.doors import opened_reader

    with opened_reader(data, profile) as store:
        document = store.turns(
            tenant, session, version=version, branch=branch, at=at, limit=limit
        )
    answer(document, as_json, [_turn_table("turns", document["turns"])])
    if document["next"] is not None and not as_json:
        note(f"more turns follow: --at {document['next']}")


def history(
    tenant: Tenant,
    session: Session,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show how a session is stored: one row a frame or segment."""
    from turnstate.streams.cli.doors import opened_reader

    with opened_reader(data, profile) as store:
        document = store.history(tenant, session)
    columns = ("from", "to", "time", "bytes", "raw_bytes", "codec", "kind")
    rows = [[row.get(name) for name in columns] for row in document["versions"]]
    answer(document, as_json, [Table("history", columns, rows)])


Budget = Annotated[
    int,
    typer.Option(
        "--budget-tokens", metavar="N", min=0, help="What the messages may cost."
    ),
]


def context(
    tenant: Tenant,
    session: Session,
    budget_tokens: Budget,
    branch: Branch = "main",
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Give the messages of a session that fit a model's token budget."""
    from turnstate.streams.cli.doors import opened_reader

    with opened_reader(data, profile) as store:
        document = store.context(
            tenant, session, budget_tokens=budget_tokens, branch=branch
        )
    messages = [(message["role"], _said(message)) for message in document["messages"]]
    pairs = [(name, document[name]) for name in ("tokens", "budget_tokens")]
    blocks: list[Block] = [
        Pairs("context", [*pairs, ("left_out", len(document["left_out"]))]),
        Table("messages", ("role", "content"), messages),
    ]
    answer(document, as_json, blocks)


Tier = Annotated[
    str | None,
    typer.Option(
        "--tier",
        metavar="hot|warm|cold",
        help="Only sessions that rest there.",
        show_default=False,
    ),
]
Prefix = Annotated[
    str,
    typer.Option(
        "--prefix",
        metavar="P",
        help="Only sessions whose name begins so.",
        show_default=False,
    ),
]


def sessions(
    tenant: OneTenant = None,
    tier: Tier = None,
    prefix: Prefix = "",
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """List sessions, by tenant and name."""
    from turnstate.streams.cli.doors import opened_reader

    if tenant == "":
        raise InvalidInputError(
            "--tenant is empty", field="tenant", hint="leave it out for all"
        )
    if tier is not None and tier not in TIERS:
        raise InvalidInputError(
            f"the tier {tier!r} is not known",
            field="tier",
            hint=f"one of {', '.join(TIERS)}",
        )
    with opened_reader(data, profile) as store:
        rows = list(store.sessions(tenant=tenant, tier=tier, prefix=prefix))
    columns = ("tenant", "session", "version", "turn_count", "tier", "digest")
    table = [[row[name] for name in columns] for row in rows]
    answer({"sessions": rows}, as_json, [Table("sessions", columns, table)])


From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TOKEN",
        help="Go on after this token of an earlier line; 0 is the beginning.",
        show_default=False,
    ),
]
NoFollow = Annotated[
    bool, typer.Option("--no-follow", help="End where the session now stands.")
]


def tail(
    tenant: Tenant,
    session: Session,
    token: From = None,
    no_follow: NoFollow = False,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Follow a session: one line for each thing that happens, until Ctrl-C.

    With --json each line is a JSON document. Its token resumes after it.
    """
    from turnstate.streams.cli.doors import opened_reader

    with opened_reader(data, profile) as store:
        events = store.subscribe(tenant, session, token=token, follow=not no_follow)
        for event in events:
            if as_json:
                print_json(event)
            else:
                write(_event_line(event) + "\n")


def _event_line(event: Any) -> str:
    turn = event["turn"]
    kind = turn.get("op") or turn.get("role", "")
    said = _said(turn) if "role" in turn else shown(turn.get("to"))
    return "\t".join(map(clean, (event["token"], turn["turn_id"], kind, said)))
