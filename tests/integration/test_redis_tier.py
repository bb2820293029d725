"""The hot tier on a real Redis and a real Cluster: what it keeps and refuses."""

import asyncio
from typing import Any

import pytest

from support.hot_sessions import (
    NAME,
    changes,
    erased,
    opened,
    raw_of,
    settings,
    versions,
    with_tier,
)
from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.errors import CorruptDataError, FencedError
from turnstate.schemas.ids import SessionName, tenant_prefix
from turnstate.storage.hot.redis import (
    HotSession,
    Outcome,
    RedisTier,
    Write,
    written_by,
)
from turnstate.storage.hot.redis_cache import HotCache
from turnstate.storage.hot.redis_cipher import RedisCipher
from turnstate.storage.hot.redis_keys import keys_of
from turnstate.storage.hot.redis_link import Call
from turnstate.storage.hot.redis_script import DROP, WRITE

KEY = NAME.key()


@pytest.fixture(name="url", params=["redis_server", "redis_cluster"])
def fixture_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


def test_a_read_gives_head_and_last_frames(url: str) -> None:
    made = changes(count=12)

    async def scene(tier: RedisTier) -> None:
        for change in made:
            await tier.commit([change])
        found = await tier.read(KEY)
        assert found is not None
        assert found.stored == made[-1].after
        assert digest(found.stored.head) == digest(made[-1].after.head)
        assert found.frames == tuple(change.frame for change in made[-8:])
        assert await tier.frames(KEY, 1, 10) == [made[10].frame, made[11].frame]
        assert (found.epoch, found.key) == (0, KEY)

    with_tier(settings(url), scene)


def test_what_is_encrypted_is_read_by_its_key_alone(redis_server: str) -> None:
    made = changes(count=12)
    given = settings(redis_server)

    async def scene() -> None:
        async with opened(given) as tier, raw_of(redis_server) as raw:
            await told(tier, raw)

    async def told(tier: RedisTier, raw: Any) -> None:
        tier.cipher = RedisCipher(b"key number 1", bytes(32))
        for change in made:
            await tier.commit([change])
        found = await tier.read(KEY)
        assert found is not None
        assert found.stored == made[-1].after
        assert found.frames == tuple(change.frame for change in made[-8:])
        assert await tier.heads([KEY]) == [made[-1].after]
        assert await HotCache(tier).heads([KEY]) == [made[-1].after]
        names = keys_of(given.prefix, KEY)
        lies = [await raw.get(names.head), *await raw.lrange(names.body, 0, -1)]
        assert not any(b"turn 1" in each for each in lies)
        tier.cipher = None
        with pytest.raises(CorruptDataError):
            await tier.read(KEY)

    asyncio.run(scene())


def test_many_changes_of_one_session_may_come_in_one_commit(url: str) -> None:
    made = changes(count=6)

    async def scene(tier: RedisTier) -> None:
        await tier.commit(made[:2])
        await tier.drop(KEY)
        await tier.commit(made[2:])
        assert await tier.heads([KEY]) == [made[-1].after]
        assert versions(await tier.read(KEY)) == [3, 4, 5, 6]

    with_tier(settings(url), scene)


def test_a_session_of_10_000_turns_stays_bounded(redis_server: str) -> None:
    made = changes(count=10_000)
    given = settings(redis_server)

    async def scene(tier: RedisTier, raw: Any) -> None:
        sizes: list[int] = []
        for at in range(0, len(made), 500):
            await tier.commit(made[at : at + 500])
            used = [
                await raw.memory_usage(name) or 0 for name in keys_of(given.prefix, KEY)
            ]
            sizes.append(sum(used))
        assert versions(await tier.read(KEY)) == list(range(9_993, 10_001))
        assert max(sizes) < 2 * sizes[0]

    async def done() -> None:
        async with opened(given) as tier, raw_of(redis_server) as raw:
            await scene(tier, raw)

    asyncio.run(done())


def test_hundreds_of_sessions_take_one_round_trip(redis_server: str) -> None:
    names = [SessionName("t", f"s{at}") for at in range(200)]
    made = [changes(name)[0] for name in names]

    async def scene() -> None:
        given = settings(redis_server)
        async with opened(given) as tier, raw_of(redis_server) as raw:
            await tier.heads([KEY])
            await tier.commit([changes()[0]])  # the scripts are known from here on
            calls: list[tuple[Any, int]] = [
                (lambda: tier.commit(made), 200),
                (lambda: tier.heads([name.key() for name in names]), 1),
                (lambda: tier.read(KEY), 1),
            ]
            for call, commands in calls:
                before = await raw.info("stats")
                await call()
                after = await raw.info("stats")
                reads = after["total_reads_processed"] - before["total_reads_processed"]
                scripts = (
                    after["total_commands_processed"]
                    - before["total_commands_processed"]
                )
                # A round trip is one read of the socket, or some of 16 KB; the
                # commands inside of a script count, too.
                assert reads <= 30
                assert scripts >= commands
            assert None not in await tier.heads([name.key() for name in names])

    asyncio.run(scene())


def test_a_smaller_epoch_never_writes_after_a_greater(url: str) -> None:
    given = settings(url, epoch=7)
    first, second, third = changes(count=3)

    async def scene(tier: RedisTier) -> None:
        await tier.commit([first])
        tier.epoch = 6
        with pytest.raises(FencedError):
            await tier.commit([second])
        assert await tier.heads([KEY]) == [first.after]
        tier.epoch = 8
        await tier.commit([second])
        tier.epoch = 7
        with pytest.raises(FencedError):
            await tier.commit([third])

    with_tier(given, scene)


def test_what_an_earlier_owner_left_fences_nobody(url: str) -> None:
    """A zombie wrote on and on; the owner after it has another truth."""
    zombies, ours = changes(count=9), changes(count=3, start=100)

    async def scene(tier: RedisTier) -> None:
        await tier.commit(zombies)
        tier.epoch = 1
        await tier.commit([ours[2]])
        found = await tier.read(KEY)
        assert found is not None
        assert (found.stored, found.frames) == (ours[2].after, (ours[2].frame,))
        tier.epoch = 0
        with pytest.raises(FencedError):
            await tier.commit(changes(count=10)[9:])

    with_tier(settings(url), scene)


def test_a_hot_tier_that_fell_behind_is_written_whole(url: str) -> None:
    made = changes(count=9)

    async def scene(tier: RedisTier) -> None:
        await tier.commit(made[:3])
        await tier.commit(made[6:7])
        found = await tier.read(KEY)
        assert found is not None
        assert (found.stored, versions(found)) == (made[6].after, [7])
        await tier.commit(made[7:])
        assert versions(await tier.read(KEY)) == [7, 8, 9]

    with_tier(settings(url), scene)


def test_an_erased_life_is_refused_for_good(url: str) -> None:
    first, second = changes(count=2)

    async def scene(tier: RedisTier) -> None:
        await tier.commit([first])
        await tier.erase(KEY, 1)
        await tier.erase(KEY, 1)
        assert await tier.heads([KEY]) == [None]
        assert await tier.read(KEY) is None
        assert await tier.keys() == []
        for epoch in (0, 9):
            tier.epoch = epoch
            for late in (first, second):
                with pytest.raises(FencedError, match="erased") as raised:
                    await tier.commit([late])
                assert raised.value.code == "erased"
            assert await tier.fill([HotSession(KEY, second.after, ())]) == [
                Outcome.ERASED
            ]
        await tier.drop(KEY)
        with pytest.raises(FencedError):
            await tier.commit([first])
        assert await tier.heads([KEY]) == [None]

    with_tier(settings(url), scene)


def test_an_erase_that_comes_as_a_change_is_remembered_too(url: str) -> None:
    first, second = changes(count=2)
    tombstone = erased(first)

    async def scene(tier: RedisTier) -> None:
        await tier.commit([first, tombstone])
        assert await tier.heads([KEY]) == [tombstone.after]
        await tier.drop(KEY)
        with pytest.raises(FencedError, match="erased"):
            await tier.commit([second])
        (outcome,) = await tier.fill([HotSession(KEY, tombstone.after, ())])
        assert outcome is Outcome.WRITTEN
        await tier.erase(KEY, 1)
        assert await tier.heads([KEY]) == [tombstone.after], "a later life stays"

    with_tier(settings(url), scene)


def test_a_write_whose_answer_was_lost_is_known_when_it_comes_again(url: str) -> None:
    """A client sends the same bytes once more; that is no second write."""
    first, second = changes(count=2)

    async def scene(tier: RedisTier) -> None:
        await tier.commit([first])
        call = tier._call(written_by(second), b"write id")
        answers = [await tier._link.evaluate(WRITE, [call]) for _ in range(3)]
        assert answers == [[b"WRITTEN"]] * 3
        assert versions(await tier.read(KEY)) == [1, 2]
        with pytest.raises(FencedError):
            await tier.commit([second])

    with_tier(settings(url), scene)


def test_where_nothing_is_a_write_says_what_it_lacks_and_takes_back_its_own(
    url: str,
) -> None:
    """The two rare answers: bring it all; and forget it, if it is still yours."""
    first, second = changes(count=2)

    async def scene(tier: RedisTier) -> None:
        call = tier._call(written_by(second), b"write id")
        assert await tier._link.evaluate(WRITE, [call]) == [b"NEED_HEAD"]
        whole = tier._call(written_by(second)._replace(whole=True), b"write id")
        assert await tier._link.evaluate(WRITE, [whole]) == [b"WRITTEN"]
        for write_id, left in ((b"another.", second.after), (b"write id", None)):
            await tier._link.evaluate(DROP, [Call(call.keys, (write_id,))])
            assert await tier.heads([KEY]) == [left]
        new = tier._call(written_by(first), b"write id")
        assert await tier._link.evaluate(WRITE, [new]) == [b"WRITTEN"], "it is all"

    with_tier(settings(url), scene)


def test_a_refused_commit_leaves_nothing_of_itself(url: str) -> None:
    others = [SessionName("t", f"other{at}") for at in range(9)]
    first, second = changes(count=2)

    async def scene(tier: RedisTier) -> None:
        await tier.commit([first, second])
        with pytest.raises(FencedError):
            await tier.commit([*[changes(name)[0] for name in others], second])
        assert await tier.heads([name.key() for name in others]) == [None] * 9
        assert await tier.heads([KEY]) == [second.after]

    with_tier(settings(url), scene)


def test_the_same_state_with_other_bookkeeping_takes_its_place(url: str) -> None:
    (first,) = changes()
    again = first._replace(before=first.after, frame=None)

    async def scene(tier: RedisTier) -> None:
        await tier.commit([first])
        await tier.commit([again])
        assert versions(await tier.read(KEY)) == [1]
        await tier.drop(KEY)
        # Nothing to read in it but the head: not worth a place.
        assert await tier.write([written_by(again)]) == [Outcome.NOT_HELD]
        assert await tier.heads([KEY]) == [None]

    with_tier(settings(url), scene)


@pytest.mark.parametrize(
    "session",
    ["\x01", "{}", "}{", "a:b", "*", "?[x]", "\\", "北京", "s\n", " ", "x" * 512],
)
def test_ids_of_any_characters_stay_apart(url: str, session: str) -> None:
    names = [SessionName("t", session), SessionName("t", "s"), SessionName("t*", "s")]

    async def scene(tier: RedisTier) -> None:
        for at, name in enumerate(names):
            await tier.commit(changes(name, at + 1))
        heads = await tier.heads([name.key() for name in names])
        assert [head and head.head.version for head in heads] == [1, 2, 3]
        assert await tier.keys(tenant_prefix("t")) == sorted(
            name.key() for name in names[:2]
        )
        await tier.drop(names[0].key())
        assert len(await tier.keys()) == 2

    with_tier(settings(url), scene)


def test_a_key_with_a_nul_is_a_key(url: str) -> None:
    """Ids hold none (`checked_id`), but keys of other stores might."""
    key = b"\0\1t\0:{\0}"
    (made,) = changes()

    async def scene(tier: RedisTier) -> None:
        await tier.commit([made._replace(key=key)])
        assert await tier.keys() == [key]
        assert await tier.heads([key, b"\0\1t"]) == [made.after, None]

    with_tier(settings(url), scene)


def test_stores_with_two_prefixes_share_nothing(redis_server: str) -> None:
    one, other = settings(redis_server), settings(redis_server)

    with_tier(one, lambda tier: tier.commit(changes()))

    assert with_tier(other, lambda tier: tier.keys()) == []
    assert with_tier(other, lambda tier: tier.heads([KEY])) == [None]
    assert with_tier(one, lambda tier: tier.keys()) == [KEY]


def test_what_is_put_in_for_reading_gives_way_to_what_is_newer(url: str) -> None:
    made = changes(count=4)
    frames = tuple(change.frame or b"" for change in made)

    async def scene(tier: RedisTier) -> None:
        two = HotSession(KEY, made[1].after, frames[:2])
        assert await tier.fill([two]) == [Outcome.WRITTEN]
        assert versions(await tier.read(KEY)) == [1, 2]
        await tier.commit(made[2:])
        assert versions(await tier.read(KEY)) == [1, 2, 3, 4]
        assert await tier.fill([two]) == [Outcome.FENCED]
        assert await tier.heads([KEY]) == [made[3].after]

    with_tier(settings(url), scene)


def test_numbers_are_compared_exactly_beyond_what_lua_can_count(url: str) -> None:
    big = (1 << 60) + 1
    given = settings(url, epoch=big)
    first, second = changes(count=2)

    async def scene(tier: RedisTier) -> None:
        await tier.commit([first])
        tier.epoch = big - 1
        with pytest.raises(FencedError):
            await tier.commit([second])
        tier.epoch = big + 1
        assert await tier.write(
            [Write(KEY, (1, 1), second.after, second.row, [second.frame or b""])]
        ) == [Outcome.WRITTEN]

    with_tier(given, scene)
