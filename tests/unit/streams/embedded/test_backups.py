"""A store backed up while in use, and brought back: whole, verified, renamed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.commands import line
from turnstate.schemas.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    TurnstateError,
    UnavailableError,
)
from turnstate.storage.backup.checkpoint import checkpoint_folder
from turnstate.streams.embedded import backups, upkeep
from turnstate.streams.embedded.rebuild_store import rebuild_store
from turnstate.streams.embedded.restoring import restore, restore_savepoint
from turnstate.streams.embedded.store import STORE_FOLDER, EmbeddedStore, graph_of
from turnstate.streams.settings import Settings


def _settings(folder: Path) -> Settings:
    return Settings(data=folder, fsync="never", hot_bytes=1 << 20)


def _published(store: EmbeddedStore, session: str, turns: Sequence[int]) -> None:
    records = [line(session, turn, f"turn {turn} of {session}") for turn in turns]
    assert all(answer.error is None for answer in store.publish(records))


def _digests(store: EmbeddedStore) -> dict[str, str]:
    return {row["session"]: row["digest"] for row in store.sessions()}


def _restored(place: Path, folder: Path, **options: Any) -> tuple[Settings, Any]:
    settings = _settings(folder)
    return settings, restore(settings, str(place), access={}, **options)


def test_a_restored_store_is_what_was_backed_up(tmp_path: Path) -> None:
    with EmbeddedStore(_settings(tmp_path / "a")) as store:
        _published(store, "s", range(100))
        _published(store, "t", range(5))
        upkeep.seal(store)
        _published(store, "s", range(100, 110))
        made = backups.backup(store, str(tmp_path / "place"))
        digests = _digests(store)
        _published(store, "s", [110])
    assert (made["number"], made["position"], made["files_new"]) == (
        1,
        115,
        made["files"],
    )
    settings, told = _restored(tmp_path / "place", tmp_path / "b")
    assert told["stamps_as"].startswith("log~")
    with EmbeddedStore(settings) as store:
        assert _digests(store) == digests
        assert upkeep.verify(store)["bad"] == []


def test_only_what_is_new_is_uploaded(tmp_path: Path) -> None:
    with EmbeddedStore(_settings(tmp_path / "a")) as store:
        _published(store, "s", range(200))
        first = backups.backup(store, str(tmp_path / "place"))
        _published(store, "t", [1])
        second = backups.backup(store, str(tmp_path / "place"))
    assert second["number"] == 2
    assert second["bytes_new"] < first["bytes_new"]
    assert second["files_new"] < second["files"]


def test_the_checkpoint_is_gone_after_a_backup_and_after_a_crash(
    tmp_path: Path,
) -> None:
    settings = _settings(tmp_path / "a")
    left = checkpoint_folder(settings.data / STORE_FOLDER)
    with EmbeddedStore(settings) as store:
        _published(store, "s", [1])
        backups.backup(store, str(tmp_path / "place"))
        assert not left.exists()
    left.mkdir()
    with EmbeddedStore(settings):
        assert not left.exists()


def test_a_dot_is_not_given_twice_after_a_restore(tmp_path: Path) -> None:
    with EmbeddedStore(_settings(tmp_path / "a")) as store:
        _published(store, "s", range(3))
        backups.backup(store, str(tmp_path / "place"))
        _published(store, "s", [7])
        lost = store.turns("acme", "s")["turns"][-1]["dot"]
    settings, told = _restored(tmp_path / "place", tmp_path / "b")
    with EmbeddedStore(settings) as store:
        _published(store, "s", [8])
        _published(store, "new", [1, 2])
        given = store.turns("acme", "s")["turns"][-1]["dot"]
    assert lost == ["log", 4]
    assert given == [told["stamps_as"], 1]


def test_a_restored_store_that_goes_on_verifies_repairs_and_rebuilds(
    tmp_path: Path,
) -> None:
    with EmbeddedStore(_settings(tmp_path / "a")) as store:
        _published(store, "s", range(70))
        backups.backup(store, str(tmp_path / "place"))
    settings, _ = _restored(tmp_path / "place", tmp_path / "b")
    with EmbeddedStore(settings) as store:
        _published(store, "s", range(70, 150))
        _published(store, "new", range(3))
        upkeep.seal(store)
        _published(store, "s", range(69, 151))  # 81 of them are duplicates
        assert store.state("acme", "s")["version"] == 151
        digests = _digests(store)
        assert upkeep.verify(store)["bad"] == []
    rebuild_store(
        settings, graph_of(settings), store.clock, settings.data / STORE_FOLDER
    )
    with EmbeddedStore(settings) as store:
        assert _digests(store) == digests
        assert upkeep.verify(store)["bad"] == []
        made = backups.backup(store, str(tmp_path / "place"))
    assert made["number"] == 2
    again, told = _restored(tmp_path / "place", tmp_path / "c")
    with EmbeddedStore(again) as store:
        _published(store, "s", [151])
        assert upkeep.verify(store)["bad"] == []
        dots = {turn["dot"][0] for turn in store.turns("acme", "s")["turns"]}
    assert len(dots) == 3
    assert told["stamps_as"] in dots


def test_an_erase_in_a_restored_store_finds_what_was_said_before_and_after(
    tmp_path: Path,
) -> None:
    with EmbeddedStore(_settings(tmp_path / "a")) as store:
        store.publish([line("s", 1, "theirs", user="other")])
        store.publish([line("s", 2, "a xylophone", user="u1"), line("s", 3, "ours")])
        backups.backup(store, str(tmp_path / "place"))
    settings, _ = _restored(tmp_path / "place", tmp_path / "b")
    with EmbeddedStore(settings) as store:
        store.publish([line("s", 4, "another xylophone", user="u1"), line("s", 5, "x")])
        before = _digests(store)
        report = upkeep.erase(store, "acme", user="u1")
        assert (report["turns"], report["found_after"]) == (2, 0)
        assert _digests(store).keys() == before.keys()
        assert upkeep.verify(store)["bad"] == []
    files = (tmp_path / "b" / "store").glob("*")
    assert not any(b"xylophone" in path.read_bytes() for path in files)


def test_the_original_may_not_go_on_in_the_place_of_its_heir(tmp_path: Path) -> None:
    place = str(tmp_path / "place")
    with EmbeddedStore(_settings(tmp_path / "a")) as store:
        backups.backup(store, place)
    settings, _ = _restored(tmp_path / "place", tmp_path / "b")
    with EmbeddedStore(settings) as heir:
        backups.backup(heir, place)
    with (
        EmbeddedStore(_settings(tmp_path / "a")) as store,
        pytest.raises(ConflictError) as refused,
    ):
        backups.backup(store, place)
    assert refused.value.code == "other_store"


def test_another_store_is_refused(tmp_path: Path) -> None:
    place = str(tmp_path / "place")
    for name, code in (("a", None), ("b", "other_store")):
        with EmbeddedStore(_settings(tmp_path / name)) as store:
            if code is None:
                backups.backup(store, place)
            else:
                with pytest.raises(ConflictError) as refused:
                    backups.backup(store, place)
                assert refused.value.code == code


def test_who_knows_that_nothing_is_newer_keeps_the_name(tmp_path: Path) -> None:
    with EmbeddedStore(_settings(tmp_path / "a")) as store:
        _published(store, "s", [1])
        backups.backup(store, str(tmp_path / "place"))
    settings, told = _restored(tmp_path / "place", tmp_path / "b", continues=True)
    assert told["stamps_as"] == "log"
    with EmbeddedStore(settings) as store:
        _published(store, "s", [2])
        assert store.turns("acme", "s")["turns"][-1]["dot"] == ["log", 2]


def test_older_backups_go_and_the_kept_ones_stay_whole(tmp_path: Path) -> None:
    place = str(tmp_path / "place")
    with EmbeddedStore(_settings(tmp_path / "a")) as store:
        for turn in range(4):
            _published(store, "s", [turn])
            upkeep.seal(store)
            store.warm.compact("log")
            backups.backup(store, place)
        made = backups.backup(store, place, keep=2)
        assert made["removed"] == [1, 2, 3]
    assert [row["number"] for row in backups.listing(place, {})["backups"]] == [4, 5]
    with pytest.raises(NotFoundError) as missing:
        _restored(tmp_path / "place", tmp_path / "b", number=1)
    assert missing.value.field == "number"
    for number in (4, 5):
        folder = tmp_path / f"n{number}"
        settings, _ = _restored(tmp_path / "place", folder, number=number)
        with EmbeddedStore(settings) as store:
            assert upkeep.verify(store)["bad"] == []


def test_a_damaged_and_a_missing_object_are_named(tmp_path: Path) -> None:
    place = tmp_path / "place"
    with EmbeddedStore(_settings(tmp_path / "a")) as store:
        _published(store, "s", range(10))
        backups.backup(store, str(place))
    files = sorted(place.glob("files/*"), key=lambda path: path.stat().st_size)
    files[-1].chmod(0o600)
    data = bytearray(files[-1].read_bytes())
    data[len(data) // 2] ^= 1
    files[-1].write_bytes(data)
    files[0].unlink()
    with pytest.raises(CorruptDataError) as refused:
        _restored(place, tmp_path / "b")
    assert files[0].name in refused.value.message
    assert files[-1].name in refused.value.message
    with pytest.raises(UnavailableError) as half:
        EmbeddedStore(_settings(tmp_path / "b"))
    assert half.value.code == "half_restored"


def test_a_folder_that_holds_a_store_is_refused(tmp_path: Path) -> None:
    with EmbeddedStore(_settings(tmp_path / "a")) as store:
        backups.backup(store, str(tmp_path / "place"))
    with pytest.raises(ConflictError) as refused:
        _restored(tmp_path / "place", tmp_path / "a")
    assert refused.value.code == "not_empty"
    with pytest.raises(NotFoundError):
        _restored(tmp_path / "nothing", tmp_path / "b")


def test_another_log_name_is_refused_by_name(tmp_path: Path) -> None:
    eu = replace(_settings(tmp_path / "a"), log_name="eu")
    with EmbeddedStore(eu) as store:
        backups.backup(store, str(tmp_path / "place"))
    with pytest.raises(InvalidInputError) as refused:
        _restored(tmp_path / "place", tmp_path / "b")
    assert refused.value.field == "log_name"


def test_one_backup_of_a_store_at_a_time(tmp_path: Path) -> None:
    with EmbeddedStore(_settings(tmp_path / "a")) as store:
        with store.engine.backing_up, pytest.raises(UnavailableError) as refused:
            backups.backup(store, str(tmp_path / "place"))
        assert refused.value.code == "backup_under_way"
        backups.backup(store, str(tmp_path / "place"))


def test_a_savepoint_stays_and_comes_back(tmp_path: Path) -> None:
    place = str(tmp_path / "place")
    with EmbeddedStore(_settings(tmp_path / "a")) as store:
        _published(store, "s", range(20))
        store.rollback("acme", "s", 10)
        made = backups.savepoint(store, place, "before")
        digests = _digests(store)
        backups.backup(store, place, keep=1)
        with pytest.raises(ConflictError):
            backups.savepoint(store, place, "before")
    assert made["operations"] == 21
    settings = _settings(tmp_path / "b")
    told = restore_savepoint(settings, place, "before", access={})
    with EmbeddedStore(settings) as store:
        assert _digests(store) == digests
        assert upkeep.verify(store)["bad"] == []
        _published(store, "s", [30])
        assert store.turns("acme", "s")["turns"][-1]["dot"] == [told["stamps_as"], 1]
    assert backups.forget_savepoint(place, "before", {})["objects"] == 2
    with pytest.raises(NotFoundError):
        restore_savepoint(_settings(tmp_path / "c"), place, "before", access={})


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "x" * 129, "名"])
def test_a_name_that_no_store_could_hold_is_refused(tmp_path: Path, name: str) -> None:
    with (
        EmbeddedStore(_settings(tmp_path / "a")) as store,
        pytest.raises(TurnstateError) as refused,
    ):
        backups.savepoint(store, str(tmp_path / "place"), name)
    assert refused.value.field == "savepoint"
