"""Batches archived into a real bucket: once, whole, from several writers at once."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

from support.object_stores import s3_objects
from turnstate.storage.archive import Archive
from turnstate.storage.archive_manifest import BATCHES


def test_writers_at_once_archive_every_batch_once(s3_server: dict[str, str]) -> None:
    objects = s3_objects(s3_server)
    now_ms = time.time_ns() // 1_000_000

    def write(writer: int) -> list[bool]:
        archive = Archive(objects, os.urandom)
        return [
            archive.put(
                f"batch-{number}",
                [b"%d\n" % number, b"more\n"],
                records=2,
                now_ms=now_ms,
                expires_ms=now_ms + (0 if number % 2 else 3_600_000),
            )
            for number in range(writer, writer + 6)
        ]

    with ThreadPoolExecutor(4) as pool:
        told = [each for made in pool.map(write, range(0, 8, 2)) for each in made]
    archive = Archive(objects, os.urandom)
    assert told.count(True) == len(archive.manifest().batches) == 12
    for number in range(12):
        assert b"".join(archive.read(f"batch-{number}")) == b"%d\nmore\n" % number
    assert len(list(objects.list(BATCHES))) == 24
    assert len(archive.expire(now_ms)) == 6
    assert len(list(objects.list(BATCHES))) == 12
    objects.close()
