"""Rebuild a whole store from its own log, where its files are damaged."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from turnstate.agents.dead_letters import DeadLetter, encode_dead_letter
from turnstate.agents.ports import Clock, Record
from turnstate.agents.session.agent import SessionAgent
from turnstate.schemas.dialogue.head import Head
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.errors import CorruptDataError, TurnstateError
from turnstate.schemas.position import Position
from turnstate.storage.encryption.key_file import wrapper_of
from turnstate.storage.hot.memory import MemoryTier
from turnstate.storage.repair import FROM_BACKUP
from turnstate.storage.session_row import session_row
from turnstate.storage.stored_head import StoredHead, encode_stored_head
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import DEAD, HEADS, KEYS, META
from turnstate.streams.documents import Document
from turnstate.streams.embedded.log import EmbeddedLog, life_of_record, lives_after
from turnstate.streams.settings import Settings

_HOT_BYTES: Final = 64 << 20
_LOG_END: Final = b"log_end"


def rebuild_store(
    settings: Settings, graph: DialogueGraph, clock: Clock, folder: Path
) -> Document:
    """Fold the whole log into a new store and put it in the old one's place.

    A damaged table file cannot be mended in place: RocksDB reads it again
    whenever it compacts. The log is read from it, everything else is made
    anew; every old head that can be read is compared by digest. The damaged
    folder is kept beside the new one.

    Args:
        settings: Of the store, which no process may have open.
        graph: The dialogue graph.
        clock: For arrival times.
        folder: Where RocksDB's files lie.

    Returns:
        `sessions`, `turns`, `compared` heads, `damaged`: the old folder.

    Raises:
        CorruptDataError: the log is damaged or trimmed, or gives another state
            than a head that can be read; nothing is changed then.
        UnavailableError: another process owns the store.
    """
    fresh = folder.with_name(folder.name + ".rebuilding")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        report = _rebuilt(settings, graph, clock, folder, fresh)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    damaged = next(
        path
        for number in count(1)
        if not (path := folder.with_name(f"{folder.name}.damaged-{number}")).exists()
    )
    folder.rename(damaged)
    fresh.rename(folder)
    return report | {"damaged": str(damaged)}


def _rebuilt(
    settings: Settings, graph: DialogueGraph, clock: Clock, folder: Path, fresh: Path
) -> Document:
    wrapper = wrapper_of(settings.encryption)
    source = WarmStore(folder, log_name=settings.log_name, wrapper=wrapper)
    try:
        source.refuse_locked()
        target = WarmStore(fresh, log_name=settings.log_name)
        try:
            _copy_keys(source, target)
            if wrapper is not None:
                target.unlock(wrapper)
            _bury_erased(source, target)
            turns, letters = _fold_log(source, target, graph, clock)
            _copy_letters(source, target, letters)
            compared = _compare_heads(source, target)
            target.flush()
            sessions = sum(1 for _ in target.rows(HEADS))
        finally:
            target.close()
    finally:
        _close_damaged(source)
    return {"sessions": sessions, "turns": turns, "compared": compared}


def _close_damaged(store: WarmStore) -> None:
    try:
        store.close()
    except TurnstateError:
        # It says once more that it is damaged; the lock is gone all the same.
        return


def _fold_log(
    source: WarmStore, target: WarmStore, graph: DialogueGraph, clock: Clock
) -> tuple[int, list[DeadLetter]]:
    """Fold chunk after chunk, each with its state in one batch, as it once was."""
    batch = target.batch()
    for key, row in source.rows(META):
        if key != _LOG_END:
            batch.put(META, key, row)
    target.write(batch, sync=False)
    old, new = EmbeddedLog(source), EmbeddedLog(target)
    agent = SessionAgent(
        store=target,
        hot=MemoryTier(_HOT_BYTES, frames_kept=0),
        graph=graph,
        log_name=target.log_name,
        clock=clock,
    )
    turns = 0
    letters: list[DeadLetter] = []
    for first, raws in old.chunks():
        if first != new.end:
            raise CorruptDataError(
                f"the log holds no offset {new.end}, the next one is {first}",
                hint=FROM_BACKUP,
            )
        # A restore changes it between two chunks, never within one.
        agent.stamps_as = old.names.at(first)
        folded = agent.fold(list(_records(new, raws)))
        batch = target.batch()
        new.stage(batch, raws, lives_after(folded.changes, agent.hot, target))
        for change in folded.changes:
            batch.stage(change)
        target.write(batch, sync=False)
        new.appended(len(raws))
        agent.committed(folded)
        turns += sum(map(len, folded.ops))
        letters += folded.dead
    if new.end != old.end:
        raise CorruptDataError(
            f"the log breaks off at offset {new.end}, its end is {old.end}",
            hint=FROM_BACKUP,
        )
    return turns, letters


def _copy_keys(source: WarmStore, target: WarmStore) -> None:
    """Copy the keys: packs and dead letters are encrypted with them, and stay."""
    batch = target.batch()
    for key, row in source.stored_rows(KEYS):
        batch.put_local(KEYS, key, row)
    target.write(batch, sync=False)


def _bury_erased(source: WarmStore, target: WarmStore) -> None:
    """Begin sessions in the life after the last whose key was destroyed.

    A log that is older than the erase, as that of a backup, does not tell of it;
    its records of that life cannot be read and are blank.
    """
    if source.row_cipher is None:
        return
    batch = target.batch()
    # Of heads that are damaged nobody knows the names.
    with suppress(CorruptDataError):
        for key in source.keys(b""):
            last = source.row_cipher.ring.last_destroyed(key)
            if last:
                buried = StoredHead(Head(incarnation=last + 1), erased=True)
                batch.put_head(key, buried, encode_stored_head(buried))
    target.write(batch, sync=False)


def _records(log: EmbeddedLog, raws: Sequence[bytes]) -> Iterator[Record]:
    for offset, raw in enumerate(raws, start=log.end):
        yield Record(
            raw, Position(log.identity, log.partition, offset), trusted=True
        )


def _copy_letters(
    source: WarmStore, target: WarmStore, refused: Sequence[DeadLetter]
) -> None:
    """Copy the dead letters; where they are damaged, what was refused once more.

    Those that were discarded or redriven come back then, which loses nothing.
    """
    batch = target.batch()
    try:
        for key, row in source.stored_rows(DEAD):
            batch.put_local(DEAD, key, row)
    except CorruptDataError:
        batch = target.batch()
        hot = MemoryTier(_HOT_BYTES, frames_kept=0)
        for number, letter in enumerate(refused, start=1):
            at, row = number.to_bytes(8, "big"), encode_dead_letter(letter)
            life = partial(life_of_record, letter.raw, lives_after((), hot, target))
            batch.put_letter(at, row, life)
    target.write(batch, sync=True)


def _compare_heads(source: WarmStore, target: WarmStore) -> int:
    """Compare every head that can still be read with the rebuilt one."""
    compared = 0
    for key, _ in target.rows(HEADS):
        try:
            (before,) = source.located([key])
        except CorruptDataError:
            continue
        if before is None:
            continue
        (after,) = target.located([key])
        assert after is not None, "it was just listed"
        if session_row(before).digest != session_row(after).digest:
            raise CorruptDataError(
                f"the log gives another state than the head of {key!r} says",
                hint=FROM_BACKUP,
            )
        compared += 1
    return compared
