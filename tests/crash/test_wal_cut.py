"""The write-ahead log cut at any byte: the last batch is there whole, or not at all."""

from collections.abc import Iterator
from itertools import takewhile
from operator import eq
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import msgspec
import pytest

from support.dialogues import endless_turns
from support.kept import digests
from support.soak import SoakSeeds
from support.store_files import Rows, image, rows_in, rows_of, wal_of
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.json import draft_from_json, turn_to_json
from turnstate.storage.warm.batch import Batch
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import DEAD, FRAMES, HEADS, INDEX, LOG, META
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

POSITIONS: Final = 24
"""Cuts that are tried where not every byte is."""

NO_TURN: Final = b'{"tenant":"t","session":"s"}'


class Write(NamedTuple):
    """One write of a store: whether synced, the log file's size, what is held."""

    synced: bool
    wal: str
    size: int
    rows: Rows


class Played(NamedTuple):
    """A store whose owner died: its files, its writes, its sessions' digests."""

    data: Path
    writes: list[Write]
    digests: dict[tuple[str, str], str]


def noted_writes(patch: pytest.MonkeyPatch, data: Path) -> list[Write]:
    """Return a list that grows with every write of the store."""
    writes: list[Write] = []
    write = WarmStore.write

    def noted(store: WarmStore, batch: Batch, *, sync: bool) -> None:
        write(store, batch, sync=sync)
        # A store that other tests share may seal what is idle meanwhile.
        if not store.path.is_relative_to(data):
            return
        wal = wal_of(data)
        writes.append(Write(sync, wal.name, wal.stat().st_size, rows_of(store)))

    patch.setattr(WarmStore, "write", noted)
    return writes


def played(folder: Path, patch: pytest.MonkeyPatch, *, then_seal: bool) -> Played:
    """Publish, operate and seal; the last write is a commit, or a seal."""
    data = folder / "data"
    writes = noted_writes(patch, data)
    lines: Iterator[bytes] = endless_turns(3, open_sessions=6)
    with EmbeddedStore(Settings(data=data)) as store:
        for size in (1, 40, 7):
            store.publish([next(lines) for _ in range(size)])
        seal_all(store)
        store.publish([next(lines) for _ in range(8)])
        # The last commit has rows for every table, of old and of new sessions.
        turn = msgspec.json.decode(next(lines))
        name = (turn["tenant"], turn["session"])
        hidden = Turn(*name, "system", op="redact", target="0")
        fork = Turn(*name, "system", op="fork", branch="other", target="0")
        store.publish(
            [
                msgspec.json.encode(turn),
                NO_TURN,
                turn_to_json(hidden),
                turn_to_json(fork),
                *(next(lines) for _ in range(4)),
            ]
        )
        if then_seal:
            seal_all(store)
        found = digests(store)
        left = image(data, folder / "left")
    patch.undo()
    assert {write.wal for write in writes} == {wal_of(left).name}
    assert writes[-1].synced != then_seal
    return Played(left, writes, found)


def seal_all(store: EmbeddedStore) -> None:
    keys = [key for key, _ in store.stored_heads()]
    store.engine.call(lambda: store.engine.seal(keys)).result()


def cut(left: Path, target: Path, size: int, garbage: bytes = b"") -> int:
    """Copy a store whose log file ends at `size`, with other bytes behind.

    Returns:
        How many bytes of the log file are as they were: `size`, and as many
        more as the other bytes happen to repeat.
    """
    wal = wal_of(image(left, target))
    whole = wal.read_bytes()
    assert len(whole) >= size
    left_over = whole[:size] + garbage
    wal.write_bytes(left_over)
    return sum(takewhile(bool, map(eq, whole, left_over)))


def check_cut(run: Played, target: Path, size: int, garbage: bytes = b"") -> None:
    """Cut inside the last batch and see the state before it, or after all of it."""
    kept = cut(run.data, target, size, garbage)
    before, after = run.writes[-2], run.writes[-1]
    assert kept >= before.size
    assert rows_in(target) == (after.rows if kept >= after.size else before.rows)


@pytest.mark.parametrize("then_seal", [False, True], ids=["commit", "seal"])
def test_the_last_batch_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then_seal: bool
) -> None:
    run = played(tmp_path, monkeypatch, then_seal=then_seal)
    begin, end = run.writes[-2].size, run.writes[-1].size
    chance = Random(end)
    inside = chance.sample(range(begin + 1, end), POSITIONS - 4)
    for size in [begin, begin + 1, end - 1, end, *inside]:
        garbage = chance.choice([b"", bytes(500), chance.randbytes(300)])
        check_cut(run, tmp_path / "cut", size, garbage)


def test_bytes_behind_a_cut_that_are_the_ones_cut_off_make_the_batch_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch may end in zeros, as blocks that were never written do."""
    run = played(tmp_path, monkeypatch, then_seal=True)
    end = run.writes[-1].size
    last = wal_of(run.data).read_bytes()[end - 1 : end]
    check_cut(run, tmp_path / "cut", end - 1, last + b"garbage")
    assert rows_in(tmp_path / "cut") == run.writes[-1].rows


def test_the_last_batch_touches_every_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = played(tmp_path, monkeypatch, then_seal=False)
    before, after = run.writes[-2].rows, run.writes[-1].rows
    changed = {table for table in after if after[table] != before[table]}
    assert changed == {HEADS, FRAMES, INDEX, LOG, DEAD, META}


@pytest.mark.parametrize("then_seal", [False, True], ids=["commit", "seal"])
def test_a_cut_store_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then_seal: bool
) -> None:
    """What a cut leaves verifies, and the same turns again give the same digests."""
    run = played(tmp_path, monkeypatch, then_seal=then_seal)
    last = run.writes[-1]
    read = image(run.data, tmp_path / "read")
    with EmbeddedStore(Settings(data=read)) as store:
        lines = [record for _, record in store.engine.log.read()]
    for size in (run.writes[-2].size, last.size - 1, last.size):
        cut(run.data, tmp_path / "cut", size)
        with EmbeddedStore(Settings(data=tmp_path / "cut")) as store:
            assert upkeep.verify(store)["bad"] == []
            named = [line for line in lines if _may_come_again(line)]
            rest = lines[store.engine.log.end :]
            store.publish([*named[-20:], *rest] if rest else named)
            assert digests(store) == run.digests
            assert upkeep.verify(store)["bad"] == []


def _may_come_again(line: bytes) -> bool:
    return line != NO_TURN and draft_from_json(line).turn_id is not None


def test_a_cut_between_any_two_writes_gives_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = played(tmp_path, monkeypatch, then_seal=True)
    for write in run.writes:
        cut(run.data, tmp_path / "cut", write.size)
        assert rows_in(tmp_path / "cut") == write.rows


def test_nothing_acknowledged_rests_on_unsynced_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut takes what was not synced: seals, which change no state."""
    run = played(tmp_path, monkeypatch, then_seal=True)
    synced = [write for write in run.writes if write.synced][-1]
    assert synced.size < run.writes[-1].size
    cut(run.data, tmp_path / "cut", synced.size)
    with EmbeddedStore(Settings(data=tmp_path / "cut")) as store:
        assert digests(store) == run.digests
        assert upkeep.verify(store)["bad"] == []
        seal_all(store)
        assert digests(store) == run.digests
        assert upkeep.verify(store)["bad"] == []


@pytest.mark.soak
@pytest.mark.parametrize("then_seal", [False, True], ids=["commit", "seal"])
def test_the_last_batch_cut_at_every_byte(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    soak_seeds: SoakSeeds,
    then_seal: bool,
) -> None:
    run = played(tmp_path, monkeypatch, then_seal=then_seal)
    begin, end = run.writes[-2].size, run.writes[-1].size
    # Far from each other first: a slice of the time sees all of the batch.
    sizes = sorted(range(begin, end + 1), key=lambda size: (size * 7919) % 1009)
    for seed in soak_seeds.take(len(sizes)):
        check_cut(run, tmp_path / "cut", sizes[(seed - 1) % len(sizes)])
