"""The name of a pack says who wrote it and when, and sorts by that."""

import pytest

from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.cold.names import pack_name, pack_time_ms
from turnstate.storage.cold.object_names import checked_name


def test_names_sort_by_epoch_then_time() -> None:
    names = [
        pack_name(1, 5, bytes(10)),
        pack_name(1, 1_700_000_000_000, bytes(10)),
        pack_name(1, 1_700_000_000_000, b"\xff" * 10),
        pack_name(2, 0, bytes(10)),
        pack_name(10, 0, bytes(10)),
    ]

    assert names == sorted(names)
    assert [pack_time_ms(name) for name in names] == [
        5,
        1_700_000_000_000,
        1_700_000_000_000,
        0,
        0,
    ]
    assert all(checked_name(name) == name for name in names)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "packs/",
        "packs/1-01HF7YAT00",
        "packs/00000000000000000001",
        "other/00000000000000000003-01HF7YAT000000000000000000",
        "packs/00000000000000000003-01HF7YAT0000000000000000000",
        "packs/00000000000000000003-01HF7YATU00000000000000000",
        "packs/0000000000000000000²-01HF7YAT000000000000000000",
        "packs/0000000000000000003x-01HF7YAT000000000000000000",
    ],
)
def test_other_names_are_no_packs(name: str) -> None:
    with pytest.raises(CorruptDataError):
        pack_time_ms(name)
