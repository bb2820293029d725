"""Footers are read once, and what is remembered of them is bounded."""

import pytest

from support.packs import images, memory, packs_in
from turnstate.storage.cold import footers
from turnstate.storage.cold.footers import Footers, Looks


def test_a_footer_is_read_once() -> None:
    objects = memory()
    (pointer, *_) = packs_in(objects).write(images(3))
    found = Footers(objects)
    before = objects.calls
    for _ in range(3):
        assert found.entry(pointer.pack, b"key 1") is not None
        assert found.entry(pointer.pack, b"nobody") is None
        assert list(found.index(pointer.pack)) == [b"key 0", b"key 1", b"key 2"]

    assert objects.calls - before == 1
    assert found.looks == Looks(6, 3, 0)


def test_indexes_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = memory()
    packs = [
        packs_in(objects, seed=n).write(images(10, version=n))[0].pack for n in range(5)
    ]
    monkeypatch.setattr(footers, "_INDEX_ENTRIES_KEPT", 25)
    found = Footers(objects)
    for pack in packs:
        found.index(pack)
    before = objects.calls
    found.index(packs[4])
    found.index(packs[3])
    assert objects.calls == before
    found.index(packs[0])
    assert objects.calls == before + 1


def test_packs_that_are_gone_are_forgotten() -> None:
    objects = memory()
    (pointer,) = packs_in(objects).write(images(1))
    found = Footers(objects)
    found.index(pointer.pack)
    found.forget([pointer.pack, "packs/never"])
    before = objects.calls
    found.index(pointer.pack)
    assert objects.calls == before + 1
    found.forget_all_but({pointer.pack})
    found.index(pointer.pack)
    assert objects.calls == before + 1
    found.forget_all_but(())
    found.index(pointer.pack)
    assert objects.calls == before + 2
