"""Erasing leaves nothing of a user in any byte, and nothing brings them back."""

import gzip
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rocksdict import DBCompressionType

from turnstate.agents.session.recorded import recorded_bytes
from turnstate.replay.recording import RecordedOperation, write_recording
from turnstate.schemas.admission import Verdict
from turnstate.schemas.errors import InvalidInputError, NotFoundError
from turnstate.schemas.ids import SessionName
from turnstate.storage.session_reader import operations
from turnstate.storage.warm import options, rocksdb
from turnstate.streams.documents import to_json
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

EVE = f"eve-{secrets.token_hex(6)}"
SECRET = secrets.token_hex(16)
"""Random, so that no packer finds a part of it anywhere else."""


@pytest.fixture(autouse=True)
def plain_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let RocksDB write blocks as they are, so that a byte scan sees dead rows."""
    real = options.table_options

    def plain(*arguments: Any) -> Any:
        made = real(*arguments)
        made.set_compression_type(DBCompressionType.none())
        made.set_bottommost_compression_type(DBCompressionType.none())
        return made

    monkeypatch.setattr(rocksdb, "table_options", plain)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """Give an empty store."""
    with EmbeddedStore(Settings(data=tmp_path / "data")) as opened:
        yield opened


def turn(session: str, user: str, text: str, **fields: Any) -> bytes:
    """Return a turn as JSON."""
    body = {"tenant": "t", "session": session, "role": "user", "user": user}
    return json.dumps({**body, "content": text, **fields}).encode()


def fill(store: EmbeddedStore) -> None:
    """Publish 1 005 turns of Eve in three sessions, two forks, and in Bob's."""
    sent: list[bytes] = []
    for number in range(1005):
        sent.append(
            turn(
                f"eve{number % 3}",
                EVE,
                f"{SECRET} {number}",
                turn_id=f"e{number}",
                slots={"set": {"home": f"{SECRET} street {number}"}},
            )
        )
        if number % 10 == 0:
            sent.append(turn(f"bob{number % 4}", "bob", f"hello {number}"))
        if number % 50 == 0:
            sent.append(turn("bob0", EVE, f"{SECRET}!", tags={"add": [SECRET]}))
            sent.append(turn("bob0", "bob", f"well {number}", turn_id=f"b{number}"))
    for begin in range(0, len(sent), 100):
        store.publish(sent[begin : begin + 100])
    store.fork("t", "eve0", "idea", turn="e0")
    store.fork("t", "eve1", "idea", turn="e1")
    more = [
        turn("eve0", EVE, f"{SECRET} aside", branch="idea"),
        turn("bob0", EVE, f"{SECRET} edited", op="edit", target="b0"),
        turn("bob0", "bob", "anyone here?", turn_id="b1"),
    ]
    refused = [
        turn("bob0", EVE, f"{SECRET} in conflict", turn_id="b0"),
        turn("eve2", EVE, SECRET, role=7),
        f'{{"tenant": "t", "session": "eve2", "user": "{EVE}", "x": "{SECRET}'.encode(),
    ]
    store.publish([*more, *refused])


def found_in(store: EmbeddedStore, *needles: str) -> list[str]:
    """Return where any of the words stands: files byte by byte, rows, answers."""
    wanted = [needle.encode() for needle in needles]
    found: list[str] = []

    def look(where: str, data: bytes) -> None:
        if any(needle in data for needle in wanted):
            found.append(where)

    for path in sorted(store.settings.data.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            look(path.name, gzip.decompress(data) if path.suffix == ".gz" else data)
    for offset, record in store.engine.log.read():
        look(f"log {offset}", record)
    for key, stored in store.stored_heads():
        look(f"head of {key!r}", repr(stored).encode())
        for version, op in operations(store.warm, key, stored):
            look(f"{key!r} at {version}", op.record)
    for row in store.sessions():
        look(f"state of {row}", to_json(store.state(row["tenant"], row["session"])))
        look(f"turns of {row}", to_json(store.turns(row["tenant"], row["session"])))
    look("letters", repr([_letter(store, n) for n in _numbers(store)]).encode())
    return found


def _numbers(store: EmbeddedStore) -> list[str]:
    return [row["id"] for row in upkeep.dead_letters(store)["dead_letters"]]


def _letter(store: EmbeddedStore, number: str) -> bytes:
    return upkeep.dead_letter(store, number).raw


def recordings(store: EmbeddedStore) -> list[RecordedOperation]:
    """Record everything, into the data folder too, packed and as lines."""
    items = [
        RecordedOperation.of(SessionName.from_key(key), op)
        for key, stored in store.stored_heads()
        for _, op in operations(store.warm, key, stored)
    ]
    folder = store.settings.data / "recordings"
    folder.mkdir()
    with (folder / "all.tsrec").open("wb") as file:
        write_recording(file, items)
    with gzip.open(folder / "lines.jsonl.gz", "wb") as file:
        file.write(turn("eve0", EVE, SECRET) + b"\n" + turn("bob0", "bob", "kept"))
    return items


def digests(store: EmbeddedStore, sessions: str) -> dict[str, str]:
    """Return the digests of the sessions whose name begins so."""
    rows = store.sessions(prefix=sessions)
    return {row["session"]: row["digest"] for row in rows}


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
