"""Walk the embedded log from any offset: which operation came from which record."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from turnstate.agents.session.recorded import FIRST_BYTE, arrival_of_recorded
from turnstate.schemas.draft import Draft
from turnstate.schemas.errors import (
    CorruptDataError,
    InvalidInputError,
    TurnstateError,
)
from turnstate.schemas.ids import SessionName
from turnstate.schemas.limits import SEGMENT_TURNS
from turnstate.schemas.operation import Op
from turnstate.schemas.position import Position
from turnstate.schemas.wire.turn_bytes import draft_from_bytes
from turnstate.storage.session_reader import chunks
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm.tables import LOG
from turnstate.streams.embedded.engine import Engine
from turnstate.streams.embedded.events import Place
from turnstate.streams.steady import steadily

SESSIONS_HELD_MAX: Final = 16_384
"""Of so many sessions a walk remembers where it stands; others it looks up."""

_OFFSET_BYTES: Final = 8


class Found(NamedTuple):
    """An operation and the log offset after which a walk resumes behind it."""

    offset: int
    key: bytes
    place: Place
    op: Op


class _Rest(NamedTuple):
    """What is left of one frame, or of the segments that were sealed together.

    Attributes:
        first: The least offset that its operations came from.
        last: The greatest.
        ops: (version, operation) in order.
    """

    first: int
    last: int
    ops: deque[tuple[int, Op]]


class _Stand:
    """How far a walk has come in one session."""

    __slots__ = ("incarnation", "rest", "version")

    def __init__(self, incarnation: int, version: int) -> None:
        self.incarnation = incarnation
        self.version = version
        self.rest: _Rest | None = None

    def taken(self) -> tuple[Place, Op]:
        """Take the next operation."""
        assert self.rest is not None
        self.version, op = self.rest.ops.popleft()
        return Place(self.incarnation, self.version), op


def log_rows(engine: Engine, after: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield (first offset, records) of each chunk with offsets above `after`.

    Raises:
        InvalidInputError: those offsets were trimmed (code `trimmed`).
        CorruptDataError: a chunk is damaged.
    """
    wanted = after + 1
    if wanted >= engine.log.end:
        return
    start = _chunk_start(engine, wanted)
    if start is None:
        first = next(engine.store.rows(LOG), None)
        kept = int.from_bytes(first[0], "big") if first else engine.log.end
        if after >= 0:
            raise InvalidInputError(
                f"the log begins at offset {kept}, the token is at {after}",
                field="token",
                hint="begin at 0, or read the state of the sessions",
                code="trimmed",
            )
        start = kept
    for row_key, row in engine.store.rows(LOG, b"", _offset_key(start)):
        offset = int.from_bytes(row_key, "big")
        yield offset, engine.log.unpacked(row_key, row)


def _chunk_start(engine: Engine, wanted: int) -> int | None:
    """Return the offset of the chunk that holds an offset, None if it is gone."""
    span = 1
    while True:
        low = max(0, wanted - span)
        best: int | None = None
        for row_key, _ in engine.store.rows(LOG, b"", _offset_key(low)):
            offset = int.from_bytes(row_key, "big")
            if offset > wanted:
                break
            best = offset
        if best is not None or not low:
            return best
        span *= 16


def _offset_key(offset: int) -> bytes:
    return offset.to_bytes(_OFFSET_BYTES, "big")


class LogWalk:
    """Tell, record by record, which operations the log became.

    A session's operations stand in log order, so the next operation of a
    session belongs to the next record that says the same. Where a session
    stood at an offset follows from the positions of its frames and segments.

    Args:
        engine: Whose log and store.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stands: OrderedDict[bytes, _Stand] = OrderedDict()

    def take(self, offset: int, raw: bytes) -> list[Found]:
        """Return what became of the record at an offset, mostly one operation.

        Records have to come in order of offset. An operation that no record
        explains (its record is erased) comes with the next one of its frame.
        """
        draft = draft_of_record(raw, offset)
        return [] if draft is None else self.take_draft(offset, draft)

    def take_draft(self, offset: int, draft: Draft) -> list[Found]:
        """Return what became of a record that is decoded already; see `take`."""
        key = draft.key
        stand = steadily(
            self._engine, key, lambda stored: self._stand(key, stored, offset)
        )
        if stand is None:
            return []
        found = self._advance(key, stand, offset, draft)
        return [
            # Of several for one record only the last may say that it is done.
            Found(offset - (at < len(found)), key, place, op)
            for at, (place, op) in enumerate(found, start=1)
        ]

    def _stand(
        self, key: bytes, stored: StoredHead | None, offset: int
    ) -> _Stand | None:
        """Return where a session stands."""
        if stored is None or stored.is_tombstone:
            self._stands.pop(key, None)
            return None
        stand = self._stands.get(key)
        if stand is None or stand.incarnation != stored.head.incarnation:
            stand = self._found_stand(key, stored, offset)
            self._stands[key] = stand
            if len(self._stands) > SESSIONS_HELD_MAX:
                self._stands.popitem(last=False)
        self._stands.move_to_end(key)
        return stand

    def _advance(
        self, key: bytes, stand: _Stand, offset: int, draft: Draft
    ) -> list[tuple[Place, Op]]:
        """Take the operations that a record explains out of what is left."""
        found: list[tuple[Place, Op]] = []
        explained = False
        while stand.rest is not None or self._read_on(key, stand):
            rest = stand.rest
            assert rest is not None
            if offset < rest.first:
                break
            ops = rest.ops
            if not explained and _explains(draft, *ops[0]):
                explained = True
                found.append(stand.taken())
            if offset >= rest.last:
                # Past its last record: what is left has no record any more.
                found += (stand.taken() for _ in range(len(ops)))
            if ops:
                break
            stand.rest = None
        return found

    def _read_on(self, key: bytes, stand: _Stand) -> bool:
        """Read the frame or segment after where a session stands, if any."""

        def read(stored: StoredHead | None) -> _Rest | None:
            if (
                stored is None
                or stored.head.incarnation != stand.incarnation
                or stored.head.version <= stand.version
            ):
                return None
            return next(_rests(self._engine, key, stored, stand.version, whole=False))

        stand.rest = steadily(self._engine, key, read)
        return stand.rest is not None

    def _found_stand(self, key: bytes, stored: StoredHead, offset: int) -> _Stand:
        """Find where a session stood before an offset: first in its frames.

        What was sealed together bears the same positions, so the search goes
        back to what ends before the offset.
        """
        stand = _Stand(stored.head.incarnation, stored.head.version)
        after, back = stored.sealed_version, 4 * SEGMENT_TURNS
        while after:
            first = next(_rests(self._engine, key, stored, after, whole=True), None)
            if first is not None and first.last < offset:
                break
            after, back = max(0, after - back), back * 4
        for rest in _rests(self._engine, key, stored, after, whole=True):
            if rest.last >= offset:
                stand.rest = rest
                stand.version = rest.ops[0][0] - 1
                if rest.first < offset:
                    self._skip(key, stand, rest.first, offset)
                break
        return stand

    def _skip(self, key: bytes, stand: _Stand, first: int, offset: int) -> None:
        """Match the records of a session that lie before an offset."""
        letters = SessionName.from_key(key).session.encode()
        for start, records in log_rows(self._engine, first - 1):
            for at, raw in enumerate(records, start=start):
                if at >= offset:
                    return
                if at < first or not (letters in raw or b"\\" in raw):
                    continue
                draft = draft_of_record(raw, at)
                if draft is not None and draft.key == key:
                    self._advance(key, stand, at, draft)


def _rests(
    engine: Engine,
    key: bytes,
    stored: StoredHead,
    after_version: int,
    *,
    whole: bool,
) -> Iterator[_Rest]:
    """Yield what leads above a version; `whole` = the first from its beginning.

    Raises:
        CorruptDataError: something between is missing.
    """
    identity = engine.log.identity
    have = after_version
    ops: deque[tuple[int, Op]] = deque()
    for chunk in chunks(engine.store, key, stored, after_version):
        start = chunk.header.from_version
        if start > have:
            break
        skipped = 0 if whole and have == after_version else have - start
        ops += (
            (version, Op.decode(record))
            for version, record in enumerate(
                chunk.records[skipped:], start=start + skipped + 1
            )
        )
        have = max(have, chunk.header.to_version)
        # A frame names its log by the first bytes of the identity.
        mine = [each for each in chunk.positions if identity.startswith(each.log)]
        # Of segments sealed together only the last has positions, those of all.
        if ops and mine:
            first = min(each.first[0] for each in mine)
            yield _Rest(first, max(each.last[0] for each in mine), ops)
            ops = deque()
    if ops:
        yield _Rest(0, engine.log.end, ops)
    if have < stored.head.version:
        raise CorruptDataError(
            f"version {have + 1} of the session is missing",
            field=f"version {have + 1}",
        )


def _explains(draft: Draft, version: int, op: Op) -> bool:
    return (
        draft.turn_id == op.turn_id
        and draft.content_hash == op.content_hash
        and (draft.stamp is None or draft.stamp.dot == op.dot)
        and (draft.if_version is None or draft.if_version == version - 1)
    )


def draft_of_record(raw: bytes, offset: int) -> Draft | None:
    """Return what a record says, None where it was refused or taken out."""
    if not raw:
        return None
    try:
        if raw[:1] == FIRST_BYTE:
            return arrival_of_recorded(raw, Position(b"", 0, offset)).draft
        return draft_from_bytes(raw)
    except TurnstateError:
        return None
