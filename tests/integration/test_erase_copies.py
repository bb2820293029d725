"""Erasing reaches packs, backups and savepoints, and names what it cannot reach."""

import shutil
from pathlib import Path

import pytest

from support.erasing import (
    EVE,
    SECRET,
    cool,
    digests,
    fill,
    found_in,
    recordings,
    turn,
)
from turnstate.schemas.ids import SessionName
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.backups import backup, listing, savepoint
from turnstate.streams.embedded.erase_cold import scrub_packs
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.embedded.restoring import restore, restore_savepoint
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

pytestmark = pytest.mark.usefixtures("plain_blocks")


def test_a_user_is_gone_from_the_cold_tier(store: OwnedStore) -> None:
    """Packs that hold them are rewritten at once; what else they hold is whole."""
    fill(store)
    recordings(store)
    cool(store)
    # Some come back and go down again: their first images are garbage by then.
    store.publish([turn("eve1", EVE, f"{SECRET} again"), turn("bob1", "bob", "me")])
    cool(store)
    store.publish([turn("eve2", EVE, f"{SECRET} once more")])
    packs = store.tiering.packs
    orphan = next(iter(packs.manifests.latest().packs))
    left = packs.objects.read(orphan)
    others = {name: d for name, d in digests(store, "bob").items() if name != "bob0"}
    assert len(packs.manifests.latest().packs) > 2
    packs.objects.create(f"packs/{9:020d}-{orphan.rpartition('-')[2]}", left)
    plan = upkeep.erase(store, "t", user=EVE, dry_run=True)
    assert plan["scanned"]["packs"] == 7
    folder = store.settings.data / "cold" / "packs"
    assert any(SECRET.encode() in path.read_bytes() for path in folder.iterdir())

    report = upkeep.erase(store, "t", user=EVE)

    tiers = {row["session"]: row["tier"] for row in store.sessions()}
    assert tiers["bob1"] == tiers["bob2"] == "cold"

    assert found_in(store, SECRET, EVE) == []
    assert (report["sessions"], report["rewritten"], report["found_after"]) == (3, 1, 0)
    assert report["not_covered"] == []
    assert digests(store, "eve") == {}
    now = digests(store, "bob")
    assert {name: now[name] for name in others} == others
    assert upkeep.verify(store)["bad"] == []
    assert upkeep.erase(store, "t", user=EVE)["turns"] == 0
    log = [record for _, record in store.engine.log.read()]
    fresh = Settings(data=store.settings.data.with_name("again"))
    with EmbeddedStore(fresh) as replayed:
        replayed.engine.submit(log, trusted=True).result()
        assert digests(replayed, "") == now


def test_a_session_that_cooled_again_is_not_lost(store: OwnedStore) -> None:
    """It was rewritten, and a job packed it before the packs were scrubbed."""
    fill(store)
    cool(store)
    before = digests(store, "bob")
    key = SessionName("t", "bob0").key()
    assert scrub_packs(store, [key]).still == 0
    assert digests(store, "bob") == before
    assert {row["session"]: row["tier"] for row in store.sessions()}["bob0"] != "cold"
    assert upkeep.verify(store)["bad"] == []


def test_a_user_is_gone_from_backups_and_savepoints(
    store: OwnedStore, tmp_path: Path
) -> None:
    """Savepoints are rewritten; a new backup is made and the older ones go."""
    fill(store)
    cool(store)
    place, other = str(tmp_path / "place"), str(tmp_path / "other")
    for _ in range(2):
        backup(store, place)
        store.publish([turn("eve0", EVE, f"{SECRET} between")])
    savepoint(store, place, "before")
    savepoint(store, place, "nothing-of-hers")
    savepoint(store, other, "elsewhere")
    shutil.rmtree(tmp_path / "other")
    plan = upkeep.erase(store, "t", user=EVE, dry_run=True)
    assert (plan["scanned"]["backups"], plan["scanned"]["savepoints"]) == (2, 2)

    report = upkeep.erase(store, "t", user=EVE)

    assert report["found_after"] == 0
    (away,) = report["not_covered"]
    assert other in away
    needle = [SECRET.encode(), EVE.encode()]
    for path in (tmp_path / "place").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not any(each in data for each in needle), path
    found = listing(place, {})
    assert len(found["backups"]) == 1
    assert [row["savepoint"] for row in found["savepoints"]] == [
        "before",
        "nothing-of-hers",
    ]
    now = digests(store, "")
    fresh = Settings(data=tmp_path / "restored")
    restore(fresh, place, access={}, continues=True)
    with OwnedStore(fresh, serving=False) as restored:
        assert digests(restored, "") == now
        assert upkeep.verify(restored)["bad"] == []
    again = Settings(data=tmp_path / "again")
    restore_savepoint(again, place, "before", access={}, continues=True)
    with OwnedStore(again, serving=False) as restored:
        assert digests(restored, "eve") == {}
        assert digests(restored, "bob2") == digests(store, "bob2")


def test_a_place_that_is_away_is_named(store: OwnedStore, tmp_path: Path) -> None:
    """What could not be looked into is said, and the next erase looks again."""
    fill(store)
    place = tmp_path / "place"
    backup(store, str(place))
    hidden = place.rename(tmp_path / "hidden")
    place.write_text("no folder")
    report = upkeep.erase(store, "t", user=EVE)
    (told,) = report["not_covered"]
    assert str(place) in told
    place.unlink()
    hidden.rename(place)
    assert upkeep.erase(store, "t", user=EVE)["not_covered"] == []
    assert not any(
        SECRET.encode() in path.read_bytes()
        for path in place.rglob("*")
        if path.is_file()
    )


