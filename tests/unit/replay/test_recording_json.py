"""A recording and its JSON lines say the same, to the byte of each record."""

import gzip
import json
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.spoken import said
from turnstate.replay.readers import Refusal
from turnstate.replay.recording import (
    RecordedErasure,
    RecordedItem,
    RecordedOperation,
    write_recording,
)
from turnstate.replay.recording_json import (
    item_from_json,
    json_line,
    read_items,
    write_json_lines,
)
from turnstate.schemas.errors import CorruptDataError, InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import Op

NAME = SessionName("t", "s/中")
CALLS = b'[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]'


def some_ops() -> list[Op]:
    return [
        said("a1", content="你好 \0 \\\\", turn_id="1"),
        said("a2", "a1", content=None, tool_calls=CALLS, role="assistant"),
        said("b1", "a1", "a2", parts=b'[{"type":"text","text":"x"}]', branch="b"),
        said("b2", "b1", slot_set={"n": b"123456789012345678901"}, slot_delete=["m"]),
        said("a3", "a2", tag_add=["x"], usage={"tokens": -3}, metadata=b'{"k":[1.5]}'),
        said("a4", op="edit", target="@a:1", content="new"),
        said("a5", op="redact", target="1"),
        said("a6", op="end", to="next"),
        said("b3", "b2", op="rollback", to={"a": 1}),
        said("b4", seen={"a": (1, 2, 4, 4)}, extra={"mood": b'"calm"'}),
        said("a7", "a1", content="secret", turn_id="7").stub(),
    ]


def some_items() -> list[RecordedItem]:
    return [
        *(RecordedOperation.of(NAME, op) for op in some_ops()),
        RecordedErasure(NAME, 3),
    ]


def test_lines_are_read_back_to_the_same_records() -> None:
    items = some_items()
    file = BytesIO()

    assert write_json_lines(file, items) == len(items)

    assert list(read_items(BytesIO(file.getvalue()))) == items
    assert list(read_items(BytesIO(gzip.compress(file.getvalue())))) == items


def test_lines_are_turns_with_addresses_as_parents() -> None:
    line = json.loads(json_line(RecordedOperation.of(NAME, some_ops()[2])))

    assert line["parent"] == ["@a:1", "@a:2"]
    assert line["stamp"]["dot"] == ["b", 1]
    assert (line["tenant"], line["session"]) == NAME


def test_either_form_is_known_by_its_first_byte(tmp_path: Path) -> None:
    items = some_items()
    binary, text = tmp_path / "one", tmp_path / "two"
    with binary.open("wb") as file:
        write_recording(file, items)
    with text.open("wb") as file:
        write_json_lines(file, items)

    assert list(read_items(binary)) == list(read_items(str(text))) == items
    for path in (binary, text):
        with path.open("rb") as file:
            assert list(read_items(file)) == items
            assert not file.closed
        stream = BytesIO(path.read_bytes())
        assert list(read_items(stream)) == items
        assert not stream.closed


def test_a_bad_line_is_refused_and_the_rest_read() -> None:
    good = json_line(some_items()[0])
    unstamped = b'{"tenant":"t","session":"s","role":"user"}'
    erase = b'{"tenant":"t","session":"s","role":"system","op":"erase"}'

    first, second, third, fourth = read_items(
        BytesIO(b"\n".join([unstamped, erase, b"oh", good]))
    )

    assert isinstance(first, Refusal)
    assert isinstance(second, Refusal)
    assert isinstance(third, Refusal)
    assert (first.line, first.field, first.raw) == (1, "stamp", unstamped)
    assert (second.line, second.field) == (2, "incarnation")
    assert third.line == 3
    assert fourth == some_items()[0]


@pytest.mark.parametrize(
    "content", [b"\x89PNG\r\n", b"\x89TSREC\r\n", b"\x89TSREC\r\n\1\0\0\0\0\0\0\0"]
)
def test_a_damaged_recording_is_not_taken_for_lines(content: bytes) -> None:
    with pytest.raises(CorruptDataError):
        list(read_items(BytesIO(content)))


@pytest.mark.parametrize("name", ["absent", "words.txt", "no.gz"])
def test_a_file_of_something_else_is_refused_whole(tmp_path: Path, name: str) -> None:
    if name != "absent":
        (tmp_path / name).write_bytes(b"plain words")

    with pytest.raises(InvalidInputError) as caught:
        list(read_items(tmp_path / name))

    assert caught.value.code == "unreadable_file"


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_nothing_else(garbage: bytes) -> None:
    with pytest.raises(InvalidInputError):
        item_from_json(garbage)
