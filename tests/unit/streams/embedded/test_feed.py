"""Subscriptions miss nothing and repeat nothing, wherever they start again."""

import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from support.told import places, turn
from turnstate.schemas.errors import InvalidInputError, NotFoundError
from turnstate.schemas.ids import SessionName
from turnstate.streams.documents import to_json
from turnstate.streams.embedded.feed import BUFFER_OPERATIONS_MAX
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.settings import Settings

KEY = SessionName("t", "s").key()


def opened(folder: Path) -> OwnedStore:
    return OwnedStore(Settings(data=folder, fsync="never"), serving=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OwnedStore]:
    with opened(tmp_path) as owned:
        yield owned


def events(store: OwnedStore, token: str | None = "0", **options: Any) -> list[Any]:
    return list(store.subscribe(token=token, follow=False, **options))


def of_session(store: OwnedStore, token: str = "0") -> list[Any]:
    return events(store, token, tenant="t", session="s")


def seal(store: OwnedStore, *keys: bytes) -> None:
    store.engine.call(lambda: store.engine.seal(keys or (KEY,))).result()


def eventful_session(store: OwnedStore) -> int:
    """Publish 300 turns with branches, operations, refusals and seals between."""
    number = 0
    while number < 300:
        size = 1 + number % 7
        batch = [turn(n) for n in range(number, number + size)]
        # Duplicates, conflicts and bad lines take log offsets and no version.
        batch.insert(size // 2, turn(max(0, number - 3)))
        batch.append(turn(number, content="another text"))
        batch.append(b"{no json")
        batch.append(turn(number, session="beside"))
        batch.append(turn(number, turn_id=..., content="same", slots=...))
        batch.append(turn(number, turn_id=..., content="same", if_version=7))
        store.publish(batch)
        number += size
        if number % 11 == 0:
            store.rollback("t", "s", max(1, number // 2))
        if number % 13 == 0:
            store.fork("t", "s", f"b{number}", version=number // 3)
            store.publish([turn(n + 10_000, branch=f"b{number}") for n in [number]])
        if number % 17 == 0:
            edit = turn(number, op="edit", target=f"s-{number - 2}", slots=...)
            store.publish([edit.replace(f'"s-{number}"'.encode(), b'"edit"', 1)])
        if number % 5 == 0:
            seal(store)
    return int(store.state("t", "s")["version"])


def test_a_session_resumes_from_every_version_across_seals_and_restarts(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as store:
        top = eventful_session(store)
        assert top > 350
        whole = of_session(store)
    assert [e["version"] for e in whole] == list(range(1, top + 1))
    assert len({e["token"] for e in whole}) == top
    for keep_frames in (True, False):
        with opened(tmp_path) as store:
            if not keep_frames:
                seal(store)
            told = list(map(to_json, whole))
            for version in range(top + 1):
                rest = store.subscribe("t", "s", token=f"1-{version}", follow=False)
                # From each version the next events, from some all of them.
                most = 1_000 if version % 40 == 0 else 3
                found = list(map(to_json, islice(rest, most)))
                assert found == told[version : version + most]


def test_all_sessions_resume_from_every_token_across_seals_and_restarts(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as store:
        top = eventful_session(store)
        beside = int(store.state("t", "beside")["version"])
        whole = events(store)
    assert len(whole) == top + beside
    for session, count in (("s", top), ("beside", beside)):
        versions = [e["version"] for e in whole if e["session"] == session]
        assert versions == list(range(1, count + 1))
    told = places(whole)
    with opened(tmp_path) as store:
        for sealed in (False, True):
            if sealed:
                seal(store, KEY, SessionName("t", "beside").key())
            for at in range(0, len(whole), 1 + 4 * sealed):
                rest = store.subscribe(token=whole[at]["token"], follow=False)
                most = 1_000 if at % 60 == 0 else 3
                found = places(list(islice(rest, most)))
                assert found == told[at + 1 : at + 1 + most]


def test_what_one_commit_brings_is_told_whole_though_it_fills_many_segments(
    store: OwnedStore,
) -> None:
    store.publish([turn(n // 3, session=f"s{n % 3}") for n in range(900)])
    whole = events(store)
    for session in range(3):
        versions = [e["version"] for e in whole if e["session"] == f"s{session}"]
        assert versions == list(range(1, 301))
    assert [e["turn"]["turn_id"] for e in whole[:4]] == ["s0-0", "s1-0", "s2-0", "s0-1"]
    told = places(whole)
    for at in range(0, 899, 149):
        assert places(events(store, whole[at]["token"])) == told[at + 1 :]


@pytest.mark.parametrize("everything", [False, True])
def test_a_follower_sees_each_event_once_while_turns_come_and_seals_go_on(
    store: OwnedStore, *, everything: bool
) -> None:
    count = 400
    store.publish([turn(0)])
    seen: list[Any] = []

    def follow() -> None:
        name = (None, None) if everything else ("t", "s")
        for event in store.subscribe(*name, token="0"):
            seen.append(event)
            if event["session"] == "s" and event["version"] == count:
                return

    threads = [threading.Thread(target=follow) for _ in range(1)]
    for thread in threads:
        thread.start()
    for number in range(1, count):
        store.publish([turn(number), turn(number, session="beside")])
        if number % 37 == 0:
            seal(store)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    versions = [e["version"] for e in seen if e["session"] == "s"]
    assert versions == list(range(1, count + 1))


def test_a_slow_reader_is_caught_up_from_the_store_and_holds_little(
    store: OwnedStore,
) -> None:
    store.publish([turn(0)])
    slow = store.subscribe("t", "s", token="0")
    assert next(slow)["version"] == 1
    (subscriber,) = store.feed._of_session[KEY]
    count = 3 * BUFFER_OPERATIONS_MAX
    for begin in range(1, count, 100):
        store.publish([turn(n) for n in range(begin, begin + 100)])
        assert len(subscriber._news) <= BUFFER_OPERATIONS_MAX
    seal(store)
    assert [next(slow)["version"] for _ in range(count - 1)] == list(
        range(2, count + 1)
    )
    slow.close()
    assert not store.feed._of_session


def test_without_a_token_only_what_comes_is_told(store: OwnedStore) -> None:
    store.publish([turn(0), turn(1)])
    assert events(store, None, tenant="t", session="s") == []
    assert events(store, None) == []
    with pytest.raises(NotFoundError):
        events(store, None, tenant="t", session="no")


def test_a_session_that_is_not_there_yet_can_be_followed(store: OwnedStore) -> None:
    follower = store.subscribe("t", "s", token="0")
    timer = threading.Timer(0.1, lambda: store.publish([turn(0)]))
    timer.start()
    assert next(follower)["version"] == 1
    follower.close()


@pytest.mark.parametrize(
    ("tenant", "session", "token", "code"),
    [
        ("t", "s", "1-9", "token_ahead"),
        ("t", "s", "2-0", "token_ahead"),
        ("t", "s", "x", "invalid"),
        ("t", "s", "1-\u0661", "invalid"),
        (None, None, "1-1", "invalid"),
        (None, None, "ab:0:0", "other_log"),
        (None, "s", "0", "invalid"),
    ],
)
def test_a_token_that_does_not_fit_is_refused_by_name(
    store: OwnedStore, tenant: str, session: str, token: str, code: str
) -> None:
    store.publish([turn(0)])
    with pytest.raises(InvalidInputError) as refused:
        list(store.subscribe(tenant, session, token=token, follow=False))
    assert refused.value.code == code
    assert refused.value.field in ("token", "tenant")


def test_an_erased_session_goes_on_with_its_next_life(store: OwnedStore) -> None:
    store.publish([turn(n) for n in range(5)])
    (first, *_) = of_session(store, "1-3")
    assert first["token"] == "1-4"
    follower = store.subscribe("t", "s", token="1-5")
    whole = store.subscribe(token=events(store)[-1]["token"])
    store.publish([turn(0, op="erase", turn_id=..., content=..., slots=...)])
    store.publish([turn(n) for n in range(2)])
    assert [next(follower)["token"] for _ in range(2)] == ["2-1", "2-2"]
    assert places([next(whole), next(whole)]) == [("s", 2, 1), ("s", 2, 2)]
    assert places(of_session(store, "1-2")) == [("s", 2, 1), ("s", 2, 2)]
    assert places(events(store)) == [("s", 2, 1), ("s", 2, 2)]
    follower.close()
    whole.close()


def test_what_is_redacted_since_is_told_without_its_text(store: OwnedStore) -> None:
    store.publish([turn(n, content=f"secret {n}") for n in range(3)])
    store.publish(
        [
            turn(9, op="edit", target="s-1", content="secret still", slots=...),
            turn(10, op="redact", target="s-1", content=..., slots=...),
        ]
    )
    for told in (of_session(store), events(store)):
        assert [e["turn"].get("redacted", False) for e in told] == [
            *(False, True, False),
            *(True, False),
        ]
        assert b"secret 1" not in to_json(told)
        assert b"secret still" not in to_json(told)


def test_one_tenant_sees_no_other(store: OwnedStore) -> None:
    store.publish([turn(0), turn(0, tenant="u"), turn(1)])
    assert places(events(store, tenant="t")) == [("s", 1, 1), ("s", 1, 2)]


def test_the_feed_ends_when_the_store_closes(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.publish([turn(0)])
    seen: list[Any] = []
    thread = threading.Thread(
        target=lambda: seen.extend(store.subscribe("t", "s", token="0"))
    )
    thread.start()
    while not seen and thread.is_alive() and not store.feed._of_session:
        pass
    store.close()
    thread.join(5)
    assert not thread.is_alive()


def test_what_was_said_by_an_erased_user_is_told_as_stubs(store: OwnedStore) -> None:
    store.publish([turn(n, user="u" if n % 4 == 1 else "o") for n in range(20)])
    store.publish([turn(n, session="own", user="u") for n in range(3)])
    seal(store)
    store.publish([turn(n, user="u") for n in range(20, 25)])
    before = events(store)
    store.erase("t", user="u")
    top = int(store.state("t", "s")["version"])
    whole = events(store)
    assert [e["version"] for e in whole] == list(range(1, top + 1))
    assert {e["session"] for e in whole} == {"s"}
    assert [e["version"] for e in of_session(store)] == list(range(1, top + 1))
    for event in (before[5], before[12], before[-1]):
        rest = places(events(store, event["token"]))
        first = rest[0][2] if rest else top + 1
        assert rest == [("s", 1, version) for version in range(first, top + 1)]
        if event["session"] == "s":
            assert first == event["version"] + 1
