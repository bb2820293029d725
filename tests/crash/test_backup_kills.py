"""kill -9 during backups and restores: earlier backups stay, half restores show."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Final

import pytest

from support import backing_up
from support.soak import SoakSeeds
from turnstate.schemas.errors import UnavailableError
from turnstate.storage.backup.manifest import numbers
from turnstate.storage.backup.snapshot import check_backup
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.streams.embedded import backups, upkeep
from turnstate.streams.embedded.restoring import restore
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

START_S: Final = 60.0
LIVES_S: Final = 0.9


def _killed(what: str, data: Path, place: Path, chance: Random) -> bool:
    """Start it, kill it at some moment, and say whether it had come to its end."""
    child = subprocess.Popen(
        [sys.executable, "-P", backing_up.__file__, what, str(data), str(place)],
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    with child.stdout as said:
        try:
            assert said.readline() == b"begun\n"
            time.sleep(chance.random() * LIVES_S)
        finally:
            child.kill()
            ended = child.wait(START_S)
        rest = said.read()
    assert ended in (0, -signal.SIGKILL)
    return b"done" in rest


def _digests(folder: Path) -> dict[str, str]:
    with EmbeddedStore(Settings(data=folder)) as store:
        assert upkeep.verify(store)["bad"] == []
        return {row["session"]: row["digest"] for row in store.sessions()}


def _check_place(place: Path) -> list[int]:
    objects = DirectoryObjects(place)
    there = numbers(objects)
    for number in there:
        _, faults = check_backup(objects, number)
        assert faults == []
    return there


def _kill_backups(folder: Path, seed: int, kills: int) -> None:
    """Whatever moment it was: every backup that is there is whole, and comes back."""
    chance = Random(seed)
    data, place = folder / "data", folder / "place"
    newest = begun = 0
    for _ in range(kills):
        begun += not _killed("backup", data, place, chance)
        there = _check_place(place)
        assert not there or there[-1] >= newest
        newest = there[-1] if there else newest
    print(f"seed {seed}: {kills} kills, {newest} backups, {begun} made none")
    with EmbeddedStore(Settings(data=data)) as store:
        made = backups.backup(store, str(place), keep=1)
        assert upkeep.verify(store)["bad"] == []
    assert _check_place(place) == [made["number"]]
    # What the killed ones left is collected: files that the backup needs stay.
    restore(Settings(data=folder / "back"), str(place), access={})
    assert _digests(folder / "back") == _digests(data)


def _kill_restores(folder: Path, seed: int, kills: int) -> None:
    """A store is there whole, or opening it says that its restore was broken off."""
    chance = Random(seed)
    data, place = folder / "data", folder / "place"
    with EmbeddedStore(Settings(data=data)) as store:
        for turn in range(400):
            store.publish(
                [
                    b'{"tenant":"acme","session":"s%d","role":"user","content":"%d"}'
                    % (turn % 7, turn)
                ]
            )
        upkeep.seal(store)
        backups.backup(store, str(place))
    expected = _digests(data)
    half = whole = 0
    for number in range(kills):
        target = folder / f"target{number}"
        done = _killed("restore", target, place, chance)
        if not (target / "store").exists() and (target / "store.restoring").exists():
            half += 1
            with pytest.raises(UnavailableError) as refused:
                EmbeddedStore(Settings(data=target))
            assert refused.value.code == "half_restored"
            assert not done
        if not (target / "store").exists():
            restore(Settings(data=target), str(place), access={})
        else:
            whole += 1
        assert _digests(target) == expected
    print(f"seed {seed}: {kills} kills, {half} half restored, {whole} whole")
    assert half


def test_killed_backups_leave_the_earlier_ones_whole(tmp_path: Path) -> None:
    _kill_backups(tmp_path, seed=1, kills=4)


def test_killed_restores_are_refused_by_name_and_done_again(tmp_path: Path) -> None:
    _kill_restores(tmp_path, seed=1, kills=4)


@pytest.mark.soak
def test_many_killed_backups(tmp_path: Path, soak_seeds: SoakSeeds) -> None:
    for seed, kills in soak_seeds.take_shares(60, 10):
        _kill_backups(tmp_path / str(seed), seed, kills)


@pytest.mark.soak
def test_many_killed_restores(tmp_path: Path, soak_seeds: SoakSeeds) -> None:
    for seed, kills in soak_seeds.take_shares(60, 20):
        _kill_restores(tmp_path / str(seed), seed, kills)
