"""The stored form of a segment: operations taken apart into columns.

A record repeats what the one before it implies: the next counter, the next
Lamport time, itself as parent. Such a *run* is stored once. What is left lies
column by column, like beside like, which LZ4 shortens best (measured over the
corpora: 0.99 of the text against 1.23 for whole records, docs/bench.md). The
canonical bytes come back exactly (`column_reader`); a record that would not
stands whole.
"""

from collections.abc import Container, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from turnstate.storage.frames.operations import DECODE_ERRORS

Seen = dict[str, int | list[int]]
Parents = list[tuple[str, int] | str]
Ids = int | dict[str, int] | bytes | list[str | None] | None
Time = int | str | None

NULL_TEXT, NO_TEXT = -1, -2
"""Lengths in the text column of `content: null` and of no content."""


class Run(Struct, array_like=True, frozen=True, gc=False):
    """Operations of which each follows from the one before.

    The fields are those of the first. Operation k > 0 has counter and Lamport
    time + k, the one before it as only parent, and has seen what the first has
    and its replica up to the one before it.

    Attributes:
        ids: None = none has an id; a number n = the ids are n, n + 1, … in
            decimal; {prefix: n} = the same after a prefix; bytes = they are
            UUIDs in lower case, 16 bytes each; else one a turn.
    """

    count: int
    replica: str
    counter: int
    lamport: int
    seen: Seen
    incarnation: int
    parents: Parents
    branch: str | None
    ids: Ids


class Columns(Struct, array_like=True, frozen=True, gc=False):
    """The operations of a segment, in version order, column by column.

    Attributes:
        runs: The envelopes.
        times: Of each: an integer as the difference to the last integer
            before it (to 0 at first), anything else as it is.
        roles: The distinct roles.
        role_of: Of each: its place in `roles`, a byte.
        rests: Of each: the map of its body without role and content.
        lengths: Of each: bytes of its text, or `NULL_TEXT`, or `NO_TEXT`.
        texts: All texts, one after another.
        whole: (place, record) of those that are not in the columns.
    """

    runs: list[Run]
    times: list[Time]
    roles: list[str]
    role_of: bytes
    rests: list[Raw]
    lengths: list[int]
    texts: bytes
    whole: list[tuple[int, bytes]]


class _Envelope(Struct, array_like=True, frozen=True, gc=False):
    replica: str
    counter: int
    lamport: int
    seen: Seen
    incarnation: int
    parents: Parents
    branch: str | None
    turn_id: str | None
    time: Time
    body: Raw


class _Start(Struct, frozen=True, gc=False):
    r: str
    c: str | None | UnsetType = UNSET


_Part = tuple[_Envelope, int, int, bytes, bytes]
"""An operation taken apart: envelope, role, length, text, rest of the body."""

_decode_envelope: Final = msgspec.msgpack.Decoder(_Envelope).decode
_decode_start: Final = msgspec.msgpack.Decoder(_Start).decode

_MAP16: Final = b"\xde"
_ROLES_MAX: Final = 256
_DIGITS: Final = "0123456789"
_COUNTED_DIGITS: Final = 15
"""The end of an id that is counted: with these a number stays exact."""

UUID_BYTES: Final = 16
UUID_TEXT_CHARACTERS: Final = 36


def columns_of(records: Sequence[bytes], whole: Container[int] = ()) -> Columns:
    """Return columns for some records.

    They give back every record that was written canonically. Whether they do
    is for the caller to see: reading all of them back once costs less than
    trying each in advance (`column_reader.gives_back`).

    Args:
        records: Canonical records in version order.
        whole: The places of those that are to stand whole.
    """
    roles: dict[str, int] = {}
    parts: list[_Part] = []
    kept: list[tuple[int, bytes]] = []
    for place, record in enumerate(records):
        part = None if place in whole else _taken_apart(record, roles)
        if part is None:
            kept.append((place, record))
        else:
            parts.append(part)
    envelopes = [part[0] for part in parts]
    return Columns(
        runs=_runs_of(envelopes),
        times=_differences([envelope.time for envelope in envelopes]),
        roles=list(roles),
        role_of=bytes([part[1] for part in parts]),
        rests=[Raw(part[4]) for part in parts],
        lengths=[part[2] for part in parts],
        texts=b"".join([part[3] for part in parts]),
        whole=kept,
    )


def _taken_apart(record: bytes, roles: dict[str, int]) -> _Part | None:
    """Return the parts of a record, None where it has another shape."""
    try:
        envelope = _decode_envelope(record)
        body = bytes(envelope.body)
        start = _decode_start(body)
    except DECODE_ERRORS:
        return None
    content = start.c
    text = b""
    begin = 5 + _string_bytes(len(start.r.encode()))
    if content is UNSET:
        length, pairs = NO_TEXT, 1
    elif content is None:
        length, pairs = NULL_TEXT, 2
        begin += 3
    else:
        text = content.encode()
        length, pairs = len(text), 2
        begin += 2 + _string_bytes(length)
    count = int.from_bytes(body[1:3], "big") - pairs
    if body[:1] != _MAP16 or count < 0:
        return None
    role = roles.setdefault(start.r, len(roles))
    if role >= _ROLES_MAX:
        del roles[start.r]
        return None
    return envelope, role, length, text, _map_header(count) + body[begin:]


def _string_bytes(length: int) -> int:
    """Return how many bytes a string of some length takes, header and all."""
    if length < 32:
        return length + 1
    if length < 1 << 8:
        return length + 2
    return length + (3 if length < 1 << 16 else 5)


def _map_header(count: int) -> bytes:
    return bytes((0x80 | count,)) if count < 16 else _MAP16 + count.to_bytes(2, "big")


def _differences(times: Sequence[Time]) -> list[Time]:
    before = 0
    result: list[Time] = []
    for time in times:
        if type(time) is int:
            result.append(time - before)
            before = time
        else:
            result.append(time)
    return result


def _runs_of(envelopes: Sequence[_Envelope]) -> list[Run]:
    runs: list[Run] = []
    begin = 0
    for end in range(1, len(envelopes) + 1):
        if end < len(envelopes) and _follows(
            envelopes[begin], end - begin, envelopes[end]
        ):
            continue
        first = envelopes[begin]
        runs.append(
            Run(
                end - begin,
                first.replica,
                first.counter,
                first.lamport,
                first.seen,
                first.incarnation,
                first.parents,
                first.branch,
                _ids_of([envelope.turn_id for envelope in envelopes[begin:end]]),
            )
        )
        begin = end
    return runs


def _follows(first: _Envelope, at: int, other: _Envelope) -> bool:
    """Say whether the operation `at` places into a run would be this one."""
    replica, before = first.replica, first.counter + at - 1
    if (
        other.counter != before + 1
        or other.lamport != first.lamport + at
        or other.replica != replica
        or other.branch != first.branch
        or other.incarnation != first.incarnation
        or other.parents != [(replica, before)]
    ):
        return False
    seen = other.seen
    if len(seen) == 1:
        return seen.get(replica) == before and first.seen.keys() <= {replica}
    return seen == {**first.seen, replica: before}


def _ids_of(ids: list[str | None]) -> Ids:
    if not any(ids):
        return None if None in ids else ids
    packed = [_packed_uuid(turn_id) for turn_id in ids]
    if None not in packed:
        return b"".join(filter(None, packed))
    first = ids[0] or ""
    digits = first[len(first.rstrip(_DIGITS)) :][-_COUNTED_DIGITS:]
    prefix = first[: len(first) - len(digits)]
    if digits:
        number = int(digits)
        if ids == [f"{prefix}{number + at}" for at in range(len(ids))]:
            return {prefix: number} if prefix else number
    return ids


def _packed_uuid(turn_id: str | None) -> bytes | None:
    """Return the 16 bytes of a UUID, None where its text would differ."""
    if turn_id is None or len(turn_id) != UUID_TEXT_CHARACTERS:
        return None
    try:
        packed = bytes.fromhex(turn_id.replace("-", ""))
    except ValueError:
        return None
    return packed if uuid_text(packed) == turn_id else None


def uuid_text(packed: bytes) -> str:
    """Return the usual text of the 16 bytes of a UUID.

    Example:
        >>> uuid_text(bytes(16))
        '00000000-0000-0000-0000-000000000000'
    """
    text = packed.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
