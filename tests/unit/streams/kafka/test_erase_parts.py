"""The parts of an erase on a cluster that need no cluster."""

import pytest

from turnstate.schemas.clocks import Dot
from turnstate.schemas.errors import CorruptDataError, UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.warm.changelog_records import (
    COLD_KIND,
    ERASE_KIND,
    FRAME_KIND,
    MARK_KIND,
    OWNER_KIND,
    SEGMENT_KIND,
    WOKEN_KIND,
    Epoch,
    record_of,
)
from turnstate.storage.warm.erase_marks import who_of
from turnstate.storage.warm.tables import life_prefix, version_key
from turnstate.streams.embedded.erase_plan import ErasePlan
from turnstate.streams.embedded.scrub import Gone
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.erase_changelog import Unburied
from turnstate.streams.kafka.erase_letters import is_about
from turnstate.streams.kafka.erase_owners import ErasingOwners, enter
from turnstate.streams.kafka.erase_queries import Found
from turnstate.streams.kafka.kept_until import kept_words
from turnstate.streams.kafka.member_reader import MemberReader

KEY = SessionName("t", "s").key()
OTHER = SessionName("t", "other").key()
DAY_MS = 86_400_000


# -- what the plan takes up ------------------------------------------------------------


def test_a_life_is_counted_once_and_the_latest_counts() -> None:
    plan = ErasePlan("t", "u")
    left = Found(KEY, 2, is_over=True, is_whole=True, is_left=True)
    now = Found(KEY, 2, is_over=False, is_whole=True, turn_count=5)
    for found in (left, now, left, now):
        enter(plan, found)
    assert (plan.lives, plan.ending) == ({KEY: 2}, [KEY])
    assert (plan.sessions, plan.turns) == (1, 5)


def test_what_is_redacted_already_is_rewritten_all_the_same() -> None:
    plan = ErasePlan("t", "u")
    enter(plan, Found(KEY, 1, False, False))
    enter(plan, Found(OTHER, 1, False, False, 1, [Dot("log", 3)]))
    assert plan.rewritten == {KEY, OTHER}
    assert plan.spoken == {OTHER: [Dot("log", 3)]}
    assert (plan.lives, plan.sessions, plan.turns) == ({}, 0, 1)


def test_users_of_two_tenants_are_two() -> None:
    names = [("a", "bc"), ("ab", "c"), ("a", "b"), ("1", "1 u"), ("11", " u")]
    assert len({who_of(*name) for name in names}) == len(names)


# -- who cannot be reached -------------------------------------------------------------


def raising(error: Exception) -> None:
    raise error


def test_a_partition_that_cannot_be_reached_is_not_asked_again() -> None:
    owners = ErasingOwners(MemberReader(ClusterSettings()))
    away = UnavailableError("gone", code="worker_lost")
    assert owners.at(1, lambda: raising(away)) is None
    assert owners.at(1, lambda: 7) is None
    assert owners.at(2, lambda: 7) == 7
    assert (owners.unreached, owners.troubles) == ({1: "gone"}, {})


@pytest.mark.parametrize("code", ["hot_away", "too_long_to_rewrite"])
def test_after_a_part_that_failed_the_rest_is_done(code: str) -> None:
    owners = ErasingOwners(MemberReader(ClusterSettings()))
    for _ in range(2):
        owners.at(1, lambda: raising(UnavailableError("why", code=code)))
    assert owners.at(1, lambda: 7) == 7
    assert (owners.unreached, list(owners.troubles)) == ({}, ["partition 1: why"])


def test_damage_ends_the_job() -> None:
    owners = ErasingOwners(MemberReader(ClusterSettings()))
    with pytest.raises(CorruptDataError):
        owners.at(1, lambda: raising(CorruptDataError("a pack")))


# -- the changelog ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [FRAME_KIND, SEGMENT_KIND, COLD_KIND, WOKEN_KIND, ERASE_KIND]
)
def test_records_with_text_are_known_by_their_keys(kind: bytes) -> None:
    key = kind + version_key(life_prefix(KEY, 3), 7) + bytes(8)
    about = record_of(key)
    if kind == ERASE_KIND:
        assert about is None
    else:
        assert about == (kind, KEY, 3)
    assert record_of(key[:8]) is None


@pytest.mark.parametrize("kind", [OWNER_KIND, MARK_KIND])
def test_records_of_owners_are_of_no_session(kind: bytes) -> None:
    assert record_of(Epoch(1 << 40, 7).key(kind)) is None


def test_only_lives_that_are_over_are_looked_for() -> None:
    found = Unburied({KEY: 2}, [OTHER])
    keys = {
        life: FRAME_KIND + version_key(life_prefix(KEY, life), 1) + bytes(8)
        for life in (1, 2, 3)
    }
    other = SEGMENT_KIND + version_key(life_prefix(OTHER, 9), 1) + bytes(8)
    strange = FRAME_KIND + version_key(life_prefix(b"\0\1tx", 1), 1) + bytes(8)
    for key in (*keys.values(), other, strange):
        found.note(4, key, b"text")
    found.note(5, keys[1], None)  # of another partition
    assert found.keys() == {4: [keys[1], keys[2], other]}
    found.note(4, keys[2], None)
    found.note(4, keys[1], None)
    found.note(4, keys[1], b"again")
    assert found.keys() == {4: [other, keys[1]]}
    assert found.seen == 9


# -- letters, and how long topics keep -------------------------------------------------


def test_letters_of_the_session_and_of_the_user_go() -> None:
    mine = b'{"tenant": "t", "session": "other", "role": "user", "user": "eve-7"}'
    session = b'{"tenant": "t", "session": "s", "role": 7}'
    bobs = b'{"tenant": "t", "session": "other", "role": 7, "user": "bob"}'
    gone = Gone("t", {KEY: 1}, "eve-7")
    assert is_about(OTHER, mine, gone)
    assert is_about(None, session, gone)
    assert is_about(KEY, b"\x00 cut", gone)
    assert not is_about(OTHER, bobs, gone)
    assert not is_about(None, b"\x00 cut", gone)


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({}, "for ever"),
        ({"retention.ms": "-1"}, "for ever"),
        ({"retention.ms": str(7 * DAY_MS)}, "1970-01-08T00:00Z"),
        ({"retention.ms": "9223372036854775807"}, "the end of time"),
        ({"retention.ms": "strange"}, "for ever"),
        ({"cleanup.policy": "compact"}, "until Kafka compacts it"),
        (
            {
                "cleanup.policy": "compact",
                "max.compaction.lag.ms": "9223372036854775807",
            },
            "until Kafka compacts it",
        ),
        (
            {
                "cleanup.policy": "compact,delete",
                "max.compaction.lag.ms": str(DAY_MS),
                "segment.ms": str(DAY_MS),
            },
            "1970-01-03T00:00Z (max.compaction.lag.ms)",
        ),
    ],
)
def test_topics_say_until_when_they_keep_it(
    configs: dict[str, str | None], words: str
) -> None:
    told = kept_words("x", "turns", configs, 0)
    assert told.startswith("topic x: turns, ")
    assert words in told
