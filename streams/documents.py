"""The answers in the shapes of design §13: plain values, free-form JSON untouched."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from turnstate.agents.session.step import Answer
from turnstate.schemas.clocks import Dot
from turnstate.schemas.crdt import counter
from turnstate.schemas.dialogue.head import Head, digest
from turnstate.schemas.dialogue.shown_slots import shown_slots
from turnstate.schemas.errors import TurnstateError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import Op
from turnstate.schemas.wire.tool_calls import unparsable_calls
from turnstate.storage.session_row import SessionRow
from turnstate.storage.session_view import SessionView, ShownTurn

Document = dict[str, Any]
"""A JSON document; values may be `msgspec.Raw`, so encode it with `to_json`."""


def to_json(document: object) -> bytes:
    """Return a document as JSON bytes; integers of any size stay exact."""
    return msgspec.json.encode(document)


def from_json(data: bytes) -> Document:
    """Read a document back; an integer too long for Python stays its digits.

    Python refuses to read integers of more than 4 300 digits, for they take
    quadratic time.

    Example:
        >>> from_json(b'{"a": 18446744073709551616}')
        {'a': 18446744073709551616}
    """
    try:
        document: Document = msgspec.json.decode(data)
    except msgspec.DecodeError:
        document = json.loads(data, parse_int=_integer)
    return document


def _integer(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:
        return digits


def turn_document(turn: ShownTurn) -> Document:
    """Return a turn as it is read: the message, what it did, where it lies."""
    op, body = turn.op, turn.op.body
    document: Document = {
        "turn_id": turn.name(),
        "role": body.role,
        "content": None,
        "version": turn.version,
        "dot": list(op.dot),
        "branch": op.branch,
        "parent": [p if isinstance(p, str) else p.address() for p in op.parents],
        "time": op.time,
    }
    if not turn.answers_to_id:
        document["conflict"] = op.turn_id
    if turn.redacted:
        document["redacted"] = True
        return document
    shown = turn.edit.body if turn.edit is not None else body
    if shown.parts is not None:
        document["content"] = Raw(shown.parts)
    elif shown.content is not UNSET:
        document["content"] = shown.content
    elif turn.edit is None:
        del document["content"]
    if turn.edit is not None:
        document["edited"] = turn.edit.address()
    for name in ("tool_calls", "metadata"):
        value = getattr(body, name)
        if value is not None:
            document[name] = Raw(value)
    if body.tool_calls is not None:
        unparsable = unparsable_calls(body.tool_calls)
        if unparsable:
            document["unparsable_arguments"] = unparsable
    for name in _PLAIN_FIELDS:
        value = getattr(body, name)
        if value is not None:
            document[name] = value
    if body.slot_set or body.slot_delete:
        document["slots"] = {
            "set": {n: Raw(v) for n, v in sorted((body.slot_set or {}).items())},
            "delete": body.slot_delete or [],
        }
    if body.tag_add or body.tag_remove:
        document["tags"] = {"add": body.tag_add or [], "remove": body.tag_remove or []}
    for name, data in (body.extra or {}).items():
        document.setdefault(name, Raw(data))
    if turn.parts:
        document["parts"] = [turn_document(part) for part in turn.parts]
    return document


_PLAIN_FIELDS = (
    "tool_call_id",
    "name",
    "usage",
    "intent",
    "confidence",
    "action",
    "continues",
    "stage",
    "user",
)


def state_document(
    name: SessionName,
    view: SessionView,
    branch: str,
    start_phase: str,
    tier: str,
) -> Document:
    """Return the state of a session, as `state` and the gateway answer it."""
    head = view.head
    state = view.state(branch)
    end = head.ended.get(branch)
    error = state.phase_error if state else None
    return {
        "tenant": name.tenant,
        "session": name.session,
        "incarnation": head.incarnation,
        "version": head.version,
        "clock": head.clock.contiguous(),
        "branch": branch,
        "branches": branches_document(head, view),
        "phase": state.phase if state else start_phase,
        "phase_error": None
        if error is None
        else {"action": error[0], "turn": error[1], "phase": error[2]},
        "turns": [turn_document(turn) for turn in view.recent(branch)],
        "turn_count": head.turn_count,
        "slots": shown_slots(state),
        "tags": sorted(state.tags) if state else [],
        "usage": counter.values(head.usage),
        "open_tool_calls": [
            {"id": call[0], "name": call[1], "turn": Dot(call[2], call[3]).address()}
            for call in (state.open_calls if state else ())
        ],
        "gaps": gaps_document(head),
        "conflicts": [
            {"turn_id": turn_id, "turn": dot.address()}
            for turn_id, dot in head.conflicts()
        ],
        "ended": None if end is None else {"branch": branch, "to": end[3]},
        "tier": tier,
        "digest": digest(head).hex(),
    }


def branches_document(head: Head, view: SessionView) -> Document:
    """Return the turn that each branch shows as its head."""
    document: Document = {}
    for name in sorted(head.branches):
        heads = head.branches[name].heads
        if not heads:
            document[name] = None
            continue
        state = head.node(heads[0])
        recent = state.recent[-1] if state.recent else None
        if recent is not None and Dot(recent[1], recent[2]) == heads[0]:
            document[name] = view.recent(name)[-1].name()
        else:
            document[name] = heads[0].address()
    return document


def gaps_document(head: Head) -> list[Document]:
    """Return what is missing: operations that wait, and dots never seen."""
    gaps: list[Document] = []
    for _, record in head.parked:
        op = Op.decode(record)
        waits = [p if isinstance(p, str) else p.address() for p in op.parents]
        if op.body.target is not None:
            waits.append(op.body.target)
        gaps.append({"turn": op.address(), "waits_for": waits})
    gaps += (
        {"replica": replica, "from": low, "to": high}
        for replica, low, high in head.clock.holes()
    )
    return gaps


def session_document(name: SessionName, row: SessionRow) -> Document:
    """Return a row of `sessions`."""
    return {
        "tenant": name.tenant,
        "session": name.session,
        "version": row.version,
        "turn_count": row.turn_count,
        "tier": row.tier,
        "digest": row.digest.hex(),
    }


def answer_document(answer: Answer) -> Document:
    """Return what became of one published turn."""
    document: Document = {
        "verdict": answer.verdict.value,
        "version": answer.version,
        "turn": answer.turn,
    }
    if answer.ended is not None:
        document["ended"] = {"to": answer.ended or None}
    if answer.error is not None:
        document["error"] = error_document(answer.error)["error"]
    return document


def error_document(error: TurnstateError) -> Document:
    """Return an error as every door answers it."""
    return {
        "error": {
            "code": error.code,
            "message": error.message,
            "field": error.field,
            "hint": error.hint,
        }
    }


def turns_document(turns: Sequence[ShownTurn], at: int, limit: int) -> Document:
    """Return one page of turns, and where the next begins."""
    page = turns[at : at + limit]
    after = at + len(page)
    return {
        "turns": [turn_document(turn) for turn in page],
        "next": after if after < len(turns) else None,
    }
