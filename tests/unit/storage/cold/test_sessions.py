"""A cold session is read in few requests, once for all who ask, and never damaged."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.cooling import Cooling, long_lines, real_lines
from support.faulty_objects import FaultyObjects, Mishap
from support.packs import Turned, image, memory, pack_names, packs_in
from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    NotFoundError,
    UnavailableError,
)
from turnstate.storage.cold.collection import erase_packs
from turnstate.storage.cold.counting import CountingObjects
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.cold.sessions import READ_AHEAD_BYTES, ColdSessions
from turnstate.storage.session_image import decode_image
from turnstate.storage.warm.cold_rows import ColdHead

LONG = 10_000


class Counted(Cooling):
    """A store whose cold tier counts what it is asked."""

    def __init__(self, folder: Path, **fields: Any) -> None:
        self.counting = CountingObjects(DirectoryObjects(folder / "cold"))
        super().__init__(folder, self.counting, **fields)

    def requests(self) -> int:
        return self.counting.traffic()["read"].requests

    def anew(self) -> None:
        """Forget what was read, as a process does that starts."""
        self.use(self.packs())


@pytest.fixture(name="cold", scope="module")
def fixture_cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    with Counted(tmp_path_factory.mktemp("cold")) as world:
        world.publish(long_lines(10, "short"))
        world.publish(long_lines(LONG, size=300))
        world.publish(real_lines(20))
        world.cool()
        assert set(world.tiers().items()) == {("hot", 0), ("warm", 0), ("cold", 22)}
        yield world


@pytest.mark.parametrize("session", ["short", "long"])
def test_a_state_takes_two_requests_however_long_the_session(
    cold: Counted, session: str
) -> None:
    cold.anew()
    before = cold.counting.traffic()
    state = cold.store.state("t", session)
    after = cold.counting.traffic()

    assert state["tier"] == "cold"
    assert state["turns"][-1]["turn_id"] == f"{session}-{state['turn_count'] - 1}"
    assert after["read"].requests - before["read"].requests <= 2
    assert after["list"] == before["list"]
    read = after["read"].data_bytes - before["read"].data_bytes
    assert read < 2 * READ_AHEAD_BYTES


def test_an_old_version_takes_two_requests(cold: Counted) -> None:
    cold.anew()
    before = cold.requests()
    assert cold.store.state("t", "long", version=5_000)["version"] == 5_000
    assert cold.requests() - before <= 2


def test_pages_of_turns_are_read_ahead(cold: Counted) -> None:
    cold.anew()
    (key,) = (key for key in cold.cold() if key.endswith(b"long"))
    size = cold.cold()[key].pointer.length
    before = cold.requests()
    turns = list(cold.store.warm.frames(key, 1, 0))
    took = cold.requests() - before

    assert len(turns) > 100
    # The front, and then one request for as much as is read ahead.
    assert 1 < took <= 2 + size // (READ_AHEAD_BYTES // 2)
    assert took < len(turns) / 3
    assert list(cold.store.warm.frames(key, 1, 0)) == turns
    assert cold.requests() - before == took


def test_lists_ask_nothing_of_the_cold_tier(cold: Counted) -> None:
    cold.anew()
    before = cold.counting.traffic()
    rows = list(cold.store.sessions(tier="cold"))
    assert len(rows) == 22
    assert cold.counting.traffic() == before


def test_a_thousand_readers_cause_one_fetch(tmp_path: Path) -> None:
    slow = FaultyObjects(
        DirectoryObjects(tmp_path / "cold"),
        seed=1,
        rate=1.0,
        mishaps=[Mishap.DELAYED],
        delay_s=0.1,
    )
    counting = CountingObjects(slow)
    with Cooling(tmp_path, counting) as world:
        world.publish(long_lines(60))
        world.cool()
        (pointer,) = (at.pointer for at in world.cold().values())
        sessions = ColdSessions(world.packs())
        before = counting.traffic()["read"].requests
        begun = threading.Barrier(1000)
        found: list[bytes] = []

        def read() -> None:
            begun.wait()
            found.append(sessions.front(pointer))

        threads = [threading.Thread(target=read) for _ in range(1000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sessions.close()

        assert counting.traffic()["read"].requests - before == 1
        assert len(found) == 1000
        assert len(set(found)) == 1


def test_many_readers_of_one_cold_session_wake_it_once(tmp_path: Path) -> None:
    with Counted(tmp_path) as world:
        world.publish(long_lines(60))
        world.cool()
        digest = world.store.state("t", "long")["digest"]
        world.anew()
        world.clock.advance(1_000_000)
        before = world.requests()

        def read(_: int) -> Any:
            return world.store.state("t", "long")

        with ThreadPoolExecutor(64) as pool:
            found = list(pool.map(read, range(500)))
        took = world.requests() - before
        world.store.engine.call(lambda: None).result()

        assert {state["digest"] for state in found} == {digest}
        # Front and segments for the first, the whole image for the way up.
        assert took <= 3
        assert world.tiers()["cold"] == 0
        assert world.store.state("t", "long")["digest"] == digest


def test_one_read_and_a_scan_leave_a_session_where_it_is(tmp_path: Path) -> None:
    with Counted(tmp_path) as world:
        world.publish(real_lines(3))
        world.cool()
        for tenant, session in world.names():
            world.store.state(tenant, session)
        list(world.store.stored_heads())
        assert world.store.verify()["bad"] == []
        list(world.store.export_items())
        assert world.tiers()["cold"] == 3
        world.clock.advance(3_600_000)
        for tenant, session in world.names():
            world.store.state(tenant, session)
        world.store.engine.call(lambda: None).result()
        assert world.tiers()["cold"] == 3


def test_a_second_read_soon_brings_it_back(tmp_path: Path) -> None:
    with Counted(tmp_path) as world:
        world.publish(real_lines(1))
        world.cool()
        ((tenant, session),) = world.names()
        tiers: list[str] = []
        for _ in range(3):
            tiers.append(world.store.state(tenant, session)["tier"])
            world.store.engine.call(lambda: None).result()
        assert tiers == ["cold", "cold", "warm"]


# -- packs that change under a reader -----------------------------------------


def a_pointer(objects: Any, key: bytes = b"key") -> tuple[Pointer, bytes]:
    packs = packs_in(objects, Turned())
    encoded = image(key, 3, 500)
    (pointer,) = packs.write([encoded])
    return pointer, encoded.data


def cold_at(pointer: Pointer) -> ColdHead:
    return ColdHead(pointer, b"", 0, 0, 0, 0)


def test_a_pack_that_is_gone_is_damage_to_who_has_just_read_a_pointer() -> None:
    objects = memory()
    pointer, _ = a_pointer(objects)
    objects.delete(pack_names(objects))
    sessions = ColdSessions(packs_in(objects))

    with pytest.raises(CorruptDataError, match="is gone") as raised:
        sessions.image(cold_at(pointer))
    assert raised.value.code == "pack_gone"
    assert isinstance(raised.value.__cause__, NotFoundError)
    found, failed = sessions.images({b"key": cold_at(pointer)})
    assert found == {}
    assert isinstance(failed[b"key"], CorruptDataError)


def test_a_reader_looks_at_the_pointer_again(tmp_path: Path) -> None:
    """Its pack is rewritten and deleted between the pointer and the bytes."""
    with Counted(tmp_path) as world:
        world.publish(real_lines(2))
        world.cool()
        said = world.told()
        world.clock.advance(1_000_000)
        world.anew()
        located = world.store.warm.located
        taken: list[object] = []

        def rewritten(keys: list[bytes]) -> Any:
            found = located(keys)
            if not taken:
                taken.append(found)
                _rewrite_all(world)
            return found

        world.store.warm.located = rewritten  # type: ignore[assignment, method-assign]
        for (tenant, session), (digest, _) in said.items():
            state = world.store.state(tenant, session)
            assert (state["digest"], state["tier"]) == (digest, "cold")
        assert taken


def _rewrite_all(world: Counted) -> None:
    packs = world.packs()
    packs.fence(99)
    old = {key: at.pointer for key, at in world.cold().items()}
    images = {key: packs.read(pointer) for key, pointer in old.items()}
    for key, pointer in old.items():
        whole = decode_image(images[key])
        encoded = image(key)._replace(
            incarnation=whole.incarnation,
            version=whole.version,
            data=images[key],
            front_bytes=pointer.front_bytes,
        )
        (new,) = packs.write([encoded])
        moved = {key: (pointer, new)}
        assert world.store.tiering.moves.repoint(moved) == [key]
    erase_packs(packs, {pointer.pack for pointer in old.values()})


# -- damage --------------------------------------------------------------------


def test_damaged_bytes_are_damage_wherever_they_lie() -> None:
    objects = memory()
    pointer, data = a_pointer(objects)
    whole, made_ms = objects.held[pointer.pack]
    for at in range(0, pointer.length, 7):
        place = pointer.offset + at
        bit = 1 << Random(at).randrange(8)
        torn = whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :]
        objects.held[pointer.pack] = (torn, made_ms)
        sessions = ColdSessions(packs_in(objects))
        _, failed = sessions.images({b"key": cold_at(pointer)})
        assert isinstance(failed[b"key"], ChecksumError)
        with pytest.raises(CorruptDataError):
            found = sessions.image(cold_at(pointer))
            list(found.frames(0))
            found.index()
    assert len(data) == pointer.length


def test_a_cut_pack_is_damage() -> None:
    objects = memory()
    pointer, _ = a_pointer(objects)
    whole, made_ms = objects.held[pointer.pack]
    objects.held[pointer.pack] = (whole[: pointer.offset + 200], made_ms)
    sessions = ColdSessions(packs_in(objects))
    with pytest.raises(CorruptDataError):
        list(sessions.image(cold_at(pointer)).frames(0))
    _, failed = sessions.images({b"key": cold_at(pointer)})
    assert isinstance(failed[b"key"], CorruptDataError)


def test_another_sessions_image_is_not_taken_for_this_one() -> None:
    objects = memory()
    pointer, _ = a_pointer(objects, b"other")
    sessions = ColdSessions(packs_in(objects))
    _, failed = sessions.images({b"key": cold_at(pointer)})
    assert "another session" in str(failed[b"key"])


@pytest.mark.parametrize("mishap", [Mishap.TORN, Mishap.SWAPPED, Mishap.LOST])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_what_was_damaged_on_its_way_is_not_kept(mishap: Mishap, call: int) -> None:
    objects = memory()
    pointer, data = a_pointer(objects)
    faulty = FaultyObjects(objects, {call: mishap})
    sessions = ColdSessions(packs_in(faulty, Turned()))
    failures = 0
    frames: list[bytes] = []
    index: dict[bytes, bytes] = {}
    for _ in range(3):
        try:
            found = sessions.image(cold_at(pointer))
            frames, index = list(found.frames(0)), dict(found.index())
            break
        except (CorruptDataError, UnavailableError):
            failures += 1
    assert failures == 1
    whole = decode_image(data)
    assert frames == list(whole.frames)
    assert index == {entry.suffix: entry.row for entry in whole.entries}
    assert faulty.calls == 4


def test_the_cache_keeps_what_was_read_last_within_its_budget() -> None:
    objects = memory()
    packs = packs_in(objects, pack_bytes=1 << 20)
    pointers = packs.write([image(b"key %d" % at, 1, 1000) for at in range(10)])
    counting = CountingObjects(objects)
    sessions = ColdSessions(packs_in(counting, Turned()), cache_bytes=4_000)

    def read(pointer: Pointer) -> int:
        before = counting.traffic()["read"].requests
        list(sessions.image(cold_at(pointer)).frames(0))
        return counting.traffic()["read"].requests - before

    assert [read(pointer) for pointer in pointers] == [2] * 10
    assert read(pointers[-1]) == 0
    assert read(pointers[0]) == 2
