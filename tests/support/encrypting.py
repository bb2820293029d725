"""Encrypted stores full of secrets; keys in memory, master keys in no file."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from support.faulty_store import FaultyStore
from turnstate.schemas.ids import SessionName
from turnstate.storage.encryption.key_file import make_key_file
from turnstate.storage.encryption.keys import KeyRing
from turnstate.storage.encryption.store_keys import unlocked
from turnstate.storage.warm.tables import KEYS, TABLES
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

MASTER_A: Final = "master a"
MASTER_B: Final = "master b"

SECRETS: Final = [Random(number).randbytes(9).hex() for number in range(40)]
"""Forty strings that nothing else holds."""

SPEAKERS: Final = 5
ANN: Final = SessionName("t", "s0")


class Master:
    """A master key as a key management service has one; counts how often it is asked.

    What it wraps is turned around and named, which is enough for a test.
    """

    def __init__(self, name: str = MASTER_A) -> None:
        self.name = name
        self.asked = 0

    def wrap(self, plain: bytes) -> bytes:
        self.asked += 1
        return self.name.encode() + plain[::-1]

    def unwrap(self, wrapped: bytes) -> bytes:
        self.asked += 1
        assert wrapped.startswith(self.name.encode()), "the caller compares names"
        return wrapped[len(self.name) :][::-1]


def ring_of(store: FaultyStore, master: Master | None = None) -> KeyRing:
    """Return the keys of a store, as it is opened anew."""
    return unlocked(store, master or Master(), may_make=True)


def save(store: FaultyStore, ring: KeyRing, *lives: bytes) -> None:
    """Write the keys of lives as a batch does that encrypts with them."""
    batch = store.batch()
    keys = {key.id: key for key in map(ring.current, lives)}
    for key in keys.values():
        batch.put_local(KEYS, key.id, key.row.encode())
    store.write(batch, sync=True)
    ring.saved(keys)


def key_setting(folder: Path, name: str = "master.key") -> str:
    """Make a key file and return the setting that names it."""
    return f"keyfile:{make_key_file(folder / name).path}"


def files_with(folder: Path, text: bytes) -> Iterator[Path]:
    """Yield the files below a folder that hold some bytes."""
    for path in folder.rglob("*"):
        if path.is_file() and text in path.read_bytes():
            yield path


def turn(number: int, **fields: Any) -> bytes:
    """Return a turn that says a secret in text, slot and tag."""
    secret = SECRETS[number % len(SECRETS)]
    return json.dumps(
        {
            "tenant": "t",
            "session": f"s{number % SPEAKERS}",
            "turn_id": f"t{number}",
            "role": "user",
            "user": f"user{number % SPEAKERS}",
            "content": f"{secret} is what I said",
            "slots": {"set": {"code": secret}},
            "tags": {"add": [secret]},
        }
        | fields
    ).encode()


def fill(store: EmbeddedStore) -> None:
    """Say every secret in frames, segments, heads, log and dead letters."""
    for begin in range(0, 200, 40):
        store.publish([turn(number) for number in range(begin, begin + 40)])
    upkeep.seal(store)
    store.publish([turn(number) for number in range(200, 240)])
    # Refused, each for another reason.
    store.publish([turn(number, content="another") for number in range(40)])
    store.publish([turn(number, op="melt", turn_id=None) for number in range(40)])
    store.publish([f'{{"tenant": "t", "said": "{each}"}}'.encode() for each in SECRETS])


def told(store: EmbeddedStore) -> dict[str, Any]:
    """Return what readers are told of every session."""
    return {
        row["session"]: (
            row["digest"],
            msgspec.json.encode(store.state("t", row["session"])["slots"]),
            store.turns("t", row["session"])["turns"],
        )
        for row in store.sessions()
    }


def digests(store: EmbeddedStore) -> dict[str, str]:
    return {row["session"]: row["digest"] for row in store.sessions()}


def settings(folder: Path, encryption: str = "") -> Settings:
    return Settings(data=folder, encryption=encryption, fsync="never")


def secrets_in(store: EmbeddedStore) -> dict[str, int]:
    """Count, by table, the rows in which a secret can be read as they lie."""
    return {
        table: sum(
            any(secret.encode() in row for secret in SECRETS)
            for _, row in store.warm.stored_rows(table)
        )
        for table in TABLES
    }


def files_told(folder: Path) -> set[Path]:
    return {path for each in SECRETS for path in files_with(folder, each.encode())}
