"""The chain: whatever was done to a list of frames between two readings shows."""

import pytest

from support.framed import SESSION, frame, frames_of, turn_records
from turnstate.schemas.errors import BrokenChainError
from turnstate.storage.frames.chain import START_LINK, link_of, verify_chain
from turnstate.storage.frames.codec import session_hash
from turnstate.storage.frames.header import decode_header

RECORDS = turn_records(6)
FRAMES = frames_of(RECORDS, [1, 2, 1, 2])
NEWEST = verify_chain(FRAMES)
KEY = b"a key that is nowhere in the store"
KEYS = {1: KEY}
KEYED = frames_of(RECORDS, [1, 2, 1, 2], key=KEY)


def test_an_unbroken_chain_gives_its_newest_link() -> None:
    assert link_of(FRAMES[-1]) == NEWEST
    assert verify_chain(FRAMES, newest_link=NEWEST) == NEWEST


def test_it_goes_on_from_any_link() -> None:
    middle = verify_chain(FRAMES[:2])

    assert verify_chain(FRAMES[2:], middle, newest_link=NEWEST) == NEWEST


def test_no_frames_are_a_chain() -> None:
    assert verify_chain([]) == START_LINK
    with pytest.raises(BrokenChainError):
        verify_chain([], newest_link=NEWEST)


@pytest.mark.parametrize(
    ("done", "frames", "version"),
    [
        ("cut at the front", FRAMES[1:], 3),
        ("cut in the middle", [*FRAMES[:1], *FRAMES[2:]], 4),
        ("cut at the end", FRAMES[:-1], 4),
        ("swapped", [FRAMES[0], FRAMES[2], FRAMES[1], FRAMES[3]], 4),
        ("turned round", FRAMES[::-1], 6),
        ("repeated", [*FRAMES, FRAMES[-1]], 6),
        ("emptied", [], 0),
    ],
)
def test_what_was_done_shows_and_names_the_version(
    done: str, frames: list[bytes], version: int
) -> None:
    with pytest.raises(BrokenChainError) as caught:
        verify_chain(frames, newest_link=NEWEST)

    assert caught.value.field == f"version {version}", done


@pytest.mark.parametrize("place", range(4))
def test_a_frame_that_was_replaced_shows(place: int) -> None:
    old = decode_header(FRAMES[place])
    forged = frame(
        b"something else",
        from_version=old.from_version,
        to_version=old.to_version,
        previous_link=old.previous_link,
    )
    frames = [*FRAMES[:place], forged, *FRAMES[place + 1 :]]

    with pytest.raises(BrokenChainError):
        verify_chain(frames, newest_link=NEWEST)


def test_a_rollback_of_all_shows_against_the_newest_link() -> None:
    old = FRAMES[:2]
    verify_chain(old)

    with pytest.raises(BrokenChainError):
        verify_chain(old, newest_link=NEWEST)


def test_garbage_in_a_chain_is_a_broken_chain() -> None:
    with pytest.raises(BrokenChainError) as caught:
        verify_chain([FRAMES[0], b"garbage"])

    assert caught.value.field == "version 1"


def test_a_frame_of_another_session_or_incarnation_shows() -> None:
    link = link_of(FRAMES[0])
    strange_ones = (
        frame(to_version=2, previous_link=link, session_hash=session_hash(b"other")),
        frame(to_version=2, previous_link=link, incarnation=2),
    )
    for strange in strange_ones:
        with pytest.raises(BrokenChainError):
            verify_chain([FRAMES[0], strange])


def test_a_keyed_chain_is_verified_with_its_key_only() -> None:
    assert verify_chain(KEYED, keys=KEYS) == link_of(KEYED[-1], KEY)
    with pytest.raises(BrokenChainError):
        verify_chain(KEYED, keys={1: b"another"})
    with pytest.raises(BrokenChainError):
        verify_chain(KEYED)


def test_a_chain_cannot_be_forged_without_the_key() -> None:
    forged = frames_of(turn_records(7)[1:], [1, 2, 1, 2])
    with pytest.raises(BrokenChainError) as caught:
        verify_chain(forged, keys=KEYS)

    assert "key 0" in str(caught.value)


def test_keys_may_change_along_the_chain() -> None:
    link = verify_chain(FRAMES)
    later = frames_of(RECORDS, [3], after=6, link=link, key=KEY)

    assert verify_chain([*FRAMES, *later], keys={0: None, 1: KEY})


def test_a_link_depends_on_header_body_and_key() -> None:
    plain = frame(b"body")
    links = {
        link_of(plain),
        link_of(plain, KEY),
        link_of(frame(b"bodY")),
        link_of(frame(b"body", time_ms=1)),
        link_of(frame(b"body", previous_link=bytes(15) + b"\1")),
    }

    assert len(links) == 5
    assert SESSION not in links
