"""Closing a store that RocksDB met damage in."""

from pathlib import Path

import pytest

from turnstate.schemas.errors import CorruptDataError
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings


def test_damage_met_at_the_close_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A report that names the damage reaches its reader; nothing is lost."""
    store = EmbeddedStore(Settings(data=tmp_path))
    store.publish([b'{"tenant":"t","session":"s","role":"user","content":"hello"}'])
    close = store.warm.close

    def damaged() -> None:
        close()
        raise CorruptDataError("RocksDB: block checksum mismatch")

    monkeypatch.setattr(store.warm, "close", damaged)
    store.close()
    said = capsys.readouterr()
    assert "block checksum mismatch" in said.out + said.err
    with EmbeddedStore(Settings(data=tmp_path)) as opened:
        assert opened.state("t", "s")["turn_count"] == 1
