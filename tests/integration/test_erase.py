"""Erasing leaves nothing of a user in any byte, and nothing brings them back."""

import json
from pathlib import Path

import pytest

from support.erasing import (
    EVE,
    SECRET,
    digests,
    fill,
    found_in,
    recordings,
    turn,
)
from turnstate.agents.session.recorded import recorded_bytes
from turnstate.schemas.admission import Verdict
from turnstate.schemas.errors import InvalidInputError, NotFoundError
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

pytestmark = pytest.mark.usefixtures("plain_blocks")


def test_a_user_is_gone_from_every_byte(store: EmbeddedStore) -> None:
    """Row 24: a scan of every store finds nothing, others are whole."""
    fill(store)
    recorded = recordings(store)
    upkeep.seal(store)
    store.publish([turn("eve0", EVE, f"{SECRET} unsealed")])
    others = {name: d for name, d in digests(store, "bob").items() if name != "bob0"}
    plan = upkeep.erase(store, "t", user=EVE, dry_run=True)
    assert plan["found_after"] > 1005
    before = found_in(store, SECRET, EVE)
    assert {name.rpartition(".")[2] for name in before} >= {"sst", "gz", "tsrec"}

    report = upkeep.erase(store, "t", user=EVE)

    assert found_in(store, SECRET, EVE) == []
    assert (report["sessions"], report["rewritten"], report["found_after"]) == (3, 1, 0)
    assert report["turns"] >= 1005
    assert report["not_covered"] == []
    assert set(report["scanned"]) >= {"log", "dead_letters", "segments", "recordings"}
    assert digests(store, "eve") == {}
    now = digests(store, "bob")
    assert {name: now[name] for name in others} == others
    assert upkeep.verify(store)["bad"] == []
    again = upkeep.erase(store, "t", user=EVE)
    assert (again["sessions"], again["rewritten"], again["turns"]) == (0, 0, 0)
    assert digests(store, "bob") == now

    # Neither an old recording, nor a late turn, brings them back.
    late = [item for item in recorded if item.name.session.startswith("eve")]
    old = [recorded_bytes(item.name, item.record) for item in late]
    answers = store.engine.submit(old, trusted=True).result()
    assert {answer.verdict for answer in answers} == {Verdict.DROPPED}
    assert digests(store, "eve") == {}
    assert digests(store, "bob") == now
    assert found_in(store, SECRET, EVE) == []


def test_the_log_still_rebuilds_what_stays(tmp_path: Path) -> None:
    """After an erase the log holds stubs, and folds to the same digests."""
    with EmbeddedStore(Settings(data=tmp_path / "data")) as store:
        fill(store)
        upkeep.erase(store, "t", user=EVE)
        before = digests(store, "")
        log = [record for _, record in store.engine.log.read()]
    with EmbeddedStore(Settings(data=tmp_path / "again")) as fresh:
        fresh.engine.submit(log, trusted=True).result()
        assert digests(fresh, "") == before
        assert upkeep.verify(fresh)["bad"] == []


def test_what_bob_said_is_shown_and_what_eve_said_is_hidden(
    store: EmbeddedStore,
) -> None:
    """Redacted turns stay in their places, without text, name or value."""
    fill(store)
    count = store.state("t", "bob0")["turn_count"]
    upkeep.erase(store, "t", user=EVE)
    assert store.state("t", "bob0")["turn_count"] == count
    turns = store.turns("t", "bob0")["turns"]
    hidden = [one for one in turns if one.get("redacted")]
    assert len(hidden) == 21
    assert all(one["content"] is None for one in hidden)
    said = [one["content"] for one in turns if not one.get("redacted")]
    assert "hello 0" in said
    assert SECRET not in repr(said)


def test_a_session_begins_anew(store: EmbeddedStore) -> None:
    """Row 25: an unstamped turn after an erase starts the next life."""
    store.publish([turn("s", EVE, f"{SECRET} {n}") for n in range(5)])
    keep = turn("other", "bob", "kept")
    store.publish([keep])
    assert upkeep.erase(store, "t", session="s")["sessions"] == 1
    with pytest.raises(NotFoundError):
        store.state("t", "s")
    store.publish([turn("s", "bob", "a new start")])
    state = store.state("t", "s")
    assert (state["incarnation"], state["version"]) == (2, 1)
    assert found_in(store, SECRET) == []
    assert upkeep.verify(store)["bad"] == []
    assert store.state("t", "other")["version"] == 1


def test_a_crash_before_the_files_are_purged(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erase that was cut off is finished by the next one."""
    store.publish([turn("s", EVE, f"{SECRET} {n}") for n in range(300)])
    upkeep.seal(store)

    def crash(*_: object) -> None:
        raise OSError("the power goes")

    with monkeypatch.context() as patched:
        patched.setattr(store.warm, "rewrite", crash)
        with pytest.raises(OSError, match="power"):
            upkeep.erase(store, "t", session="s")
    assert found_in(store, SECRET)
    assert upkeep.erase(store, "t", session="s")["found_after"] == 0
    assert found_in(store, SECRET) == []


def test_another_tenants_namesake_stays(store: EmbeddedStore) -> None:
    """A user and a session are erased within their tenant alone."""
    other = json.dumps(
        {"tenant": "u", "session": "s", "role": "user", "user": EVE, "content": SECRET}
    ).encode()
    store.publish([other, turn("s", EVE, SECRET)])
    upkeep.erase(store, "t", user=EVE)
    assert store.state("u", "s")["version"] == 1
    assert [raw for _, raw in store.engine.log.read() if SECRET.encode() in raw] == [
        other
    ]


@pytest.mark.parametrize(
    ("session", "user"), [("", None), (None, ""), (None, None), ("s", "u")]
)
def test_empty_names_are_refused(
    store: EmbeddedStore, session: str | None, user: str | None
) -> None:
    """An empty name is a mistake, never everything."""
    store.publish([turn("s", "u", "text")])
    with pytest.raises(InvalidInputError):
        upkeep.erase(store, "t", session, user)
    with pytest.raises(InvalidInputError):
        upkeep.erase(store, "", session="s")
    assert store.state("t", "s")["version"] == 1


def test_an_unknown_session_is_not_found(store: EmbeddedStore) -> None:
    """What was never here cannot be erased, unless it was refused here."""
    with pytest.raises(NotFoundError):
        upkeep.erase(store, "t", session="nobody")
    store.publish([turn("refused", EVE, SECRET, role=7)])
    assert upkeep.erase(store, "t", session="refused")["found_after"] == 0
    assert found_in(store, SECRET) == []


def test_files_that_are_not_looked_into_are_named(store: EmbeddedStore) -> None:
    """The report says what it does not cover."""
    (store.settings.data / "notes.txt").write_text("mine")
    broken = store.settings.data / "recordings" / "cut.tsrec"
    broken.parent.mkdir()
    broken.write_bytes(b"\x89TSREC\r\n\0\0")
    store.publish([turn("s", EVE, SECRET)])
    named = upkeep.erase(store, "t", session="s")["not_covered"]
    assert any("notes.txt" in each for each in named)
    assert any("cut.tsrec" in each for each in named)
