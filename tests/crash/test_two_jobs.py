"""Two tier jobs at once, while turns arrive for what they move: nothing is lost."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import pytest

from support import tier_jobs
from support.commands import COMMAND, TIMEOUT_S
from support.cooling import real_lines
from support.dialogues import endless_turns
from support.kept import digests
from support.tier_jobs import LATER
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.settings import Settings

FINE: Final = {0, 4, 6}
"""Done; another job took over; another job is at work."""

BATCH: Final = 8

WOKEN_S: Final = 60.0
"""So much longer does it last, if so long no turn came for a cold session."""


class Job:
    """A process that runs tier commands until it is stopped."""

    def __init__(self, data: Path, begin: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", tier_jobs.__file__, str(data), str(begin)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TURNSTATE_COLD_MIN_AGE_S": "1"},
        )
        self.done: list[tuple[str, int, Any]] = []

    def stop(self) -> None:
        """Let it end what it does; note what it did."""
        out, _ = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0
        said = out.decode().splitlines()
        for document, told in zip(said[::2], said[1::2], strict=True):
            code, command = told.split()
            self.done.append((command, int(code), json.loads(document)))

    def codes(self) -> Counter[int]:
        return Counter(code for _, code, _ in self.done)

    def moved(self) -> int:
        return sum(
            sum(document.get("moved", {}).values())
            for command, code, document in self.done
            if command == "run" and code in {0, 4}
        )


def ran(data: Path, *command: str) -> tuple[int, Any]:
    """Run `turnstate tiers`; return the exit code and what it says."""
    done = subprocess.run(
        [*COMMAND, "tiers", *command, "--data", str(data), "--json"],
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
        env={**os.environ, "TURNSTATE_COLD_MIN_AGE_S": "1"},
    )
    assert done.stdout, done.stderr.decode()
    return done.returncode, json.loads(done.stdout)


def more_turns(lines: list[bytes], seed: int) -> Iterator[bytes]:
    """Yield turns for the sessions that there are, in any order, without end."""
    chance = Random(seed)
    names = sorted({(t["tenant"], t["session"]) for t in map(json.loads, lines)})
    number = 0
    while True:
        tenant, session = chance.choice(names)
        number += 1
        yield msgspec.json.encode(
            {
                "tenant": tenant,
                "session": session,
                "turn_id": f"later-{number}",
                "role": "user",
                "content": f"and then {number}",
            }
        )


def two_jobs(folder: Path, lines: list[bytes], seconds: float) -> None:
    """Publish, cool, and publish on; compare with a store that never cooled."""
    sent = list(lines)
    data = folder / "data"
    settings = Settings(data=data, cold_pack_bytes=256 << 10, cold_min_age_s=1)
    more = more_turns(lines, 1)
    with OwnedStore(settings) as store:
        publish(store, lines)
        jobs = [Job(data, begin) for begin in range(2)]
        end = time.monotonic() + seconds
        woken = 0
        try:
            while time.monotonic() < (end if woken else end + WOKEN_S):
                batch = [next(more) for _ in range(BATCH)]
                before = count(store, "cold")
                publish(store, batch)
                woken += count(store, "cold") < before
                sent += batch
                time.sleep(0.01)
        finally:
            for job in jobs:
                job.stop()
        codes = jobs[0].codes() + jobs[1].codes()
        said = [document for job in jobs for _, code, document in job.done if code]
        assert set(codes) <= FINE, said
        assert codes[0] > 4
        assert all(job.done for job in jobs)
        assert jobs[0].moved() + jobs[1].moved() > len(digests(store)) / 2
        assert woken, "no turn came for a session that was cold"
        finished(data, store)
        found = digests(store)
        print(f"{len(found)} sessions, {len(sent)} turns, {codes}, {woken} woke some")
    assert found == never_cooled(folder / "quiet", sent)


def finished(data: Path, store: OwnedStore) -> None:
    """A later run finishes the rest, and what was left over goes."""
    code, document = ran(data, "run", "--once", "--now", LATER)
    assert code == 0, document
    assert count(store, "cold") == len(digests(store))
    code, _ = ran(data, "sweep", "--now", LATER)
    assert code == 0
    code, status = ran(data, "status")
    assert (code, status["unfinished"]) == (0, 0)
    assert store.verify()["bad"] == []
    for row in store.sessions():
        assert store.head(row["tenant"], row["session"]).version == row["version"]


def never_cooled(folder: Path, lines: list[bytes]) -> dict[tuple[str, str], str]:
    with OwnedStore(Settings(data=folder, fsync="never"), serving=False) as store:
        publish(store, lines)
        return digests(store)


def publish(store: OwnedStore, lines: list[bytes]) -> None:
    for answer in store.publish(lines):
        assert answer.error is None


def count(store: OwnedStore, tier: str) -> int:
    return sum(1 for _ in store.sessions(tier=tier))


def test_two_jobs_and_a_publisher_lose_nothing(tmp_path: Path) -> None:
    two_jobs(tmp_path, real_lines(150), seconds=5)


@pytest.mark.soak
def test_two_jobs_for_a_minute_over_ten_thousand_sessions(tmp_path: Path) -> None:
    lines: list[bytes] = []
    names: set[tuple[str, str]] = set()
    for line in endless_turns(1):
        turn = json.loads(line)
        name = (turn["tenant"], turn["session"])
        if len(names) == 10_000 and name not in names:
            break
        names.add(name)
        lines.append(line)
    two_jobs(tmp_path, lines, seconds=60)
