"""Fold the log again: rebuild one session, or find those that fell behind."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from turnstate.agents.ports import Clock, Colder, Record, Store
from turnstate.agents.session.agent import Folded, SessionAgent
from turnstate.agents.session.recorded import (
    FIRST_BYTE,
    arrival_of_recorded,
    recorded_bytes,
)
from turnstate.schemas.admission import Verdict
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.errors import CorruptDataError, TurnstateError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import Op
from turnstate.schemas.position import Position
from turnstate.schemas.wire.turn_bytes import (
    draft_from_bytes,
    is_protobuf,
    session_key_in,
)
from turnstate.storage.hot.memory import MemoryTier
from turnstate.storage.log_names import LogNames
from turnstate.storage.repair import OneSession, check_same
from turnstate.storage.stored_head import StoredHead, encode_stored_head

GROUP: Final = 64
"""Records folded at a time: a frame of a rebuilt session holds so many."""

_REWRITE: Final = b"rewrite"
"""The log that the frames of a rewritten session name."""

_NOWHERE: Final = Position(b"", 0, 0)


class _Named(Struct, gc=False):
    tenant: str
    session: str


_named: Final = msgspec.json.Decoder(_Named)


def session_key_of(raw: bytes) -> bytes | None:
    r"""Return the key of the session that a log record is about; None = no turn.

    Looks at the names alone, a tenth of the cost of reading the turn; what is
    wrong with the rest of it is found when it is folded.

    Example:
        >>> session_key_of(b'{"tenant": "t", "session": "s", "role": "user"}')
        b'\x00\x01ts'
        >>> session_key_of(b"nonsense")
    """
    try:
        if raw[:1] == FIRST_BYTE:
            return arrival_of_recorded(raw, _NOWHERE).draft.key
        if is_protobuf(raw):
            return session_key_in(raw) or draft_from_bytes(raw).key
        found = _named.decode(raw)
        return SessionName(found.tenant, found.session).key()
    except (msgspec.MsgspecError, TurnstateError, ValueError, OverflowError):
        pass
    try:
        return draft_from_bytes(raw).key
    except TurnstateError:
        return None


class Refolder(SessionAgent):
    """An agent that reads a store, shows nothing, and stamps as was stamped then.

    Args:
        store: Where heads, index and frames are read.
        graph: The dialogue graph.
        names: The names under which the log stamped.
        clock: For arrival times.
        colder: Where cold sessions are; without, there are none.
    """

    def __init__(
        self,
        store: Store,
        graph: DialogueGraph,
        names: LogNames,
        clock: Clock,
        colder: Colder | None = None,
    ) -> None:
        self.names = names
        super().__init__(
            store=store,
            hot=MemoryTier(1),
            graph=graph,
            log_name=names.names[0][1],
            clock=clock,
            colder=colder,
        )

    def name_of(self, record: Record) -> str:
        """Return the name under which a record was stamped."""
        return self.names.at(record.position.offset)

    def fold(self, records: Sequence[Record]) -> Folded:
        """Decide about a batch, all of which was stamped under one name."""
        if records:
            self.stamps_as = self.name_of(records[0])
            assert self.name_of(records[-1]) == self.stamps_as, "groups are cut there"
        return super().fold(records)


def refolder(
    store: Store,
    graph: DialogueGraph,
    log_name: str | LogNames,
    clock: Clock,
    colder: Colder | None = None,
) -> Refolder:
    """Return an agent that reads a store and shows nothing to anyone.

    Args:
        store: Where heads, index and frames are read.
        graph: The dialogue graph.
        log_name: The name under which the log stamps; its names, where a
            restore has changed it.
        clock: For arrival times.
        colder: Where cold sessions are; without, there are none.
    """
    return Refolder(store, graph, LogNames.of(log_name), clock, colder)


def rebuild(
    key: bytes,
    records: Iterable[Record],
    *,
    graph: DialogueGraph,
    log_name: str | LogNames,
    clock: Clock,
    expected: StoredHead | None = None,
) -> OneSession:
    """Return a session folded anew from its records, from the first one on.

    Positions are checked to rise, each group is folded from the state that
    the one before it left, and at the position of `expected` the digest is
    compared, so that nothing is folded twice and nothing is left out.

    Args:
        key: The session key.
        records: Every record of the log that is about this session.
        graph: The dialogue graph.
        log_name: The name under which the log stamps, or its names.
        clock: For arrival times, where the head that was is lost.
        expected: The head that was stored, if it can be read.

    Raises:
        CorruptDataError: the records are not in order, or do not give what
            `expected` says was folded.
    """
    session = OneSession(key)
    agent = refolder(session, graph, log_name, clock)
    position = expected.position if expected else None
    compared = expected is None
    for group in _groups(agent, records, position):
        if expected and not compared and not _up_to(group[0].position, position):
            check_same(session.stored, expected)
            compared = True
        session.commit(agent.fold(group).changes)
    if expected and not compared:
        check_same(session.stored, expected)
    return session


def _groups(
    agent: Refolder, records: Iterable[Record], cut: Position | None
) -> Iterator[Sequence[Record]]:
    """Yield records in groups, none of which lies on both sides of a position.

    Nor on both sides of a change of the log's name.
    """
    group: list[Record] = []
    last: Position | None = None
    for record in records:
        if record.position.is_redelivery_after(last):
            raise CorruptDataError(
                f"the log goes back at offset {record.position.offset}"
            )
        crosses = group and (
            _up_to(group[0].position, cut) != _up_to(record.position, cut)
            or agent.name_of(group[0]) != agent.name_of(record)
        )
        if crosses or len(group) >= GROUP:
            yield group
            group = []
        group.append(record)
        last = record.position
    if group:
        yield group


def _up_to(position: Position, cut: Position | None) -> bool:
    return position.is_redelivery_after(cut)


def refold(
    name: SessionName,
    stored: StoredHead,
    ops: Sequence[Op],
    *,
    graph: DialogueGraph,
    log_name: str | LogNames,
    clock: Clock,
) -> OneSession:
    """Return a session made of other records for the same operations.

    They are folded in version order from an empty head; the digest has to be
    the one that was, and all that stands beside the state stays.

    Args:
        name: The session.
        stored: Its head.
        ops: All its operations, stubs among them, in version order.
        graph: The dialogue graph.
        log_name: The name under which the log stamps, or its names.
        clock: For the times in the new frames.

    Raises:
        CorruptDataError: they fold to another digest.
    """
    records = (
        Record(
            recorded_bytes(name, op.record),
            Position(_REWRITE, 0, version),
            trusted=True,
        )
        for version, op in enumerate(ops, start=1)
    )
    session = rebuild(name.key(), records, graph=graph, log_name=log_name, clock=clock)
    check_same(session.stored, stored)
    made = session.changes[-1]
    after = msgspec.structs.replace(
        made.after,
        position=stored.position,
        arrived_ms=stored.arrived_ms,
        owner=stored.owner,
        erased=stored.erased,
    )
    session.stored = after
    session.changes[-1] = made._replace(after=after, row=encode_stored_head(after))
    return session


def traced(
    key: bytes,
    records: Iterable[Record],
    *,
    graph: DialogueGraph,
    log_name: str | LogNames,
    clock: Clock,
) -> dict[int, Op]:
    """Return which record of a log became which operation of a session.

    Args:
        key: The session key.
        records: Every record of the log that is about this session.
        graph: The dialogue graph.
        log_name: The name under which the log stamps, or its names.
        clock: Not used for what is decided.

    Returns:
        offset → operation, of the life that the session is in.
    """
    session = OneSession(key)
    agent = refolder(session, graph, log_name, clock)
    found: dict[int, Op] = {}
    for group in _groups(agent, records, None):
        folded = agent.fold(group)
        if not folded.changes:
            continue
        session.commit(folded.changes)
        if folded.changes[0].erased:
            found.clear()
        accepted = [
            record.position.offset
            for record, answer in zip(group, folded.answers, strict=True)
            if answer.verdict is Verdict.ACCEPTED
        ]
        ops = folded.ops[0]
        # What an erase in this group ended was accepted before it.
        found.update(zip(accepted[len(accepted) - len(ops) :], ops, strict=True))
    return found


def catch_up(agent: Refolder, records: Iterable[Record]) -> Iterator[Folded]:
    """Fold records over what the agent's store holds; yield what changes it.

    Records that were folded before change nothing, by their position or their
    id; so this may be repeated. Whoever asks commits what is yielded before
    going on; one that only wants to know who fell behind commits nothing, and
    looks at the first change of each session.
    """
    group: list[Record] = []
    for record in records:
        if group and (
            len(group) >= GROUP or agent.name_of(group[0]) != agent.name_of(record)
        ):
            yield agent.fold(group)
            group = []
        group.append(record)
    if group:
        yield agent.fold(group)
