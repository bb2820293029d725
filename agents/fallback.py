"""The stateless fallback: state from a request alone, when no store can be reached."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from turnstate.agents.ports import Record
from turnstate.agents.session.rebuild import refolder
from turnstate.schemas.clocks import Dot
from turnstate.schemas.crdt import counter
from turnstate.schemas.dialogue.head import Head
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.dialogue.shown_slots import shown_slots
from turnstate.schemas.errors import InvalidInputError, TurnstateError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.limits import RECENT_TURNS
from turnstate.schemas.operation import MAIN
from turnstate.schemas.position import Position
from turnstate.schemas.wire.scan import scan
from turnstate.schemas.wire.turn_bytes import draft_from_bytes
from turnstate.storage.repair import OneSession

REQUEST_BYTES_MAX: Final = 16 << 20
"""A request above it is refused: its turns are a log's matter."""

_NAME: Final = "request"
"""Under which its turns are stamped: `@request:3` is the third of them."""


class _Request(Struct):
    tenant: str | None = None
    session: str | None = None
    role: str | None = None
    messages: list[Raw] | None = None
    turns: list[Raw] | None = None


class _Named(Struct):
    tenant: str | None = None
    session: str | None = None


class _Turn(NamedTuple):
    place: str
    given: Raw
    record: bytes


class _NoClock:
    """Tell no time: an answer depends on the request alone."""

    def now_ms(self) -> int:
        return 0


_decoder: Final = msgspec.json.Decoder(_Request)
_named: Final = msgspec.json.Decoder(_Named)


def fallback_state(request: bytes, graph: DialogueGraph) -> dict[str, Any]:
    """Return the state that the turns of one request lead to, and say so.

    A pure function: equal requests have equal answers, whoever gives them and
    whenever. It is what a session of these turns alone would show; whatever
    was said before them is not in it, and nothing of it is kept. What only a
    store knows (version, clock, digest) is null.

    Args:
        request: JSON: a turn; or `{"messages": […]}`, as chat APIs take it, or
            `{"turns": […]}`, both with `tenant` and `session` beside them or
            in each turn.
        graph: The dialogue graph.

    Returns:
        The keys of `state`, `"fallback": true`, and `refused`: the turns that
        could not be read, each with its place.

    Raises:
        InvalidInputError: it is no such request.

    Example:
        >>> from turnstate.schemas.dialogue.phases import default_graph
        >>> request = b'{"messages": [{"role": "user", "content": "hi"}]}'
        >>> state = fallback_state(request, default_graph())
        >>> state["fallback"], state["turn_count"], state["version"]
        (True, 1, None)
    """
    name, turns = _read(request)
    session = OneSession(name.key())
    agent = refolder(session, graph, _NAME, _NoClock())
    refused: list[dict[str, Any]] = []
    good: list[_Turn] = []
    for turn in turns:
        error = _fault(turn, name)
        if error is None:
            good.append(turn)
        else:
            refused.append(_refusal(turn.place, error))
    records = [
        Record(turn.record, Position(b"", 0, at)) for at, turn in enumerate(good)
    ]
    folded = agent.fold(records)
    session.commit(folded.changes)
    shown: list[Raw] = []
    for turn, answer in zip(good, folded.answers, strict=True):
        if answer.error is not None:
            refused.append(_refusal(turn.place, answer.error))
        else:
            shown.append(turn.given)
    head = session.stored.head if session.stored else Head()
    return _document(name, head, shown, refused, graph)


def _read(request: bytes) -> tuple[SessionName, list[_Turn]]:
    """Return the session that a request is about, and its turns."""
    if len(request) > REQUEST_BYTES_MAX:
        raise InvalidInputError(
            f"the request has {len(request)} bytes",
            hint=f"at most {REQUEST_BYTES_MAX}",
            code="too_large",
        )
    scan(request)
    try:
        found = _decoder.decode(request)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidInputError(
            f"the request cannot be read: {error}",
            hint="a turn, or an object with `messages` or `turns`",
        ) from error
    given: Sequence[Raw] = found.messages or found.turns or ()
    field = "messages" if found.messages is not None else "turns"
    if found.messages is not None and found.turns is not None:
        raise InvalidInputError("the request has messages and turns", field="turns")
    if found.role is not None and not given:
        turn = _Turn("turn", Raw(request), request)
        return _name_of(found, [turn]), [turn]
    turns = [
        _Turn(f"{field}[{at}]", raw, _record(raw, found))
        for at, raw in enumerate(given)
    ]
    return _name_of(found, turns), turns


def _name_of(found: _Request, turns: Sequence[_Turn]) -> SessionName:
    for turn in turns:
        if found.tenant is not None and found.session is not None:
            break
        named = _names_in(turn.record)
        found.tenant = found.tenant or named.tenant
        found.session = found.session or named.session
    return SessionName(found.tenant or "default", found.session or "request")


def _names_in(record: bytes) -> _Named:
    try:
        return _named.decode(record)
    except (msgspec.MsgspecError, ValueError):
        return _Named()


def _record(raw: Raw, found: _Request) -> bytes:
    """Return a message as a turn: with the names of the request, where it has none."""
    data = bytes(raw).strip()
    if not data.startswith(b"{"):
        return data
    named = _names_in(data)
    names = {
        "tenant": None if named.tenant is not None else found.tenant or "default",
        "session": None if named.session is not None else found.session or "request",
    }
    added = b"".join(
        b'"%b":%b,' % (key.encode(), msgspec.json.encode(value))
        for key, value in names.items()
        if value is not None
    )
    rest = data[1:].lstrip()
    if rest.startswith(b"}"):
        added = added[:-1]
    return b"{" + added + rest


def _fault(turn: _Turn, name: SessionName) -> TurnstateError | None:
    try:
        draft = draft_from_bytes(turn.record)
    except TurnstateError as error:
        return error
    if draft.name != name:
        return InvalidInputError(
            "the turn is of another session than the request", field="session"
        )
    return None


def _refusal(place: str, error: TurnstateError) -> dict[str, Any]:
    return {
        "place": place,
        "code": error.code,
        "message": error.message,
        "field": error.field,
    }


def _document(
    name: SessionName,
    head: Head,
    shown: Sequence[Raw],
    refused: list[dict[str, Any]],
    graph: DialogueGraph,
) -> dict[str, Any]:
    state = head.branch_state(MAIN)
    return {
        "fallback": True,
        "tenant": name.tenant,
        "session": name.session,
        "incarnation": None,
        "version": None,
        "clock": None,
        "branch": MAIN,
        "branches": {},
        "phase": state.phase if state else graph.start,
        "phase_error": None,
        "turns": list(shown[-RECENT_TURNS:]),
        "turn_count": head.turn_count,
        "slots": shown_slots(state),
        "tags": sorted(state.tags) if state else [],
        "usage": counter.values(head.usage),
        "open_tool_calls": [
            {"id": call[0], "name": call[1], "turn": Dot(call[2], call[3]).address()}
            for call in (state.open_calls if state else ())
        ],
        "gaps": [],
        "conflicts": [],
        "ended": None,
        "tier": None,
        "digest": None,
        "refused": refused,
    }
