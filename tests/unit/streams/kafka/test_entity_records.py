"""A round sends the entities of what it folds, before the changelog says so."""

import asyncio
import json
from collections.abc import Generator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.changelogs import Owner, Topic
from support.round_bench import RoundBench, chunk
from turnstate.agents.tiering.entities import EntityUpsert
from turnstate.schemas.errors import CorruptDataError
from turnstate.streams.clock import VirtualClock
from turnstate.streams.kafka.entity_records import entity_of, entity_row


class Bench(RoundBench):
    """Rounds that can be ended before their changelog is out."""

    dies = False

    async def send_rows(
        self, topic: str, partition: int, rows: Sequence[Any]
    ) -> int | None:
        if self.dies and rows and topic.endswith("changelog"):
            raise RuntimeError("killed")
        return await super().send_rows(topic, partition, rows)


@pytest.fixture(name="bench")
def fixture_bench(tmp_path: Path) -> Generator[Bench]:
    bench = Bench(Owner(tmp_path, Topic(), [], VirtualClock(1)))
    bench.owner.take_over(1)
    yield bench
    bench.owner.close()


def record(row: tuple[Any, Any, Any]) -> Any:
    """Return a row as it is read from its topic."""
    key, value, headers = row
    return SimpleNamespace(key=key, value=value, headers=headers)


def entities(bench: Bench) -> list[EntityUpsert]:
    """Return what was sent to the topic of entities."""
    return [entity_of(record(row)) for row in bench.sent.get("entities", ())]


def test_most_rounds_send_none(bench: Bench) -> None:
    asyncio.run(bench.made_rounds().run([chunk(0, 8)]))
    assert entities(bench) == []
    assert bench.done == [8]


def test_one_for_every_ten_versions(bench: Bench) -> None:
    rounds = bench.made_rounds()
    for first, last in ((0, 8), (9, 9), (10, 33)):
        asyncio.run(rounds.run([chunk(first, last)]))
    found = entities(bench)
    assert [(each.boundary, each.version) for each in found] == [
        (10, 10),
        (20, 34),
        (30, 34),
    ]
    value = found[0].value
    assert value is not None
    assert json.loads(value)["turn_count"] == 10


def test_a_round_that_did_not_end_is_told_again(bench: Bench) -> None:
    """The changelog was not written: the entity went out all the same, and again."""
    bench.dies = True
    with pytest.raises(RuntimeError, match="killed"):
        asyncio.run(bench.made_rounds().run([chunk(0, 9)]))
    assert "changelog" not in "".join(bench.sent)
    bench.dies = False
    asyncio.run(bench.made_rounds().run([chunk(0, 4)]))
    asyncio.run(bench.made_rounds().run([chunk(5, 11)]))
    first, again = entities(bench)
    assert first[:3] == again[:3]
    assert (first.version, again.version) == (10, 12)


def test_what_is_no_record_of_ours_is_refused() -> None:
    row = entity_row(EntityUpsert(b"k", 1, 10, b"{}", 12), "00-trace")
    assert entity_of(record(row)) == EntityUpsert(b"k", 1, 10, b"{}", 12)
    assert ("traceparent", b"00-trace") in row[2]
    for headers in ([], [("incarnation", b"x"), *row[2][1:3]]):
        with pytest.raises(CorruptDataError, match="does not say"):
            entity_of(record((b"k", b"{}", headers)))
    with pytest.raises(CorruptDataError, match="no key"):
        entity_of(record((None, b"{}", row[2])))
