"""Every object store keeps the one contract of `storage/cold/objects.py`."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Final
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.object_stores import PART_BYTES, SERVERS, s3_objects
from support.shared_services import shared, shared_root
from turnstate.schemas.errors import InvalidInputError, NotFoundError
from turnstate.storage.cold.counting import CountingObjects
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.cold.s3 import S3Objects

STORES: Final = ("directory", *SERVERS)
"""Every implementation."""

THREADS: Final = 16
ROUNDS: Final = 30
AT_ONCE: Final = 6
"""Races under way together: a server may let those who lose wait for a second."""

STRANGE_NAMES: Final = (
    "with spaces  and + and = and &.pack",
    " leading and trailing ",
    "per%cent %2F %00 %",
    "hash#fragment?query=1",
    "北京/会话-é-é-ß-😀",
    "quotes ' \" ` and <tag> ; | ^ ~ ! $ * ( ) [ ] { } , : \x85 \u2028",
    "a.b..c/d...",
    "UPPER/upper",
    "-dash/_under/~tilde/@at",
    "p" * 255,
    "/".join(["deep"] * 40),
)
"""Held exactly, by every store."""

NO_NAMES: Final = (
    "",
    "/",
    "/absolute",
    "trailing/",
    "double//slash",
    ".",
    "..",
    "../outside",
    "a/../b",
    "a/./b",
    ".hidden",
    "a/.uploads/b",
    "nul\0",
    "line\nfeed",
    "delete\x7f",
    "lone \ud800",
    "no character \uffff",
    "back\\slash",
    "p" * 256,
    "é" * 43,
    "/".join(["deep"] * 200),
)
"""Refused alike, by every store."""


@pytest.fixture(name="connections", scope="module")
def fixture_connections(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Mapping[str, Mapping[str, str]]]:
    """Where every S3 server is that is here."""
    root = shared_root(tmp_path_factory)
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(shared(root, name, start)).connection
            for name, start in SERVERS.items()
        }


@pytest.fixture(name="store", params=STORES)
def fixture_store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> Iterator[ObjectStore]:
    """Give each implementation in turn, empty."""
    if request.param == "directory":
        yield DirectoryObjects(tmp_path / "objects")
        return
    connections = request.getfixturevalue("connections")
    objects = s3_objects(
        connections[request.param], connections_max=AT_ONCE * THREADS
    )
    yield objects
    objects.close()


def names(store: ObjectStore, prefix: str = "", after: str = "") -> list[str]:
    return [info.name for info in store.list(prefix, after)]


def test_a_name_is_created_once(store: ObjectStore) -> None:
    assert store.create("packs/one", b"first")
    assert not store.create("packs/one", b"second")
    assert not store.create("packs/one", b"first"), "the same bytes are no excuse"
    assert store.read("packs/one") == b"first"

    store.delete(["packs/one"])
    assert store.create("packs/one", b"third")
    assert store.read("packs/one") == b"third"


def test_of_many_that_create_one_name_one_wins(store: ObjectStore) -> None:
    bodies = [f"by thread {thread}".encode() * 50 for thread in range(THREADS)]
    won: dict[str, list[int]] = {f"race/{number:02d}": [] for number in range(ROUNDS)}

    def race(name: str, racer: int) -> None:
        if store.create(name, bodies[racer]):
            won[name].append(racer)

    with ThreadPoolExecutor(AT_ONCE * THREADS) as pool:
        races = [pool.submit(race, name, at) for name in won for at in range(THREADS)]
        for each in races:
            each.result()

    assert {len(winners) for winners in won.values()} == {1}
    for name, (winner,) in won.items():
        assert store.read(name) == bodies[winner]


def test_of_many_with_the_same_bytes_one_wins_too(store: ObjectStore) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        won = [pool.submit(store.create, "same", b"same") for _ in range(THREADS)]

    assert sum(each.result() for each in won) == 1


def test_ranges_give_what_is_there(store: ObjectStore) -> None:
    store.create("a", b"0123456789")

    assert store.read("a") == b"0123456789"
    assert store.read("a", 3, 4) == b"3456"
    assert store.read("a", 0, 1) == b"0"
    assert store.read("a", 7) == b"789"
    assert store.read("a", 7, 100) == b"789"
    assert store.read("a", 0, 100) == b"0123456789"
    assert store.read("a", 10, 5) == b""
    assert store.read("a", 11) == b""
    assert store.read("a", 1_000, 5) == b""
    assert store.read("a", 4, 0) == b""
    assert store.read("a", 0, 0) == b""


def test_the_end_is_read_without_knowing_the_size(store: ObjectStore) -> None:
    store.create("a", b"0123456789")

    assert store.read_end("a", 4) == b"6789"
    assert store.read_end("a", 10) == b"0123456789"
    assert store.read_end("a", 11) == b"0123456789"
    assert store.read_end("a", 1_000) == b"0123456789"
    assert store.read_end("a", 0) == b""


def test_an_object_may_be_empty(store: ObjectStore) -> None:
    assert store.create("empty", b"")
    assert not store.create("empty", b"now filled")

    assert store.read("empty") == b""
    assert store.read("empty", 0, 10) == b""
    assert store.read("empty", 5) == b""
    assert store.read("empty", 0, 0) == b""
    assert store.read_end("empty", 5) == b""
    assert [info.size for info in store.list()] == [0]


def test_a_large_object_is_whole(store: ObjectStore) -> None:
    data = Random(5).randbytes(20_000_000)

    assert store.create("large", data)
    assert not store.create("large", data[:-1] + b"x")
    assert store.read("large") == data
    assert store.read("large", PART_BYTES - 10, 20) == (
        data[PART_BYTES - 10 : PART_BYTES + 10]
    )
    assert store.read_end("large", 4_096) == data[-4_096:]
    assert [info.size for info in store.list()] == [len(data)]
    if isinstance(store, S3Objects):
        sent = store.requests()
        assert sent["UploadPart"] == 2 * 4
        assert sent["AbortMultipartUpload"] == 1, "the one that lost"
        assert store.sweep(time.time_ns() // 1_000_000, min_age_ms=-60_000) == 0


def test_what_is_not_there_is_told_from_what_is_empty(store: ObjectStore) -> None:
    store.create("folder/a", b"a")

    for name in ("b", "folder/b", "folder", "folder/a/b"):
        for read in (
            partial(store.read, name),
            partial(store.read, name, 5, 5),
            partial(store.read, name, 0, 0),
            partial(store.read_end, name, 5),
            partial(store.read_end, name, 0),
        ):
            with pytest.raises(NotFoundError, match=name):
                read()


def test_a_list_is_in_order_and_goes_over_pages(store: ObjectStore) -> None:
    shuffled = [f"packs/{number:05d}" for number in range(1_010)]
    made = sorted([*shuffled, "manifest/1", "packs0-b", "packs0.a", "q"])
    Random(1).shuffle(shuffled)
    begun_ms = time.time_ns() // 1_000_000
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(store.create, made, map(str.encode, made)))

    found = list(store.list())
    assert [info.name for info in found] == made
    assert {info.size for info in found} == {len(name) for name in made}
    # S3 knows seconds, and another machine's clock.
    assert all(abs(info.modified_ms - begun_ms) < 60_000 for info in found)
    assert names(store, "packs/") == sorted(shuffled)
    assert names(store, "packs/0000") == [f"packs/0000{digit}" for digit in range(10)]
    assert names(store, "packs/", "packs/01005") == [
        f"packs/0{number}" for number in range(1_006, 1_010)
    ]
    assert names(store, "", "packs/01008") == made[-4:]
    assert names(store, "p", "a") == made[1:-1]
    assert names(store, "packs/", "zzz") == []
    assert names(store, "none") == []
    assert next(iter(store.list("q"))).name == "q"

    store.delete(shuffled)
    assert names(store) == sorted(set(made) - set(shuffled))


def test_deleting_twice_is_deleting_once(store: ObjectStore) -> None:
    for name in ("a", "folder/b", "folder/c"):
        store.create(name, b"x")

    store.delete([])
    store.delete(["a", "folder/b", "never/there", "a"])
    store.delete(["a", "folder/b"])

    assert names(store) == ["folder/c"]
    assert store.read("folder/c") == b"x"


def test_strange_names_are_held_exactly(store: ObjectStore) -> None:
    for name in STRANGE_NAMES:
        assert store.create(name, name.encode()), name
        assert not store.create(name, b"again"), name

        assert store.read(name, 0, 4) == name.encode()[:4]
        assert names(store) == [name]
        assert names(store, name[:3]) == [name]
        assert names(store, "", name) == []
        store.delete([name])
        assert names(store) == [], name


def test_a_name_that_some_store_could_not_hold_is_refused_by_all(
    store: ObjectStore,
) -> None:
    for name in NO_NAMES:
        for call in (
            partial(store.create, name, b"x"),
            partial(store.read, name),
            partial(store.read_end, name, 1),
            partial(store.delete, [name]),
        ):
            with pytest.raises(InvalidInputError) as raised:
                call()
            assert raised.value.field == "name", name
    assert names(store) == []


part = st.text(
    st.characters(exclude_categories=["Cs"], min_codepoint=32, exclude_characters="/"),
    min_size=1,
    max_size=8,
)


@given(drawn=st.lists(st.lists(part, min_size=1, max_size=3).map("/".join)))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15
)
def test_any_names_are_held_exactly_or_refused(
    store: ObjectStore, drawn: list[str]
) -> None:
    folder = f"{uuid4().hex}/"
    counted = CountingObjects(store)
    held: set[str] = set()
    for name in [folder + each for each in drawn]:
        try:
            created = counted.create(name, name.encode())
            assert created == (name not in held)
            held.add(name)
        except InvalidInputError:
            assert name not in held

    assert set(names(counted, folder)) == held
    assert all(counted.read(name) == name.encode() for name in held)
    for name in held:
        some = name[: len(folder) + 2]
        assert set(names(counted, some)) == {
            each for each in held if each.startswith(some)
        }
    counted.delete(sorted(held))
    assert names(store, folder) == []
    assert counted.traffic()["create"].failures <= len(drawn)
