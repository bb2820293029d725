"""Tool calls keep their arguments as the string that the model wrote."""

import pytest

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.wire.tool_calls import read_tool_calls, unparsable_calls


def test_arguments_are_never_parsed() -> None:
    raw = '[{"id":"c","function":{"name":"f","arguments":"{“a”:1}"}}]'.encode()

    (call,) = read_tool_calls(raw)

    assert call.function
    assert call.function.arguments == "{“a”:1}"
    assert unparsable_calls(raw) == [0]


def test_calls_that_parse_are_not_marked() -> None:
    raw = b'[{"function":{"arguments":"{\\"a\\":1}"}},{"function":{"arguments":""}}]'

    assert unparsable_calls(raw) == [1]


def test_calls_of_another_type_have_a_form_of_their_own() -> None:
    raw = b'[{"id":"c","type":"custom","custom":{"name":"f","input":"x"}}]'

    assert [call.id for call in read_tool_calls(raw)] == ["c"]
    assert unparsable_calls(raw) == []


def test_no_calls_are_no_calls() -> None:
    assert read_tool_calls(b"[]") == []


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"{}", "tool_calls"),
        (b"7", "tool_calls"),
        (b"[7]", "tool_calls[0]"),
        (b"[{}]", "tool_calls[0].function"),
        (b'[{"type":"function"}]', "tool_calls[0].function"),
        (b'[{"function":7}]', "tool_calls[0].function"),
        (b'[{"function":null}]', "tool_calls[0].function"),
        (b'[{"function":{"name":"f"}}]', "tool_calls[0].function.arguments"),
        (b'[{"function":{"arguments":{}}}]', "tool_calls[0].function.arguments"),
        (b'[{"function":{"arguments":null}}]', "tool_calls[0].function.arguments"),
        (b'[{"function":{"arguments":"","name":7}}]', "tool_calls[0].function.name"),
        (b'[{"id":7,"function":{"arguments":""}}]', "tool_calls[0].id"),
        (b'[{"id":%s}]' % (b"9" * 5000), "tool_calls[0].id"),
        (
            b'[{"function":{"arguments":""}},{"type":[],"function":{"arguments":""}}]',
            "tool_calls[1].type",
        ),
    ],
)
def test_the_place_at_fault_is_named(raw: bytes, field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_tool_calls(raw)

    assert caught.value.field == field
