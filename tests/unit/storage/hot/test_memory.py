"""The memory tier beyond the contract: replacement, TTL, pins, leases, promotion."""

import pytest

from turnstate.schemas.dialogue.head import EMPTY_HEAD, Head
from turnstate.schemas.errors import FencedError
from turnstate.storage.access import NO_ACCESSES
from turnstate.storage.hot.memory import OBJECT_FACTOR, MemoryTier
from turnstate.storage.stored_head import NO_SESSION, StoredHead
from turnstate.storage.tier import SessionChange

MINUTE_MS = 60_000
ROW = b"r" * 100
SIZE = 1 + len(ROW) * OBJECT_FACTOR
"""Of a session with a key of one byte."""


class Clock:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms

    def minutes(self, count: float) -> None:
        self.now_ms += int(count * MINUTE_MS)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def change(key: bytes, version: int = 1, frame: bytes | None = None) -> SessionChange:
    before = NO_SESSION if version == 1 else at(version - 1)
    return SessionChange(key, before, at(version), ROW, frame)


def at(version: int) -> StoredHead:
    return StoredHead(Head(version=version))


def used(tier: MemoryTier, clock: Clock, key: bytes, times: int) -> None:
    for _ in range(times):
        clock.minutes(1)
        tier.heads([key])


def test_a_scan_does_not_wash_out_what_is_used_often(clock: Clock) -> None:
    """The same walk leaves nothing of a cache that keeps what was used last."""
    tier = MemoryTier(20 * SIZE, clock=clock)
    often = [b"%c" % letter for letter in b"abcdefghij"]
    tier.commit([change(key) for key in often])
    for _ in range(3):
        clock.minutes(1)
        tier.heads(often)
    for number in range(1_000):
        tier.promote(b"%c" % (128 + number % 100), at(1), len(ROW))

    assert all(tier.peek(key) is not None for key in often)
    assert tier.bytes_held <= tier.budget_bytes


def test_a_look_by_a_scan_is_no_use(clock: Clock) -> None:
    tier = MemoryTier(10 * SIZE, clock=clock)
    tier.commit([change(b"a")])
    before = tier.accesses(b"a")
    clock.minutes(9)
    tier.heads([b"a"], counts=False)

    assert tier.accesses(b"a") == before


def test_what_was_let_go_is_remembered(clock: Clock) -> None:
    """A session that comes back goes on where it was."""
    tier = MemoryTier(20 * SIZE, clock=clock)
    tier.commit([change(b"a")])
    used(tier, clock, b"a", 1)
    tier.commit([change(b"%c" % (128 + number)) for number in range(20)])

    assert tier.peek(b"a") is None
    assert len(tier.accesses(b"a").times_ms) == 2
    clock.minutes(1)
    tier.promote(b"a", at(1), len(ROW))
    assert len(tier.accesses(b"a").times_ms) == 3


def test_a_dropped_session_leaves_no_trace(clock: Clock) -> None:
    """An erased name must not stay in memory."""
    tier = MemoryTier(1 << 20, clock=clock)
    tier.commit([change(b"a")])
    tier.drop(b"a")
    tier.note_use(b"b")
    tier.heads([])
    tier.drop(b"b")

    assert tier.accesses(b"a") == tier.accesses(b"b") == NO_ACCESSES
    assert tier.bytes_held == 0


def test_what_has_expired_is_not_served(clock: Clock) -> None:
    """By no way of reading, from the very millisecond on; a write renews."""
    tier = MemoryTier(20 * SIZE, clock=clock, ttl_ms=MINUTE_MS)
    tier.commit([change(b"a", frame=b"f"), change(b"b")])
    clock.now_ms += MINUTE_MS - 1
    assert tier.peek(b"a") is not None
    tier.commit([change(b"b", 2)])
    clock.now_ms += 1

    assert tier.peek(b"a") is None
    assert list(tier.frames(b"a", 1, 0)) == []
    assert list(tier.keys()) == [b"b"]
    assert tier.heads([b"a", b"b"]) == [None, at(2)]
    assert len(tier) == 1


def test_reading_does_not_prolong_a_life(clock: Clock) -> None:
    tier = MemoryTier(20 * SIZE, clock=clock, ttl_ms=2 * MINUTE_MS)
    tier.commit([change(b"a")])
    clock.minutes(1)
    tier.heads([b"a"])
    clock.minutes(1)

    assert tier.heads([b"a"]) == [None]


def test_a_pin_does_not_outlast_a_ttl(clock: Clock) -> None:
    tier = MemoryTier(20 * SIZE, clock=clock, ttl_ms=MINUTE_MS)
    tier.commit([change(b"a"), change(b"b")])
    assert tier.pin(b"a")
    clock.minutes(1)

    assert tier.peek(b"a") is None
    assert tier.expire() == 2
    assert tier.bytes_held == 0


def test_an_expired_head_fences_nobody(clock: Clock) -> None:
    """Its session was read below since; frames from before are gone."""
    tier = MemoryTier(20 * SIZE, clock=clock, ttl_ms=MINUTE_MS)
    tier.commit([change(b"a", frame=b"old")])
    clock.minutes(1)
    tier.commit([change(b"a", 7)])

    assert tier.peek(b"a") == at(7)


def test_another_version_fences(clock: Clock) -> None:
    tier = MemoryTier(20 * SIZE, clock=clock)
    tier.commit([change(b"a")])

    with pytest.raises(FencedError):
        tier.commit([change(b"a", 7)])


def test_what_is_pinned_stays(clock: Clock) -> None:
    tier = MemoryTier(10 * SIZE, clock=clock)
    tier.commit([change(b"a")])
    assert tier.pin(b"a")
    tier.commit([change(b"%c" % (128 + number)) for number in range(50)])
    assert tier.peek(b"a") is not None
    assert tier.bytes_held <= tier.budget_bytes

    tier.unpin(b"a")
    tier.commit([change(b"%c" % (128 + number)) for number in range(50, 100)])
    assert tier.peek(b"a") is None


def test_pins_take_half_of_the_room_at_most(clock: Clock) -> None:
    tier = MemoryTier(4 * SIZE, clock=clock)
    tier.commit([change(b"a"), change(b"b"), change(b"c")])

    assert [tier.pin(key) for key in (b"a", b"b", b"c", b"a", b"nobody")] == [
        True,
        True,
        False,
        True,
        False,
    ]
    tier.unpin(b"a")
    assert tier.pin(b"c")


def test_a_lease_holds_until_it_ends(clock: Clock) -> None:
    """Its end counts as a use: what was read until now does not go at once."""
    tier = MemoryTier(4 * SIZE, clock=clock)
    tier.commit([change(b"a")])
    assert tier.lease(b"a", clock.now_ms + 1_000)
    tier.commit([change(b"%c" % (128 + number)) for number in range(9)])
    assert tier.peek(b"a") is not None
    clock.now_ms += 1_000
    for number in range(9, 20):
        tier.commit([change(b"%c" % (128 + number))])

    assert tier.peek(b"a") is None
    assert not tier.lease(b"a", clock.now_ms + 1_000)


def test_unpinning_leaves_a_lease(clock: Clock) -> None:
    tier = MemoryTier(4 * SIZE, clock=clock)
    tier.commit([change(b"a")])
    tier.pin(b"a")
    tier.lease(b"a", clock.now_ms + 1_000)
    tier.unpin(b"a")
    tier.commit([change(b"%c" % (128 + number)) for number in range(9)])

    assert tier.peek(b"a") is not None


def test_promotion_does_not_replace_what_is_held(clock: Clock) -> None:
    tier = MemoryTier(4 * SIZE, clock=clock)
    tier.commit([change(b"a", 1), change(b"b")])
    tier.commit([change(b"a", 2)])

    assert not tier.promote(b"a", at(1), len(ROW))
    assert tier.peek(b"a") == at(2)
    assert tier.promote(b"c", at(5), len(ROW))
    assert tier.peek(b"c") == at(5)


def test_uses_by_readers_are_counted_at_the_next_look(clock: Clock) -> None:
    tier = MemoryTier(1 << 20, clock=clock)
    tier.commit([change(b"a")])
    clock.minutes(3)
    tier.note_use(b"a")
    tier.note_use(b"elsewhere")
    tier.heads([])

    assert len(tier.accesses(b"a").times_ms) == 2
    assert tier.accesses(b"elsewhere").last_ms == clock.now_ms


def test_without_a_clock_the_order_of_looks_is_time() -> None:
    """As for those who fold: a batch looks once, then commits."""
    tier = MemoryTier(3 * SIZE)
    for key in (b"a", b"b", b"a", b"c", b"a"):
        known = tier.heads([key])[0]
        version = known.head.version + 1 if known else 1
        tier.commit([change(key, version)])
    tier.commit([change(b"d")])

    assert list(tier.keys()) == [b"a", b"c", b"d"]


def test_frames_beyond_the_number_kept_are_forgotten() -> None:
    tier = MemoryTier(100 * SIZE, frames_kept=0)
    tier.commit([change(b"a", frame=b"f" * 50)])
    tier.commit([change(b"a", 2, frame=b"f" * 50)])

    assert tier.bytes_held == SIZE
    assert list(tier.frames(b"a", EMPTY_HEAD.incarnation, 0)) == []
