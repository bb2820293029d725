"""A cluster in which a user speaks who is to be erased, and a look at every byte."""

import secrets
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from redis import Redis

from support import plain_worker
from support.cluster import Cluster, WorkerProcess, cluster_on
from support.commands import COMMAND, TIMEOUT_S
from support.told import turn
from turnstate.agents.tiering.budget import RunBudget
from turnstate.schemas.ids import SessionName
from turnstate.storage.warm.changelog_records import (
    FRAME_KIND,
    PLACE,
    PUT,
    Epoch,
    encode_rows,
)
from turnstate.storage.warm.tables import FRAMES, life_prefix, version_key
from turnstate.streams.clock import SystemClock
from turnstate.streams.documents import from_json
from turnstate.streams.kafka.cluster_backups import back_up
from turnstate.streams.kafka.cluster_erase import erase_on_cluster
from turnstate.streams.kafka.cluster_reader import ClusterReader
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.cluster_tiers import opened_tiers
from turnstate.streams.kafka.partitioning import partition_of
from turnstate.streams.kafka.sync_producer import LoopThread, SyncTurnProducer
from turnstate.streams.settings import Settings

PARTITIONS: Final = 2
EVE: Final = f"eve-{secrets.token_hex(6)}"

PLAIN: Final = (sys.executable, "-P", plain_worker.__file__)
"""Runs a worker whose table files can be looked through."""

_MONTH_MS: Final = 30 * 86_400_000


def needles(count: int) -> list[str]:
    """Return random words; of so many letters that no packer finds a part elsewhere."""
    return [secrets.token_urlsafe(18) for _ in range(count)]


@dataclass
class Scene:
    """Workers with a hot and a cold tier, and what may be asked of them."""

    cluster: Cluster
    thread: LoopThread
    environment: dict[str, str]
    cold: Path
    redis_url: str
    user: str = EVE
    said: list[str] = field(default_factory=lambda: needles(40))

    @property
    def settings(self) -> ClusterSettings:
        """Of the cluster, as its workers have them."""
        return ClusterSettings.load(self.cluster.folder, self.environment)

    def worker(self, name: str) -> WorkerProcess:
        """Return a worker; it is not started."""
        return self.cluster.worker(name, **self.environment)

    def start(self, name: str, **environment: str) -> None:
        """Start a worker and wait until it has its share of the partitions."""
        self.worker(name).start(command=PLAIN, **environment)
        self.settled()

    def settled(self) -> None:
        """Wait until the workers that run have all partitions, each some."""
        running = [each for each in self.cluster.workers.values() if each.process]

        def is_settled() -> bool:
            shares = [each.partitions() for each in running]
            return all(shares) and sum(map(len, shares)) == PARTITIONS

        what = "the workers have all partitions"
        self.thread.run(self.cluster.until(is_settled, what))
        # Answered once each of them is restored.
        self.digests("")

    def publish(self, records: Iterable[bytes]) -> None:
        """Publish turns and wait until they are folded."""
        with SyncTurnProducer(self.settings) as producer:
            for receipt in [producer.publish(record) for record in records]:
                receipt.result(20)
        self.thread.run(self.cluster.quiet())

    def crash_after_a_seal(self, session: str, number: int) -> None:
        """Leave a frame in the changelog that a seal has replaced, and nobody buried.

        As an owner does that dies before its tombstones: no store has a row of it.
        """
        key = SessionName("t", session).key()
        at = version_key(life_prefix(key, 1), 1)
        row = (PUT, PLACE[FRAMES], at, self.said[number].encode())
        with SyncTurnProducer(self.settings) as producer:
            producer.publish_raw(
                encode_rows(Epoch(0, 0), [row]),
                FRAME_KIND + at + secrets.token_bytes(8),
                partition=partition_of(key, PARTITIONS),
                topic=self.cluster.topics.changelog,
            ).result(20)

    def cool(self) -> None:
        """Let a month pass: every session goes into packs."""
        at_ms = SystemClock().now_ms() + _MONTH_MS
        settings = Settings(data=self.cluster.folder)
        with opened_tiers(settings, self.settings) as opened:
            opened.job.run(RunBudget(), at_ms=at_ms)

    def back_up(self) -> None:
        """Have the workers back their partitions up."""
        with ClusterReader(self.settings) as reader:
            assert back_up(reader)["made"] == PARTITIONS

    def command(self, *arguments: str, exit_code: int = 0) -> Any:
        """Run a command on the cluster; return what it says."""
        done = subprocess.run(
            [*COMMAND, *arguments, "--profile", "cluster", "--json"],
            capture_output=True,
            check=False,
            cwd=self.cluster.folder,
            timeout=TIMEOUT_S,
            env=self.environment,
        )
        assert done.returncode == exit_code, done.stderr.decode() + done.stdout.decode()
        return from_json(done.stdout)

    def erase(self, **asked: Any) -> Any:
        """Erase in this process; return the report."""
        settings = Settings(data=self.cluster.folder)
        return erase_on_cluster(settings, self.settings, SystemClock(), "t", **asked)

    def until_nobody_runs(self) -> None:
        """Wait until the group knows that its workers are gone."""
        end = time.monotonic() + 20
        with ClusterReader(self.settings) as reader:
            while reader.routes().workers:
                assert time.monotonic() < end
                time.sleep(0.1)

    def digests(self, prefix: str) -> dict[str, str]:
        """Return the digests of the sessions whose name begins so."""
        with ClusterReader(self.settings) as reader:
            return {
                row["session"]: row["digest"] for row in reader.sessions(prefix=prefix)
            }

    # -- every byte ---------------------------------------------------------------

    def found(self) -> dict[str, set[str]]:
        """Return which words of the user stand where: stores, Redis, bucket."""
        wanted = [*self.said, self.user]
        places = {
            "stores": _files(self.cluster.folder / "data"),
            "redis": _redis(self.redis_url),
            "cold": _files(self.cold),
            "backups": _files(self.cluster.folder / "backups"),
        }
        return {
            place: {word for word in wanted for data in datas if word.encode() in data}
            for place, datas in ((name, list(each)) for name, each in places.items())
        }

    def another_user(self) -> None:
        """Have somebody else be the one who is to be erased."""
        self.user, self.said = f"mallory-{secrets.token_hex(6)}", needles(40)

    def compacted(self) -> bytes:
        """Return what is left of the changelog once Kafka has compacted it."""
        topic = self.cluster.topics.changelog
        records = self.thread.run(self.cluster.records(topic))
        last = {(each.partition, each.key): each.value for each in records}
        return b"".join(value for value in last.values() if value is not None)

    def values(self, topic: str) -> bytes:
        """Return what a topic holds still."""
        records = self.thread.run(self.cluster.records(topic))
        return b"".join(each.value for each in records if each.value is not None)

    def holds(self, data: bytes) -> list[str]:
        """Return which words of the user stand in some bytes."""
        return [word for word in [*self.said, self.user] if word.encode() in data]

    def until_gone(self, within_s: float = 10) -> dict[str, set[str]]:
        """Look until nothing is found, or time is over; return what still is."""
        end = time.monotonic() + within_s
        while True:
            left = {place: words for place, words in self.found().items() if words}
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.2)


def said(scene: Scene, number: int, session: str, **fields: Any) -> bytes:
    """Return the turn in which the user says the n-th word."""
    word = scene.said[number]
    told: dict[str, Any] = {
        "user": scene.user,
        "content": f"{word} she said",
        "slots": {"set": {f"slot{number}": word}},
        **fields,
    }
    return turn(number, session, **told)


def _files(folder: Path) -> Iterator[bytes]:
    """Yield every file; of logs those of a store alone, which are its writes."""
    for path in sorted(folder.rglob("*")):
        try:
            is_word = path.suffix == ".log" and path.parent.name != "store"
            if path.is_file() and not is_word:
                yield path.read_bytes()
        except OSError:
            continue  # a file of a store that has just been replaced


def _redis(url: str) -> Iterator[bytes]:
    where = urlsplit(url)
    with Redis(where.hostname or "", where.port or 0) as redis:
        server: Any = redis
        for key in server.scan_iter():
            kind = server.type(key)
            if kind == b"string":
                yield server.get(key) or b""
            else:
                assert kind == b"list", f"{key!r} is a {kind!r}"
                yield b"".join(server.lrange(key, 0, -1))


@contextmanager
def scene_on(kafka: str, redis_url: str, folder: Path) -> Generator[Scene]:
    """Give a cluster without a worker yet; end all that runs when it is over."""
    with ExitStack() as stack:
        thread = LoopThread("cluster")
        stack.callback(thread.close)
        opened = AsyncExitStack()
        stack.callback(lambda: thread.run(opened.aclose()))
        made = cluster_on(kafka, folder, folder.name, partitions=PARTITIONS)
        cluster = thread.run(opened.enter_async_context(made))
        cold = folder / "cold"
        told = {
            "TURNSTATE_REDIS": redis_url,
            "TURNSTATE_COLD": str(cold),
            "TURNSTATE_BACKUPS": str(folder / "backups"),
        }
        environment = {**cluster.worker("one", **told).environment}
        yield Scene(cluster, thread, environment, cold, redis_url)
