"""Backups of a cluster as tests ask for them: commands, folders, a worker's counts."""

import json
import re
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.both_ways import Running, plain
from support.cluster import PARTITIONS
from support.told import turn
from turnstate.schemas.errors import UnavailableError
from turnstate.storage.backup.manifest import read_manifest
from turnstate.storage.cold.directory import DirectoryObjects


def said(running: Running, *arguments: str) -> tuple[int, Any]:
    """Run a command on the cluster; return its exit code, and what it says."""
    done = running.cli(*arguments, "--json")
    return done.returncode, json.loads(done.stdout)


def place_of(running: Running, number: int) -> DirectoryObjects:
    """Return the objects of one partition's backups, where they are in a folder."""
    root = Path(running.environment["TURNSTATE_BACKUPS"])
    return DirectoryObjects(root / running.settings.group / f"partition-{number}")


def file_of(running: Running, number: int) -> Path:
    """Return the file of the largest object of a partition's latest backup."""
    objects = place_of(running, number)
    largest = max(read_manifest(objects).files, key=lambda file: file.bytes)
    (path,) = [
        each
        for each in objects.path.rglob("*")
        if each.is_file() and each.name in largest.object_name
    ]
    return path


def counts(running: Running, name: str) -> dict[str, float]:
    """Return the metric of worker `one`: labels → value; it may just start."""
    end = time.monotonic() + 30
    url = f"http://127.0.0.1:{running.metrics_port}/metrics"
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                text = answer.read().decode()
            break
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.1)
    found = re.findall(rf"^{name}(\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def more_turns(running: Running, session: str, count: int = 12) -> None:
    """Publish turns of a few sessions, to all partitions, and wait for them."""
    for at in range(count):
        name = f"{session}-{at}"
        running.publish(turn(1, name, "own", time=1_700_000_000_000 + at))
    running.quiet()


def check_equal(running: Running) -> None:
    """Compare every session with the embedded run, and verify every row."""
    running.routes()
    with running.reader() as reader:
        rows = [plain(row) for row in reader.sessions()]
        assert rows == [plain(row) for row in running.embedded.sessions()]
        assert reader.verify()["bad"] == []


def fresh(running: Running) -> None:
    """Wait until every partition is restored."""
    end = time.monotonic() + 60
    while True:
        rows: list[Any] = []
        # The group may name one that was just killed.
        with running.reader() as reader, suppress(UnavailableError):
            rows = reader.positions()
        if len(rows) == PARTITIONS and all(row["fresh"] for row in rows):
            return
        assert time.monotonic() < end, rows
        time.sleep(0.1)


def ends(running: Running) -> dict[int, int]:
    """Return where each partition of the changelog ends."""
    topic = running.cluster.topics.changelog
    found: dict[int, int] = running.thread.run(running.cluster.ends(topic))
    assert len(found) == PARTITIONS
    return found
