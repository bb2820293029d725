"""Images become packs that were read back before anyone is told of them."""

import pytest

from support.faulty_objects import FaultyObjects, Mishap
from support.packs import START_MS, images, memory
from turnstate.schemas.errors import CorruptDataError, UnavailableError
from turnstate.storage.cold.names import pack_name
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.cold.packing import Packing


def packing(objects: ObjectStore, names: list[str]) -> Packing:
    return Packing(objects, iter(names).__next__, 2000)


NAMES = [pack_name(0, START_MS, bytes([number] * 10)) for number in range(20)]


def test_full_packs_are_written_on_the_way() -> None:
    objects = memory()
    made = packing(objects, NAMES)
    for each in images(30, 100):
        made.add(*each)
    assert 1 < len(objects.held) < 20
    packs = made.finish()

    assert [pack.name for pack in packs] == sorted(objects.held)
    keys = [entry.key for pack in packs for entry in pack.entries]
    assert keys == [each.key for each in images(30, 100)]
    assert all(len(data) <= 2000 for data, _ in objects.held.values())
    assert sum(pack.info(5).entries for pack in packs) == 30
    assert packing(objects, NAMES).finish() == []


@pytest.mark.parametrize("mishap", [Mishap.TORN, Mishap.SWAPPED])
@pytest.mark.parametrize("call", [1, 2])
def test_a_pack_that_does_not_read_back_is_refused(mishap: Mishap, call: int) -> None:
    """Damaged on its way in (call 1) or as it is read back (call 2)."""
    made = packing(FaultyObjects(memory(), {call: mishap}), NAMES)
    for each in images(3):
        made.add(*each)
    with pytest.raises(CorruptDataError):
        made.finish()


def test_the_pack_of_another_under_the_same_name_is_left_alone() -> None:
    objects = memory()
    objects.create(NAMES[0], b"another's")
    made = packing(objects, NAMES)
    made.add(*images(1)[0])
    (pack,) = made.finish()

    assert pack.name == NAMES[1]
    assert objects.held[NAMES[0]][0] == b"another's"
    again = packing(objects, [NAMES[0]] * 9)
    again.add(*images(1)[0])
    with pytest.raises(UnavailableError):
        again.finish()
