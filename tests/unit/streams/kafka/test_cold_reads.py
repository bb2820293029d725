"""A worker's reads of cold sessions end in time, whoever else waits for the tier."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.changelogs import Owner, Topic
from support.hanging_objects import HangingObjects
from support.packs import Turned, packs_in
from support.round_bench import RoundBench, chunk
from turnstate.schemas.errors import UnavailableError
from turnstate.storage.cold.deadline import OneRead
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.storage.cold.sessions import ColdSessions
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.streams.clock import VirtualClock
from turnstate.streams.expiry import NEVER
from turnstate.streams.kafka.cold_reads import COLD_READS_AT_ONCE, Cold, ColdReads
from turnstate.streams.reading import StoreReader

LIMIT_S = 0.5


class Bench(RoundBench):
    """One partition with a cold session, in a bucket that can hang."""

    def __init__(self, folder: Path) -> None:
        self.objects = HangingObjects(DirectoryObjects(folder / "cold"))
        packs = packs_in(self.objects, Turned())
        clock = VirtualClock(1_700_000_000_000)
        super().__init__(Owner(folder / "store", Topic(), [], clock, packs))
        self.owner.take_over(1)
        asyncio.run(self.made_rounds().run([chunk(0, 0, session="s")]))
        self.owner.cool(self.owner.keys(cold=False))
        (self.key,) = self.owner.keys(cold=True)
        partition = self.owner.partition
        partition.below = ColdSessions(packs_in(self.objects, Turned()), wait_s=LIMIT_S)
        (found,) = partition.store.located([self.key])
        assert isinstance(found, ColdHead)
        self.cold = Cold(partition, partition.epoch, found, "0")
        self.reads = ColdReads(NEVER)
        self.objects.reads.clear()

    def state(self) -> int:
        """Return the version of the session, read where it lies."""

        def read(reader: StoreReader) -> int:
            return reader.head("t", "s").version

        with OneRead():
            return self.reads.read(self.cold, read)


@pytest.fixture(name="bench")
def fixture_bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.objects.go_on()
    bench.owner.close()


def test_a_read_ends_in_time_and_a_later_one_finds_what_came(bench: Bench) -> None:
    bench.objects.hang()
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="cold tier did not answer") as told:
        bench.state()
    assert LIMIT_S <= time.monotonic() - began < LIMIT_S + 1
    assert (told.value.code, told.value.exit_code) == ("cold_away", 6)
    bench.objects.go_on()
    assert bench.state() == 1
    assert len(bench.objects.reads) == 1


def test_waiting_for_others_counts(bench: Bench) -> None:
    bench.objects.hang()
    began = time.monotonic()

    def refused() -> str:
        with pytest.raises(UnavailableError) as told:
            bench.state()
        return told.value.code

    with ThreadPoolExecutor(4 * COLD_READS_AT_ONCE) as pool:
        codes = [pool.submit(refused) for _ in range(4 * COLD_READS_AT_ONCE)]
        assert {each.result(10) for each in codes} == {"cold_away"}
    assert time.monotonic() - began < LIMIT_S + 1
    assert len(bench.objects.reads) == 1
