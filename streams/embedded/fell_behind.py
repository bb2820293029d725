"""Find the sessions of a store that lack something of its log."""

from collections.abc import Iterable, Iterator, Mapping

from turnstate.agents.ports import Clock, Record
from turnstate.agents.session.rebuild import catch_up, refolder, session_key_of
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.position import Position
from turnstate.storage.repair import contiguous
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.embedded.log import EmbeddedLog


def records_after(
    log: EmbeddedLog, positions: Mapping[bytes, Position | None], end: int
) -> Iterator[tuple[bytes, Record]]:
    """Yield the records of some sessions that lie above their positions.

    Args:
        log: The log.
        positions: session key → the position that it has; None = none.
        end: Where to stop (exclusive).

    Raises:
        CorruptDataError: the log is damaged or does not reach back so far.
    """
    begin = min(
        (
            position.offset + 1
            if position is not None and position.log == log.identity
            else 0
            for position in positions.values()
        ),
        default=end,
    )
    for offset, raw in contiguous(log.read(begin), begin, end):
        key = session_key_of(raw)
        if key is None or key not in positions:
            continue
        position = Position(log.identity, log.partition, offset)
        if not position.is_redelivery_after(positions[key]):
            yield key, Record(raw, position, trusted=True)


def behind(
    store: WarmStore,
    log: EmbeddedLog,
    graph: DialogueGraph,
    clock: Clock,
    *,
    begin: int = 0,
    wanted: Iterable[bytes] | None = None,
    skipped: Iterable[bytes] = (),
) -> dict[bytes, int]:
    """Return the sessions to which the log would still add: key → offset.

    Folds, without writing, every record above its session's position. What
    was refused or a duplicate once is so again; anything else was lost.

    Args:
        store: The store.
        log: Its log.
        graph: The dialogue graph.
        clock: Not used for what is decided.
        begin: The offset to begin at.
        wanted: Only these sessions; None = all.
        skipped: Not these, which are known to be damaged.
    """
    agent = refolder(store, graph, log.names, clock, store)
    only = None if wanted is None else set(wanted)
    leave = set(skipped)
    found: dict[bytes, int] = {}

    def above() -> Iterator[Record]:
        positions: dict[bytes, Position | None] = {}
        for offset, raw in log.read(begin):
            if offset >= end:
                return
            key = session_key_of(raw)
            if key is None or key in leave or key in found:
                continue
            if only is not None and key not in only:
                continue
            if key not in positions:
                found_at = store.located([key])[0]
                positions[key] = found_at.position if found_at else None
            position = Position(log.identity, log.partition, offset)
            if not position.is_redelivery_after(positions[key]):
                yield Record(raw, position, trusted=True)

    end = log.end
    for folded in catch_up(agent, above()):
        for change in folded.changes:
            assert change.after.position is not None
            found.setdefault(change.key, change.after.position.offset)
    return found
