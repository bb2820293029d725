"""Every row of inputs that broke other systems, through every door there is."""

from pathlib import Path
from typing import Final

import pytest
from hostile.contract import LETTERS, Door
from hostile.doors import DOORS
from hostile.rows import CASES, Case

ROWS: Final = range(1, 31)

ELSEWHERE: Final = {
    26: "expiry in Redis: the door `redis`, with the hot tier of the cluster",
    30: "a changelog cut in a flush: the door `kafka` (the owner is killed elsewhere)",
}
"""Rows that no door of today can receive: which one will, and with what."""

DOORS_TO_COME: Final = {
    "http": "the gateway: POST …/turns; ids from the raw path (rows 13, 22, 23)",
    "grpc": "StateSync",
    "kafka": "a record of topic turns, plain, protobuf or a packed batch",
    "redis": "the hot tier of the cluster (rows 22, 24, 26)",
    "s3": "the cold tier (rows 22, 24)",
}
"""What is not there yet; its adapter goes into doors.py when it comes."""

CELLS: Final = [
    pytest.param(case, door, id=f"{case.row:02}-{case.name}-{door.name}")
    for case in CASES
    for door in DOORS
    if case.needs <= door.abilities
]


@pytest.mark.parametrize(("case", "door"), CELLS)
def test_the_right_thing_happens(case: Case, door: Door, tmp_path: Path) -> None:
    opened = door.opened(tmp_path)
    try:
        case.play(opened)
        if LETTERS in door.abilities:
            assert all(letter.raw and letter.code for letter in opened.letters())
    finally:
        opened.close()


def test_every_row_has_its_cases_or_a_door_to_come() -> None:
    assert set(ROWS) == {case.row for case in CASES if case.row} | set(ELSEWHERE)
    assert not {case.row for case in CASES} & set(ELSEWHERE)


def test_every_case_comes_in_by_a_door() -> None:
    received = {cell.values[0] for cell in CELLS}

    assert [case.name for case in CASES if case not in received] == []


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_what_a_door_cannot_receive_has_a_reason(door: Door) -> None:
    needed = frozenset[str]().union(*(case.needs for case in CASES))

    assert needed - door.abilities <= set(door.lacks)
    assert not door.abilities & set(door.lacks)


def test_doors_to_come_are_not_there_yet() -> None:
    assert not {door.name for door in DOORS} & set(DOORS_TO_COME)


def test_titles_and_names_tell_cases_apart() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(case.title.endswith(".") for case in CASES)
