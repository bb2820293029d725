"""Sealing: one segment takes the place of the frames, in the chain as well."""

import pytest

from support.framed import frames_of, turn_records
from turnstate.schemas.errors import BrokenChainError, CorruptDataError
from turnstate.storage.frames.chain import link_of, verify_chain
from turnstate.storage.frames.operations import PositionRange
from turnstate.storage.frames.seal import seal
from turnstate.storage.frames.segment import open_segment

RECORDS = turn_records(9)
KEY = b"k"


@pytest.mark.parametrize("with_dictionary", [False, True])
def test_the_same_operations_in_the_same_order(with_dictionary: bool) -> None:
    frames = frames_of(RECORDS, [2, 3, 4], after=7, with_dictionary=with_dictionary)

    found = open_segment(seal(frames, start_head=b"head", time_ms=5))

    assert found.records() == RECORDS
    assert found.start_head == b"head"
    assert (found.header.from_version, found.header.to_version) == (7, 16)
    assert found.header.time_ms == 5
    assert found.positions == [PositionRange(b"the log", 0, (0, 0), (8, 0))]


def test_it_stands_in_the_chain_where_the_frames_stood() -> None:
    first = frames_of(RECORDS[:4], [2, 2])
    one = seal(first, start_head=b"")
    second = frames_of(RECORDS[4:], [1, 4], after=4, link=link_of(one))
    other = seal(second, start_head=b"head", newest_link=link_of(second[-1]))

    verify_chain([one, *second])
    assert verify_chain([one, other]) == link_of(other)
    assert open_segment(one).replaced_link == link_of(first[-1])
    assert open_segment(other).replaced_link == link_of(second[-1])


def test_a_keyed_chain_stays_keyed() -> None:
    frames = frames_of(RECORDS, [4, 5], key=KEY)
    data = seal(frames, start_head=b"", keys={1: KEY}, key_id=1)

    verify_chain([data], keys={1: KEY})
    assert open_segment(data).replaced_link == link_of(frames[-1], KEY)


def test_frames_that_were_tampered_with_are_not_sealed() -> None:
    frames = frames_of(RECORDS, [2, 3, 4])
    newest = link_of(frames[-1])
    for wrong in (frames[:-1], [frames[0], frames[2]], [frames[1], frames[0]]):
        with pytest.raises(BrokenChainError):
            seal(wrong, start_head=b"", newest_link=newest)


def test_a_damaged_frame_is_not_sealed() -> None:
    frames = frames_of(RECORDS, [2, 7])
    damaged = frames[1][:-1] + bytes((frames[1][-1] ^ 1,))

    with pytest.raises(CorruptDataError):
        seal([frames[0], damaged], start_head=b"")
