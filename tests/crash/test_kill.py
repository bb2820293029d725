"""kill -9 in the middle of publishing: nothing acknowledged is lost, none twice."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

import pytest

from support import journal, publishing
from support.dialogues import endless_turns
from support.journal import Journal, read_journal
from support.kept import Sent, check_kept, digests
from support.soak import SoakSeeds
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

AHEAD: Final = 6_000
"""Turns that lie before a publisher: more than it gets through before its end."""

START_S: Final = 30.0
"""A publisher that says nothing for so long fails the test."""

LIVES_S: Final = 0.25
"""A publisher lives at most so long after its first acknowledgement."""

SENT_AGAIN: Final = 20
"""Up to so many acknowledged turns are sent once more after a restart."""

HITS_LEAST: Final = 0.9
"""Of the kills, so many have to hit turns that are not acknowledged."""

SMALL: Final = {
    "TURNSTATE_SEAL_AFTER_S": "1",
    "TURNSTATE_HOT_BYTES": str(256 << 10),
    "TURNSTATE_WRITE_BUFFER_BYTES": str(1 << 20),
}
"""Sizes with which sealing, eviction and flushes happen while it publishes."""


class Killed:
    """One input, one store, and publishers that are killed one after another."""

    def __init__(self, folder: Path, seed: int, *bugs: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.bugs = bugs
        self.data = folder / "data"
        self.chance = Random(seed)
        self.source: Iterator[bytes] = endless_turns(seed)
        self.lines: list[bytes] = []
        self.sent = Sent()
        self.acknowledged: dict[int, int] = {}
        self.next = 0
        self.upto = 0
        """No publisher has handed over a turn from this index on."""
        self.hits = 0
        self.again = 0

    def _extend(self, count: int) -> None:
        for line in islice(self.source, max(0, count - len(self.lines))):
            self.lines.append(line)
            self.sent.add(line)

    def kill_once(self, number: int) -> None:
        """Start a publisher where the last one ended, kill it, look at the store."""
        begin = max(0, self.next - self.chance.randrange(SENT_AGAIN))
        self._extend(begin + AHEAD)
        part = self.lines[begin : begin + AHEAD]
        said = self._run(number, part)
        assert said.sent < len(part), "the input ended before the kill"
        for at, (verdict, version) in enumerate(said.answers):
            index = begin + at
            assert verdict in {"accepted", "duplicate"}
            if index in self.acknowledged:
                assert verdict == "duplicate"
                assert version == self.acknowledged[index]
                self.again += 1
            self.acknowledged[index] = version
        self.hits += said.in_flight > 0
        self.next = max(self.next, begin + len(said.answers))
        upto = begin + said.sent + publishing.TURNS_MAX
        # One that dies at once may have sent less than the one before it, of
        # whose last turns some were kept though nobody was told.
        self.upto = max(self.upto, upto)
        self._look({draft.key for draft in self.sent.drafts[begin:upto]})

    def _look(self, touched: set[bytes]) -> None:
        """Open the store here and check every session that may have changed."""
        with EmbeddedStore(self.settings()) as store:
            check_kept(
                store, self.sent, self.acknowledged, sorted(touched), upto=self.upto
            )

    def _run(self, number: int, part: list[bytes]) -> Journal:
        lines = self.folder / "lines"
        lines.write_bytes(b"\n".join(part))
        said = self.folder / f"journal{number}"
        publisher = subprocess.Popen(
            [
                *(sys.executable, "-P", publishing.__file__),
                *(str(self.data), str(lines), *self.bugs),
            ],
            stdout=subprocess.PIPE,
            env={**os.environ, **SMALL},
        )
        keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", journal.__file__, str(said)],
            stdin=publisher.stdout,
        )
        assert publisher.stdout is not None
        publisher.stdout.close()
        try:
            self._wait_for_word(publisher, said)
            time.sleep(self.chance.random() * LIVES_S)
            assert publisher.poll() is None, "the publisher ended by itself"
        finally:
            publisher.kill()
            ended = publisher.wait()
            # What was said before the end is in the pipe; the keeper reads it all.
            assert keeper.wait() == 0
        assert ended == -signal.SIGKILL
        return read_journal(said)

    def _wait_for_word(self, publisher: "subprocess.Popen[bytes]", said: Path) -> None:
        end = time.monotonic() + START_S
        while not (said.exists() and read_journal(said).answers):
            assert publisher.poll() is None, "the publisher ended by itself"
            assert time.monotonic() < end, "the publisher does not publish"
            time.sleep(0.005)

    def settings(self) -> Settings:
        """Return the settings that the publishers have, too."""
        return Settings.from_env(SMALL, data=self.data)

    def finish(self) -> None:
        """Publish the rest here and compare with a run that nobody disturbed."""
        with EmbeddedStore(self.settings()) as store:
            for answer in store.publish(self.lines[self.next :]):
                assert answer.error is None
            found = digests(store)
            assert upkeep.verify(store)["bad"] == []
        quiet = Settings(data=self.folder / "quiet", fsync="never")
        with EmbeddedStore(quiet) as store:
            store.publish(self.lines)
            assert found == digests(store)


def _killed(folder: Path, seed: int, kills: int) -> None:
    """Kill until enough kills have counted: those that hit turns in flight.

    On a machine that does other things as well, more of them come between
    two groups; a kill that hits nothing is made again.
    """
    run = Killed(folder, seed)
    least, made = HITS_LEAST * kills, 0
    while made < kills or (run.hits < least and made < 3 * kills):
        run.kill_once(made)
        made += 1
    run.finish()
    print(
        f"seed {seed}: {made} kills, {run.hits} hit turns in flight; "
        f"{len(run.acknowledged)} turns acknowledged, {run.again} of them twice"
    )
    assert run.hits >= least
    assert run.again


def test_ten_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    _killed(tmp_path, seed=1, kills=10)


def test_a_store_that_acknowledges_before_it_keeps_is_caught(tmp_path: Path) -> None:
    run = Killed(tmp_path, 1, "late")
    with pytest.raises(AssertionError, match="was acknowledged and is lost"):
        for number in range(5):
            run.kill_once(number)


@pytest.mark.soak
def test_two_hundred_kills(tmp_path: Path, soak_seeds: SoakSeeds) -> None:
    for seed, kills in soak_seeds.take_shares(200, 20):
        _killed(tmp_path / str(seed), seed, kills)
