"""A user who is to be erased, what they said, and a look for it in every byte."""

import gzip
import json
import secrets
from typing import Any

from turnstate.agents.tiering.budget import RunBudget
from turnstate.replay.recording import RecordedOperation, write_recording
from turnstate.schemas.ids import SessionName
from turnstate.storage.session_reader import operations
from turnstate.streams.documents import to_json
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.tiers.opening import OpenedTiers

EVE = f"eve-{secrets.token_hex(6)}"
SECRET = secrets.token_hex(16)
"""Random, so that no packer finds a part of it anywhere else."""


def cool(store: OwnedStore) -> None:
    """Let a month pass: every session goes into packs."""
    tiers = OpenedTiers(store.settings, store, store.clock)
    tiers.job.run(RunBudget(), at_ms=store.clock.now_ms() + 30 * 86_400_000)
    assert {row["tier"] for row in store.sessions()} == {"cold"}


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


