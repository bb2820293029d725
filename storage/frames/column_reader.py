"""From the columns of a segment back to canonical records, all or one."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, cast

import msgspec
from msgspec import Raw

from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.frames.columns import (
    NO_TEXT,
    NULL_TEXT,
    UUID_BYTES,
    Columns,
    Ids,
    Run,
    Time,
    columns_of,
    uuid_text,
)
from turnstate.storage.frames.operations import DECODE_ERRORS

_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode
_decode_columns: Final = msgspec.msgpack.Decoder(Columns).decode


class ColumnReader:
    """Give back records, all of them or one without the others.

    Raises:
        CorruptDataError: the columns contradict one another.
    """

    __slots__ = (
        "_begins",
        "_columns",
        "_ends",
        "_roles",
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
        self._roles = [b"\xa1r" + _encode(role) for role in columns.roles]
        self._times = _sums(columns.times)
        if not self._agrees():
            raise CorruptDataError("the columns of a segment contradict one another")

    def _agrees(self) -> bool:
        columns = self._columns
        stored = len(columns.lengths)
        return (
            stored
            == len(columns.rests)
            == len(columns.role_of)
            == len(columns.times)
            == self._begins[-1]
            and (self._ends[-1] if self._ends else 0) == len(columns.texts)
            and min(columns.lengths, default=0) >= NO_TEXT
            and all(
                run.count > 0 and _id_count(run.ids) in (run.count, None)
                for run in columns.runs
            )
            and max(columns.role_of, default=-1) < len(columns.roles)
            and all(0 <= place < self.count for place in self._whole)
            and len(self._whole) == len(columns.whole)
        )

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
        return self._stored(self._columns.runs[run], place - self._begins[run], place)

    def _stored(self, run: Run, at: int, place: int) -> bytes:
        counter, replica = run.counter + at, run.replica
        seen: Any = run.seen
        parents: Any = run.parents
        if at:
            seen = {**seen, replica: counter - 1}
            parents = ((replica, counter - 1),)
        ids = run.ids
        turn_id = None if ids is None else _turn_id(ids, at)
        return _encode(
            (
                replica,
                counter,
                run.lamport + at,
                seen,
                run.incarnation,
                parents,
                run.branch,
                turn_id,
                self._times[place],
                Raw(self._body(place)),
            )
        )

    def _body(self, place: int) -> bytes:
        columns = self._columns
        role = self._roles[columns.role_of[place]]
        count, rest = _rest_of(bytes(columns.rests[place]))
        length = columns.lengths[place]
        if length == NO_TEXT:
            return b"\xde%b%b%b" % ((count + 1).to_bytes(2, "big"), role, rest)
        header = (count + 2).to_bytes(2, "big")
        if length == NULL_TEXT:
            return b"\xde%b%b\xa1c\xc0%b" % (header, role, rest)
        end = self._ends[place]
        return b"\xde%b%b\xa1c%b%b%b" % (
            header,
            role,
            _text_header(length),
            columns.texts[end - length : end],
            rest,
        )


def _id_count(ids: Ids) -> int | None:
    """Return for how many turns there are ids, None = for any number."""
    if isinstance(ids, bytes):
        return len(ids) // UUID_BYTES if len(ids) % UUID_BYTES == 0 else -1
    if isinstance(ids, dict):
        return None if len(ids) == 1 else -1
    return len(ids) if isinstance(ids, list) else None


def _turn_id(
    ids: int | dict[str, int] | bytes | list[str | None], at: int
) -> str | None:
    if isinstance(ids, int):
        return str(ids + at)
    if isinstance(ids, list):
        return ids[at]
    if isinstance(ids, bytes):
        return uuid_text(ids[UUID_BYTES * at : UUID_BYTES * (at + 1)])
    ((prefix, number),) = ids.items()
    return f"{prefix}{number + at}"


def gives_back(record: bytes) -> bool:
    """Say whether columns give back a record, bit for bit."""
    try:
        columns = _decode_columns(_encode(columns_of([record])))
        return ColumnReader(columns).records() == [record]
    except (*DECODE_ERRORS, CorruptDataError):
        return False


def _text_header(length: int) -> bytes:
    if length < 32:
        return bytes((0xA0 | length,))
    if length < 1 << 8:
        return bytes((0xD9, length))
    if length < 1 << 16:
        return b"\xda" + length.to_bytes(2, "big")
    return b"\xdb" + length.to_bytes(4, "big")


def _rest_of(rest: bytes) -> tuple[int, bytes]:
    """Return how many pairs a rest holds, and their bytes."""
    first = rest[0]
    if first & 0xF0 == 0x80:
        return first & 0x0F, rest[1:]
    if first != 0xDE:
        raise CorruptDataError(f"a body column holds no map but {first:#x}")
    return int.from_bytes(rest[1:3], "big"), rest[3:]


def _sums(differences: Sequence[Time]) -> list[Time]:
    if set(map(type, differences)) == {int}:
        return list(accumulate(cast("Sequence[int]", differences)))
    time = 0
    result: list[Time] = []
    for value in differences:
        if type(value) is int:
            time += value
            result.append(time)
        else:
            result.append(value)
    return result
