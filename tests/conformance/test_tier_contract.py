"""Every tier keeps the one contract of `storage/tier.py`, whatever it is made of."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.cold_tiers import close_cold, cold_tier, now_ms, put_frame
from support.object_stores import s3_objects
from turnstate.agents.ports import Record
from turnstate.agents.session.rebuild import rebuild, refolder
from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.errors import FencedError
from turnstate.schemas.ids import SessionName, tenant_prefix
from turnstate.schemas.limits import RECORD_BYTES_MAX
from turnstate.schemas.position import Position
from turnstate.storage.cold.cold_tier import ColdTier
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.storage.frames.header import decode_header
from turnstate.storage.hot.blocking import BlockingTier
from turnstate.storage.hot.memory import MemoryTier
from turnstate.storage.hot.redis import RedisTier
from turnstate.storage.hot.redis_connection import RedisSettings
from turnstate.storage.repair import OneSession
from turnstate.storage.session_reader import operations
from turnstate.storage.stored_head import StoredHead, encode_stored_head
from turnstate.storage.tier import HAS_INDEX, KEEPS_ALL, SessionChange, Tier
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.clock import VirtualClock

REDIS = {"hot redis": "redis_server", "hot redis cluster": "redis_cluster"}
"""Kinds that need a server, and the fixture that gives its URL."""

TIERS = ("hot memory", *REDIS, "warm rocksdb", "cold directory", "cold s3")
"""Every implementation; one that is added is added here and nowhere else."""

names = st.builds(
    SessionName,
    st.text(min_size=1, max_size=6).filter(lambda text: "\0" not in text),
    st.text(min_size=1, max_size=6).filter(lambda text: "\0" not in text),
).filter(lambda name: _is_utf8(name.tenant + name.session))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


Opener = Callable[[str, Path], Tier]


@pytest.fixture(name="opened", scope="session")
def fixture_opened(request: pytest.FixtureRequest) -> Opener:
    """Return what opens a tier of a kind."""

    def opened(kind: str, folder: Path) -> Tier:
        if kind == "hot memory":
            return MemoryTier(64 << 20, frames_kept=64)
        if kind in REDIS:
            place = RedisSettings(
                request.getfixturevalue(REDIS[kind]),
                frames_kept=64,
                prefix=uuid4().hex,
                timeout_ms=10_000,
            )
            return BlockingTier(RedisTier(place, now_ms=now_ms))
        if kind == "cold directory":
            return cold_tier(DirectoryObjects(folder / "cold"))
        if kind == "cold s3":
            return cold_tier(s3_objects(request.getfixturevalue("s3_server")))
        return WarmStore(folder / "warm", log_name="log")

    return opened


def closed(tier: Tier) -> None:
    """Close a tier that holds something open."""
    if isinstance(tier, WarmStore | BlockingTier):
        tier.close()
    elif isinstance(tier, ColdTier):
        close_cold(tier)


@pytest.fixture(params=TIERS)
def tier(
    request: pytest.FixtureRequest, opened: Opener, tmp_path: Path
) -> Iterator[Tier]:
    """Give each implementation in turn."""
    found = opened(request.param, tmp_path)
    yield found
    closed(found)


def turn(name: SessionName, number: int, **fields: Any) -> bytes:
    """Return a turn as JSON."""
    body = {"turn_id": f"id{number}", "role": "user", "content": f"turn {number}"}
    return msgspec.json.encode(
        {"tenant": name.tenant, "session": name.session, **body, **fields}
    )


def records(name: SessionName, count: int, **fields: Any) -> list[Record]:
    """Return some turns of a session as records of a log."""
    return [
        Record(turn(name, at, **fields), Position(b"log", 0, at)) for at in range(count)
    ]


def at_once(name: SessionName, count: int, **fields: Any) -> SessionChange:
    """Return the change by which some turns come in one batch."""
    session = rebuild(
        name.key(),
        records(name, count, **fields),
        graph=default_graph(),
        log_name="log",
        clock=VirtualClock(1_700_000_000_000),
    )
    (change,) = session.changes
    return change


def one_by_one(name: SessionName, count: int) -> list[SessionChange]:
    """Return changes of one turn each, every one decided from the one before."""
    session = OneSession(name.key())
    agent = refolder(session, default_graph(), "log", VirtualClock(1_700_000_000_000))
    for record in records(name, count):
        session.commit(agent.fold([record]).changes)
    return session.changes


NAME = SessionName("t", "s")


def erased(change: SessionChange) -> SessionChange:
    """Return the change by which the session of a change is erased."""
    head = change.after.head
    tombstone = StoredHead(
        msgspec.structs.replace(StoredHead().head, incarnation=head.incarnation + 1),
        erased=True,
    )
    return SessionChange(
        change.key,
        change.after,
        tombstone,
        encode_stored_head(tombstone),
        erased=head.incarnation,
    )


def held(tier: Tier, name: SessionName = NAME) -> StoredHead | None:
    """Return the head that a tier has of a session."""
    return tier.heads([name.key()])[0]


def test_heads_come_back(tier: Tier) -> None:
    """What was committed last is what is read, None for what was never there."""
    made = one_by_one(NAME, 3)
    for change in made:
        tier.commit([change])
    other = SessionName("t", "other").key()
    assert tier.heads([other, NAME.key()]) == [None, made[-1].after]
    assert tier.heads([]) == []


def test_frames_lead_from_a_version_to_the_top(tier: Tier) -> None:
    """Frames come in order and begin above the version that is asked for."""
    made = one_by_one(NAME, 5)
    tier.commit(made[:1])
    for change in made[1:]:
        tier.commit([change])
    for after in range(6):
        found = [decode_header(f) for f in tier.frames(NAME.key(), 1, after)]
        assert [header.to_version for header in found] == list(range(after + 1, 6))
    assert list(tier.frames(NAME.key(), 2, 0)) == []
    assert list(tier.frames(b"\0\1xnobody", 1, 0)) == []


def test_a_commit_is_all_or_nothing(tier: Tier) -> None:
    """Where one change is fenced, the others do not come either."""
    other = SessionName("t", "other")
    first, second = one_by_one(NAME, 2)
    tier.commit([first])
    with pytest.raises(FencedError):
        tier.commit([*one_by_one(other, 1), first])
    assert held(tier, other) is None
    assert held(tier) == first.after
    tier.commit([second])
    assert held(tier) == second.after


def test_a_stale_writer_is_fenced(tier: Tier) -> None:
    """A change decided from an older version or life is refused, changing nothing."""
    first, second, third = one_by_one(NAME, 3)
    tier.commit([first])
    tier.commit([second])
    for stale in (second, first, erased(first)):
        with pytest.raises(FencedError):
            tier.commit([stale])
    tier.commit([erased(second)])
    with pytest.raises(FencedError):
        tier.commit([third])


def test_an_erased_session_leaves_a_tombstone(tier: Tier) -> None:
    """After an erase nothing of the old life can be read; the head says so."""
    (only,) = one_by_one(NAME, 1)
    other = SessionName("t", "s2")
    tier.commit([only, *one_by_one(other, 1)])
    tier.commit([erased(only)])
    head = held(tier)
    assert head is not None
    assert (head.is_tombstone, head.erased, head.head.incarnation) == (True, True, 2)
    assert list(tier.frames(NAME.key(), 1, 0)) == []
    assert len(list(tier.frames(other.key(), 1, 0))) == 1


def test_drop_forgets_one_session(tier: Tier) -> None:
    """Dropping is complete, may be repeated, and leaves its neighbours."""
    names = [("t", "s"), ("t", "s\x01"), ("ts", "s")]
    neighbours = [SessionName(*each) for each in names]
    for name in neighbours:
        tier.commit(one_by_one(name, 1))
    tier.drop(NAME.key())
    tier.drop(NAME.key())
    assert held(tier) is None
    assert list(tier.frames(NAME.key(), 1, 0)) == []
    assert [held(tier, name) is not None for name in neighbours] == [False, True, True]
    tier.commit(one_by_one(NAME, 1))
    assert held(tier) is not None


def test_keys_come_in_byte_order(tier: Tier) -> None:
    """Keys are sorted as bytes, from above a key, under a prefix."""
    everyone = [
        SessionName(tenant, session)
        for tenant in ("a", "ab", "b", "é")
        for session in ("1", "10", "2", "*", "%", "a:b")
    ]
    for name in everyone:
        tier.commit(one_by_one(name, 1))
    ordered = sorted(name.key() for name in everyone)
    assert list(tier.keys()) == ordered
    assert list(tier.keys(after=ordered[7])) == ordered[8:]
    mine = tenant_prefix("a")
    assert list(tier.keys(mine)) == [k for k in ordered if k.startswith(mine)]
    assert {SessionName.from_key(key).tenant for key in tier.keys(mine)} == {"a"}


several_names = st.lists(names, min_size=2, max_size=6, unique=True)


@pytest.mark.parametrize("kind", [kind for kind in TIERS if kind != "cold s3"])
@given(several=several_names)
def test_no_two_names_share_anything(
    kind: str,
    several: list[SessionName],
    opened: Opener,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Whatever characters they hold, tenants and sessions never meet (B4)."""
    check_nothing_is_shared(opened(kind, tmp_path_factory.mktemp("tier")), several)


@settings(max_examples=5)  # each takes some sixty requests
@given(several=several_names)
def test_no_two_names_share_anything_in_s3(
    several: list[SessionName],
    opened: Opener,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The same, in few examples: a commit takes several requests."""
    check_nothing_is_shared(opened("cold s3", tmp_path_factory.mktemp("s3")), several)


def check_nothing_is_shared(tier: Tier, several: list[SessionName]) -> None:
    """Fill a tier with sessions, and look at each of them alone."""
    for number, name in enumerate(several):
        made = one_by_one(name, number % 3 + 1)
        for change in made:
            tier.commit([change])
    for number, name in enumerate(several):
        head = held(tier, name)
        assert head is not None
        assert head.head.version == number % 3 + 1
        assert len(list(tier.frames(name.key(), 1, 0))) == number % 3 + 1
        mine = [SessionName.from_key(k) for k in tier.keys(tenant_prefix(name.tenant))]
        assert {each.tenant for each in mine} == {name.tenant}
    tier.drop(several[0].key())
    assert held(tier, several[0]) is None
    assert all(held(tier, name) is not None for name in several[1:])
    closed(tier)


def test_the_largest_turn_comes_back(tier: Tier) -> None:
    """A turn just under the limit is kept whole."""
    text = "x" * (RECORD_BYTES_MAX - 512)
    made = at_once(NAME, 1, content=text)
    tier.commit([made])
    assert list(tier.frames(NAME.key(), 1, 0)) == [made.frame]


def put_over(tier: WarmStore | ColdTier, change: SessionChange) -> None:
    """Put in a frame, as after a crash between a segment and those it replaces."""
    if isinstance(tier, WarmStore):
        batch = tier.batch()
        batch.stage(change)
        tier.write(batch, sync=False)
    else:
        put_frame(tier, change)


def test_every_version_can_be_read_where_promised(tier: Tier) -> None:
    """KEEPS_ALL: all operations are there, overlapping parts are read once."""
    made = one_by_one(NAME, 12)
    for change in made:
        tier.commit([change])
    if KEEPS_ALL not in tier.capabilities:
        assert tier.name == "hot"
        return
    assert isinstance(tier, WarmStore | ColdTier)
    stored = held(tier)
    assert stored is not None
    put_over(tier, at_once(NAME, 4)._replace(row=encode_stored_head(stored)))
    found = list(operations(tier, NAME.key(), stored))
    assert [version for version, _ in found] == list(range(1, 13))
    assert [op.turn_id for _, op in found] == [f"id{n}" for n in range(12)]


def test_ids_can_be_looked_up_where_promised(tier: Tier) -> None:
    """HAS_INDEX: every turn id is found, and none of another session or life."""
    if HAS_INDEX not in tier.capabilities:
        assert tier.name == "hot"
        return
    assert isinstance(tier, WarmStore | ColdTier)
    tier.commit([at_once(NAME, 3)])
    key, other = NAME.key(), SessionName("t", "sx").key()
    wanted = [(key, 1, "id0"), (key, 1, "id9"), (key, 2, "id0"), (other, 1, "id0")]
    found = tier.ids(wanted)
    assert [entry and entry.version for entry in found] == [1, None, None, None]


@pytest.mark.parametrize("kind", ["warm rocksdb", "cold directory"])
def test_a_store_reopened_is_the_same(
    kind: str, opened: Opener, tmp_path: Path
) -> None:
    """What is durable is there again, to the digest."""
    store = opened(kind, tmp_path)
    made = one_by_one(NAME, 4)
    for change in made:
        store.commit([change])
    closed(store)
    again = opened(kind, tmp_path)
    head = held(again)
    assert head is not None
    assert digest(head.head) == digest(made[-1].after.head)
    assert head == made[-1].after
    closed(again)


def test_report(opened: Opener, tmp_path: Path) -> None:
    """Print what each implementation promises beyond what all must keep."""
    for kind in TIERS:
        tier = opened(kind, tmp_path / kind.replace(" ", "-"))
        told = ", ".join(
            f"{name} {'yes' if name in tier.capabilities else 'no'}"
            for name in (KEEPS_ALL, HAS_INDEX)
        )
        print(f"{kind}: name {tier.name}; {told}")
        assert tier.name in ("hot", "warm", "cold")
        assert tier.capabilities <= {KEEPS_ALL, HAS_INDEX}
        closed(tier)
