"""The bloom filter never forgets, seldom errs, and is the same everywhere."""

from turnstate.storage.cold.bloom import Bloom

KEYS = [b"session %d" % number for number in range(5_000)]


def test_every_key_is_found() -> None:
    bloom = Bloom.of(KEYS)

    assert all(bloom.may_hold(key) for key in KEYS)
    assert len(bloom.bits) * 8 == 10 * len(KEYS)


def test_about_one_stranger_in_a_hundred_is_taken_for_one() -> None:
    bloom = Bloom.of(KEYS)
    strangers = sum(bloom.may_hold(b"stranger %d" % number) for number in range(10_000))

    assert 30 <= strangers <= 150


def test_the_bytes_depend_on_the_keys_alone() -> None:
    assert Bloom.of(KEYS).bits == Bloom.of(list(reversed(KEYS))).bits
    assert Bloom.of([b"a", b"b"]).bits.hex() == "5da51a"


def test_no_keys_take_no_bytes() -> None:
    assert Bloom.of([]).bits == b""
    assert not Bloom(b"").may_hold(b"a")
