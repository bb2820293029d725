"""Objects in a real bucket, where answers are lost, torn, late or 503."""

import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Final

import pytest

from support.cutting_proxy import CuttingProxy, Fault
from support.object_stores import SERVERS, s3_objects
from support.shared_services import shared, shared_root
from turnstate.schemas.errors import ChecksumError, UnavailableError
from turnstate.storage.cold.s3 import S3Objects
from turnstate.storage.cold.s3_requests import S3Requests

LARGE: Final = Random(3).randbytes(11 << 20)
"""Three parts."""

RACERS: Final = 8


@pytest.fixture(name="s3_server", scope="module", params=SERVERS)
def fixture_s3_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[dict[str, str]]:
    """Every S3 server that is here, in turn."""
    root, name = shared_root(tmp_path_factory), request.param
    with shared(root, name, SERVERS[name]) as server:
        yield server.connection


@pytest.fixture(name="proxy")
def fixture_proxy(s3_server: dict[str, str]) -> Iterator[CuttingProxy]:
    with CuttingProxy(s3_server["endpoint"]) as proxy:
        yield proxy


@pytest.fixture(name="objects")
def fixture_objects(
    s3_server: dict[str, str], proxy: CuttingProxy
) -> Iterator[S3Objects]:
    """Objects behind the proxy; every planned fault has to be met."""
    objects = s3_objects(s3_server, endpoint=proxy.endpoint, attempts_max=3)
    yield objects
    objects.close()
    assert proxy.left() == 0


def names(objects: S3Objects) -> list[str]:
    return [info.name for info in objects.list()]


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.DROP, Fault.CONFLICT])
@pytest.mark.parametrize("times", [1, 2])
def test_a_create_whose_answer_is_lost_has_created(
    objects: S3Objects, proxy: CuttingProxy, fault: Fault, times: int
) -> None:
    proxy.plan("PUT", fault, times=times)

    assert objects.create("a", b"first")
    assert not objects.create("a", b"first"), "another call, though the bytes agree"
    assert objects.read("a") == b"first"
    assert names(objects) == ["a"]


def test_a_create_that_gets_no_answer_at_all_looks_for_its_object(
    objects: S3Objects, proxy: CuttingProxy
) -> None:
    proxy.plan("PUT", Fault.CUT, times=3)

    assert objects.create("a", b"first")
    assert objects.requests() == {"PutObject": 3, "HeadObject": 1}


def test_a_create_that_never_arrived_fails_and_can_be_made_again(
    objects: S3Objects, proxy: CuttingProxy
) -> None:
    proxy.plan("PUT", Fault.DROP, times=3)

    with pytest.raises(UnavailableError):
        objects.create("a", b"first")
    assert names(objects) == []
    assert objects.create("a", b"first")


def test_an_answer_that_comes_too_late_was_a_success(
    s3_server: dict[str, str],
) -> None:
    with CuttingProxy(s3_server["endpoint"], hold_s=1.0) as proxy:
        objects = s3_objects(
            s3_server, endpoint=proxy.endpoint, timeout_ms=400, attempts_max=2
        )
        proxy.plan("PUT", Fault.HOLD, times=2)

        assert objects.create("a", b"first")
        assert objects.read("a") == b"first"
        objects.close()


def test_an_object_of_another_is_not_taken_for_the_lost_one(
    objects: S3Objects, proxy: CuttingProxy, s3_server: dict[str, str]
) -> None:
    """The first attempt is lost on the way there, and somebody comes between."""
    other = s3_objects(s3_server, prefix=objects.settings.prefix)
    other.create("a", b"same bytes")
    proxy.plan("PUT", Fault.DROP)

    assert not objects.create("a", b"same bytes")
    other.close()


@pytest.mark.parametrize("has", ["uploads", "uploadId"])
@pytest.mark.parametrize("fault", [Fault.CUT, Fault.DROP, Fault.BUSY])
def test_a_large_object_survives_a_lost_answer_to_its_begin_or_end(
    objects: S3Objects, proxy: CuttingProxy, fault: Fault, has: str
) -> None:
    proxy.plan("POST", fault, has=has)

    assert objects.create("large", LARGE)
    assert not objects.create("large", LARGE)
    assert objects.read("large") == LARGE
    # A begin whose answer was lost leaves an upload that nobody knows.
    left = 1 if (fault, has) == (Fault.CUT, "uploads") else 0
    assert objects.sweep(time.time_ns() // 1_000_000, min_age_ms=3_600_000) == 0
    assert objects.sweep(time.time_ns() // 1_000_000, min_age_ms=-60_000) == left
    assert objects.sweep(time.time_ns() // 1_000_000, min_age_ms=-60_000) == 0


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.DROP])
def test_a_part_is_sent_again(
    objects: S3Objects, proxy: CuttingProxy, fault: Fault
) -> None:
    proxy.plan("PUT", fault, has="partNumber=2")

    assert objects.create("large", LARGE)
    assert objects.read("large") == LARGE


def test_a_large_object_that_cannot_be_sent_leaves_no_parts(
    objects: S3Objects, proxy: CuttingProxy
) -> None:
    proxy.plan("PUT", Fault.DROP, has="partNumber=2", times=3)

    with pytest.raises(UnavailableError):
        objects.create("large", LARGE)
    assert names(objects) == []
    assert objects.sweep(time.time_ns() // 1_000_000, min_age_ms=-60_000) == 0
    assert objects.create("large", LARGE)


def test_a_completion_in_conflict_sends_the_object_again(
    objects: S3Objects, proxy: CuttingProxy
) -> None:
    proxy.plan("POST", Fault.CONFLICT, has="uploadId")

    assert objects.create("large", LARGE)
    assert objects.requests()["CreateMultipartUpload"] == 2
    assert objects.sweep(time.time_ns() // 1_000_000, min_age_ms=-60_000) == 0


def test_a_conflict_without_end_is_told(
    objects: S3Objects, proxy: CuttingProxy
) -> None:
    proxy.plan("PUT", Fault.CONFLICT, times=3)

    with pytest.raises(UnavailableError, match="409 ConditionalRequestConflict"):
        objects.create("a", b"first")


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.TEAR, Fault.BUSY])
def test_a_read_that_breaks_off_is_made_again(
    objects: S3Objects, proxy: CuttingProxy, fault: Fault
) -> None:
    data = bytes(range(256)) * 1_000
    objects.create("a", data)

    proxy.plan("GET", fault)
    assert objects.read("a") == data
    proxy.plan("GET", fault)
    assert objects.read("a", 1_000, 5_000) == data[1_000:6_000]
    proxy.plan("GET", fault)
    assert objects.read_end("a", 5_000) == data[-5_000:]
    proxy.plan("GET", fault)
    assert names(objects) == ["a"]


def test_a_read_that_always_breaks_off_fails(
    objects: S3Objects, proxy: CuttingProxy
) -> None:
    objects.create("a", b"0123456789")
    proxy.plan("GET", Fault.TEAR, times=3)

    with pytest.raises(UnavailableError, match="did not answer to the end"):
        objects.read("a")


def test_a_wrong_bit_in_a_whole_object_is_seen(
    objects: S3Objects, proxy: CuttingProxy
) -> None:
    objects.create("a", b"0123456789")
    proxy.plan("GET", Fault.FLIP)

    with pytest.raises(ChecksumError):
        objects.read("a")
    assert objects.read("a") == b"0123456789"


def test_bytes_that_change_on_the_way_there_are_refused_by_the_server(
    s3_server: dict[str, str],
) -> None:
    """The checksum that is sent is one that the server checks."""
    objects = s3_objects(s3_server, attempts_max=1)
    requests = S3Requests(objects.settings)
    key = f"{objects.settings.prefix}/a"

    with pytest.raises(Exception, match="BadDigest"):
        requests.send("put_object", Key=key, Body=b"x", ChecksumCRC32C="AAAAAA==")
    assert names(objects) == []
    requests.close()
    objects.close()


def test_a_delete_whose_answer_is_lost_has_deleted(
    objects: S3Objects, proxy: CuttingProxy
) -> None:
    objects.create("a", b"x")
    proxy.plan("POST", Fault.CUT)

    objects.delete(["a", "b"])

    assert names(objects) == []


def test_a_storm_of_503_is_sat_out(objects: S3Objects, proxy: CuttingProxy) -> None:
    proxy.plan("PUT", Fault.BUSY, times=2)

    assert objects.create("a", b"x")
    assert objects.requests() == {"PutObject": 3}


def test_a_storm_of_503_that_does_not_end_is_told(
    objects: S3Objects, proxy: CuttingProxy
) -> None:
    proxy.plan("PUT", Fault.BUSY, times=3)

    with pytest.raises(UnavailableError, match="503 SlowDown") as raised:
        objects.create("a", b"x")
    assert raised.value.hint == "the S3 server is overloaded: try again later"
    assert names(objects) == []


def test_racers_whose_answers_are_lost_have_one_winner(
    objects: S3Objects, proxy: CuttingProxy
) -> None:
    for number in range(5):
        proxy.plan("PUT", Fault.CUT, times=4)
        with ThreadPoolExecutor(RACERS) as pool:
            won = [
                pool.submit(objects.create, f"race/{number}", b"same")
                for _ in range(RACERS)
            ]
        assert sum(each.result() for each in won) == 1
