"""The hot tier over time: what expires, what is damaged, what a sweep mends."""

from typing import Any

import pytest

from support.hot_sessions import (
    NAME,
    TurnedClock,
    changes,
    settings,
    versions,
    with_raw,
    with_tier,
)
from turnstate.schemas.errors import CorruptDataError, FencedError
from turnstate.schemas.ids import SessionName
from turnstate.storage.hot.redis import Outcome, RedisTier, written_by
from turnstate.storage.hot.redis_connection import RedisSettings
from turnstate.storage.hot.redis_keys import keys_of

KEY = NAME.key()


@pytest.fixture(name="url", params=["redis_server", "redis_cluster"])
def fixture_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


def test_what_has_expired_is_not_served_whatever_redis_thinks(url: str) -> None:
    clock = TurnedClock()
    made = changes(count=2)

    async def scene(tier: RedisTier) -> None:
        await tier.commit(made[:1])
        clock.at_ms += 59_999
        assert await tier.heads([KEY]) == [made[0].after]
        clock.at_ms += 1
        assert await tier.heads([KEY]) == [None]
        assert await tier.read(KEY) is None
        assert await tier.frames(KEY, 1, 0) == []
        assert await tier.keys() == []
        assert (await tier.sweep(mend=False)).expired == 1
        await tier.commit(made[1:])
        assert await tier.heads([KEY]) == [made[1].after]

    with_tier(settings(url, ttl_s=60), scene, clock.now_ms)


def test_every_key_has_a_ttl_from_the_first_moment(redis_server: str) -> None:
    given = settings(redis_server, ttl_s=100, tombstone_ttl_s=1_000)
    gone = SessionName("t", "gone")

    async def scene(tier: RedisTier) -> None:
        await tier.commit(changes(count=3))
        await tier.commit(changes(gone))
        await tier.erase(gone.key(), 1)

    with_tier(given, scene)

    async def look(raw: Any) -> dict[bytes, int]:
        names = [name async for name in raw.scan_iter(f"{given.prefix}:*")]
        return {name: await raw.pttl(name) for name in names}

    found = with_raw(redis_server, look)
    alive, tombstone = keys_of(given.prefix, KEY), keys_of(given.prefix, gone.key())[2]
    assert set(found) == {alive.head, alive.body, tombstone}
    assert 0 < found[alive.head] <= 100_000
    assert 0 < found[alive.body] <= 100_000
    assert 100_000 < found[tombstone] <= 1_000_000


def test_nothing_is_left_of_what_is_replaced(redis_server: str) -> None:
    """Frames of an owner that was replaced may tell otherwise, version for version."""
    given = settings(redis_server)
    zombies, ours = changes(count=2), changes(count=3, start=100)
    body = keys_of(given.prefix, KEY).body

    async def scene(tier: RedisTier) -> None:
        await tier.commit(zombies)
        tier.epoch = 1
        await tier.commit(ours[2:])

    with_tier(given, scene)
    left = with_raw(redis_server, lambda raw: raw.lrange(body, 0, -1))
    assert left == [ours[2].frame]


def test_a_head_whose_body_is_gone_goes_with_the_next_write_that_has_none(
    redis_server: str,
) -> None:
    given = settings(redis_server)
    (first,) = changes()
    again = written_by(first._replace(before=first.after, frame=None))
    with_tier(given, lambda tier: tier.commit([first]))
    with_raw(redis_server, lambda raw: raw.delete(keys_of(given.prefix, KEY).body))

    outcomes = with_tier(given, lambda tier: tier.write([again]))

    assert outcomes == [Outcome.NOT_HELD]
    assert with_tier(given, lambda tier: tier.heads([KEY])) == [None]


def test_frames_with_a_hole_are_not_served(redis_server: str) -> None:
    """As where Redis threw away a body, and a later frame made a new one."""
    given = settings(redis_server)
    made = changes(count=4)
    body = keys_of(given.prefix, KEY).body

    with_tier(given, lambda tier: tier.commit(made[:3]))
    with_raw(redis_server, lambda raw: raw.lset(body, 1, made[3].frame))
    assert versions(with_tier(given, lambda tier: tier.read(KEY))) == [3]
    with_raw(redis_server, lambda raw: raw.lset(body, 2, made[3].frame))
    assert with_tier(given, lambda tier: tier.frames(KEY, 1, 0)) == []


@pytest.mark.parametrize("at", [0, 20, 60])
def test_a_damaged_head_is_told_from_a_good_one(redis_server: str, at: int) -> None:
    given = settings(redis_server)
    with_tier(given, lambda tier: tier.commit(changes()))
    head = keys_of(given.prefix, KEY).head
    with_raw(redis_server, lambda raw: raw.setrange(head, at, b"\xff"))

    with pytest.raises(CorruptDataError):
        with_tier(given, lambda tier: tier.heads([KEY]))


def swept(given: RedisSettings, *, mend: bool) -> Any:
    """Return what a sweep reports, as a dictionary of what is not 0."""
    report = with_tier(given, lambda tier: tier.sweep(mend=mend))
    return {name: value for name, value in report._asdict().items() if value}


FAULTS: list[tuple[str, dict[str, int]]] = [
    ("PERSIST h", {"without_ttl": 1, "mended": 1}),
    ("PERSIST f", {"without_ttl": 1, "mended": 1}),
    ("DEL f", {"without_body": 1, "mended": 1}),
    ("DEL h", {"without_head": 1, "mended": 1}),
    ("SET h nonsense", {"malformed": 1, "without_ttl": 1, "mended": 1}),
]


@pytest.mark.parametrize(("fault", "wanted"), FAULTS, ids=[each[0] for each in FAULTS])
def test_a_sweep_finds_and_mends(
    redis_server: str, fault: str, wanted: dict[str, int]
) -> None:
    given = settings(redis_server)
    names = [SessionName("t", f"s{at}") for at in range(20)]
    with_tier(given, lambda tier: tier.commit([changes(name)[0] for name in names]))
    keys = keys_of(given.prefix, names[3].key())
    command, part, *rest = fault.split()
    name = {"h": keys.head, "f": keys.body}[part]
    assert swept(given, mend=True) == {"heads": 20, "bodies": 20}
    with_raw(redis_server, lambda raw: raw.execute_command(command, name, *rest))

    looked = swept(given, mend=False)
    mended = swept(given, mend=True)

    # Body and head go together, whichever SCAN shows first.
    faults = [
        {k: v for k, v in report.items() if k not in {"heads", "bodies"}}
        for report in (looked, mended)
    ]
    assert faults == [{k: v for k, v in wanted.items() if k != "mended"}, wanted]
    assert swept(given, mend=True) == {"heads": 19, "bodies": 19}
    assert with_tier(given, lambda tier: tier.heads([names[3].key()])) == [None]


def test_a_sweep_keeps_tombstones_and_strangers(redis_server: str) -> None:
    given = settings(redis_server)
    keys = keys_of(given.prefix, KEY)
    with_tier(given, lambda tier: tier.erase(KEY, 1))
    with_raw(redis_server, lambda raw: raw.persist(keys.tombstone))
    with_raw(redis_server, lambda raw: raw.set(f"{given.prefix}:{{!}}:h", "x", ex=60))

    assert swept(given, mend=True) == {
        "tombstones": 1,
        "strange": 1,
        "without_ttl": 1,
        "mended": 1,
    }
    assert swept(given, mend=True) == {"tombstones": 1, "strange": 1}
    assert with_raw(redis_server, lambda raw: raw.pttl(keys.tombstone)) > 0
    with pytest.raises(FencedError, match="erased"):
        with_tier(given, lambda tier: tier.commit(changes()))


def test_a_sweep_walks_over_every_node(redis_cluster: str) -> None:
    given = settings(redis_cluster)
    made = [changes(SessionName("t", f"s{at}"))[0] for at in range(300)]

    async def scene(tier: RedisTier) -> None:
        await tier.commit(made)
        report = await tier.sweep()
        assert (report.heads, report.bodies, report.is_sound) == (300, 300, True)
        assert await tier.keys() == sorted(change.key for change in made)

    with_tier(given, scene)
