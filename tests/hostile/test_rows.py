"""Every row of inputs that broke other systems, through every door there is."""

from pathlib import Path
from typing import Final

import pytest
from hostile.cold_doors import COLD_DOORS
from hostile.contract import HELD_ELSEWHERE, LETTERS, Door
from hostile.doors import STORE_DOORS
from hostile.kafka_doors import KAFKA_DOORS
from hostile.recorded_doors import RECORDED_DOORS
from hostile.rows import CASES, Case

ROWS: Final = range(1, 31)

DOORS: Final = (*STORE_DOORS, *RECORDED_DOORS, *COLD_DOORS, *KAFKA_DOORS)
"""All doors that there are.

What only a record of Kafka can be (a wrong key, lying headers, a tombstone and so on)
is in kafka_doors.py, with the names of the tests that hold it.
"""

DOORS_TO_COME: Final = {
    "http": "the gateway: POST …/turns; ids from the raw path (rows 13, 22, 23)",
    "grpc": "StateSync",
}
"""What is not there yet; its adapter comes in here with it."""

CELLS: Final = [
    pytest.param(case, door, id=f"{case.row:02}-{case.name}-{door.name}")
    for door in DOORS
    for case in CASES
    if case.needs <= door.abilities
    if door.rows is None or case.row in door.rows
]
"""Door by door, those with services at last: they run for no longer than needed."""


@pytest.mark.parametrize(("case", "door"), CELLS)
def test_the_right_thing_happens(
    case: Case, door: Door, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    services = [request.getfixturevalue(name) for name in door.services]
    opened = door.opened(tmp_path, *services)
    try:
        case.play(opened)
        if LETTERS in door.abilities:
            assert all(letter.raw and letter.code for letter in opened.letters())
    finally:
        opened.close()


def test_every_row_has_its_cases() -> None:
    assert set(ROWS) == {case.row for case in CASES if case.row}


def test_every_case_comes_in_by_a_door() -> None:
    received = {cell.values[0] for cell in CELLS}

    assert [case.name for case in CASES if case not in received] == []


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_what_a_door_cannot_receive_has_a_reason(door: Door) -> None:
    needed = frozenset[str]().union(*(case.needs for case in CASES))

    assert needed - door.abilities <= set(door.lacks) | set(HELD_ELSEWHERE)
    assert not door.abilities & set(door.lacks)


def test_doors_to_come_are_not_there_yet() -> None:
    assert not {door.name for door in DOORS} & set(DOORS_TO_COME)


def test_titles_and_names_tell_cases_apart() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(case.title.endswith(".") for case in CASES)
