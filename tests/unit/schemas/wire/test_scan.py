"""The scan names what is wrong, where it is wrong, and never recurses."""

import json

import pytest

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.limits import JSON_DEPTH_MAX
from turnstate.schemas.wire.scan import PATH_LETTERS_MAX, is_too_deep, scan


def refused(raw: bytes, *, field: str = "", depth: int = 0) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        scan(raw, field=field, depth=depth)
    return caught.value


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b"[]",
        b' \t\r\n{ "a" : [ 1 , -0 , 1.5e-3 , true , false , null ] } ',
        b'"\\ud83d\\ude00 \\\\ud83d \\" \\/ \\b\\f\\n\\r\\t \\u0000"',
        b"1" * 5000,
        b"-1e-999",
        b'{"":{"":1}}',
        "{“a”}".encode().join([b'"', b'"']),
    ],
)
def test_what_json_allows_is_let_through(raw: bytes) -> None:
    scan(raw)


@pytest.mark.parametrize(
    ("raw", "code", "field"),
    [
        (b'{"a":{"b":[0,{"c":1e999}]}}', "number", "a.b[1].c"),
        (b'{"a":-1e999}', "number", "a"),
        (b'{"a":[NaN]}', "number", "a[0]"),
        (b'{"a":Infinity}', "number", "a"),
        (b'{"a":-Infinity}', "number", "a"),
        (b'{"a":{"x":1,"y":2,"x":3}}', "doubled_key", "a.x"),
        (b'{"a":1,"\\u0061":2}', "doubled_key", "a"),
        (b'[{"k":1},{"k":1,"k":2}]', "doubled_key", "[1].k"),
        (b'{"a":"\\ud83d"}', "lone_surrogate", "a"),
        (b'{"a":"\\ude00"}', "lone_surrogate", "a"),
        (b'{"a":"\\ud83d\\u0041"}', "lone_surrogate", "a"),
        (b'{"a":"\\ud83d\\ud83d\\ude00"}', "lone_surrogate", "a"),
        (b'{"a":"\\ud83d\\\\ude00"}', "lone_surrogate", "a"),
        (b'{"a":"\xed\xa0\xbd"}', "lone_surrogate", "a"),
        (b'{"a":{"\\ud83d":1}}', "lone_surrogate", "a"),
        (b'{"a":"\xff"}', "not_utf8", "a"),
        (b'{"a":"\xc3"}', "not_utf8", "a"),
        (b'{"a":"\xc0\xaf"}', "not_utf8", "a"),
        (b'{"a":"x\ny"}', "not_json", "a"),
        (b'{"a":"x\x00y"}', "not_json", "a"),
        (b'{"a":"\\x41"}', "not_json", "a"),
        (b'{"a":"\\u12"}', "not_json", "a"),
        (b'{"a":01}', "not_json", "a"),
        (b'{"a":1.}', "not_json", "a"),
        (b'{"a":+1}', "not_json", "a"),
        (b'{"a":.5}', "not_json", "a"),
        (b'{"a":0x10}', "not_json", "a"),
        (b'{"a":tru}', "not_json", "a"),
        (b'{"a":1,}', "not_json", None),
        (b"[1,]", "not_json", "[1]"),
        (b'{"a" 1}', "not_json", "a"),
        (b"{a:1}", "not_json", None),
        (b"{'a':1}", "not_json", None),
        (b'{"a":1} {"b":2}', "not_json", None),
        (b'{"a":1}]', "not_json", None),
        (b'{"a":[1}', "not_json", "a[0]"),
        (b'{"a":"open', "not_json", "a"),
        (b'{"a":', "not_json", "a"),
        (b"", "not_json", None),
        (b"   ", "not_json", None),
        (b"\xef\xbb\xbf{}", "not_json", None),
        (b"\x00", "not_json", None),
    ],
)
def test_the_code_and_the_place_are_named(
    raw: bytes, code: str, field: str | None
) -> None:
    error = refused(raw)

    assert (code, field) == (error.code, error.field)
    assert error.hint


@pytest.mark.parametrize("levels", [12, 63, JSON_DEPTH_MAX])
def test_depth_up_to_the_limit_is_let_through(levels: int) -> None:
    scan(b"[" * levels + b"]" * levels)
    scan(b'{"a":' * levels + b"1" + b"}" * levels)


@pytest.mark.parametrize("levels", [JSON_DEPTH_MAX + 1, 127, 255, 1_100, 10_000, 10**6])
def test_depth_beyond_the_limit_is_refused_whatever_it_is(levels: int) -> None:
    assert refused(b"[" * levels + b"]" * levels).code == "too_deep"
    assert refused(b'{"a":' * levels).code == "too_deep"


def test_what_stands_around_a_value_counts_as_depth() -> None:
    scan(b"[[1]]", depth=JSON_DEPTH_MAX - 2)

    assert refused(b"[[1]]", depth=JSON_DEPTH_MAX - 1).code == "too_deep"


def test_many_brackets_that_are_not_deep_are_let_through() -> None:
    scan(b"[" + b",".join([b"[]"] * 1_000) + b"]")
    scan(b'"' + b"[{" * 1_000 + b'"')


def test_the_field_stands_before_the_path() -> None:
    assert refused(b'{"a":[NaN]}', field="metadata").field == "metadata.a[0]"
    assert refused(b"NaN", field="metadata").field == "metadata"


def test_a_long_path_is_cut() -> None:
    raw = json.dumps({"k" * 5_000: {"x": 1}}).replace("1", "NaN").encode()

    field = refused(raw).field

    assert field is not None
    assert len(field) <= PATH_LETTERS_MAX + 1


def test_a_million_bytes_are_scanned_in_the_time_of_a_blink() -> None:
    scan(b'["' + b"x" * 1_000_000 + b'"]')
    scan(b"[" + b"9" * 1_000_000 + b"]")
    scan(b"[1." + b"9" * 100_000 + b"]")


@pytest.mark.parametrize("levels", [1, 63, 64, 65, 127, 10_000])
def test_the_quick_look_at_depth_agrees(levels: int) -> None:
    for raw in (
        b"[" * levels + b"]" * levels,
        b'{"a":' * levels + b"1" + b"}" * levels,
        b"[[],[{}]," * levels + b"1" + b"]" * levels,
        b'["]]",' * levels + b'"\\"]"' + b"]" * levels,
    ):
        deepest = levels + 2 * raw.startswith(b"[[]")
        assert is_too_deep(raw) == (deepest > JSON_DEPTH_MAX)
        assert is_too_deep(raw, depth=3) == (deepest + 3 > JSON_DEPTH_MAX)


def test_brackets_in_strings_are_no_depth() -> None:
    assert not is_too_deep(b'"' + b"[{" * 100 + b'\\"' + b"[" * 100 + b'"')
