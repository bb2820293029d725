"""A destroyed key takes what it encrypted, wherever that lies, and nothing else."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from support.cooling import Cooling
from support.encrypting import (
    ANN,
    digests,
    files_told,
    files_with,
    fill,
    secrets_in,
    settings,
    told,
    turn,
)
from turnstate.schemas.errors import (
    ErasedKeyError,
    NotFoundError,
    UnavailableError,
)
from turnstate.storage.encryption.destroying import destroy_keys
from turnstate.storage.warm.tables import (
    KEYS,
)
from turnstate.streams.clock import SystemClock
from turnstate.streams.embedded import backups, upkeep
from turnstate.streams.embedded.rebuild_store import rebuild_store
from turnstate.streams.embedded.restoring import restore
from turnstate.streams.embedded.store import STORE_FOLDER, EmbeddedStore, graph_of

pytestmark = pytest.mark.usefixtures("plain_blocks")


def test_a_destroyed_key_takes_one_session_and_nothing_else(
    tmp_path: Path, encrypted: EmbeddedStore
) -> None:
    whole = told(encrypted)
    bytes_before = {row for _, row in encrypted.warm.stored_rows(KEYS)}
    destroys = partial(destroy_keys, encrypted.warm, {ANN.key(): 1})
    assert encrypted.engine.call(destroys).result() == 1
    # What an erase, which is in the log before, has done already.
    encrypted.engine.hot.drop(ANN.key())
    encrypted.engine.agent.tails.forget(ANN.key())
    with pytest.raises(ErasedKeyError) as refused:
        encrypted.state(*ANN)
    assert (refused.value.exit_code, refused.value.http_status) == (3, 410)
    del whole[ANN.session]
    assert told(encrypted) == whole

    checked = upkeep.verify(encrypted)
    assert (checked["bad"], checked["erased_sessions"]) == ([], 1)
    assert checked["erased_records"] == 48 + 8 + 8
    kept = [raw for _, raw in encrypted.engine.log.read() if raw]
    assert not any(b'"s0"' in raw for raw in kept)
    letters = upkeep.dead_letters(encrypted)["dead_letters"]
    assert len(letters) == 3 * 40 - 16
    assert upkeep.redrive(encrypted)["redriven"] == len(letters)
    gone = bytes_before - {row for _, row in encrypted.warm.stored_rows(KEYS)}
    (wrapped,) = gone
    assert not list(files_with(tmp_path / "encrypted", wrapped[-40:]))

    # It begins anew, as after any erase.
    encrypted.publish([turn(0)])
    state = encrypted.state(*ANN)
    assert (state["incarnation"], state["version"]) == (2, 1)
    assert upkeep.verify(encrypted)["bad"] == []


def test_an_older_backup_cannot_bring_back_what_was_erased(
    tmp_path: Path, key: str, encrypted: EmbeddedStore
) -> None:
    whole, place, vault = told(encrypted), tmp_path / "place", tmp_path / "vault"
    backups.backup(encrypted, str(place))
    # A copy that nobody can reach; of the keys there is only the newest.
    shutil.copytree(place, vault)
    report = upkeep.erase(encrypted, "t", user="user0")
    assert report["keys_destroyed"] == 1
    backups.backup(encrypted, str(place))
    shutil.rmtree(vault / "keys")
    shutil.copytree(place / "keys", vault / "keys")

    with pytest.raises(UnavailableError) as refused:
        restore(settings(tmp_path / "back"), str(vault), access={}, number=1)
    assert refused.value.code == "encrypted"
    assert not (tmp_path / "back" / STORE_FOLDER).exists()
    again = settings(tmp_path / "back", key)
    restore(again, str(vault), access={}, number=1)
    del whole[ANN.session]
    with EmbeddedStore(again) as back:
        assert told(back) == whole
        with pytest.raises(ErasedKeyError):
            back.turns(*ANN)
        checked = upkeep.verify(back)
        assert (checked["bad"], checked["erased_sessions"]) == ([], 1)
        back.publish([turn(0)])
        assert back.state(*ANN)["incarnation"] == 2
        stands = digests(back)
    rebuild_store(again, graph_of(again), SystemClock(), again.data / STORE_FOLDER)
    with EmbeddedStore(again) as back:
        assert digests(back) == stands
        assert upkeep.verify(back)["bad"] == []


def test_cold_sessions_of_a_destroyed_key_are_erased_too(
    tmp_path: Path, key: str
) -> None:
    with Cooling(tmp_path / "data", encryption=key) as world:
        fill(world.store)
        whole = told(world.store)
        world.cool()
        destroy_keys(world.store.warm, {ANN.key(): 1})
        with pytest.raises(ErasedKeyError):
            world.store.state(*ANN)
        found, failed = world.store.warm.images([ANN.key()])
        assert (found, failed) == ({}, {})
        for name in whole:
            if name != ANN.session:
                assert world.store.state("t", name)["digest"] == whole[name][0]
        assert upkeep.verify(world.store)["bad"] == []
        world.publish([turn(0)])
        assert world.store.state(*ANN)["incarnation"] == 2


def test_an_erase_leaves_nothing_in_an_encrypted_store(
    tmp_path: Path, encrypted: EmbeddedStore
) -> None:
    whole = told(encrypted)
    report = upkeep.erase(encrypted, "t", user="user0")
    assert (report["sessions"], report["found_after"]) == (1, 0)
    assert report["keys_destroyed"] == 1
    assert upkeep.erase(encrypted, "t", session=ANN.session)["keys_destroyed"] == 0
    del whole[ANN.session]
    assert told(encrypted) == whole
    assert upkeep.verify(encrypted)["bad"] == []
    with pytest.raises(NotFoundError):
        encrypted.state(*ANN)
    assert not any(secrets_in(encrypted).values())
    assert files_told(tmp_path / "encrypted") == set()


