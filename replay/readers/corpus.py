"""Read the lines of the dialogue corpora: slot snapshots become slot operations."""

from typing import Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from turnstate.replay.readers.faults import refuse_ambiguous, refused
from turnstate.replay.readers.lines import UTF8_MARK
from turnstate.schemas.turn import Slots, Turn

_Snapshot = dict[str, Raw]
"""name → value, as the JSON bytes that came; they keep their line in memory."""

_NULL: Final = Raw(b"null")


class _Told(NamedTuple):
    """The last snapshot of a kind, the turn that told it, and the one before."""

    turn: int | str
    before: _Snapshot
    now: _Snapshot


_NOTHING: Final[_Snapshot] = {}

BY_SERVICE: Final = frozenset({"sgd"})
"""Tenants whose snapshots tell only of the services named in the turn."""

SET_AND_DELETE: Final = frozenset({"multiwoz21", "crosswoz"})
"""Tenants whose snapshots are a role's whole state: what is gone is deleted."""


class _Line(Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    tenant: str
    session: str
    turn: int | str
    role: str
    text: str
    ts_ms: int | None = None
    intent: str | None = None
    slots: dict[str, Raw] | None = None
    services: list[str] | None = None
    topic_switch: bool | None = None


class _Metadata(Struct, omit_defaults=True, frozen=True, gc=False):
    services: list[str] | None = None
    topic_switch: bool | None = None


_decode: Final = msgspec.json.Decoder(_Line).decode
_decode_object: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_encode: Final = msgspec.json.Encoder().encode
_LINE_FIELDS: Final = frozenset(_Line.__struct_fields__)


class CorpusLines:
    """Turn corpus lines into turns; remember each session's last snapshots.

    A snapshot is compared with the session's last *of the same kind*, and only
    the difference becomes an operation. The kind is the service in `sgd`, and
    the role elsewhere: in `crosswoz` both roles write one state, and either
    role's snapshot repeats what it knew, so that comparing with the other
    role's would undo, at each turn, what the other had written.

    - `sgd`: only services named in the turn; what they no longer list is
      deleted, what other services hold stands.
    - `multiwoz21`, `crosswoz`: set and delete.
    - any other tenant: set only, since there a snapshot lists what *this*
      utterance rests on.

    Numbers of turns run upwards in a session. Turn 0 starts it afresh and a turn
    given twice in a row is compared as it was the first time, so that lines sent
    again, or a file put behind itself, give the same bytes: duplicates.

    `slots: null` is no operation and no snapshot. A list is one value. A key
    that the format does not know goes into `metadata`, so that nothing is lost
    and nothing unknown can act. Lines of different sessions may interleave; the
    memory is two lines a session and kind.

    Example:
        >>> lines = CorpusLines()
        >>> (turn,) = lines(1, b'{"tenant":"sgd","session":"s","turn":0,"role":"user",'
        ...     b'"text":"hi","slots":{"A_1.x":"1"},"services":["A_1"]}')
        >>> msgspec.json.decode(turn)["slots"]
        {'set': {'A_1.x': '1'}}
    """

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], dict[str, _Told]] = {}

    def __call__(self, _number: int, line: bytes) -> tuple[bytes, ...]:
        """Return the turn that a line says.

        Raises:
            InvalidInputError: it is no line of a corpus. The field is named.
        """
        line = line.removeprefix(UTF8_MARK)
        extra: dict[str, Raw] | None = None
        try:
            entry = _decode(line)
            if _encode(entry) != line:  # else no key can stand twice
                refuse_ambiguous(line)
        except (ValueError, RecursionError) as error:
            entry, extra = _with_unknown_keys(line, error)
        slots = entry.slots
        services = entry.services
        if services is None and entry.topic_switch is None and extra is None:
            metadata = None
        else:
            metadata = _encode(_Metadata(services, entry.topic_switch))
            if extra:
                metadata = _encode({**_decode_object(metadata), **extra})
        turn = entry.turn
        return (
            _encode(
                Turn(
                    entry.tenant,
                    entry.session,
                    entry.role,
                    turn if type(turn) is str else str(turn),
                    entry.text,
                    slots=None if slots is None else self._difference(entry, slots),
                    intent=entry.intent,
                    time=entry.ts_ms,
                    metadata=None if metadata is None else Raw(metadata),
                )
            ),
        )

    def _difference(self, entry: _Line, slots: dict[str, Raw]) -> Slots | None:
        """Return what the snapshot changes, and remember it."""
        now = slots
        if _NULL in now.values():  # null = absent, here as everywhere
            now = {name: value for name, value in now.items() if value != _NULL}
        turn = entry.turn
        name = (entry.tenant, entry.session)
        told = self._sessions.get(name)
        if told is None or turn in (0, "0"):
            told = self._sessions[name] = {}
        changed: dict[str, Raw] = {}
        gone: list[str] = []
        if entry.tenant in BY_SERVICE:
            for service, part in _by_service(now, entry.services or ()).items():
                _compare(told, service, turn, part, changed, gone)
        else:
            _compare(told, entry.role, turn, now, changed, gone)
            if entry.tenant not in SET_AND_DELETE:
                gone = []
        if not changed and not gone:
            return None
        return Slots(changed or None, gone or None)


def _compare(
    told: dict[str, _Told],
    kind: str,
    turn: int | str,
    now: _Snapshot,
    changed: dict[str, Raw],
    gone: list[str],
) -> None:
    """Add what a snapshot changes of the last one of its kind; remember it."""
    last = told.get(kind)
    if last is None:
        before = _NOTHING
    else:
        before = last.before if last.turn == turn else last.now
    told[kind] = _Told(turn, before, now)
    if not before:
        changed.update(now)
    elif before != now:
        changed.update(
            {name: value for name, value in now.items() if before.get(name) != value}
        )
        gone.extend([name for name in before if name not in now])


def _by_service(
    now: _Snapshot, services: list[str] | tuple[()]
) -> dict[str, _Snapshot]:
    """Divide `Service_1.slot` by service; a named one without slots is empty."""
    parts: dict[str, _Snapshot] = {service: {} for service in services}
    for name, value in now.items():
        parts.setdefault(name.partition(".")[0], {})[name] = value
    return parts


def _with_unknown_keys(
    line: bytes, error: Exception
) -> tuple[_Line, dict[str, Raw] | None]:
    """Read a line again, its unknown keys apart from the known ones."""
    try:
        refuse_ambiguous(line)
        whole = _decode_object(line)
        extra = {key: whole[key] for key in whole if key not in _LINE_FIELDS}
        if not extra:
            raise error
        known = {key: whole[key] for key in whole if key in _LINE_FIELDS}
        return _decode(_encode(known)), extra
    except (ValueError, RecursionError) as fault:
        raise refused(line, fault) from fault
