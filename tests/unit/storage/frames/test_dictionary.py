"""The dictionary that ships is part of the format: it never changes."""

from hashlib import blake2b

from turnstate.storage.frames.dictionary import NEWEST, SHARED

NUMBER_1 = "a39e459011645ddeb62642deb67e6f91"


def test_it_is_what_it_always_was() -> None:
    known = {blake2b(one, digest_size=16).hexdigest() for one in SHARED.values()}

    assert NUMBER_1 in known
    assert NEWEST in SHARED.values()


def test_it_fits_its_length_field() -> None:
    assert all(0 < len(one) <= 65_535 for one in SHARED.values())
