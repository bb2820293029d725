"""A line that cannot be read is refused with the field named."""

import msgspec
import pytest

from turnstate.replay.readers.faults import refuse_ambiguous, refused
from turnstate.schemas.errors import InvalidInputError


def fault_of(line: bytes, kind: object) -> Exception:
    try:
        msgspec.json.decode(line, type=kind)
    except (ValueError, RecursionError) as fault:
        return fault
    raise AssertionError("it decodes")


@pytest.mark.parametrize(
    ("line", "field", "code"),
    [
        (b'{"a": {"b": "\\ud83d"}}', "a.b", "lone_surrogate"),
        (b'{"a": NaN}', "a", "number"),
        (b"[" * 100_000, None, "too_deep"),
        (b'{"a": ', "a", "not_json"),
        (b'{"a": "\xff"}', "a", "not_utf8"),
        (b'{"a": 1}', None, "invalid"),
        (b"1", None, "not_json"),
    ],
)
def test_the_first_fault_is_named(line: bytes, field: str | None, code: str) -> None:
    error = refused(line, fault_of(line, dict[str, str]))

    assert (error.field, error.code) == (field, code) or (
        code == "too_deep" and error.code == code
    )


@pytest.mark.parametrize(
    "line",
    [
        b'{"a": 1, "a": 1}',
        b'{"a": {"b": [{"c": 1, "\\u0063": 2}]}}',
        b'{"x":' + b"[" * 70 + b"]" * 70 + b"}",
        b'{"a": [' + b"{}," * 100 + b'{"k":1,"k":2}]}',
    ],
)
def test_what_reads_two_ways_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidInputError) as caught:
        refuse_ambiguous(line)

    assert caught.value.code in ("doubled_key", "too_deep")


def test_long_integers_and_many_brackets_are_no_fault() -> None:
    refuse_ambiguous(b'{"a": ' + b"9" * 5000 + b"}")
    refuse_ambiguous(b'{"a": [' + b"{}," * 100 + b"{}]}")
