"""The stored form of a segment: operations taken apart into columns.

A record repeats what the one before it implies: the next counter, the next
Lamport time, itself as parent. Such a *run* is stored once. What is left lies
column by column, like beside like, which LZ4 shortens best (measured over the
corpora: 0.99 of the text against 1.23 for whole records, docs/bench.md). The
canonical bytes come back exactly; a record that would not stands whole.
"""

from bisect import bisect_right
from collections.abc import Container, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.frames.operations import DECODE_ERRORS

Seen = dict[str, int | list[int]]
Parents = list[tuple[str, int] | str]
Ids = int | None | list[str | None]
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
            decimal; else one a turn.
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

_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode
_decode_columns: Final = msgspec.msgpack.Decoder(Columns).decode
_decode_envelope: Final = msgspec.msgpack.Decoder(_Envelope).decode
_decode_start: Final = msgspec.msgpack.Decoder(_Start).decode

_MAP16: Final = b"\xde"
_ROLE_KEY: Final = b"\xa1r"
_CONTENT_KEY: Final = b"\xa1c"
_ROLES_MAX: Final = 256


def columns_of(records: Sequence[bytes], whole: Container[int] = ()) -> Columns:
    """Return columns for some records.

    They give back every record that was written canonically. Whether they do
    is for the caller to see: reading all of them back once costs less than
    trying each in advance (`gives_back`).

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


def gives_back(record: bytes) -> bool:
    """Say whether columns give back a record, bit for bit."""
    try:
        columns = _decode_columns(_encode(columns_of([record])))
        return ColumnReader(columns).records() == [record]
    except (*DECODE_ERRORS, CorruptDataError):
        return False


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


class _Place(NamedTuple):
    """Where an operation stands: the start of its run, and what differs."""

    start: Run
    at: int
    counter: int
    lamport: int
    turn_id: str | None


def _record(place: _Place, time: Time, body: bytes) -> bytes:
    start = place.start
    seen: Any = start.seen
    parents: Any = start.parents
    if place.at:
        before = place.counter - 1
        seen = {**seen, start.replica: before}
        parents = ((start.replica, before),)
    return _encode(
        (
            start.replica,
            place.counter,
            place.lamport,
            seen,
            start.incarnation,
            parents,
            start.branch,
            place.turn_id,
            time,
            Raw(body),
        )
    )


def _body(
    role: str, text: bytes | None | UnsetType, count: int, rest: bytes
) -> bytes:
    if text is UNSET:
        return b"%b%b%b%b%b" % (
            _MAP16,
            (count + 1).to_bytes(2, "big"),
            _ROLE_KEY,
            _encode(role),
            rest,
        )
    return b"%b%b%b%b%b%b%b" % (
        _MAP16,
        (count + 2).to_bytes(2, "big"),
        _ROLE_KEY,
        _encode(role),
        _CONTENT_KEY,
        b"\xc0" if text is None else _text_header(len(text)) + text,
        rest,
    )


def _text_header(length: int) -> bytes:
    if length < 32:
        return bytes((0xA0 | length,))
    if length < 1 << 8:
        return bytes((0xD9, length))
    if length < 1 << 16:
        return b"\xda" + length.to_bytes(2, "big")
    return b"\xdb" + length.to_bytes(4, "big")


def _map_header(count: int) -> bytes:
    return bytes((0x80 | count,)) if count < 16 else _MAP16 + count.to_bytes(2, "big")


def _rest_of(rest: bytes) -> tuple[int, bytes]:
    """Return how many pairs a rest holds, and their bytes."""
    first = rest[0]
    if first & 0xF0 == 0x80:
        return first & 0x0F, rest[1:]
    if first != 0xDE:
        raise CorruptDataError(f"a body column holds no map but {first:#x}")
    return int.from_bytes(rest[1:3], "big"), rest[3:]


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


def _sums(differences: Sequence[Time]) -> list[Time]:
    time = 0
    result: list[Time] = []
    for value in differences:
        if type(value) is int:
            time += value
            result.append(time)
        else:
            result.append(value)
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
    first = ids[0]
    if first is None:
        return None if not any(ids) else ids
    if first.isascii() and first.isdigit() and len(first) < 16:
        number = int(first)
        if ids == [str(number + at) for at in range(len(ids))]:
            return number
    return ids


class ColumnReader:
    """Give back records, all of them or one without the others.

    Raises:
        CorruptDataError: by every method, where the columns contradict one
            another.
    """

    __slots__ = (
        "_begins",
        "_columns",
        "_ends",
        "_places",
        "_times",
        "_whole",
        "count",
    )

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._whole = dict(columns.whole)
        stored = len(columns.lengths)
        self.count = stored + len(self._whole)
        self._begins = [0, *accumulate([run.count for run in columns.runs])]
        self._ends = list(accumulate([max(size, 0) for size in columns.lengths]))
        self._times = _sums(columns.times)
        self._places: list[int] | None = None
        if not (
            stored
            == len(columns.rests)
            == len(columns.role_of)
            == len(columns.times)
            == self._begins[-1]
            and (self._ends[-1] if self._ends else 0) == len(columns.texts)
            and all(run.count > 0 for run in columns.runs)
            and max(columns.role_of, default=-1) < len(columns.roles)
            and all(0 <= place < self.count for place in self._whole)
            and len(self._whole) == len(columns.whole)
        ):
            raise CorruptDataError("the columns of a segment contradict one another")

    def records(self) -> list[bytes]:
        """Return all records in version order."""
        columns = self._columns
        stored = [
            self._stored(run, at, begin + at)
            for run, begin in zip(columns.runs, self._begins, strict=False)
            for at in range(run.count)
        ]
        for place, record in sorted(self._whole.items()):
            stored.insert(place, record)
        return stored

    def record(self, place: int) -> bytes:
        """Return one record, 0 being the first."""
        if not 0 <= place < self.count:
            raise IndexError(place)
        if self._whole:
            if place in self._whole:
                return self._whole[place]
            place -= sum(1 for other in self._whole if other < place)
        run = bisect_right(self._begins, place) - 1
        return self._stored(
            self._columns.runs[run], place - self._begins[run], place
        )

    def _stored(self, run: Run, at: int, place: int) -> bytes:
        columns = self._columns
        ids = run.ids
        turn_id: str | None = None
        if isinstance(ids, int):
            turn_id = str(ids + at)
        elif ids is not None and at < len(ids):
            turn_id = ids[at]
        length = columns.lengths[place]
        text: bytes | None | UnsetType
        if length >= 0:
            end = self._ends[place]
            text = columns.texts[end - length : end]
        else:
            text = None if length == NULL_TEXT else UNSET
        return _record(
            _Place(run, at, run.counter + at, run.lamport + at, turn_id),
            self._times[place],
            _body(
                columns.roles[columns.role_of[place]],
                text,
                *_rest_of(bytes(columns.rests[place])),
            ),
        )
