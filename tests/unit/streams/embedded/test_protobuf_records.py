"""A log that holds protobuf turns is read, rebuilt, replayed, redriven like another."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.corpora import corpus_name
from support.protobuf_wire import as_protobuf, held
from turnstate.agents.session.rebuild import session_key_of
from turnstate.replay.engine import fold_recording
from turnstate.replay.readers import read
from turnstate.replay.readers.lines import lines_of_open, opened
from turnstate.replay.samples import sample_paths
from turnstate.schemas.admission import Verdict
from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.ids import SessionName
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.json import turn_from_json, turn_to_json
from turnstate.schemas.wire.protobuf import turn_to_protobuf
from turnstate.streams.clock import SystemClock
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.erase import erase
from turnstate.streams.embedded.exchange import export_items
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.embedded.rebuild_store import rebuild_store
from turnstate.streams.embedded.store import STORE_FOLDER, EmbeddedStore
from turnstate.streams.settings import Settings


def lines_of(path: Path, count: int = 400) -> list[bytes]:
    """Return the first turns of a sample as JSON."""
    found: list[bytes] = []
    with opened(path) as (file, name):
        for item in read(lines_of_open(file, name), "corpus"):
            assert isinstance(item, bytes)
            found.append(item)
            if len(found) == count:
                break
    return found


def in_protobuf(lines: Iterable[bytes]) -> list[bytes]:
    """Return turns as protobuf."""
    return [turn_to_protobuf(turn_from_json(line)) for line in lines]


def digests(store: EmbeddedStore) -> dict[SessionName, bytes]:
    """Return the digest of each session."""
    return {
        SessionName.from_key(key): digest(stored.head)
        for key, stored in store.stored_heads()
    }


def settings_in(folder: Path) -> Settings:
    """Return settings of a store that need not survive a power cut."""
    return Settings(data=folder, fsync="never")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OwnedStore]:
    """Give an empty store."""
    with OwnedStore(settings_in(tmp_path / "data"), serving=False) as given:
        yield given


@pytest.mark.parametrize("path", sample_paths(), ids=corpus_name)
def test_a_sample_folds_to_the_same_digests(path: Path, tmp_path: Path) -> None:
    lines = lines_of(path)
    told: list[dict[SessionName, bytes]] = []
    for name, records in (("json", lines), ("protobuf", in_protobuf(lines))):
        settings = settings_in(tmp_path / name)
        with EmbeddedStore(settings) as opened_store:
            answers = opened_store.publish(records)
            assert {answer.verdict for answer in answers} == {Verdict.ACCEPTED}
            told.append(digests(opened_store))
            assert upkeep.verify(opened_store)["bad"] == []
            items = list(export_items(opened_store))
            log_name = settings.log_name
        replayed = fold_recording(items, default_graph(), log_name, shuffle=3)
        for session, expected in told[-1].items():
            assert replayed.sessions[session.key()].digest == expected

    assert told[0] == told[1]
    folder = settings.data / STORE_FOLDER
    report = rebuild_store(settings, default_graph(), SystemClock(), folder)
    assert report["compared"] == len(told[1])
    with EmbeddedStore(settings) as again:
        assert digests(again) == told[1]


def test_the_two_forms_of_a_turn_are_copies(store: OwnedStore) -> None:
    lines = [
        turn_to_json(Turn("t", "s", "user", turn_id=str(at), content="é"))
        for at in range(4)
    ]
    pairs = zip(lines, in_protobuf(lines), strict=True)
    mixed = [record for both in pairs for record in both]

    verdicts = [answer.verdict for answer in store.publish(mixed)]

    assert verdicts == [Verdict.ACCEPTED, Verdict.DUPLICATE] * 4


def test_a_bad_record_among_good_ones_is_a_letter_with_its_bytes(
    store: OwnedStore,
) -> None:
    turns = [Turn("t", "s", "user", content=str(number)) for number in range(500)]
    good = [turn_to_protobuf(turn) for turn in turns]
    bad = good[250][:-1]
    answers = store.publish([*good[:250], bad, *good[250:]])

    assert [answer.verdict for answer in answers].count(Verdict.ACCEPTED) == 500
    (row,) = upkeep.dead_letters(store)["dead_letters"]
    assert (row["reason"], row["field"]) == ("not_protobuf", "content")
    assert row["offset"] == 250
    assert upkeep.dead_letter(store, row["id"]).raw == bad


def test_a_dead_letter_in_protobuf_is_redriven(store: OwnedStore) -> None:
    early = turn_to_protobuf(Turn("t", "s", "user", content="second", if_version=1))
    first = turn_to_protobuf(Turn("t", "s", "user", content="first"))
    store.publish([early])
    store.publish([first])

    report = upkeep.redrive(store)

    assert (report["redriven"], report["accepted"]) == (1, 1)
    assert upkeep.dead_letters(store)["dead_letters"] == []
    turns: list[Any] = store.turns("t", "s")["turns"]
    assert len(turns) == 2
    assert upkeep.verify(store)["bad"] == []


def test_a_feed_of_all_tells_of_protobuf_turns(store: OwnedStore) -> None:
    lines = lines_of(sample_paths()[0], 50)
    store.publish(in_protobuf(lines))

    events = list(store.feed.all("0", follow=False))

    assert len(events) == len(lines)


def test_an_erased_user_is_in_no_protobuf_record(store: OwnedStore) -> None:
    said = [
        Turn("t", "s", "user", turn_id="1", content="mine", user="owner"),
        Turn("t", "s", "user", turn_id="2", content="a-word-to-forget", user="guest"),
        Turn("t", "g", "user", turn_id="3", content="a-word-to-forget", user="guest"),
    ]
    store.publish([turn_to_protobuf(turn) for turn in said])
    no_role = held(2, b"t") + held(3, b"g") + held(26, b"guest")
    store.publish([no_role + held(7, b"a-word-to-forget")])

    erase(store, "t", user="guest")

    records = [record for _, record in store.engine.log.read()]
    assert any(b"mine" in record for record in records)
    assert not any(b"a-word-to-forget" in record for record in records)
    assert upkeep.dead_letters(store)["dead_letters"] == []
    assert upkeep.verify(store)["bad"] == []


def test_the_session_of_a_record_is_known_by_its_names() -> None:
    line = turn_to_json(Turn("t", "s", "user"))
    long = Turn("t" * 300, "s", "user")

    assert session_key_of(as_protobuf(line)) == session_key_of(line)
    assert session_key_of(turn_to_protobuf(long)) == SessionName("t" * 300, "s").key()
    assert session_key_of(b"\x12\x01t") is None
