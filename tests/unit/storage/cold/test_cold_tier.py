"""The cold tier says of a session what the warm one does, row for row."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.framed import frame
from support.packs import memory, packs_in
from turnstate.agents.ports import Record
from turnstate.agents.session.rebuild import refolder
from turnstate.schemas.dialogue.head import encode_head
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.errors import CorruptDataError, FencedError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.position import Position
from turnstate.storage.cold.cold_tier import ColdTier
from turnstate.storage.cold.compaction import compact, finish, live_by_key
from turnstate.storage.frames.header import HEAD, decode_header
from turnstate.storage.repair import OneSession
from turnstate.storage.seal import sealed
from turnstate.storage.session_image import decode_image, encode_image
from turnstate.storage.session_reader import operations
from turnstate.storage.stored_head import NO_SESSION, StoredHead, encode_stored_head
from turnstate.storage.tier import SessionChange
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.clock import VirtualClock

NAME = SessionName("t", "s")
KEY = NAME.key()


class Folding:
    """Give the changes of one session, a turn each."""

    def __init__(self) -> None:
        self.session = OneSession(KEY)
        clock = VirtualClock(1_700_000_000_000)
        self.agent = refolder(self.session, default_graph(), "log", clock)
        self.count = 0

    def change(self, **fields: Any) -> SessionChange:
        fields = fields or {"content": "x"}
        body = {"turn_id": f"id{self.count}", "role": "user", **fields}
        raw = msgspec.json.encode({"tenant": "t", "session": "s", **body})
        record = Record(raw, Position(b"log", 0, self.count))
        self.count += 1
        changes = self.agent.fold([record]).changes
        self.session.commit(changes)
        (change,) = changes
        return change


def both(folder: Path, tier: ColdTier) -> tuple[WarmStore, Callable[..., None]]:
    warm = WarmStore(folder / "warm", log_name="log")

    def commit(change: SessionChange) -> None:
        warm.commit([change])
        tier.commit([change])

    return warm, commit


def check_same(warm: WarmStore, tier: ColdTier) -> None:
    (stored,) = warm.heads([KEY])
    assert tier.heads([KEY]) == [stored]
    assert stored is not None
    pointer = tier.store.find(KEY)
    assert pointer is not None
    image = warm.image(KEY, stored, encode_stored_head(stored))
    told = decode_image(tier.store.read(pointer))
    assert told == image._replace(frames=without_states(image.frames))
    life = (KEY, stored.head.incarnation)
    for after in range(stored.head.version + 1):
        frames = list(warm.frames(*life, after))
        assert list(tier.frames(*life, after)) == without_states(frames)
    assert tier.asides(*life) == warm.asides(*life)
    if stored.frame_turns and stored.sealed_version:
        version = stored.sealed_version
        state = warm.base(*life, version)
        assert state is not None
        assert tier.base(*life, version) == state
        assert tier.base(*life, version + 1) is None
    lookups = [(*life, f"id{at}") for at in range(20)]
    assert tier.ids(lookups) == warm.ids(lookups)


def without_states(frames: Iterable[bytes]) -> list[bytes]:
    """Warm keeps the state after a seal among the frames, an image beside them."""
    return [each for each in frames if decode_header(each).kind != HEAD]


def test_every_row_is_that_of_the_warm_tier(tmp_path: Path) -> None:
    folding, tier = Folding(), ColdTier(packs_in(memory()), log_name="log")
    warm, commit = both(tmp_path, tier)
    for _ in range(5):
        commit(folding.change())
        check_same(warm, tier)
    commit(folding.change(op="edit", target="id2", content="better"))
    commit(folding.change(op="redact", target="id1"))
    check_same(warm, tier)
    assert tier.asides(KEY, 1) == [6, 7]
    warm.close()


def test_segments_and_the_state_they_end_with_are_kept(tmp_path: Path) -> None:
    folding, tier = Folding(), ColdTier(packs_in(memory()), log_name="log")
    warm, commit = both(tmp_path, tier)
    for _ in range(5):
        commit(folding.change())
    (stored,) = warm.heads([KEY])
    assert stored is not None
    done = sealed(warm, KEY, stored, default_graph(), 0)
    assert done is not None
    batch = warm.batch()
    batch.stage_seal(done)
    warm.write(batch, sync=False)
    image = warm.image(KEY, done.after, encode_stored_head(done.after))
    tier.store.write([encode_image(image)])
    check_same(warm, tier)
    for number in range(5, 8):
        change = folding.change()
        (before,) = warm.heads([KEY])
        assert before is not None
        after = msgspec.structs.replace(
            change.after, sealed_version=5, segment_link=before.segment_link
        )
        base = state_frame(done.after) if number == 5 else None
        commit(
            change._replace(
                before=before, after=after, row=encode_stored_head(after), base=base
            )
        )
        check_same(warm, tier)
    assert tier.base(KEY, 1, 5) is not None
    warm.close()


def state_frame(stored: StoredHead) -> bytes:
    """Return a frame of kind head, as the first change after a seal brings it."""
    version = stored.head.version
    return frame(
        encode_head(stored.head), kind=HEAD, from_version=version, to_version=version
    )


def test_another_life_has_nothing_of_the_one_before() -> None:
    folding, tier = Folding(), ColdTier(packs_in(memory()), log_name="log")
    for _ in range(3):
        tier.commit([folding.change()])
    (stored,) = tier.heads([KEY])
    assert stored is not None
    after = msgspec.structs.replace(
        NO_SESSION,
        head=msgspec.structs.replace(NO_SESSION.head, incarnation=2),
        erased=True,
    )
    row = encode_stored_head(after)
    tier.commit([SessionChange(KEY, stored, after, row, erased=1)])

    assert tier.ids([(KEY, 1, "id0"), (KEY, 2, "id0")]) == [None, None]
    assert list(tier.frames(KEY, 1, 0)) == []
    assert tier.asides(KEY, 1) == tier.asides(KEY, 2) == []
    assert tier.base(KEY, 1, 0) is None


def test_a_commit_that_came_between_is_fenced() -> None:
    """Another writer commits the session while this one's pack is written."""
    objects = memory()
    first, second = Folding().change(), Folding().change()
    other = ColdTier(packs_in(objects, seed=1), log_name="log")
    for call in range(2, 7):
        objects.held.clear()
        tier = ColdTier(packs_in(objects, seed=call), log_name="log")
        other = ColdTier(packs_in(objects, seed=100 + call), log_name="log")
        objects.interrupt({call: partial(other.commit, [first])})
        with pytest.raises(FencedError):
            tier.commit([second])
        assert tier.heads([KEY]) == [first.after]


def test_reading_goes_on_through_a_compaction() -> None:
    objects = memory()
    folding = Folding()
    tier = ColdTier(packs_in(objects), log_name="log")
    for _ in range(3):
        tier.commit([folding.change()])
    other = packs_in(objects, seed=1)

    def meanwhile() -> None:
        old = list(other.manifests.latest().packs)
        finish(other, compact(other, old, is_live=live_by_key(other)))
        objects.delete(old)

    objects.interrupt({2: meanwhile})
    (stored,) = tier.heads([KEY])
    assert stored is not None
    found = list(operations(tier, KEY, stored))
    assert [version for version, _ in found] == [1, 2, 3]


def test_another_session_in_the_place_of_one_is_damage() -> None:
    objects = memory()
    tier = ColdTier(packs_in(objects), log_name="log")
    tier.commit([Folding().change()])
    (name,) = [each for each in objects.held if each.startswith("packs/")]
    data, made_ms = objects.held[name]
    entry = tier.store.entries(name)[0]
    image = decode_image(entry.taken_from(data))
    swapped = encode_image(image._replace(key=SessionName("t", "z").key())).data
    assert len(swapped) == entry.length
    end = entry.offset + entry.length
    objects.held[name] = (data[: entry.offset] + swapped + data[end:], made_ms)
    with pytest.raises(CorruptDataError, match="another session"):
        tier.heads([KEY])
