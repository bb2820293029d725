"""With encryption on no file holds what was said, and nothing else changes."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.commands import COMMAND, GOOD, Run
from support.cooling import Cooling, real_lines
from support.encrypting import (
    SPEAKERS,
    Master,
    digests,
    files_told,
    files_with,
    fill,
    key_setting,
    secrets_in,
    settings,
    told,
    turn,
)
from support.store_files import image
from turnstate.schemas.errors import (
    UnavailableError,
)
from turnstate.storage.encryption.cipher import is_encrypted
from turnstate.storage.encryption.key_file import LocalKeyFile
from turnstate.storage.warm.tables import (
    DEAD,
    FRAMES,
    HEADS,
    KEYS,
    LOG,
    SEGMENTS,
)
from turnstate.streams.clock import SystemClock
from turnstate.streams.embedded import backups, upkeep
from turnstate.streams.embedded.keys import keys_status, rotate_keys
from turnstate.streams.embedded.rebuild_store import rebuild_store
from turnstate.streams.embedded.restoring import restore
from turnstate.streams.embedded.store import STORE_FOLDER, EmbeddedStore, graph_of
from turnstate.streams.settings import Settings

pytestmark = pytest.mark.usefixtures("plain_blocks")


def test_no_file_and_no_row_holds_what_was_said(tmp_path: Path, key: str) -> None:
    found: dict[str, tuple[dict[str, int], set[str]]] = {}
    for name, encryption in (("plain", ""), ("encrypted", key)):
        folder = tmp_path / name
        with Cooling(folder / "data", encryption=encryption) as world:
            fill(world.store)
            at_rest = secrets_in(world.store)
            backups.backup(world.store, str(folder / "backup"))
            world.cool()
            assert world.tiers()["cold"] == SPEAKERS
            backups.backup(world.store, str(folder / "backup"))
        where = {path.relative_to(folder).parts for path in files_told(folder)}
        found[name] = (at_rest, {"/".join(parts[:2]) for parts in where})
    # The scan can find: in plain the secrets are all over the place.
    at_rest, where_told = found["plain"]
    assert all(at_rest[table] for table in (HEADS, FRAMES, DEAD))
    assert where_told >= {"data/store", "data/cold", "backup/files"}
    at_rest, where_told = found["encrypted"]
    assert not any(at_rest.values())
    assert where_told == set()


def test_nothing_but_the_bytes_is_another(tmp_path: Path, key: str) -> None:
    answers: list[object] = []
    for encryption in ("", key):
        with Cooling(tmp_path / f"data{len(answers)}", encryption=encryption) as world:
            world.publish(real_lines(30))
            before = world.told()
            world.cool()
            assert world.tiers()["cold"] == 30
            assert world.told() == before
            assert world.moves is not None
            world.store.call("tier_warm", keys=[name.key() for name in world.names()])
            assert world.tiers()["cold"] == 0
            assert world.told() == before
            checked = upkeep.verify(world.store)
            assert (checked["bad"], checked["sessions"]) == ([], 30)
            letters = world.store.call("dead_letters")
            answers.append((before, letters, checked["versions"]))
    assert answers[0] == answers[1]


def test_a_store_may_hold_rows_from_before_and_after(tmp_path: Path, key: str) -> None:
    folder = tmp_path / "data"
    with EmbeddedStore(settings(folder)) as store:
        store.publish([turn(number) for number in range(200)])
    with EmbeddedStore(settings(folder, key)) as store:
        assert secrets_in(store)[HEADS] == SPEAKERS
        store.publish([turn(number) for number in range(200, 260)])
        assert secrets_in(store)[HEADS] == 0
        kinds = {is_encrypted(row) for _, row in store.warm.stored_rows(FRAMES)}
        assert kinds == {False, True}
        mixed = told(store)
        assert upkeep.verify(store)["bad"] == []
    with EmbeddedStore(settings(tmp_path / "other")) as plain:
        plain.publish([turn(number) for number in range(200)])
        plain.publish([turn(number) for number in range(200, 260)])
        assert told(plain) == mixed
    rebuild_store(
        settings(folder, key),
        graph_of(settings(folder)),
        SystemClock(),
        folder / STORE_FOLDER,
    )
    with EmbeddedStore(settings(folder, key)) as store:
        assert told(store) == mixed
        assert not any(secrets_in(store).values())


def test_a_wrong_missing_or_unnamed_key_changes_nothing(
    tmp_path: Path, key: str
) -> None:
    folder = tmp_path / "data"
    with EmbeddedStore(settings(folder, key)) as store:
        fill(store)
        stands = digests(store)

    def told_by_command(encryption: str | None) -> tuple[int, dict[str, Any]]:
        environment = {**os.environ, "TURNSTATE_ENCRYPTION": encryption or ""}
        command = [*COMMAND, "sessions", "--data", str(folder), "--json"]
        done = subprocess.run(
            command, capture_output=True, env=environment, check=False
        )
        return done.returncode, json.loads(done.stdout or done.stderr)

    files = folder / STORE_FOLDER
    before = {path: path.stat() for path in files.rglob("*")}
    code, answer = told_by_command(f"keyfile:{tmp_path / 'nowhere'}")
    assert (code, answer["error"]["code"]) == (6, "no_key")
    assert {path: path.stat() for path in files.rglob("*")} == before
    for encryption, why in (
        (key_setting(tmp_path, "other.key"), "wrong_key"),
        ("", "encrypted"),
    ):
        code, answer = told_by_command(encryption)
        assert (code, answer["error"]["code"]) == (6, why)
        assert answer["error"]["field"] == "encryption"
        assert "TURNSTATE_ENCRYPTION" in answer["error"]["hint"] or why == "wrong_key"
    code, answer = told_by_command(key)
    assert code == 0
    assert {row["session"]: row["digest"] for row in answer["sessions"]} == stands
    assert not (tmp_path / "empty").exists()
    with pytest.raises(UnavailableError):
        EmbeddedStore(settings(tmp_path / "empty", f"keyfile:{tmp_path / 'nowhere'}"))
    assert not (tmp_path / "empty").exists()


def test_a_backup_is_whole_though_its_files_hold_no_key(
    tmp_path: Path, key: str, encrypted: EmbeddedStore
) -> None:
    place = tmp_path / "place"
    first = backups.backup(encrypted, str(place))
    encrypted.publish([turn(number) for number in range(240, 260)])
    second = backups.backup(encrypted, str(place))
    assert second["files_new"] < first["files"]
    (copy,) = (place / "keys").iterdir()
    for _, row in encrypted.warm.stored_rows(KEYS):
        assert list(files_with(place, row[-40:])) == [copy]
    again = settings(tmp_path / "back", key)
    restore(again, str(place), access={})
    with EmbeddedStore(again) as back:
        assert told(back) == told(encrypted)
        assert upkeep.verify(back)["bad"] == []


def test_rotation_lets_one_master_key_take_the_place_of_another(
    tmp_path: Path, key: str
) -> None:
    folder, other = tmp_path / "data", key_setting(tmp_path, "other.key")
    with EmbeddedStore(settings(folder, key)) as store:
        fill(store)
        stands = told(store)
        keys = keys_status(store)["data_keys"]
        assert rotate_keys(store, other)["data_keys"] == keys
        store.publish([turn(0, session="new")])
        assert keys_status(store) == {
            "encrypted": True,
            "master": LocalKeyFile(tmp_path / "other.key").name,
            "store_keys": 1,
            "data_keys": keys + 1,
            "destroyed": 0,
            "file_is_private": True,
        }
    with pytest.raises(UnavailableError, match="encrypted with the master key"):
        EmbeddedStore(settings(folder, key))
    with EmbeddedStore(settings(folder, other)) as store:
        found = told(store)
        assert found.pop("new")
        assert found == stands
        assert upkeep.verify(store)["bad"] == []


def test_any_key_management_service_will_do(tmp_path: Path) -> None:
    master = Master("arn:of:a:key")
    with EmbeddedStore(settings(tmp_path / "data"), wrapper=master) as store:
        fill(store)
        assert not any(secrets_in(store).values())
        assert keys_status(store)["master"] == "arn:of:a:key"
        stands = told(store)
    assert master.asked == 1
    with EmbeddedStore(settings(tmp_path / "data"), wrapper=master) as store:
        assert told(store) == stands
    assert master.asked == 2


def _flipped(store: EmbeddedStore, table: str) -> None:
    at, row = next(store.warm.stored_rows(table))
    batch = store.warm.batch()
    batch.put_local(table, at, row[:-1] + bytes([row[-1] ^ 1]))
    store.warm.write(batch, sync=True)


def _swapped(store: EmbeddedStore, table: str) -> None:
    (one, first), (other, second) = list(store.warm.stored_rows(table))[:2]
    batch = store.warm.batch()
    batch.put_local(table, one, second)
    batch.put_local(table, other, first)
    store.warm.write(batch, sync=True)


@pytest.mark.parametrize("table", [HEADS, SEGMENTS, FRAMES, LOG, DEAD])
@pytest.mark.parametrize("harm", [_flipped, _swapped])
def test_a_row_that_was_changed_or_moved_is_found(
    encrypted: EmbeddedStore, table: str, harm: Callable[[EmbeddedStore, str], None]
) -> None:
    harm(encrypted, table)
    assert upkeep.verify(encrypted)["bad"]


def test_what_is_damaged_is_repaired_from_the_encrypted_log(
    encrypted: EmbeddedStore,
) -> None:
    stands = told(encrypted)
    for table in (SEGMENTS, FRAMES):
        _flipped(encrypted, table)
    assert upkeep.repair(encrypted)["bad"] == []
    assert told(encrypted) == stands
    assert not any(secrets_in(encrypted).values())


def test_a_store_that_was_cut_off_is_whole(tmp_path: Path, key: str) -> None:
    folder = tmp_path / "data"
    with EmbeddedStore(Settings(data=folder, encryption=key)) as store:
        store.publish([turn(number) for number in range(50)])
        store.publish([turn(number, session=f"n{number}") for number in range(50)])
        stands = told(store)
        image(folder, tmp_path / "copy")
    with EmbeddedStore(settings(tmp_path / "copy", key)) as copy:
        assert told(copy) == stands
        assert upkeep.verify(copy)["bad"] == []


def test_the_commands_about_keys(run: Run, tmp_path: Path) -> None:
    def asked(*words: str, key: str = "", stdin: bytes = b"") -> tuple[int, Any]:
        done = run(*words, "--json", stdin=stdin, TURNSTATE_ENCRYPTION=key)
        return done.returncode, json.loads(done.stdout or done.stderr)

    code, made = asked("keys", "init", "one.key")
    assert (code, made["path"]) == (0, str(tmp_path / "one.key"))
    one = made["setting"].removeprefix("TURNSTATE_ENCRYPTION=")
    assert asked("keys", "init", "one.key")[0] == 4
    assert asked("keys", "init", "two.key")[0] == 0
    assert asked("publish", "-", key=one, stdin=GOOD)[1]["accepted"] == 3
    # A key for each of the two sessions.
    status = asked("keys", "status", key=one)[1]
    assert (status["encrypted"], status["data_keys"]) == (True, 2)
    assert asked("keys", "rotate", "keyfile:nowhere", key=one)[0] == 6
    code, rotated = asked("keys", "rotate", "keyfile:two.key", key=one)
    assert (code, rotated["data_keys"]) == (0, 2)
    assert asked("sessions", key=one)[0] == 6
    two = f"keyfile:{tmp_path / 'two.key'}"
    assert len(asked("sessions", key=two)[1]["sessions"]) == 2
    assert asked("verify", key=two)[0] == 0
    code, answer = asked("sessions", key="two.key")
    assert (code, answer["error"]["field"]) == (2, "encryption")
