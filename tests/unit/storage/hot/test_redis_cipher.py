"""What is encrypted for Redis opens in its own place, by its own key."""

import pytest

from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.hot.redis_cipher import FRAME, HEAD, RedisCipher, key_id_of
from turnstate.storage.hot.redis_value import HeadValue, decode_value, encode_value

ONE = RedisCipher(b"key number 1", bytes(32))
OTHER = RedisCipher(b"key number 2", bytes([7] * 32))
HIDDEN = b"what was said, and said again, and said again"
FRAMES = [b"frame one", b"frame two"]


def value(row: bytes) -> HeadValue:
    return HeadValue(3, 1, 1, 7, bytes(8), 1_000, 2_000, row)


def sealed(cipher: RedisCipher, session: bytes) -> tuple[HeadValue, list[bytes]]:
    frames = [cipher.sealed(session, FRAME, each) for each in FRAMES]
    return value(cipher.sealed(session, HEAD, HIDDEN)), frames


def test_it_opens_as_it_was_and_names_its_key() -> None:
    head, frames = sealed(ONE, b"s")
    lies = encode_value(head)
    assert HIDDEN[:8] not in lies
    assert not any(plain in each for plain, each in zip(FRAMES, frames, strict=True))
    assert key_id_of(decode_value(lies)) == b"key number 1"
    assert ONE.opened(b"s", decode_value(lies), frames) == (value(HIDDEN), FRAMES)


def test_plain_values_of_before_stay_as_they_are() -> None:
    assert key_id_of(value(HIDDEN)) is None
    assert ONE.opened(b"s", value(HIDDEN), FRAMES) == (value(HIDDEN), FRAMES)


def test_another_session_another_part_or_another_key_opens_nothing() -> None:
    head, frames = sealed(ONE, b"s")
    for cipher, session, row, parts in (
        (ONE, b"t", head.row, []),
        (OTHER, b"s", head.row, []),
        (ONE, b"s", frames[0], []),
        (ONE, b"s", head.row, [head.row]),
    ):
        with pytest.raises(CorruptDataError):
            cipher.opened(session, value(row), parts)


def test_the_same_twice_is_not_the_same() -> None:
    assert sealed(ONE, b"s")[0].row != sealed(ONE, b"s")[0].row
