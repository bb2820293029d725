"""What is asked of an object store is counted by kind, failures too."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.faulty_objects import FaultyObjects, Mishap
from turnstate.schemas.errors import UnavailableError
from turnstate.storage.cold.counting import CountingObjects, Traffic
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.storage.cold.objects import ObjectInfo


def test_requests_and_bytes_are_counted_by_kind(tmp_path: Path) -> None:
    objects = CountingObjects(DirectoryObjects(tmp_path))

    objects.create("a", b"12345")
    objects.create("a", b"123456789")
    objects.create("b", b"1")
    objects.read("a", 1, 3)
    objects.read_end("a", 2)
    assert [info.name for info in objects.list()] == ["a", "b"]
    assert next(objects.list("b")).name == "b"
    objects.delete(["a", "b"])
    objects.delete([])

    assert objects.traffic() == {
        "create": Traffic(3, 0, 6),
        "read": Traffic(2, 0, 5),
        "list": Traffic(2, 0, 0),
        "delete": Traffic(1, 0, 0),
    }


def test_a_page_of_a_thousand_is_a_request(tmp_path: Path) -> None:
    class Many(DirectoryObjects):
        def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
            info = next(iter(super().list(prefix, after)))
            return iter([info] * 2_001)

    objects = CountingObjects(Many(tmp_path))
    objects.create("a", b"x")

    assert len(list(objects.list())) == 2_001
    objects.delete([f"n{number}" for number in range(1_001)])

    assert objects.traffic()["list"].requests == 3
    assert objects.traffic()["delete"].requests == 2


def test_failures_are_counted_apart(tmp_path: Path) -> None:
    faulty = FaultyObjects(
        DirectoryObjects(tmp_path),
        {1: Mishap.REFUSED, 2: Mishap.LOST, 4: Mishap.TORN, 6: Mishap.REFUSED},
    )
    objects = CountingObjects(faulty)

    with pytest.raises(UnavailableError):
        objects.create("a", b"1234")
    with pytest.raises(UnavailableError):
        objects.create("a", b"1234")
    assert not objects.create("a", b"1234"), "the lost one was carried out"
    assert objects.read("a") == b"12"
    assert objects.read("a") == b"1234"
    with pytest.raises(UnavailableError):
        next(objects.list())

    assert objects.traffic() == {
        "create": Traffic(3, 2, 0),
        "read": Traffic(2, 0, 6),
        "list": Traffic(1, 1, 0),
        "delete": Traffic(),
    }
    assert faulty.met == [
        (1, "create", Mishap.REFUSED),
        (2, "create", Mishap.LOST),
        (4, "read", Mishap.TORN),
        (6, "list", Mishap.REFUSED),
    ]


def test_a_seed_gives_the_same_mishaps_again(tmp_path: Path) -> None:
    def met(seed: int, folder: str) -> list[tuple[int, str, Mishap]]:
        faulty = FaultyObjects(
            DirectoryObjects(tmp_path / folder),
            seed=seed,
            rate=0.3,
            mishaps=(Mishap.SWAPPED, Mishap.DELAYED),
            delay_s=0.001,
        )
        begun = time.monotonic()
        for number in range(40):
            faulty.create(str(number), b"bytes")
        delays = [each for each in faulty.met if each[2] is Mishap.DELAYED]
        assert time.monotonic() - begun >= len(delays) * 0.001
        swapped = [each[0] - 1 for each in faulty.met if each[2] is Mishap.SWAPPED]
        for number in range(40):
            wrong = faulty.objects.read(str(number)) != b"bytes"
            assert wrong == (number in swapped)
        return faulty.met

    assert met(1, "a") == met(1, "b")
    assert met(1, "c") != met(2, "d")
