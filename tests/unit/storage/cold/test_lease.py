"""One holder at a time, as far as clocks allow; a greater token in any case."""

from contextlib import suppress
from functools import partial
from random import Random

import pytest

from support.memory_objects import MemoryObjects
from support.packs import START_MS, memory
from turnstate.schemas.errors import (
    FencedError,
    UnavailableError,
    UnknownVersionError,
)
from turnstate.storage.cold.lease import MARGIN_MS, TTL_MS, Lease, Leases
from turnstate.storage.cold.numbered import seal

NOW = START_MS


def leases(objects: MemoryObjects, seed: int = 0) -> Leases:
    return Leases(objects, Random(seed).randbytes)


def refused(of: Leases, holder: str, now_ms: int) -> str:
    with pytest.raises(UnavailableError) as caught:
        of.take(holder, now_ms)
    assert caught.value.code == "leased"
    return str(caught.value)


def test_the_first_takes_it_and_the_second_is_told_by_whom_and_until_when() -> None:
    of = leases(memory())
    lease = of.take("one", NOW)

    assert (lease.token, lease.expires_ms) == (1, NOW + TTL_MS)
    told = refused(of, "two", NOW + 1)
    assert "one" in told
    assert "2023-11-14T22:14:20+00:00" in told


def test_it_holds_a_margin_longer_for_others_and_shorter_for_its_holder() -> None:
    of = leases(memory())
    lease = of.take("one", NOW)
    end = lease.expires_ms

    assert lease.is_held(end - MARGIN_MS - 1)
    assert not lease.is_held(end - MARGIN_MS)
    refused(of, "two", end + MARGIN_MS - 1)
    assert of.take("two", end + MARGIN_MS).token == 2


def test_renewing_keeps_the_token_and_losing_it_is_told() -> None:
    of = leases(memory())
    first = of.take("one", NOW)
    renewed = of.renew(first, NOW + TTL_MS // 2)

    assert (renewed.token, renewed.number) == (1, 2)
    refused(of, "two", NOW + TTL_MS + MARGIN_MS)
    other = of.take("two", renewed.expires_ms + MARGIN_MS)
    assert other.token == 3
    with pytest.raises(FencedError, match="two"):
        of.renew(renewed, NOW)
    with pytest.raises(FencedError):
        of.renew(first, NOW)


def test_releasing_lets_the_next_in_at_once() -> None:
    of = leases(memory())
    lease = of.take("one", NOW)
    of.release(lease, NOW + 1)
    of.release(lease, NOW + 1)

    latest = of.latest()
    assert latest is not None
    assert (latest.released, latest.is_held(NOW)) == (True, False)
    assert of.take("two", NOW + 1).token == 3


def test_the_same_holder_takes_it_again_with_a_new_token() -> None:
    of = leases(memory())
    first = of.take("one", NOW)
    assert of.take("one", NOW + 1).token == 2
    with pytest.raises(FencedError):
        of.renew(first, NOW + 2)


def take_into(got: list[Lease], of: Leases) -> None:
    got.append(of.take("x", NOW))


def test_of_two_that_take_it_at_once_one_has_it() -> None:
    """Even with equal names and clocks: their bytes differ by chance."""
    for call in (1, 2, 3):
        objects = memory()
        got: list[Lease] = []
        other = leases(objects, 1)
        objects.interrupt({call: partial(take_into, got, other)})
        with suppress(UnavailableError):
            take_into(got, leases(objects))
        latest = other.latest()
        assert latest in got
        assert len({lease.token for lease in got}) == len(got)


def test_a_clock_that_stepped_back_does_not_lock_everyone_out() -> None:
    """A lease from the future, by more than clocks may differ, is not believed."""
    of = leases(memory())
    far = NOW + 365 * 24 * 3_600_000
    lease = of.take("one", far)
    refused(of, "two", far - MARGIN_MS)
    taken = of.take("two", NOW)

    assert taken.token > lease.token
    with pytest.raises(FencedError):
        of.renew(lease, far)


def test_a_number_that_is_free_because_it_is_old_holds_nothing() -> None:
    objects = memory()
    other = leases(objects, 1)

    def meanwhile() -> None:
        lease = other.take("two", NOW)
        for at in range(5):
            lease = other.renew(lease, NOW + at)
        objects.delete(sorted(objects.held)[:-1])

    objects.interrupt({2: meanwhile})
    refused(leases(objects), "one", NOW)


@pytest.mark.parametrize("body", [seal(b'{"format":1}'), b"", b'{"crc32c":"0'])
def test_a_damaged_lease_ends_by_itself(body: bytes) -> None:
    objects = memory()
    of = leases(objects)
    assert of.latest() is None
    objects.create(of.numbered.name(7), body)
    made_ms = objects.clock()
    refused(of, "one", made_ms)
    found = of.latest()
    assert found is not None
    assert "damaged" in found.holder
    assert (found.number, found.token) == (7, 7)
    taken = of.take("one", made_ms + of.ttl_ms + of.margin_ms)
    assert (taken.number, taken.token) == (8, 8)


def test_a_newer_format_is_told() -> None:
    objects = memory()
    of = leases(objects)
    objects.create(of.numbered.name(1), seal(b'{"format":99}'))
    with pytest.raises(UnknownVersionError):
        of.take("one", NOW)
