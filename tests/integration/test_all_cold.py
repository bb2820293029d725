"""Whole corpora go cold and are read back: equal digests, few objects, few requests.

The dialogues that ship, and copies of them; all corpora where
`TURNSTATE_DATA_CORPORA` names their folder. Over a directory and a real bucket.
"""

import json
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec
import pytest

from support.corpora import CORPORA_VARIABLE, corpora_folder
from support.object_stores import s3_objects
from turnstate.replay.readers import Refusal, read_file
from turnstate.replay.samples import sample_paths
from turnstate.storage.cold.counting import CountingObjects
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.cold.store import PackStore
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.streams.cli import main
from turnstate.streams.clock import VirtualClock
from turnstate.streams.documents import to_json
from turnstate.streams.embedded.cold import Tiering
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.places import ENDPOINT_VARIABLE, access_of, open_place
from turnstate.streams.settings import Settings
from turnstate.streams.tiers.opening import cold_place
from turnstate.streams.tiers.reads import READ_TWICE_MS

LATER: Final = "2030-01-01T00:00:00Z"
SMALL: Final = 256 << 10
SHORT_STEP: Final = 10
"""In the short form every so many sessions are read back from a bucket."""

STEP: Final = 6
"""Of the sessions in small packs so many are read by themselves; a verification
reads them all."""

COPIES: Final = 3
"""Of the dialogues that ship, so that there are twenty small packs."""

Told = dict[tuple[str, str], tuple[str, bytes]]
"""(tenant, session) → its digest, and its turns as JSON."""


def paths() -> list[Path]:
    """Return the corpora that were asked for, or the dialogues that ship."""
    if not os.environ.get(CORPORA_VARIABLE):
        return sample_paths()
    folder = corpora_folder()
    assert folder is not None
    return sorted(folder.glob("*.jsonl.gz"))


def published(settings: Settings, copies: int) -> int:
    """Publish everything, each session under several names; return how many."""
    names: set[tuple[str, str]] = set()
    with OwnedStore(settings, serving=False) as store:
        for copy in range(copies):
            for path in paths():
                lines = list(read_file(path, "corpus"))
                turns: list[bytes] = []
                for line in lines:
                    assert not isinstance(line, Refusal)
                    turn = msgspec.json.decode(line)
                    if copy:
                        turn["session"] += f"~{copy}"
                    names.add((turn["tenant"], turn["session"]))
                    turns.append(msgspec.json.encode(turn))
                for answer in store.publish(turns):
                    assert answer.error is None
    return len(names)


def told(store: OwnedStore, *, whole: bool, step: int = 1) -> Told:
    """Return what sessions read as; with all their turns, if that is wanted."""
    found: Told = {}
    for row in list(store.sessions())[::step]:
        name = (row["tenant"], row["session"])
        state = store.state(*name)
        assert state["digest"] == row["digest"]
        turns = store.turns(*name, limit=100_000)["turns"] if whole else state["turns"]
        found[name] = (state["digest"], to_json(turns))
    return found


class Place:
    """A data folder, and the cold tier that its settings name.

    Attributes:
        step: Every so many sessions are read back, each with many requests.
    """

    def __init__(self, folder: Path, cold: str, step: int, **fields: Any) -> None:
        self.step = step
        self.settings = Settings(data=folder, cold=cold, fsync="never", **fields)
        self.environment = {"TURNSTATE_COLD": cold, "TURNSTATE_FSYNC": "never"} | {
            f"TURNSTATE_{name.upper()}": str(value) for name, value in fields.items()
        }

    def tiers(self, *command: str, capfd: pytest.CaptureFixture[str]) -> Any:
        """Run `turnstate tiers`; it has to succeed."""
        capfd.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            data = str(self.settings.data)
            code = main.run(["tiers", *command, "--data", data, "--json"])
        out, err = capfd.readouterr()
        assert code == 0, (out, err)
        return json.loads(out)

    def objects(self) -> ObjectStore:
        return open_place(cold_place(self.settings), access_of(os.environ))

    def later(self, hours: float) -> VirtualClock:
        """Return a clock that a test turns, some hours from the last move."""
        return VirtualClock(LATER_MS + int(hours * 3_600_000))


LATER_MS: Final = 1_893_456_000_000
"""2030-01-01."""


@pytest.fixture(name="place", params=["directory", "s3"])
def fixture_place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Return what makes a place for a cold tier."""
    for name in list(os.environ):
        if name.startswith("TURNSTATE") and name != CORPORA_VARIABLE:
            monkeypatch.delenv(name)
    cold = ""
    if request.param == "s3":
        connection = request.getfixturevalue("s3_server")
        monkeypatch.setenv(ENDPOINT_VARIABLE, connection["endpoint"])
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", connection["access_key"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", connection["secret_key"])
        cold = f"s3://{connection['bucket']}/all-cold-{uuid4().hex[:12]}"
        with closing(s3_objects(connection)) as objects:
            assert not list(objects.list())
    is_short = cold and request.node.get_closest_marker("soak") is None
    step = SHORT_STEP if is_short else 1

    def place(**fields: Any) -> Place:
        return Place(tmp_path / "data", cold, step, **fields)

    return place


def counted(store: OwnedStore, place: Place, clock: VirtualClock) -> CountingObjects:
    """Have a store count what it asks of its cold tier."""
    objects = CountingObjects(place.objects())
    packs = PackStore(objects, clock=clock.now_ms, chance=os.urandom)
    store.tiering.close()
    store.tiering = Tiering(store.engine, lambda: packs, clock.now_ms)
    return objects


def reads(objects: CountingObjects) -> int:
    return objects.traffic()["read"].requests


def test_everything_goes_cold_and_is_read_back(
    place: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    all_cold(place, capfd)


@pytest.mark.soak
def test_everything_is_read_back_from_a_bucket_too(
    place: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    all_cold(place, capfd)


def all_cold(place: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """Publish, cool by a virtual clock, read back."""
    here: Place = place()
    count = published(here.settings, copies=1)
    with OwnedStore(here.settings, serving=False) as store:
        warm = told(store, whole=True)
    assert len(warm) == count
    document = here.tiers("run", "--once", "--now", LATER, capfd=capfd)
    assert document["moved"] == {"warm>cold": count}
    status = here.tiers("status", capfd=capfd)
    assert status["tiers"]["cold"]["sessions"] == count
    assert status["tiers"]["warm"]["sessions"] == 0
    objects = [info.name for info in here.objects().list()]
    assert len(objects) <= count / 100, objects

    clock = here.later(1)
    with OwnedStore(here.settings, clock, serving=False) as store:
        asked = counted(store, here, clock)
        most = 0
        for row in list(store.sessions())[:: here.step]:
            before = reads(asked)
            state = store.state(row["tenant"], row["session"])
            most = max(most, reads(asked) - before)
            assert state["tier"] == "cold"
            clock.advance(2 * READ_TWICE_MS)
            shown = store.turns(row["tenant"], row["session"], limit=100_000)["turns"]
            clock.advance(2 * READ_TWICE_MS)
            name = (row["tenant"], row["session"])
            assert (state["digest"], to_json(shown)) == warm[name]
        assert most <= 2
        assert sum(1 for _ in store.sessions(tier="cold")) == count
        assert asked.traffic()["list"].requests == 0
        if here.step == 1:
            checked = store.verify()
            assert (checked["sessions"], checked["bad"]) == (count, [])
    print(f"{count} sessions in {len(objects)} objects, {most} requests a read")


def test_small_packs_are_compacted_and_collected(
    place: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here: Place = place(cold_pack_bytes=SMALL, cold_min_age_s=1)
    copies = 1 if os.environ.get(CORPORA_VARIABLE) else COPIES
    count = published(here.settings, copies)
    with OwnedStore(here.settings, serving=False) as store:
        warm = told(store, whole=False, step=STEP)
    here.tiers("run", "--now", LATER, capfd=capfd)
    packs = here.tiers("status", capfd=capfd)["packs"]
    assert packs >= 20

    # Nobody has pointers to tell from: the filters say which packs to ask.
    by_key = PackStore(here.objects(), clock=lambda: LATER_MS, chance=os.urandom)
    with OwnedStore(here.settings, serving=False) as store:
        keys = list(store.warm.keys())
        pointers = {
            key: cold.pointer
            for key, cold in zip(keys, store.warm.located(keys), strict=True)
            if isinstance(cold, ColdHead)
        }
        wanted = keys[:: max(1, count // 200)]
        assert by_key.find_many(wanted) == [pointers[key] for key in wanted]
        assert by_key.find(b"\0\1tnobody") is None
        looks = by_key.looks
        assert looks.spared > looks.packs / 2 > looks.misled
        wanted = [key for at, key in enumerate(keys) if at % 5]
        woken = len(store.call("tier_warm", keys=wanted))
        assert woken == len(wanted)

    monkeypatch.setattr("turnstate.streams.clock.SystemClock.now_ms", tomorrow)
    compacted = here.tiers("compact", capfd=capfd)
    assert compacted["rewritten"] >= packs / 2
    assert compacted["damaged"] == {}
    assert compacted["moved"]
    collected = here.tiers("gc", capfd=capfd)
    assert collected["packs"] == compacted["rewritten"]
    after = here.tiers("status", capfd=capfd)
    assert after["packs"] < packs
    assert after["tiers"]["cold"]["sessions"] == count - woken
    lying = {i.name for i in here.objects().list("packs/")}
    assert lying == set(by_key.manifests.latest().packs)
    with OwnedStore(here.settings, serving=False) as store:
        assert told(store, whole=False, step=STEP) == warm
        assert len(warm) > count / STEP - 1
        if here.step == 1:
            assert store.verify()["bad"] == []
    print(f"{packs} packs of {count} sessions; {compacted}; {collected}; {looks}")


def tomorrow(_: object) -> int:
    """Stand in for the machine's clock when all packs are old."""
    return LATER_MS + 86_400_000
