"""Whatever jobs run, in whatever order, crashing wherever: nothing needed is lost."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.faulty_objects import FaultyObjects, Mishap
from support.memory_objects import MemoryObjects
from support.packs import HOUR_MS, Turned, image, pack_names, packs_in
from turnstate.schemas.errors import UnavailableError
from turnstate.storage.cold.collection import collect
from turnstate.storage.cold.compaction import (
    Compacted,
    compact,
    finish,
    live_by_key,
    live_bytes,
    plan,
)
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.cold.store import Away, PackStore

KEYS = [b"k%d" % number for number in range(6)]
crashes = st.sampled_from([None, Mishap.REFUSED, Mishap.LOST])
calls = st.integers(1, 14)


class Watched(MemoryObjects):
    """Ask whether a pack may go before it goes."""

    may_go: Callable[[str, int], None] | None = None

    def delete(self, names: Any) -> None:
        for name in names:
            if name in self.held and self.may_go is not None:
                self.may_go(name, self.held[name][1])
        super().delete(names)


class Jobs(RuleBasedStateMachine):
    """What all machines share: a clock, and stores that crash when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Turned()
        self.objects = Watched(self.clock)
        self.seed = 0
        self.version = 0
        self.data: dict[tuple[bytes, int], bytes] = {}

    def store(self, crash: Mishap | None = None, call: int = 0) -> PackStore:
        self.seed += 1
        objects: ObjectStore = self.objects
        if crash is not None:
            objects = FaultyObjects(self.objects, {call: crash})
        return packs_in(objects, self.clock, seed=self.seed, pack_bytes=700)

    def made(self, key: bytes) -> Any:
        self.version += 1
        each = image(key, self.version, self.version % 3 * 90)
        self.data[key, self.version] = each.data
        return each

    @rule(minutes=st.sampled_from([1, 20, 45, 90]))
    def turn(self, minutes: int) -> None:
        self.clock.turn(minutes * 60_000)


class Moves(Jobs):
    """An owner with pointers and a journal, and jobs that move, compact, collect."""

    def __init__(self) -> None:
        super().__init__()
        self.pointers: dict[bytes, Pointer] = {}
        self.journal: dict[bytes, Pointer] = {}
        self.compacted: Compacted | None = None
        self.objects.may_go = self.may_go

    def needed(self) -> frozenset[str]:
        return frozenset(
            pointer.pack
            for pointer in (*self.pointers.values(), *self.journal.values())
        )

    def may_go(self, name: str, made_ms: int) -> None:
        if name.startswith("packs/"):
            assert name not in self.needed()
            assert made_ms <= self.clock() - HOUR_MS
            assert name not in self.store().manifests.latest().packs

    @rule(keys=st.sets(st.sampled_from(KEYS), min_size=1), crash=crashes, call=calls)
    def write(self, keys: set[bytes], crash: Mishap | None, call: int) -> None:
        images = [self.made(key) for key in sorted(keys)]
        try:
            pointers = self.store(crash, call).write(images)
        except UnavailableError:
            return
        self.journal |= {
            each.key: pointer for each, pointer in zip(images, pointers, strict=True)
        }

    @precondition(lambda self: self.journal)
    @rule(makes=st.booleans())
    def flip(self, *, makes: bool) -> None:
        if makes:
            self.pointers |= self.journal
        self.journal.clear()

    @rule(key=st.sampled_from(KEYS))
    def warm(self, key: bytes) -> None:
        self.pointers.pop(key, None)

    @rule(crash=crashes, call=calls, other=st.integers(0, 14))
    def compact(self, crash: Mishap | None, call: int, other: int) -> None:
        store = self.store(crash, call)
        live = frozenset(self.pointers.values())
        self.meanwhile(other)
        try:
            names = plan(
                store.manifests.latest(),
                live_bytes(iter(live)),
                now_ms=self.clock(),
                held={pointer.pack for pointer in self.journal.values()},
                small_bytes=400,
            )
            self.compacted = compact(store, names, is_live=live.__contains__)
        except UnavailableError:
            self.compacted = None
        self.objects.interrupts.clear()

    @precondition(lambda self: self.compacted is not None)
    @rule(crash=crashes, call=st.integers(1, 4), finishes=st.booleans())
    def repoint(self, crash: Mishap | None, call: int, *, finishes: bool) -> None:
        compacted, self.compacted = self.compacted, None
        assert compacted is not None
        assert not compacted.damaged
        for old, new in compacted.moved.items():
            key = compacted.keys[old]
            if self.pointers.get(key) == old:
                self.pointers[key] = new
        if finishes:
            with suppress(UnavailableError):
                finish(self.store(crash, call), compacted)

    @rule(crash=crashes, call=calls, other=st.integers(0, 14))
    def collect(self, crash: Mishap | None, call: int, other: int) -> None:
        self.meanwhile(other)
        with suppress(UnavailableError):
            collect(self.store(crash, call), referenced=self.needed, newest_kept=2)
        self.objects.interrupts.clear()

    def meanwhile(self, call: int) -> None:
        """Let another process write, and its owner flip, before a call of a job."""
        if not call:
            return

        def act() -> None:
            each = self.made(KEYS[call % len(KEYS)])
            (self.pointers[each.key],) = self.store().write([each])

        self.objects.interrupt({call: act})

    @invariant()
    def every_pointer_reads(self) -> None:
        store = self.store()
        for named in (self.pointers, self.journal):
            for key, pointer in named.items():
                assert store.read(pointer) == self.data[key, pointer.version]

    @invariant()
    def every_session_is_found(self) -> None:
        store = self.store()
        for key, pointer in self.pointers.items():
            found = store.find(key)
            assert found is not None
            assert found.version >= pointer.version
            assert store.read(found) == self.data[key, found.version]

    def teardown(self) -> None:
        self.journal.clear()
        for _ in range(2):
            self.clock.turn(2 * HOUR_MS)
            self.compact(None, 0, 0)
            if self.compacted:
                self.repoint(None, 0, finishes=True)
        self.clock.turn(2 * HOUR_MS)
        self.collect(None, 0, 0)
        self.every_pointer_reads()
        packs = self.store().manifests.latest().packs
        assert set(pack_names(self.objects)) == set(packs)


class ByKey(Jobs):
    """A tier without pointers: sessions come, leave and come back."""

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[bytes, int] = {}

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4))
    def write(self, keys: list[bytes]) -> None:
        images = [self.made(key) for key in keys]
        self.store().write(images)
        self.versions |= {each.key: each.version for each in images}

    @rule(keys=st.sets(st.sampled_from(KEYS), min_size=1))
    def leave(self, keys: set[bytes]) -> None:
        away = [Away(key, 1, self.versions.get(key, 0)) for key in sorted(keys)]
        self.store().write(away)
        for key in keys:
            self.versions.pop(key, None)

    @rule(chosen=st.sets(st.integers(0, 9)), crash=crashes, call=calls)
    def compact(self, chosen: set[int], crash: Mishap | None, call: int) -> None:
        store = self.store(crash, call)
        with suppress(UnavailableError):
            packs = sorted(store.manifests.latest().packs)
            names = [packs[at] for at in sorted(chosen) if at < len(packs)]
            finish(store, compact(store, names, is_live=live_by_key(store)))

    @rule()
    def collect(self) -> None:
        collect(self.store(), referenced=frozenset)

    @invariant()
    def everyone_is_as_they_should_be(self) -> None:
        store = self.store()
        for key in KEYS:
            found = store.find(key)
            assert (found and found.version) == self.versions.get(key)
            if found is not None:
                assert store.read(found) == self.data[key, found.version]
        assert store.newest().keys() == self.versions.keys()


TestMoves = Moves.TestCase
TestByKey = ByKey.TestCase
TestMoves.settings = TestByKey.settings = settings(stateful_step_count=25)
