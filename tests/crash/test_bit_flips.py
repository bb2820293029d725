"""One flipped bit anywhere in a closed store is found by name, or provably dead."""

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.soak import SoakSeeds
from turnstate.schemas.errors import CorruptDataError, TurnstateError
from turnstate.streams.documents import to_json
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

SHORT, LONG = 40, 500
"""Places of `make test` and of `make soak`."""

WORDS = ("book", "a", "table", "for", "seven", "near", "the", "old", "mill")


def turn(session: int, number: int, **fields: Any) -> bytes:
    """Return a turn with words of its own."""
    chosen = random.Random(f"{session} {number}")
    return json.dumps(
        {
            "tenant": "t",
            "session": f"s{session}",
            "turn_id": str(number),
            "role": "user" if number % 2 else "assistant",
            "content": " ".join(chosen.choices(WORDS, k=12)),
            "slots": {"set": {f"slot{number % 5}": chosen.random()}},
            **fields,
        }
    ).encode()


def settings(data: Path) -> Settings:
    """Return the settings of a store in a folder."""
    return Settings(data=data, write_buffer_bytes=4 << 20, block_cache_bytes=1 << 20)


def filled(data: Path) -> list[bytes]:
    """Fill a store with every kind of row, close it, and say what it holds."""
    with EmbeddedStore(settings(data)) as store:
        for number in range(70):
            store.publish([turn(session, number) for session in range(12)])
        upkeep.seal(store)
        for number in range(70, 75):
            store.publish([turn(session, number) for session in range(12)])
        store.publish([b"no turn", turn(3, 5, content="another text")])
        store.rollback("t", "s1", 20)
        return told(store)


def told(store: EmbeddedStore) -> list[bytes]:
    """Return all that readers are shown of a store."""
    rows: list[bytes] = []
    for row in store.sessions():
        names = row["tenant"], row["session"]
        state = dict(store.state(*names), tier="any")
        rows += [to_json(state), to_json(store.turns(*names))]
    return [*rows, to_json(upkeep.dead_letters(store))]


def flipped(folder: Path, chosen: random.Random) -> tuple[Path, int]:
    """Flip one bit of one file, each being as likely: RocksDB's notes are longest."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = chosen.choice([path for path in files if path.stat().st_size])
    data = bytearray(path.read_bytes())
    place = chosen.randrange(len(data))
    data[place] ^= 1 << chosen.randrange(8)
    path.write_bytes(data)
    return path, place


def outcome(data: Path, before: list[bytes]) -> str:
    """Open a damaged store and say how the damage showed.

    Raises:
        AssertionError: it did not show, and something is different.
    """
    try:
        store = EmbeddedStore(settings(data))
    except CorruptDataError:
        return "refused to open"
    with store:
        if upkeep.verify(store)["bad"]:
            return "found by verify"
        assert told(store) == before
        return "dead space"


def flip_many(folder: Path, count: int, seed: int) -> Counter[str]:
    """Flip one bit in each of many copies of a store."""
    whole = folder / "whole"
    before = filled(whole)
    found: Counter[str] = Counter()
    for place in range(count):
        chosen = random.Random(f"{seed} {place}")
        copy = folder / f"copy{place}"
        shutil.copytree(whole, copy)
        where = flipped(copy, chosen)
        try:
            found[outcome(copy, before)] += 1
        except (AssertionError, TurnstateError) as error:
            raise AssertionError(f"seed {seed}, {where}: {error!r}") from error
        shutil.rmtree(copy)
    return found


def test_a_flipped_bit_is_named_or_dead(tmp_path: Path) -> None:
    """Whatever bit flips, nothing wrong is ever served as right."""
    found = flip_many(tmp_path, SHORT, seed=1)
    assert sum(found.values()) == SHORT
    assert found["found by verify"]


@pytest.mark.soak
def test_many_flipped_bits(tmp_path: Path, soak_seeds: SoakSeeds) -> None:
    """The same, with the full count."""
    for seed in soak_seeds.take(1):
        found = flip_many(tmp_path / str(seed), LONG, seed)
        print(dict(found))
        assert sum(found.values()) == LONG
