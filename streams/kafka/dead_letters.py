"""Operate on the topic of dead letters: list, show, send again, discard."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
from aiokafka import TopicPartition
from msgspec import Raw

from turnstate.agents.dead_letters import DeadLetter
from turnstate.schemas.draft import Draft
from turnstate.schemas.errors import (
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    TurnstateError,
)
from turnstate.schemas.wire.turn_bytes import draft_from_bytes, is_protobuf
from turnstate.streams.documents import Document
from turnstate.streams.embedded.letters import letter_document
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.fold_watch import STALL_S, FoldWatch
from turnstate.streams.kafka.letter_records import (
    DISCARDED,
    REDRIVEN,
    KeptLetter,
    LetterId,
    kept_letter,
    settled_offset,
    settling_headers,
)
from turnstate.streams.kafka.producer import TurnProducer
from turnstate.streams.kafka.receipts import Headers, Receipt
from turnstate.streams.kafka.topic_reader import read_whole, topic_reader
from turnstate.streams.kafka.topics import Topics
from turnstate.streams.kafka.turn_headers import JSON_TYPE

ID_OF_REDRIVEN: Final = "redriven:{}"
"""The id that a turn without one gets: its letter's, or that of the first letter."""

_decode_fields: Final = msgspec.json.Decoder(dict[str, Raw]).decode


class ClusterLetters:
    """The dead letters of a cluster, by the method names of a store.

    A letter is settled by a later record of its partition, without a value,
    that names its offset; nothing is removed before the topic's retention.
    A worker that crashed may have written one letter twice: they count as one,
    under the id of the first, and are settled together.

    Args:
        settings: Where the brokers are, and the names.
        stall_s: How long a redrive waits for a worker that does not move.
    """

    def __init__(self, settings: ClusterSettings, *, stall_s: float = STALL_S) -> None:
        self._settings = settings
        self._stall_s = stall_s

    def dead_letters(self) -> Document:
        """Return what was refused, oldest first, without the bytes."""
        return asyncio.run(dead_letters(self._settings))

    def dead_letter(self, name: str) -> DeadLetter:
        """Return one letter with its original bytes; see `dead_letter`."""
        return asyncio.run(dead_letter(self._settings, name)).letter

    def redrive(self, names: Sequence[str] | None = None) -> Document:
        """Send letters again; see `redrive`."""
        return asyncio.run(redrive(self._settings, names, stall_s=self._stall_s))

    def discard(self, names: Sequence[str]) -> Document:
        """Let letters go; see `discard`."""
        return asyncio.run(discard(self._settings, names))


async def dead_letters(settings: ClusterSettings) -> Document:
    """Return what was refused and is not settled, oldest first, without the bytes.

    Raises:
        NotFoundError: there is no topic of dead letters.
        UnavailableError: no broker answers.
    """
    rows: list[Document] = []
    for letter_id, kept in (await _open_letters(settings)).items():
        if isinstance(kept, KeptLetter):
            rows.append(letter_document(letter_id.name(), kept.letter))
        else:
            rows.append(
                {"id": letter_id.name(), "reason": kept.code, "message": str(kept)}
            )
    return {"dead_letters": sorted(rows, key=lambda row: row.get("time") or 0)}


async def dead_letter(settings: ClusterSettings, name: str) -> KeptLetter:
    """Return one letter with its original bytes.

    Raises:
        NotFoundError: there is none of that name, or it is settled.
        CorruptDataError: it cannot be read.
        UnavailableError: no broker answers.
    """
    chosen = _chosen(await _open_letters(settings), [name])
    (kept,) = [kept async for kept in _with_bytes(settings, chosen)]
    return kept


async def redrive(
    settings: ClusterSettings,
    names: Sequence[str] | None = None,
    *,
    wait: bool = True,
    stall_s: float = STALL_S,
) -> Document:
    """Send letters again as they came; None = all that there are.

    A letter is settled once the brokers have the turn. A crash in between
    leaves it open, and the next redrive sends it again: so a turn without an
    id gets one made of the letter's, and the fold answers the second as a
    duplicate. (An erase has no id to be known by: sent twice, it also ends
    what came in between.) What is refused again is a new letter, its attempt
    one higher.

    Args:
        settings: Where the brokers are, and the names.
        names: Which; None = all that can be sent.
        wait: Whether to wait until they are folded and say what became of them.
        stall_s: How long nothing may move meanwhile.

    Returns:
        `{"redriven", "accepted", "duplicates", "dropped", "refused", "cut"}`;
        without waiting, null where it is not known.

    Raises:
        NotFoundError: a named letter is not there; then none is sent.
        InvalidInputError: a named letter holds the beginning of a record only.
        UnavailableError: no broker answers, or no worker moves. What was sent
            by then is settled.
    """
    found = _chosen(await _open_letters(settings), names)
    cut = [kept.id.name() for kept in found if kept.letter.raw_hash is not None]
    if names is not None and cut:
        raise InvalidInputError(
            f"dead letter {cut[0]} holds the beginning of a record only",
            field="id",
            hint="send the record again from where it came, larger parts by reference",
            code="letter_cut",
        )
    whole = [kept for kept in found if kept.letter.raw_hash is None]
    async with topic_reader(settings) as reader:
        watch = FoldWatch(settings, reader)
        await watch.begin()
        producer = TurnProducer(
            settings, replica=True, acknowledged=watch.acknowledged
        )
        async with producer:
            await _send_again(settings, producer, watch, whole)
        if wait:
            await watch.wait(stall_s=stall_s)
    return {
        "redriven": len(whole),
        "accepted": watch.accepted if wait else None,
        "duplicates": watch.duplicates if wait else None,
        "dropped": 0,  # a stamp of an ended life cannot be told from a duplicate
        "refused": watch.refused + watch.conflicts if wait else None,
        "cut": cut,
    }


async def discard(settings: ClusterSettings, names: Sequence[str]) -> Document:
    """Settle letters without sending them.

    Raises:
        NotFoundError: one is not there; then none is settled.
        UnavailableError: no broker answers.
    """
    found = await _open_letters(settings)
    ids = list(dict.fromkeys(LetterId.read(name) for name in names))
    for letter_id in ids:
        _check_there(found, letter_id)
    async with TurnProducer(settings) as producer:
        for letter_id in ids:
            kept = found[letter_id]
            copies = kept.copies if isinstance(kept, KeptLetter) else ()
            await _settle(producer, (letter_id, *copies), DISCARDED)
    return {"discarded": len(ids)}


# -- reading ---------------------------------------------------------------------------


_Found = dict[LetterId, KeptLetter | CorruptDataError]


async def _open_letters(settings: ClusterSettings) -> _Found:
    """Return every letter that is not settled, without its bytes."""
    found: _Found = {}
    first_of: dict[Any, LetterId] = {}
    settled: set[LetterId] = set()
    async for record in read_whole(settings, Topics.of(settings).dead_letters):
        letter_id = LetterId(record.partition, record.offset)
        if record.value is None:
            offset = settled_offset(record.headers)
            if offset is not None:
                settled.add(LetterId(record.partition, offset))
            continue
        try:
            kept = kept_letter(record)
        except CorruptDataError as error:
            found[letter_id] = error
            continue
        # The bytes are part of it: a topic made anew has the same places.
        identity = (kept.refused, hash(kept.letter.raw))
        first = first_of.setdefault(identity, letter_id) if kept.refused else letter_id
        if first == letter_id:
            short = msgspec.structs.replace(kept.letter, raw=b"")
            found[letter_id] = replace(kept, letter=short)
        else:
            original = found[first]
            assert isinstance(original, KeptLetter), "it has a place"
            found[first] = replace(original, copies=(*original.copies, letter_id))
    return {
        letter_id: kept
        for letter_id, kept in found.items()
        if settled.isdisjoint(
            (letter_id, *(kept.copies if isinstance(kept, KeptLetter) else ()))
        )
    }


def _chosen(found: _Found, names: Sequence[str] | None) -> list[KeptLetter]:
    """Return the letters that are named, or all that can be read.

    Raises:
        NotFoundError: one is not there.
        CorruptDataError: one that is named cannot be read.
    """
    if names is None:
        return [kept for kept in found.values() if isinstance(kept, KeptLetter)]
    chosen: list[KeptLetter] = []
    for letter_id in dict.fromkeys(LetterId.read(name) for name in names):
        _check_there(found, letter_id)
        kept = found[letter_id]
        if not isinstance(kept, KeptLetter):
            raise kept
        chosen.append(kept)
    return chosen


def _check_there(found: _Found, letter_id: LetterId) -> None:
    if letter_id not in found:
        raise NotFoundError(
            f"there is no dead letter {letter_id.name()}",
            field="id",
            hint="turnstate dead-letters list",
        )


async def _with_bytes(
    settings: ClusterSettings, chosen: Iterable[KeptLetter]
) -> AsyncGenerator[KeptLetter]:
    """Yield letters with their bytes, one partition after another."""
    wanted: dict[int, dict[int, KeptLetter]] = {}
    for kept in chosen:
        wanted.setdefault(kept.id.partition, {})[kept.id.offset] = kept
    topic = Topics.of(settings).dead_letters
    async with topic_reader(settings) as reader:
        for partition, offsets in wanted.items():
            place = TopicPartition(topic, partition)
            reader.assign([place])
            reader.seek({place: min(offsets)})
            async for record in reader.until({place: max(offsets) + 1}):
                if record.offset in offsets:
                    copies = offsets[record.offset].copies
                    yield replace(kept_letter(record), copies=copies)


# -- sending ---------------------------------------------------------------------------


async def _send_again(
    settings: ClusterSettings,
    producer: TurnProducer,
    watch: FoldWatch,
    letters: Sequence[KeptLetter],
) -> None:
    """Send letters; settle each once the brokers have it."""
    sent: list[tuple[KeptLetter, Receipt]] = []
    async for kept in _with_bytes(settings, letters):
        raw, draft, headers = _to_send(kept)
        key = kept.key
        if draft is not None:
            watch.expect(draft)
            key = draft.key  # what names no session goes where it came from
        receipt = await producer.publish_raw(
            raw,
            key,
            partition=None if key is not None else kept.id.partition,
            headers=headers,
        )
        sent.append((kept, receipt))
    for kept, receipt in sent:
        await receipt
        await _settle(producer, (kept.id, *kept.copies), REDRIVEN)


async def _settle(producer: TurnProducer, ids: Iterable[LetterId], how: str) -> None:
    for letter_id in ids:
        await producer.publish_raw(
            None,
            None,
            partition=letter_id.partition,
            headers=settling_headers(letter_id, how),
            topic=producer.topics.dead_letters,
        )


def _to_send(kept: KeptLetter) -> tuple[bytes, Draft | None, Headers]:
    """Return what is sent again: the bytes, the turn in them if any, headers."""
    headers = dict(kept.headers)
    content_type = headers.get("content-type", b"").decode(errors="replace") or None
    raw, content_type = _with_id(kept.letter.raw, content_type, kept.id)
    try:
        draft = draft_from_bytes(raw, content_type)
    except TurnstateError:
        draft = None  # the worker will say so again, or knows better by now
    headers["attempt"] = b"%d" % (kept.letter.attempt + 1)
    if content_type is not None:
        headers["content-type"] = content_type.encode()
    return raw, draft, list(headers.items())


def _with_id(
    raw: bytes, content_type: str | None, letter_id: LetterId
) -> tuple[bytes, str | None]:
    """Give a turn an id where it has none and no stamp to be known by.

    Example:
        >>> _with_id(b'{"role": "user"}', None, LetterId(3, 17))
        (b'{"role": "user","turn_id":"redriven:3-17"}', None)
    """
    name = ID_OF_REDRIVEN.format(letter_id.name())
    if is_protobuf(raw, content_type):
        from turnstate.schemas.wire.json import turn_to_json
        from turnstate.schemas.wire.protobuf import turn_from_protobuf

        try:
            turn = turn_from_protobuf(raw)
        except TurnstateError:
            return raw, content_type
        if turn.turn_id is not None or turn.stamp is not None:
            return raw, content_type
        return turn_to_json(turn.with_(turn_id=name)), JSON_TYPE
    try:
        fields = _decode_fields(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return raw, content_type
    if not fields or any(
        bytes(fields.get(each, b"null")) != b"null" for each in ("turn_id", "stamp")
    ):
        return raw, content_type
    quoted = msgspec.json.encode(name)
    if "turn_id" in fields:
        fields["turn_id"] = Raw(quoted)
        return msgspec.json.encode(fields), content_type
    return raw.rstrip()[:-1] + b',"turn_id":' + quoted + b"}", content_type

