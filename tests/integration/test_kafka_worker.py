"""A worker on a real Kafka: what is in flight, what is bad, how it ends."""

import asyncio
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from support import held_worker
from support.cluster import Cluster, Sent, Source
from support.cluster_scenes import dialogue, finished, play, published, stopped
from turnstate.schemas.wire.json import draft_from_json, turn_from_json
from turnstate.schemas.wire.packed import CONTENT_TYPE, pack_turns
from turnstate.schemas.wire.protobuf import turn_to_protobuf
from turnstate.streams.kafka.delta_records import delta_of

# -- what is in flight -----------------------------------------------------------


@pytest.mark.parametrize("how", ["ack", "send"])
def test_a_chunk_held_in_flight_is_not_passed_by_a_commit(
    kafka: str, tmp_path: Path, how: str
) -> None:
    async def scenario(cluster: Cluster) -> None:
        worker = cluster.worker("held", TURNSTATE_CHUNK_TURNS_MAX="50")
        taken = await published(cluster, dialogue(1, 300))
        command = [sys.executable, "-P", held_worker.__file__, how]
        worker.start(command=command)
        ends = await cluster.ends()
        await cluster.until(lambda: "held" in worker.last_words(), "it is held")
        if how == "ack":
            # Later chunks, and the other partition, are done.
            await cluster.until(
                lambda: _committed(cluster, 1, ends[1]), "partition 1 is committed"
            )
            await cluster.until(
                lambda: _frames(cluster, 0, ends[0]), "later chunks have frames"
            )
        taken += await published(cluster, dialogue(2, 300))
        await asyncio.sleep(1)
        assert (await cluster.committed())[0] == 0
        worker.kill()
        assert (await cluster.committed())[0] == 0
        worker.start()
        await finished(cluster, worker, taken)

    play(kafka, tmp_path, scenario)


async def _committed(cluster: Cluster, partition: int, offset: int) -> bool:
    return (await cluster.committed())[partition] >= offset


async def _frames(cluster: Cluster, partition: int, turns: int) -> bool:
    """Say whether the frames of a partition hold so many operations."""

    count = sum(
        len(delta_of(each).records)
        for each in await cluster.records(cluster.topics.deltas)
        if each.partition == partition
    )
    return count >= turns


# -- what is bad -----------------------------------------------------------------


def test_one_poison_turn_in_five_hundred_is_one_letter(
    kafka: str, tmp_path: Path
) -> None:
    poison = b'{"tenant":"acme","session":"s","turn_id":"p","role":7,"content":"x"}'

    async def scenario(cluster: Cluster) -> None:
        good = dialogue(3, 499)
        key = draft_from_json(poison.replace(b"7", b'"user"')).key
        batch = [*good[:250], Sent(poison, key), *good[250:]]
        await cluster.send(batch)
        worker = cluster.worker("first")
        worker.start()
        await cluster.quiet()
        letters = await cluster.records(cluster.topics.dead_letters)
        assert [each.value for each in letters] == [poison]
        told = dict(letters[0].headers)
        assert told["field"] == b"role"
        assert letters[0].key == key
        folded: set[tuple[bytes, bytes]] = set()
        for record in await cluster.records(cluster.topics.deltas):
            delta = delta_of(record)
            folded |= {(delta.key, raw) for raw in delta.records}
        assert len(folded) == 499
        await stopped(worker)

    play(kafka, tmp_path, scenario)


def test_bad_records_of_every_kind_are_letters_and_nothing_more(
    kafka: str, tmp_path: Path
) -> None:

    good = dialogue(4, 40)
    first = good[0]
    assert first.value is not None
    assert first.key is not None
    other = next(each for each in good if each.key != first.key)
    proto = turn_to_protobuf(turn_from_json(first.value))

    async def scenario(cluster: Cluster) -> None:
        home = {
            sent.key: place[0]
            for sent, place in zip(good, await cluster.send(good), strict=True)
        }
        assert first.value is not None
        here = home[first.key]
        bad_turn = first.value.replace(b'"role"', b'"rule"')
        pack = pack_turns([first.value, bad_turn, first.value])
        json_type = ("content-type", b"application/json")
        proto_type = ("content-type", b"application/x-protobuf")
        rows: list[tuple[Sent, str | None]] = [
            # Each with the field of its letter, None where it is as good as any.
            (Sent(first.value, other.key, here), "key"),
            (Sent(first.value, first.key, 1 - here), "partition"),
            (Sent(None, first.key, here), "value"),
            (Sent(b"\x00\xff\xfe garbage", first.key, here), "any"),
            (Sent(b"x" * (5 << 20), first.key, here), "any"),
            (Sent(proto[: len(proto) // 2], first.key, here, [proto_type]), "any"),
            (Sent(first.value, first.key, here, [proto_type]), "any"),
            (Sent(proto, first.key, here, [json_type]), "any"),
            (Sent(b"", first.key, here), "any"),
            (Sent(pack, None, here, [("content-type", CONTENT_TYPE.encode())]), "any"),
            (Sent(pack[:-3], None, here), "any"),
            (Sent(first.value, None, here), None),
            (Sent(first.value, first.key, here, [("content-type", b"\xff")]), None),
            (Sent(first.value, first.key, here, [("attempt", b"-1"), json_type]), None),
            (Sent(proto, first.key, here, [proto_type]), None),
        ]
        places = await cluster.send([row for row, _ in rows])
        last = dialogue(4, 80)[40:]
        await cluster.send(last)
        worker = cluster.worker("first")
        worker.start()
        await cluster.quiet()
        letters: dict[tuple[int, int], list[Any]] = {}
        for each in await cluster.records(cluster.topics.dead_letters):
            told = dict(each.headers)
            at = int(told["partition"]), int(told["offset"])
            letters.setdefault(at, []).append((each, told))
        for (sent, field), place in zip(rows, places, strict=True):
            found = letters.pop(place, [])
            assert len(found) == (field is not None), (sent, field, found)
            for record, told in found:
                assert record.key == sent.key
                assert told["reason"]
                if field not in (None, "any"):
                    assert told["field"] == field.encode() if field else None
                if sent.value is not None and sent.value != pack:
                    assert record.value == sent.value
                elif sent.value is not None:
                    assert (record.value, told["index"]) == (bad_turn, b"1")
        assert not letters
        await stopped(worker)

    play(kafka, tmp_path, scenario)


# -- how it ends, and how it comes back ----------------------------------------------


def test_a_worker_that_is_told_to_end_does_so_and_nothing_comes_twice(
    kafka: str, tmp_path: Path
) -> None:
    async def scenario(cluster: Cluster) -> None:
        worker = cluster.worker("first")
        worker.start()
        taken = await published(cluster, dialogue(16, 2_000))
        await cluster.until(lambda: _frames(cluster, 0, 1), "it folds")
        await stopped(worker, 30)
        committed = await cluster.committed()
        frames = await cluster.ends(cluster.topics.deltas)
        if committed == await cluster.ends():
            worker.start()
            await cluster.until(lambda: len(worker.partitions()) == 2, "it is back")
            await asyncio.sleep(1)
            assert await cluster.ends(cluster.topics.deltas) == frames
        else:
            worker.start()
        await finished(cluster, worker, taken)

    play(kafka, tmp_path, scenario)


def test_a_worker_can_be_told_to_end_while_it_starts(
    kafka: str, tmp_path: Path
) -> None:
    async def scenario(cluster: Cluster) -> None:
        worker = cluster.worker("first")
        taken = await published(cluster, dialogue(17, 200))
        for _ in range(4):
            worker.start()
            await cluster.until(worker.partitions, "it opens its stores")
            await stopped(worker, 30)
            shutil.rmtree(worker.data / worker.name)
        worker.start()
        await finished(cluster, worker, taken)

    play(kafka, tmp_path, scenario)


def test_a_worker_that_wakes_up_too_late_writes_nothing_that_counts(
    kafka: str, tmp_path: Path
) -> None:
    async def scenario(cluster: Cluster) -> None:
        first, second = cluster.worker("first"), cluster.worker("second")
        source = Source(cluster.settings, cluster.folder)
        try:
            first.start()
            second.start()
            await cluster.until(
                lambda: first.partitions() and second.partitions(), "both have some"
            )
            source.start(seed=18, rate=400)
            for sleeper in (first, second):
                await asyncio.sleep(1)
                sleeper.signal(signal.SIGSTOP)
                # Longer than its session, and than sessions stay unsealed.
                await asyncio.sleep(4)
                sleeper.signal(signal.SIGCONT)
                await cluster.until(
                    lambda: len(first.partitions()) == len(second.partitions()) == 2,
                    "both have their share again",
                )
            taken = await asyncio.to_thread(source.stop)
            await cluster.quiet()
            await stopped(second)
            await finished(cluster, first, taken)
        finally:
            source.end()

    play(kafka, tmp_path, scenario, partitions=4)
