"""A worker that is held in flight: `held_worker.py ack|send|wake|backup ARGUMENTS`.

`ack`: the first chunk of partition 0 is folded and never said to be done.
`send`: the first frames of partition 0 are never delivered.
`wake`: of the first session that comes back from the cold tier, half is delivered.
`backup`: of the first backup, the files are uploaded, and not its manifest.
"""

import asyncio
import sys
import threading
from collections.abc import Sequence
from typing import Any

from turnstate.storage.backup.manifest import MANIFESTS
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.storage.warm import changelog
from turnstate.storage.warm.changelog_records import WOKEN_KIND
from turnstate.streams.cli import main
from turnstate.streams.kafka.app import WorkerApp
from turnstate.streams.kafka.transport import BatchProducer, Chunk


def hold_acknowledgement() -> None:
    """Leave the first chunk of partition 0 undone for ever."""
    done = WorkerApp.chunk_done

    def chunk_done(self: WorkerApp, chunk: Chunk) -> None:
        if chunk.partition.partition or chunk.records[0].offset:
            done(self, chunk)
        else:
            print("held", file=sys.stderr, flush=True)

    WorkerApp.chunk_done = chunk_done  # type: ignore[method-assign]


def hold_frames() -> None:
    """Let the first frames of partition 0 wait for ever."""
    send = BatchProducer.send_rows

    async def send_rows(
        self: BatchProducer, topic: str, partition: int, rows: Sequence[Any]
    ) -> int | None:
        if topic.endswith("deltas") and partition == 0 and rows:
            print("held", file=sys.stderr, flush=True)
            await asyncio.Event().wait()
        return await send(self, topic, partition, rows)

    BatchProducer.send_rows = send_rows  # type: ignore[method-assign,assignment]


def hold_wake() -> None:
    """Let all but the first records of a session that comes back wait for ever."""
    changelog.PART_BYTES = 500  # type: ignore[misc]
    send = BatchProducer.send_rows

    async def send_rows(
        self: BatchProducer, topic: str, partition: int, rows: Sequence[Any]
    ) -> int | None:
        parts = [row for row in rows if row[0] and row[0][:1] == WOKEN_KIND]
        if not parts:
            return await send(self, topic, partition, rows)
        assert len(parts) > 1
        await send(self, topic, partition, parts[:-1])
        print("held", file=sys.stderr, flush=True)
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    BatchProducer.send_rows = send_rows  # type: ignore[method-assign,assignment]


def hold_backup() -> None:
    """Let the manifests of backups wait for ever."""
    create = DirectoryObjects.create

    def held_create(self: DirectoryObjects, name: str, data: bytes) -> bool:
        if name.startswith(MANIFESTS):
            print("held", file=sys.stderr, flush=True)
            threading.Event().wait()
        return create(self, name, data)

    DirectoryObjects.create = held_create  # type: ignore[method-assign]


if __name__ == "__main__":
    how = {
        "ack": hold_acknowledgement,
        "send": hold_frames,
        "wake": hold_wake,
        "backup": hold_backup,
    }
    how[sys.argv[1]]()
    sys.exit(main.run(sys.argv[2:]))
