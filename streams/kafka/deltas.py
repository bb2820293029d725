"""The feed: follow one session or all through `deltas`, each operation once."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import structlog
from aiokafka import TopicPartition

from turnstate.schemas.errors import CorruptDataError, NotFoundError, UnavailableError
from turnstate.schemas.ids import SessionName, checked_id
from turnstate.schemas.operation import Op
from turnstate.storage.session_view import ShownTurn
from turnstate.streams.documents import Document, turn_document
from turnstate.streams.embedded.events import Place, operation_document
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.delta_records import Delta, delta_of
from turnstate.streams.kafka.delta_tokens import (
    Reached,
    log_token,
    read_log_token,
    read_session_token,
    session_token,
)
from turnstate.streams.kafka.partitioning import partition_of
from turnstate.streams.kafka.topic_ids import topic_id
from turnstate.streams.kafka.topic_reader import TopicReader, topic_reader
from turnstate.streams.kafka.topics import Topics

SESSIONS_KNOWN_MAX: Final = 1 << 20
"""Sessions whose version a subscriber of all remembers, the latest ones."""

_STATE_TRIES: Final = 20
_STATE_PAUSE_S: Final = 0.25
"""A reader of the state may be a little behind the feed."""

StateOf = Callable[[str, str], Awaitable[Document]]
"""Given tenant and session, answers the state in the shape of design §13."""

log: Final[Any] = structlog.get_logger(__name__)


class _Told(NamedTuple):
    """An event before it has its token.

    Attributes:
        place: Where the session is after it.
        document: The event.
        done: Operations of the frame that are told by then.
    """

    place: Place
    document: Document
    done: int


class Deltas:
    """Tell what becomes of sessions, from any token, each operation once.

    An event has the shape of the embedded feed: tenant, session, incarnation,
    version, token, and the turn or operation. Where frames are missing, since
    the topic keeps them for a time only, an event has the session's `state`
    in place of a turn, and the feed goes on from the version of that state.

    A worker that crashed sends frames again. What was told is known by its
    version, so it is told once; only a subscriber of all who resumes in the
    middle may be told once more what such a frame repeats.

    Text that is redacted later was told before; the redaction is an event.

    Args:
        settings: Where the brokers are, and the names.
        state_of: Asked for the state of a session in which there is a gap.
    """

    def __init__(self, settings: ClusterSettings, *, state_of: StateOf) -> None:
        self._settings = settings
        self._topic = Topics.of(settings).deltas
        self._state_of = state_of

    async def session(
        self,
        tenant: str,
        session: str,
        token: str | None = None,
        *,
        follow: bool = True,
    ) -> AsyncGenerator[Document]:
        """Yield the events of a session after a token, in version order.

        Args:
            tenant: The tenant.
            session: The session; it need not be there yet.
            token: Of the last event that was seen, 0 for the beginning; None
                = what comes from now on.
            follow: Whether to wait for what comes, or to end at the newest.

        Raises:
            InvalidInputError: the token is none.
            NotFoundError: there is no topic `deltas`.
            UnavailableError: no broker answers, or the state is too far behind.
        """
        name = SessionName(checked_id(tenant, "tenant"), checked_id(session, "session"))
        key = name.key()
        at = TopicPartition(self._topic, partition_of(key, self._settings.partitions))
        identity = await topic_id(self._settings, self._topic)
        async with _reading(self._settings, [at]) as reader:
            follower = _Follower(self._state_of)
            if token is None:
                reader.seek(await reader.ends([at]))
            else:
                place, offset = read_session_token(token, identity)
                follower.known[key] = place
                begin = (await reader.begins([at]))[at]
                reader.seek({at: max(offset or 0, begin)})
            async for record in _records(reader, [at], follow):
                if record.key != key:
                    continue
                for told in await follower.events(record):
                    resume = session_token(told.place, identity, record.offset)
                    yield {**told.document, "token": resume}

    async def all(
        self, token: str | None = None, *, follow: bool = True
    ) -> AsyncGenerator[Document]:
        """Yield the events of every session after a token.

        Those of one session come in version order; sessions of different
        partitions in any.

        Args:
            token: Of the last event that was seen, 0 for the beginning; None
                = what comes from now on.
            follow: Whether to wait for what comes, or to end at the newest.

        Raises:
            InvalidInputError: the token is none, or of another topic.
            NotFoundError: there is no topic `deltas`.
            UnavailableError: no broker answers, or the state is too far behind.
        """
        partitions = range(self._settings.partitions)
        places = [TopicPartition(self._topic, partition) for partition in partitions]
        identity = await topic_id(self._settings, self._topic)
        async with _reading(self._settings, places) as reader:
            begins, ends = await reader.begins(places), await reader.ends(places)
            if token is None:
                reached = {at.partition: Reached(ends[at]) for at in places}
            else:
                reached = read_log_token(token, identity, len(partitions))
            follower = _Follower(self._state_of)
            for at in places:
                resumed = reached[at.partition]
                if token is not None and resumed.offset <= begins[at]:
                    # All that is kept is read: what is not seen is a gap.
                    follower.whole.add(at.partition)
                if resumed.offset < begins[at]:
                    reached[at.partition] = resumed = Reached(begins[at])
                follower.partly[at.partition] = resumed
                reader.seek({at: resumed.offset})
            async for record in _records(reader, places, follow):
                for told in await follower.events(record):
                    reached[record.partition] = Reached(record.offset, told.done)
                    yield {**told.document, "token": log_token(reached, identity)}
                reached[record.partition] = Reached(record.offset + 1)


class _Follower:
    """Make events of frames: no overlap, and a state where there is a gap.

    Attributes:
        known: How far each session was told, the last told last.
        whole: Partitions that are read from the first record that is kept: a
            session that is not known there is at version 0.
        partly: Of each partition, the record that was told in part.
    """

    def __init__(self, state_of: StateOf) -> None:
        self._state_of = state_of
        self.known: OrderedDict[bytes, Place] = OrderedDict()
        self.whole: set[int] = set()
        self.partly: dict[int, Reached] = {}

    async def events(self, record: Any) -> list[_Told]:
        """Return the events of a record that were not told before."""
        try:
            delta = delta_of(record)
            place = self._place(record, delta)
            top = Place(delta.header.incarnation, delta.header.to_version)
            if place >= top:
                self._remember(delta.key, place)
                return []
            told: list[_Told] = []
            if delta.header.from_version > place.version:
                told, place = await self._bridged(delta, top)
            skip = max(0, place.version - delta.header.from_version)
            told += [_event(delta, at) for at in range(skip, len(delta.records))]
        except CorruptDataError as error:
            # The next frame of the session shows the gap, and it is bridged.
            log.warning(
                "deltas.unreadable",
                partition=record.partition,
                offset=record.offset,
                error=str(error),
            )
            return []
        self._remember(delta.key, max(place, top))
        return told

    def _place(self, record: Any, delta: Delta) -> Place:
        header = delta.header
        place = self.known.get(delta.key)
        partly = self.partly.get(record.partition)
        if partly is not None and partly.offset == record.offset:
            del self.partly[record.partition]
            if place is None and partly.done:
                return Place(header.incarnation, header.from_version + partly.done)
        if place is None:
            whole = record.partition in self.whole
            return Place(header.incarnation, 0 if whole else header.from_version)
        if place.incarnation < header.incarnation:
            return Place(header.incarnation, 0)
        return place

    async def _bridged(self, delta: Delta, top: Place) -> tuple[list[_Told], Place]:
        """Return the event with the state that stands in for missing frames."""
        name = SessionName.from_key(delta.key)
        needed = Place(delta.header.incarnation, delta.header.from_version)
        place = Place(0, 0)
        for _ in range(_STATE_TRIES):
            try:
                state = await self._state_of(*name)
            except NotFoundError:
                return [], top  # erased since: its past is to be told to nobody
            place = Place(state["incarnation"], state["version"])
            if place >= needed:
                document = {**_names(name, place), "state": state}
                told = place.version - delta.header.from_version
                done = min(told, len(delta.records)) if place <= top else 0
                return [_Told(place, document, max(0, done))], place
            await asyncio.sleep(_STATE_PAUSE_S)
        raise UnavailableError(
            f"the state of {name.session!r} is at {place.token()}, the feed at"
            f" {needed.token()}",
            field="session",
            hint="ask a reader that is not behind, and resume by the last token",
            code="state_behind",
        )

    def _remember(self, key: bytes, place: Place) -> None:
        self.known[key] = place
        self.known.move_to_end(key)
        if len(self.known) > SESSIONS_KNOWN_MAX:
            self.known.popitem(last=False)
            # It is not known any more that a session was never heard of.
            self.whole.clear()


@asynccontextmanager
async def _reading(
    settings: ClusterSettings, places: Sequence[TopicPartition]
) -> AsyncGenerator[TopicReader]:
    wait_ms = settings.fetch_max_wait_ms
    async with topic_reader(settings, fetch_max_wait_ms=wait_ms) as reader:
        reader.assign(places)
        yield reader


async def _records(
    reader: TopicReader, places: Sequence[TopicPartition], follow: bool
) -> AsyncGenerator[Any]:
    """Yield records on and on, or up to what is there now."""
    if not follow:
        async for record in reader.until(await reader.ends(places)):
            yield record
        return
    while True:
        for record in await reader.records():
            yield record


def _event(delta: Delta, at: int) -> _Told:
    op = delta.op(at)
    version = delta.header.from_version + at + 1
    place = Place(delta.header.incarnation, version)
    document = _names(SessionName.from_key(delta.key), place)
    document["turn"] = _turn(op, version)
    return _Told(place, document, at + 1)


def _turn(op: Op, version: int) -> Document:
    if op.body.op is not None:
        return operation_document(op, version, hidden=False)
    return turn_document(
        ShownTurn(
            op,
            version,
            edit=None,
            redacted=op.body.hidden is not None,
            answers_to_id=True,
        )
    )


def _names(name: SessionName, place: Place) -> Document:
    return {
        "tenant": name.tenant,
        "session": name.session,
        "incarnation": place.incarnation,
        "version": place.version,
    }
