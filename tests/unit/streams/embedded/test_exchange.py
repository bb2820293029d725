"""A store taken out as a recording and put in elsewhere is the same store."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.kept import digests
from turnstate.replay.recording import RecordedErasure, shuffled
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.streams.embedded import exchange
from turnstate.streams.embedded.exchange import export_items, import_items
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings


def line(session: str, turn: int, tenant: str = "t", **more: Any) -> bytes:
    fields = {"turn_id": f"t{turn}", "role": "user", "content": f"turn {turn}"}
    return json.dumps({"tenant": tenant, "session": session} | fields | more).encode()


LINES = [
    *(line("a", n, slots={"set": {"n": n}}) for n in range(200)),
    line("b", 1),
    line("b", 2, parent="not yet"),
    line("b", 3, op="edit", target="t1"),
    line("a", 300, parent="t5", branch="again"),
    line("other", 1, tenant="u"),
]


@pytest.fixture(name="store")
def fixture_store(tmp_path: Path) -> Any:
    with EmbeddedStore(Settings(data=tmp_path / "one")) as store:
        store.publish(LINES)
        yield store


@pytest.fixture(name="copy")
def fixture_copy(tmp_path: Path) -> Any:
    with EmbeddedStore(Settings(data=tmp_path / "two")) as store:
        yield store


def erased(session: str) -> bytes:
    fields = {"tenant": "t", "session": session, "role": "system", "op": "erase"}
    return json.dumps(fields).encode()


def test_a_copy_has_the_same_digests_and_a_second_import_adds_nothing(
    store: EmbeddedStore, copy: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "BATCH_ITEMS", 16)
    items = list(export_items(store))

    first = import_items(copy, items)
    assert (first["accepted"], first["operations"]) == (len(LINES), len(LINES))
    assert first["sessions"] == 3
    assert digests(copy) == digests(store)
    again = import_items(copy, items)
    assert (again["accepted"], again["duplicates"]) == (0, len(LINES))
    assert digests(copy) == digests(store)


def test_sealed_sessions_are_exported_alike(store: EmbeddedStore) -> None:
    before = list(export_items(store))
    keys = [SessionName("t", "a").key(), SessionName("t", "b").key()]
    store.engine.call(lambda: store.engine.seal(keys)).result()

    assert list(export_items(store)) == before


def test_any_order_of_items_leads_to_the_same_store(
    store: EmbeddedStore, copy: EmbeddedStore
) -> None:
    import_items(copy, shuffled(export_items(store), seed=5))

    assert digests(copy) == digests(store)


def test_a_copy_lands_in_the_same_life_and_erases_the_one_before(
    store: EmbeddedStore, copy: EmbeddedStore
) -> None:
    import_items(copy, list(export_items(store)))
    store.publish([erased("a"), line("a", 1, content="new"), erased("b")])
    store.publish([erased("b"), line("gone", 1), erased("gone")])

    items = list(export_items(store))
    assert items.count(RecordedErasure(SessionName("t", "gone"), 1)) == 1
    import_items(copy, items)

    assert digests(copy) == digests(store)
    assert copy.state("t", "a")["incarnation"] == 2
    assert {row["session"] for row in copy.sessions(tenant="t")} == {"a"}
    again = import_items(copy, items)
    assert again["accepted"] == 0


def test_one_tenant_is_exported_alone(store: EmbeddedStore) -> None:
    names = {item.name for item in export_items(store, "u")}

    assert names == {SessionName("u", "other")}
    with pytest.raises(InvalidInputError):
        list(export_items(store, ""))


def test_nothing_gives_nothing(copy: EmbeddedStore) -> None:
    assert list(export_items(copy)) == []
    assert import_items(copy, [])["operations"] == 0
