"""Owners that race for sessions in Redis: the top version of a life never falls."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from support.hot_sessions import NAME, TurnedClock, changes, erased, opened, settings
from turnstate.schemas.errors import FencedError
from turnstate.storage.frames.header import decode_header
from turnstate.storage.hot.redis import RedisTier
from turnstate.storage.hot.redis_value import decode_value
from turnstate.storage.tier import SessionChange

KEY = NAME.key()
TURNS = 6
HISTORIES = [changes(count=TURNS), changes(count=TURNS, start=100)]
"""What two owners believe: the same versions, other turns."""

Stand = tuple[int, int, int]


@pytest.fixture(name="url", params=["redis_server", "redis_cluster"], scope="module")
def fixture_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


async def stand(tier: RedisTier) -> Stand:
    """Return epoch, incarnation and version of what Redis holds."""
    (data,) = await tier.values([KEY])
    if data is None:
        return (-1, 0, 0)
    value = decode_value(data)
    return (value.epoch, value.incarnation, value.version)


async def check_whole(tier: RedisTier) -> None:
    """Check that the frames lead to the head, or are not served."""
    found = await tier.read(KEY)
    if found is not None and found.frames:
        last = decode_header(found.frames[-1])
        assert last.to_version == found.stored.head.version
        wanted = {change.frame for history in HISTORIES for change in history}
        assert set(found.frames) <= wanted


async def tried(tier: RedisTier, part: Sequence[SessionChange]) -> bool:
    """Commit some changes; say whether they were taken."""
    try:
        await tier.commit(part)
    except FencedError:
        return False
    return True


steps = st.lists(
    st.tuples(
        st.integers(0, 1),  # who writes
        st.integers(0, TURNS - 1),  # from which version on
        st.integers(1, 3),  # how many turns at once
        st.booleans(),  # then ends that life
    ),
    min_size=1,
    max_size=14,
)


@given(steps=steps)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_two_owners_in_any_order(
    url: str, steps: list[tuple[int, int, int, bool]]
) -> None:
    """Epoch first, then life and version: what is there never goes back."""

    async def race() -> None:
        clock = TurnedClock()
        shared = settings(url)
        async with (
            opened(shared, clock.now_ms) as old,
            opened(shared, clock.now_ms) as new,
        ):
            new.epoch = 1
            top = await stand(old)
            for who, start, count, ends in steps:
                tier = (old, new)[who]
                part = HISTORIES[who][start : start + count]
                taken = await tried(tier, part)
                now = await stand(old)
                if taken:
                    head = part[-1].after.head
                    assert now == (who, head.incarnation, head.version)
                    assert now >= top
                else:
                    # Refused: as before, or forgotten with what came with it.
                    assert now in {top, (-1, 0, 0)}
                top = max(top, now) if now[0] >= 0 else now
                await check_whole(old)
                if ends and taken:
                    await tier.commit([erased(part[-1])])
                    top = (who, 2, 0)
                    assert await stand(old) == top
                    assert not await tried(tier, part)

    asyncio.run(race())


def test_two_owners_at_the_same_time(url: str) -> None:
    """Each writes as fast as it can; after the first of the later owner's writes
    nothing of the earlier one gets in."""
    given = settings(url)
    old_turns, new_turns = changes(count=150), changes(count=150, start=500)
    refused = [0, 0]

    async def write(tier: RedisTier, turns: Sequence[SessionChange]) -> None:
        for change in turns:
            if not await tried(tier, [change]):
                refused[tier.epoch] += 1
            await asyncio.sleep(0)

    async def watch(tier: RedisTier, seen: list[Stand]) -> None:
        while True:
            seen.append(await stand(tier))
            await asyncio.sleep(0)

    async def race() -> None:
        async with opened(given) as old, opened(given) as new, opened(given) as third:
            new.epoch = 1
            seen: list[Stand] = []
            watching = asyncio.ensure_future(watch(third, seen))
            late = asyncio.ensure_future(write(old, old_turns))
            while len(seen) < 20:
                assert not watching.done(), watching
                await asyncio.sleep(0.001)
            await write(new, new_turns)
            await late
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            assert seen == sorted(seen)
            assert refused[0] > 0
            assert refused[1] == 0
            found = await third.read(KEY)
            assert found is not None
            assert found.stored == new_turns[-1].after
            assert found.frames == tuple(each.frame for each in new_turns[-8:])

    asyncio.run(race())
