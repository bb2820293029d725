"""A patch leads from any version's state to any other's, exactly, and fits no third."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from support.commands import line
from support.dialogues import sample_sessions
from turnstate.schemas.errors import NotFoundError, UnavailableError
from turnstate.streams import client as clients
from turnstate.streams.client import Client
from turnstate.streams.documents import from_json, to_json
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.settings import Settings

TURNS_MAX = 24


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OwnedStore]:
    with OwnedStore(Settings(data=tmp_path), serving=False) as opened:
        yield opened


def told(store: OwnedStore, *lines: bytes) -> None:
    for answer in store.publish(lines):
        assert answer.error is None


def operation(**fields: Any) -> bytes:
    told = {"tenant": "acme", "session": "a", "role": "system", **fields}
    return json.dumps(told).encode()


def state(store: OwnedStore, session: str = "a", **at: Any) -> Any:
    return from_json(to_json(store.state("acme", session, **at)))


def patch(store: OwnedStore, since: int, session: str = "a", **at: Any) -> Any:
    document = store.patch("acme", session, since=since, **at)
    assert list(document) == ["from", "to", "patch"]
    return from_json(to_json(document))


def applied(state: Any, document: Any) -> str:
    """Apply a patch as any library does, and write the state as one text."""
    changed = jsonpatch.JsonPatch(document["patch"]).apply(state)
    return json.dumps(changed, sort_keys=True)


def one_text(state: Any) -> str:
    return json.dumps(state, sort_keys=True)


def every_pair_is_exact(store: OwnedStore, tenant: str, session: str) -> int:
    top = store.state(tenant, session)["version"]
    states = [
        from_json(to_json(store.state(tenant, session, version=version)))
        for version in range(top + 1)
    ]
    for since, old in enumerate(states):
        for version, new in enumerate(states):
            document = from_json(
                to_json(store.patch(tenant, session, since=since, version=version))
            )
            assert (document["from"], document["to"]) == (since, version)
            assert applied(old, document) == one_text(new)
    return len(states)


@pytest.mark.parametrize("place", range(4))
def test_every_pair_of_versions_of_real_dialogues(
    store: OwnedStore, place: int
) -> None:
    """Backwards too, and after a seal as before it."""
    few = [
        (name, turns)
        for name, turns in sorted(sample_sessions().items())
        if 4 <= len(turns) <= TURNS_MAX
    ]
    (tenant, session), turns = few[place * len(few) // 4]
    told(store, *(json.dumps(turn).encode() for turn in turns))
    if place % 2:
        store.seal()
    assert every_pair_is_exact(store, tenant, session) > len(turns)


def test_every_pair_of_versions_with_forks_edits_and_redactions(
    store: OwnedStore,
) -> None:
    told(
        store,
        line("a", 1, "one", slots={"set": {"a/b~c": 1, "n": 2**70, "z": [1.5, True]}}),
        line("a", 2, "two", tags={"add": ["x"]}, metadata={"deep": {"list": [None]}}),
        operation(op="edit", target="t2", content="two again"),
        line("a", 4, "four", slots={"set": {"n": 1}, "delete": ["a/b~c"]}),
        operation(op="redact", target="t1"),
        operation(op="fork", branch="b", target="t2"),
        operation(op="rollback", to={"log": 2}),
        line("a", 8, "eight", slots={"set": {"n": 1.0}}),
        operation(op="end"),
    )
    every_pair_is_exact(store, "acme", "a")
    old, new = state(store, version=7, branch="b"), state(store, branch="b")
    assert applied(old, patch(store, 7, branch="b")) == one_text(new)


def test_a_reader_that_follows_has_each_state_built_once(store: OwnedStore) -> None:
    told(store, line("a", 1))
    known = state(store)
    for turn in range(2, 8):
        told(store, line("a", turn))
        document = patch(store, known["version"])
        known = json.loads(applied(known, document))
        assert known == state(store)
    # The first it had from `state`; each later one is the end of one patch and
    # the beginning of the next.
    assert store.recent_states.built == 7


def test_it_does_not_matter_where_the_state_lay_when_it_was_read(
    tmp_path: Path,
) -> None:
    with OwnedStore(Settings(data=tmp_path), serving=False) as store:
        told(store, line("a", 1), line("a", 2))
        old = state(store, version=1)
    with OwnedStore(Settings(data=tmp_path), serving=False) as store:
        new = state(store)
        assert (old["tier"], new["tier"]) == ("hot", "warm")
        assert applied(old, patch(store, 1)) == one_text(new)


def test_a_patch_fits_no_other_version_and_no_other_life(store: OwnedStore) -> None:
    told(store, line("a", 1), line("a", 2), line("a", 3))
    before = state(store, version=2)
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        applied(before, patch(store, 1))
    store.erase("acme", session="a")
    told(store, line("a", 7), line("a", 8), line("a", 9))
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        applied(before, patch(store, 2))


def test_what_was_erased_is_held_no_more_and_taken_from_who_had_it(
    store: OwnedStore,
) -> None:
    """A text that is gone from every version goes from the reader's copy, too."""
    told(store, line("b", 0))
    told(store, line("a", 1, user="ann"), line("a", 2, "a secret", user="eve"))
    known = state(store)
    patch(store, 1)
    store.erase("acme", user="eve")
    document = patch(store, 2)

    assert "secret" not in json.dumps(document)
    now = applied(known, document)
    assert now == one_text(state(store))
    assert "secret" not in now


def test_numbers_that_only_their_digits_say_are_patched_whole(
    store: OwnedStore,
) -> None:
    told(store, line("a", 1))
    digits = "7" * 5_000
    raw = line("a", 2, slots={"set": {"n": 0}}).replace(
        b'"n": 0', f'"n": {digits}'.encode()
    )
    assert digits.encode() in raw
    told(store, raw)
    old, document = state(store, version=1), store.patch("acme", "a", since=1)
    assert [each["path"] for each in from_json(to_json(document))["patch"]][-1] == ""
    assert applied(old, from_json(to_json(document))) == one_text(state(store))


@pytest.mark.parametrize("since", [-1, 3, 1 << 70])
def test_a_version_that_never_was_is_not_found(store: OwnedStore, since: int) -> None:
    told(store, line("a", 1), line("a", 2))
    with pytest.raises(NotFoundError, match="version"):
        store.patch("acme", "a", since=since)


def test_a_session_that_is_erased_at_every_look_is_no_answer(
    store: OwnedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(store, line("a", 1), line("a", 2))
    read = store.state

    def state(*arguments: Any, **options: Any) -> Any:
        found = read(*arguments, **options)
        store.erase("acme", session="a")
        told(store, line("a", 1), line("a", 2))
        return found

    monkeypatch.setattr(store, "state", state)
    with pytest.raises(UnavailableError, match="erased while"):
        store.patch("acme", "a", since=1)


@pytest.mark.parametrize("beside", [False, True])
def test_a_program_asks_for_it_wherever_the_store_is(
    tmp_path: Path, beside: bool
) -> None:
    with clients.open(tmp_path) as first, clients.open(tmp_path) as second:
        client: Client = second if beside else first
        client.publish(line("a", 1))
        client.publish(line("a", 2, slots={"set": {"n": 2**70}}))
        old, document = (
            client.state("acme", "a", version=1),
            client.patch("acme", "a", 1),
        )
        assert applied(old, document) == one_text(client.state("acme", "a"))
