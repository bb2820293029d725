"""A session whose time to live has run out is not served, and a job erases it."""

import secrets
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from turnstate.agents.archive.summary import decode_summary
from turnstate.agents.tiering.budget import RunBudget
from turnstate.schemas.errors import NotFoundError
from turnstate.storage.archive import Archive
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.streams.clock import VirtualClock
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.settings import Settings
from turnstate.streams.tiers.opening import OpenedTiers

TTL_S = 7 * 86_400
DAY_MS = 86_400_000


def turn(session: str, number: int) -> bytes:
    """Return a turn as JSON."""
    return msgspec.json.encode(
        {
            "tenant": "t",
            "session": session,
            "turn_id": f"{session}-{number}",
            "role": "user",
            "content": f"words of {session}, {number}",
        }
    )


@pytest.fixture
def clock() -> VirtualClock:
    """Give a clock."""
    return VirtualClock(1_790_000_000_000)


def opened(path: Path, clock: VirtualClock, ttl_s: int = TTL_S) -> OwnedStore:
    """Return a store with a time to live."""
    settings = replace(Settings(data=path), ttl_s=ttl_s)
    return OwnedStore(settings, clock, serving=False)


def run_job(store: OwnedStore, clock: VirtualClock) -> dict[str, int]:
    """Run the tier job once; return what moved."""
    report = OpenedTiers(store.settings, store, clock).job.run(RunBudget())
    return dict(report.moved)


def sessions(store: OwnedStore) -> list[str]:
    """Return the names that lists show."""
    return [row["session"] for row in store.sessions()]


@pytest.mark.parametrize("cooled", [False, True])
def test_what_has_expired_is_not_served_and_then_gone(
    tmp_path: Path, clock: VirtualClock, *, cooled: bool
) -> None:
    """Not one millisecond longer, wherever it lies; the job then erases it."""
    with opened(tmp_path, clock) as store:
        store.publish([turn("old", 1), turn("new", 1)])
        clock.advance(3 * DAY_MS)
        store.publish([turn("new", 2)])
        if cooled:
            clock.advance(2 * DAY_MS)
            assert run_job(store, clock)["warm>cold"] == 2
            clock.advance(2 * DAY_MS - 1)
        else:
            clock.advance(4 * DAY_MS - 1)
        assert store.state("t", "old")["turn_count"] == 1
        clock.advance(1)
        for read in (store.state, store.turns, store.history):
            with pytest.raises(NotFoundError):
                read("t", "old")
        assert sessions(store) == ["new"]
        planned = OpenedTiers(store.settings, store, clock).job.run(
            RunBudget(), dry_run=True
        )
        assert planned.moved[f"{'cold' if cooled else 'hot'}>nowhere"] == 1
        assert run_job(store, clock).get(f"{'cold' if cooled else 'hot'}>nowhere", 0)
        (found,) = store.warm.heads([b"\x00\x01told"])
        assert found is not None
        assert found.is_tombstone
        assert b"words of old" not in b"".join(r for _, r in store.engine.log.read())
        assert store.verify()["bad"] == []
        assert store.state("t", "new")["turn_count"] == 2


def test_a_summary_is_archived_before(tmp_path: Path, clock: VirtualClock) -> None:
    """All or none, no text in it, kept for as long as the settings say."""
    place = tmp_path / "archive"
    settings = replace(
        Settings(data=tmp_path / "data"),
        ttl_s=TTL_S,
        archive=str(place),
        archive_keep_days=10,
    )
    with OwnedStore(settings, clock, serving=False) as store:
        store.publish([turn(f"s{at}", number) for at in range(5) for number in (1, 2)])
        digests = {row["session"]: row["digest"] for row in store.sessions()}
        clock.advance(1000 * TTL_S)
        tiers = OpenedTiers(settings, store, clock)
        report = tiers.job.run(RunBudget())
        assert (report.archived, report.moved["hot>nowhere"]) == (5, 5)
        archive = Archive(DirectoryObjects(place), secrets.token_bytes)
        (batch,) = archive.manifest().batches
        lines = b"".join(archive.read(batch)).splitlines()
        assert {decode_summary(line).digest for line in lines} == {*digests.values()}
        assert b"words" not in b"".join(lines)
        assert b'"s1"' not in b"".join(lines)
        key = settings.data / "archive.key"
        assert key.stat().st_mode & 0o777 == 0o600
        assert store.call("tier_forget_archived") == {"archived_batches": 0}
        clock.advance(10 * DAY_MS)
        assert store.call("tier_forget_archived") == {"archived_batches": 1}
        assert not archive.manifest().batches


def test_what_cannot_be_archived_stays(tmp_path: Path, clock: VirtualClock) -> None:
    """An archive that is away keeps the job from erasing, and is named."""
    place = tmp_path / "archive"
    place.write_text("no folder")
    settings = replace(
        Settings(data=tmp_path / "data"), ttl_s=TTL_S, archive=str(place)
    )
    with OwnedStore(settings, clock, serving=False) as store:
        store.publish([turn("s", 1)])
        clock.advance(1000 * TTL_S)
        report = OpenedTiers(settings, store, clock).job.run(RunBudget())
        assert not report.moved
        assert any(str(place) in why for why in report.skipped)
        (found,) = store.warm.heads([b"\x00\x01ts"])
        assert found is not None
        assert found.head.version == 1


def test_a_turn_in_time_goes_on_with_it(tmp_path: Path, clock: VirtualClock) -> None:
    """What has expired and is not erased yet lives again with its next turn."""
    with opened(tmp_path, clock) as store:
        store.publish([turn("s", 1)])
        clock.advance(1000 * TTL_S)
        assert sessions(store) == []
        store.publish([turn("s", 2)])
        assert store.state("t", "s")["version"] == 2


def test_without_a_time_to_live_nothing_expires(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """The default: cold is the last stop."""
    with opened(tmp_path, clock, ttl_s=0) as store:
        store.publish([turn("s", 1)])
        clock.advance(3650 * DAY_MS)
        assert run_job(store, clock) == {"warm>cold": 1, "hot>warm": 1}
        assert store.state("t", "s")["tier"] == "cold"
        assert run_job(store, clock) == {}
