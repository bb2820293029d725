"""Closing a store that RocksDB met damage in."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from turnstate.schemas.errors import CorruptDataError
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings


def test_damage_met_at_the_close_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report that names the damage reaches its reader; nothing is lost."""
    store = EmbeddedStore(Settings(data=tmp_path))
    store.publish([b'{"tenant":"t","session":"s","role":"user","content":"hello"}'])
    close = store.warm.close

    def damaged() -> None:
        close()
        raise CorruptDataError("RocksDB: block checksum mismatch")

    monkeypatch.setattr(store.warm, "close", damaged)
    with capture_logs() as said:
        store.close()
    assert "block checksum mismatch" in said[0]["why"]
    with EmbeddedStore(Settings(data=tmp_path)) as opened:
        assert opened.state("t", "s")["turn_count"] == 1
