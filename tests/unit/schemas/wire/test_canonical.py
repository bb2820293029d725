"""A free-form value has one form, however it was written."""

import pytest

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.limits import JSON_DEPTH_MAX
from turnstate.schemas.wire.canonical import (
    CACHED_BYTES_MAX,
    canonical_json,
)


def canonical(raw: bytes, depth: int = 1) -> bytes:
    return canonical_json(raw, field="metadata", depth=depth)


def refused(raw: bytes, depth: int = 1) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        canonical(raw, depth)
    return caught.value


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b' { "b" : 1 , "a" : [ 1, 2 ] } ', b'{"b":1,"a":[1,2]}'),
        (rb'"\u0041\u00e9\/\ud83d\ude00"', '"Aé/😀"'.encode()),
        (rb'"\u0000\u001f\u007f\n\"\\"', b'"\\u0000\\u001f\x7f\\n\\"\\\\"'),
        (rb'"\\ud83d"', rb'"\\ud83d"'),
        (b"1234567890123456789", b"1234567890123456789"),
        (b"9007199254740993", b"9007199254740993"),
        (b"18446744073709551616", b"18446744073709551616"),
        (b"-9223372036854775809", b"-9223372036854775809"),
        (b"[%s]" % (b"7" * 5000), b"[%s]" % (b"7" * 5000)),
        (b"-0", b"0"),
        (b"[-0,-0.0,1.0,1e2,1E16,1e-7]", b"[0,-0.0,1.0,100.0,1e+16,1e-07]"),
        (b"[0.1000,1e-400,5e-324]", b"[0.1,0.0,5e-324]"),
        (b"[true,false,null]", b"[true,false,null]"),
        (b'{"":{}}', b'{"":{}}'),
    ],
)
def test_the_form_is_as_documented(raw: bytes, expected: bytes) -> None:
    assert expected == canonical(raw)
    assert expected == canonical(expected)


def test_composed_and_decomposed_letters_stay_two_values() -> None:
    composed, decomposed = '"é"'.encode(), '"e\u0301"'.encode()

    assert canonical(composed) == composed
    assert canonical(decomposed) == decomposed


def test_keys_keep_their_order() -> None:
    assert canonical(b'{"z":1,"a":2,"m":3}') == b'{"z":1,"a":2,"m":3}'


@pytest.mark.parametrize("padding", [0, CACHED_BYTES_MAX])
@pytest.mark.parametrize(
    ("raw", "code", "field"),
    [
        (b'{"a":1,"a":2}', "doubled_key", "metadata.a"),
        (b'{"a":[{"b":1,"\\u0062":2}]}', "doubled_key", "metadata.a[0].b"),
        (b'{"a":1e999}', "number", "metadata.a"),
        (b'{"a":NaN}', "number", "metadata.a"),
        (b"-Infinity", "number", "metadata"),
        (b'{"a":"\\ud83d"}', "lone_surrogate", "metadata.a"),
        (b'{"\\ud83d":1}', "lone_surrogate", "metadata"),
        (b'"\xff"', "not_utf8", "metadata"),
        (b'{"a":"\xff"}', "not_utf8", "metadata.a"),
        (b'"\xed\xa0\x80"', "lone_surrogate", "metadata"),
        (b"{", "not_json", "metadata"),
        (b"", "not_json", "metadata"),
        (b"1 2", "not_json", "metadata"),
    ],
)
def test_what_cannot_be_read_in_one_way_is_refused(
    raw: bytes, code: str, field: str, padding: int
) -> None:
    error = refused(b" " * padding + raw)

    assert (code, field) == (error.code, error.field)


@pytest.mark.parametrize("levels", [12, JSON_DEPTH_MAX - 1])
def test_depth_up_to_the_limit_stays(levels: int) -> None:
    raw = b"[" * levels + b"]" * levels

    assert canonical(raw) == raw


@pytest.mark.parametrize("levels", [JSON_DEPTH_MAX, 65, 128, 256, 1_100, 10_000])
def test_depth_beyond_the_limit_is_refused(levels: int) -> None:
    assert refused(b"[" * levels + b"]" * levels).code == "too_deep"
    assert refused(b'{"a":' * levels + b"1" + b"}" * levels).code == "too_deep"


def test_a_cached_value_is_refused_where_it_stands_deeper() -> None:
    raw = b"[" * 30 + b"]" * 30

    assert canonical(raw, depth=JSON_DEPTH_MAX - 30) == raw
    assert refused(raw, depth=JSON_DEPTH_MAX - 29).code == "too_deep"


def test_wide_values_of_many_brackets_stay() -> None:
    raw = b"[" + b",".join([b"[]"] * 10_000) + b"]"

    assert canonical(raw) == raw


def test_the_same_value_met_again_gives_the_same() -> None:
    raw = b'{ "town": "San Jos\\u00e9" }'

    assert canonical(raw) == canonical(raw) == '{"town":"San José"}'.encode()
